//! What a plugin may ask of the host.

use crate::wire::{Malformed, Reader, Value, Writer};
use alloc::string::String;
use alloc::vec::Vec;

#[cfg(target_arch = "wasm32")]
mod import {
    #[link(wasm_import_module = "fencepost.io/v1")]
    extern "C" {
        pub fn input_read(at: *mut u8, size: u32) -> u32;
        pub fn output_write(at: *const u8, size: u32);
    }
    #[link(wasm_import_module = "fencepost.http/v1")]
    extern "C" {
        #[link_name = "send"]
        pub fn http_send(at: *const u8, size: u32) -> i32;
        #[link_name = "receive"]
        pub fn http_receive(at: *mut u8, size: u32) -> u32;
    }
    #[link(wasm_import_module = "fencepost.append/v1")]
    extern "C" {
        #[link_name = "send"]
        pub fn append_send(at: *const u8, size: u32) -> i32;
        #[link_name = "receive"]
        pub fn append_receive(at: *mut u8, size: u32) -> u32;
    }
    #[link(wasm_import_module = "fencepost.log/v1")]
    extern "C" {
        #[link_name = "write"]
        pub fn log_write(level: i32, at: *const u8, size: u32);
    }
    #[link(wasm_import_module = "fencepost.clock/v1")]
    extern "C" {
        #[link_name = "now"]
        pub fn clock_now() -> i64;
    }
    #[link(wasm_import_module = "fencepost.random/v1")]
    extern "C" {
        #[link_name = "read"]
        pub fn random_read(at: *mut u8, size: u32);
    }
}

/// Elsewhere than in Wasm there is no host, so that tests of a plugin can run.
#[cfg(not(target_arch = "wasm32"))]
#[allow(clippy::missing_safety_doc)]
mod import {
    pub unsafe fn input_read(_: *mut u8, _: u32) -> u32 {
        0
    }
    pub unsafe fn output_write(_: *const u8, _: u32) {}
    pub unsafe fn http_send(_: *const u8, _: u32) -> i32 {
        -1
    }
    pub unsafe fn http_receive(_: *mut u8, _: u32) -> u32 {
        0
    }
    pub unsafe fn append_send(_: *const u8, _: u32) -> i32 {
        -1
    }
    pub unsafe fn append_receive(_: *mut u8, _: u32) -> u32 {
        0
    }
    pub unsafe fn log_write(_: i32, _: *const u8, _: u32) {}
    pub unsafe fn clock_now() -> i64 {
        0
    }
    pub unsafe fn random_read(_: *mut u8, _: u32) {}
}

fn filled(n: usize, read: impl FnOnce(*mut u8, u32) -> u32) -> Vec<u8> {
    let mut out = alloc::vec![0; n];
    let got = read(out.as_mut_ptr(), n as u32) as usize;
    out.truncate(got);
    out
}

/// The request of this call. For [`serve!`](crate::serve).
pub fn input(length: i32) -> Vec<u8> {
    filled(length.max(0) as usize, |at, n| unsafe { import::input_read(at, n) })
}

/// Hands the answer over. For [`serve!`](crate::serve).
pub fn output(answer: &[u8]) {
    unsafe { import::output_write(answer.as_ptr(), answer.len() as u32) }
}

/// Writes a line to the host's log; levels are -4, 0, 4 and 8.
pub fn log(level: i32, line: &str) {
    unsafe { import::log_write(level, line.as_ptr(), line.len() as u32) }
}

/// Microseconds since 1970-01-01 UTC. Never make a key of it.
pub fn now() -> i64 {
    unsafe { import::clock_now() }
}

/// Fills a slice from the system's source. Never make a key of it.
pub fn random(to: &mut [u8]) {
    unsafe { import::random_read(to.as_mut_ptr(), to.len() as u32) }
}

/// One HTTP request.
#[derive(Debug, Default, Clone, Copy)]
pub struct Request<'a> {
    pub method: &'a str,
    /// Absolute, https.
    pub url: &'a str,
    pub headers: &'a [(&'a str, &'a str)],
    pub body: &'a [u8],
    /// Ids of the items that it reports.
    pub items: &'a [&'a str],
    /// Names of secrets whose values the host adds.
    pub secrets: &'a [&'a str],
    /// "region/service", of a secret that signs for AWS.
    pub signing_scope: &'a str,
}

/// Why an answer is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    None,
    /// No byte left the machine.
    NotSent,
    /// Something was sent, and no whole answer came back.
    Unknown,
}

/// The answer to one request.
#[derive(Debug, Clone)]
pub struct Answer {
    pub failure: Failure,
    pub reason: String,
    pub status: i64,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    /// The first header of that name, or "".
    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map_or("", |(_, v)| v)
    }

    fn failed(failure: Failure, reason: &str) -> Self {
        Answer { failure, reason: reason.into(), status: 0, headers: Vec::new(), body: Vec::new() }
    }

    fn decode(message: &[u8]) -> Result<Self, Malformed> {
        let mut a = Answer::failed(Failure::None, "");
        let mut r = Reader::new(message);
        while let Some(field) = r.next()? {
            match field {
                (1, Value::Number(n)) => {
                    a.failure = match n {
                        0 => Failure::None,
                        1 => Failure::NotSent,
                        _ => Failure::Unknown,
                    }
                }
                (2, Value::Bytes(b)) => a.reason = String::from_utf8_lossy(b).into_owned(),
                (3, Value::Number(n)) => a.status = n as i64,
                (4, Value::Bytes(b)) => a.headers.push(pair(b)?),
                (5, Value::Bytes(b)) => a.body = b.to_vec(),
                _ => {}
            }
        }
        Ok(a)
    }
}

