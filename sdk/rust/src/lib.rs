//! Fencepost plugins in Rust, without dependencies and without `std`.
//!
//! An exporter implements [`Exporter`] and says [`serve!`]. Build it with
//!
//! ```text
//! cargo build --release --target wasm32-unknown-unknown
//! ```
//!
//! as a `cdylib`. The messages are in `plugins/sdk/wire/v1/fencepost.proto`, the
//! interface in `docs/wasm-abi.md`. A plugin imports only the capabilities whose
//! functions it calls. A panic traps, and the host throws the instance away.
#![no_std]
#![deny(missing_debug_implementations)]

extern crate alloc;

pub mod host;
pub mod json;
mod message;
pub mod wire;

pub use message::*;

use alloc::vec::Vec;
use wire::Writer;

/// An exporter. The host calls describe, then configure once, then deliver any
/// number of times, never two at once.
pub trait Exporter: Default {
    /// Always answers the same and uses no capability.
    fn describe(&self) -> Manifest<'static>;
    /// Takes the operator's settings, or fails with [`Error::invalid`].
    fn configure(&mut self, c: &Configuration) -> Result<(), Error>;
    /// Answers one outcome for each item. Problems of the provider are outcomes.
    fn deliver<'a>(&mut self, items: &[Item<'a>]) -> Result<Vec<Outcome<'a>>, Error>;
    /// Answers one sum for each question, in order; of exporters whose manifest
    /// has `read_back`.
    fn probe(&mut self, _: &[Question]) -> Result<Vec<Sum>, Error> {
        Err(Error::unknown_method())
    }
    /// Says what a message of the provider says; of exporters whose manifest has
    /// `webhook`. The host has verified the signature. The same message always
    /// means the same.
    fn webhook(&mut self, _: &Message) -> Result<Report, Error> {
        Err(Error::unknown_method())
    }
}

/// Answers one call: the status and the output.
pub fn dispatch<E: Exporter>(plugin: &mut E, method: i32, request: &[u8]) -> (i32, Vec<u8>) {
    match answer(plugin, method, request) {
        Ok(out) => (0, out),
        Err(e) => (1, e.encode()),
    }
}

fn answer<E: Exporter>(plugin: &mut E, method: i32, request: &[u8]) -> Result<Vec<u8>, Error> {
    let mut out = Writer::default();
    match method {
        1 => out.message(1, |w| plugin.describe().encode(w)),
        2 => plugin.configure(&Configuration::decode(request)?)?,
        3 => {
            for outcome in plugin.deliver(&decode_items(request)?)? {
                out.message(1, |w| outcome.encode(w));
            }
        }
        4 => {
            for sum in plugin.probe(&decode_questions(request)?)? {
                out.message(1, |w| sum.encode(w));
            }
        }
        5 => plugin.webhook(&Message::decode(request)?)?.encode(&mut out),
        6 => {}
        _ => return Err(Error::unknown_method()),
    }
    Ok(out.0)
}

/// Makes the module's exports for one type of exporter.
#[macro_export]
macro_rules! serve {
    ($exporter:ty) => {
        #[no_mangle]
        pub extern "C" fn fp_abi_v1() {}

        #[no_mangle]
        pub extern "C" fn fp_call(method: i32, length: i32) -> i32 {
            static mut PLUGIN: Option<$exporter> = None;
            // An instance has one thread, and the host never enters it twice.
            let plugin = unsafe { &mut *core::ptr::addr_of_mut!(PLUGIN) };
            let request = $crate::host::input(length);
            let (status, output) = $crate::dispatch(plugin.get_or_insert_with(Default::default), method, &request);
            $crate::host::output(&output);
            status
        }
    };
}