fn pair(message: &[u8]) -> Result<(String, String), Malformed> {
    let mut out = (String::new(), String::new());
    let mut r = Reader::new(message);
    while let Some(field) = r.next()? {
        match field {
            (1, Value::Bytes(b)) => out.0 = String::from_utf8_lossy(b).into_owned(),
            (2, Value::Bytes(b)) => out.1 = String::from_utf8_lossy(b).into_owned(),
            _ => {}
        }
    }
    Ok(out)
}

/// Requests that are sent together.
#[derive(Debug, Default)]
pub struct Batch {
    message: Writer,
    count: usize,
}

impl Batch {
    pub fn push(&mut self, r: &Request) {
        self.count += 1;
        self.message.message(1, |w| {
            w.string(1, r.method);
            w.string(2, r.url);
            for (name, value) in r.headers {
                w.message(3, |w| {
                    w.string(1, name);
                    w.string(2, value);
                });
            }
            if !r.body.is_empty() {
                w.bytes(4, r.body);
            }
            w.strings(5, r.items);
            w.strings(6, r.secrets);
            w.string(7, r.signing_scope);
        });
    }

    /// Sends the requests and returns an answer for each, in order. Where the host
    /// refused the batch, each was not sent; where its answers are unreadable, each
    /// is unknown, because they may have been sent.
    pub fn send(self) -> Vec<Answer> {
        if self.count == 0 {
            return Vec::new();
        }
        let batch = &self.message.0;
        let size = unsafe { import::http_send(batch.as_ptr(), batch.len() as u32) };
        if size < 0 {
            return alloc::vec![Answer::failed(Failure::NotSent, "batch_refused"); self.count];
        }
        let answers = filled(size as usize, |at, n| unsafe { import::http_receive(at, n) });
        match decode(&answers) {
            Ok(Some(list)) if list.len() == self.count => list,
            Ok(None) => alloc::vec![Answer::failed(Failure::NotSent, "batch_refused"); self.count],
            _ => alloc::vec![Answer::failed(Failure::Unknown, "answers_lost"); self.count],
        }
    }
}

/// The answers, or None if the host refused the batch.
fn decode(message: &[u8]) -> Result<Option<Vec<Answer>>, Malformed> {
    let (mut list, mut refused) = (Vec::new(), false);
    let mut r = Reader::new(message);
    while let Some(field) = r.next()? {
        match field {
            (1, Value::Bytes(b)) => list.push(Answer::decode(b)?),
            (2, Value::Bytes(b)) => {
                pair(b)?;
                refused = true;
            }
            _ => {}
        }
    }
    Ok(if refused { None } else { Some(list) })
}

/// The answer to one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    pub failure: Failure,
    pub reason: String,
    /// A line with this identifier was there.
    pub earlier: bool,
    /// Of its line, from 1.
    pub sequence: i64,
}

impl Appended {
    fn failed(failure: Failure, reason: &str) -> Self {
        Appended { failure, reason: reason.into(), earlier: false, sequence: 0 }
    }

    fn decode(message: &[u8]) -> Result<Self, Malformed> {
        let mut a = Appended::failed(Failure::None, "");
        let mut r = Reader::new(message);
        while let Some(field) = r.next()? {
            match field {
                (1, Value::Number(n)) => {
                    a.failure = match n {
                        0 => Failure::None,
                        1 => Failure::NotSent,
                        _ => Failure::Unknown,
                    }
                }
                (2, Value::Bytes(b)) => a.reason = String::from_utf8_lossy(b).into_owned(),
                (3, Value::Number(n)) => a.earlier = n != 0,
                (4, Value::Number(n)) => a.sequence = n as i64,
                _ => {}
            }
        }
        Ok(a)
    }
}

/// Records that are appended together, to the file that the operator named.
#[derive(Debug, Default)]
pub struct Records {
    message: Writer,
    count: usize,
}

impl Records {
    /// Adds one JSON object about an item.
    pub fn push(&mut self, item: &crate::Item, json: &[u8]) {
        self.count += 1;
        self.message.message(1, |w| {
            w.string(1, item.id);
            w.string(2, item.identifier);
            w.flag(3, item.attempt > 1);
            if !json.is_empty() {
                w.bytes(4, json);
            }
        });
    }

    /// Appends the records and returns an answer for each, in order, as
    /// [`Batch::send`] does.
    pub fn append(self) -> Vec<Appended> {
        if self.count == 0 {
            return Vec::new();
        }
        let batch = &self.message.0;
        let size = unsafe { import::append_send(batch.as_ptr(), batch.len() as u32) };
        if size < 0 {
            return alloc::vec![Appended::failed(Failure::NotSent, "batch_refused"); self.count];
        }
        let answers = filled(size as usize, |at, n| unsafe { import::append_receive(at, n) });
        match appended(&answers) {
            Ok(Some(list)) if list.len() == self.count => list,
            Ok(None) => alloc::vec![Appended::failed(Failure::NotSent, "batch_refused"); self.count],
            _ => alloc::vec![Appended::failed(Failure::Unknown, "answers_lost"); self.count],
        }
    }
}

fn appended(message: &[u8]) -> Result<Option<Vec<Appended>>, Malformed> {
    let (mut list, mut refused) = (Vec::new(), false);
    let mut r = Reader::new(message);
    while let Some(field) = r.next()? {
        match field {
            (1, Value::Bytes(b)) => list.push(Appended::decode(b)?),
            (2, Value::Bytes(b)) => {
                pair(b)?;
                refused = true;
            }
            _ => {}
        }
    }
    Ok(if refused { None } else { Some(list) })
}
