//! The messages of an exporter.

use crate::wire::{text, Malformed, Reader, Value, Writer};
use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

/// What a caller may do about a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tag {
    Invalid = 1,
    Conflict,
    Unavailable,
    Unsupported,
    NotFound,
}

/// The failure of a whole call.
#[derive(Debug, Clone, Copy)]
pub struct Error {
    pub tag: Tag,
    /// Narrows the tag, in snake_case.
    pub code: &'static str,
    /// The offending input by its name.
    pub field: &'static str,
    /// The rule that it broke, as a phrase.
    pub rule: &'static str,
}

impl Error {
    pub fn invalid(field: &'static str, rule: &'static str) -> Self {
        Error { tag: Tag::Invalid, code: "", field, rule }
    }

    pub fn unknown_method() -> Self {
        Error {
            tag: Tag::Unsupported,
            code: "unknown_method",
            field: "",
            rule: "a method that this exporter implements",
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.number(1, self.tag as i64);
        w.string(2, self.code);
        w.string(3, self.field);
        w.string(4, self.rule);
        w.0
    }
}

impl From<Malformed> for Error {
    fn from(_: Malformed) -> Self {
        Error { tag: Tag::Invalid, code: "malformed_message", field: "", rule: "" }
    }
}

/// What the operator set.
#[derive(Debug, Default, Clone, Copy)]
pub struct Configuration<'a> {
    pub name: &'a str,
    pub account: &'a str,
    /// "test" or "live".
    pub mode: &'a str,
    /// Empty: the provider's own.
    pub base_url: &'a str,
    /// A JSON object, or empty.
    pub settings: &'a [u8],
}

impl<'a> Configuration<'a> {
    pub(crate) fn decode(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut c = Configuration::default();
        let mut r = Reader::new(message);
        while let Some(field) = r.next()? {
            match field {
                (1, Value::Bytes(b)) => c.name = text(b)?,
                (2, Value::Bytes(b)) => c.account = text(b)?,
                (3, Value::Bytes(b)) => c.mode = text(b)?,
                (4, Value::Bytes(b)) => c.base_url = text(b)?,
                (5, Value::Bytes(b)) => c.settings = b,
                _ => {}
            }
        }
        Ok(c)
    }
}

/// How a correction is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Correction {
    Unknown,
    None,
    Cancel,
    Negative,
    ReplaceTotal,
}

/// What a correction takes back.
#[derive(Debug, Clone, Copy)]
pub struct Corrects<'a> {
    pub method: Correction,
    /// With which the original was sent.
    pub identifier: &'a str,
    pub value: &'a str,
}

/// One thing to report. Times are microseconds since 1970-01-01 UTC.
#[derive(Debug, Default, Clone)]
pub struct Item<'a> {
    pub id: &'a str,
    /// The provider's idempotency key.
    pub identifier: &'a str,
    pub attempt: i64,
    pub kind: &'a str,
    pub account: &'a str,
    pub mode: &'a str,
    pub customer: &'a str,
    pub feature: &'a str,
    /// An exact decimal. Send it as it is: a float would change it.
    pub value: &'a str,
    pub timestamp: i64,
    pub period_start: i64,
    pub period_end: i64,
    pub mapping: Vec<(&'a str, &'a str)>,
    pub corrects: Option<Corrects<'a>>,
}

impl<'a> Item<'a> {
    /// The value of a key of the mapping, or "".
    pub fn mapped(&self, key: &str) -> &'a str {
        self.mapping.iter().rev().find(|(k, _)| *k == key).map_or("", |(_, v)| v)
    }

    /// The timestamp, rounded down.
    pub fn seconds(&self) -> i64 {
        self.timestamp.div_euclid(1_000_000)
    }

    fn decode(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut it = Item::default();
        let mut r = Reader::new(message);
        while let Some(field) = r.next()? {
            match field {
                (1, Value::Bytes(b)) => it.id = text(b)?,
                (2, Value::Bytes(b)) => it.identifier = text(b)?,
                (3, Value::Number(n)) => it.attempt = n as i64,
                (4, Value::Bytes(b)) => it.kind = text(b)?,
                (5, Value::Bytes(b)) => it.account = text(b)?,
                (6, Value::Bytes(b)) => it.mode = text(b)?,
                (7, Value::Bytes(b)) => it.customer = text(b)?,
                (8, Value::Bytes(b)) => it.feature = text(b)?,
                (9, Value::Bytes(b)) => it.value = text(b)?,
                (10, Value::Number(n)) => it.timestamp = n as i64,
                (11, Value::Number(n)) => it.period_start = n as i64,
                (12, Value::Number(n)) => it.period_end = n as i64,
                (13, Value::Bytes(b)) => it.mapping.push(entry(b)?),
                (14, Value::Bytes(b)) => it.corrects = Some(corrects(b)?),
                _ => {}
            }
        }
        Ok(it)
    }
}

fn entry(message: &[u8]) -> Result<(&str, &str), Malformed> {
    let mut out = ("", "");
    let mut r = Reader::new(message);
    while let Some(field) = r.next()? {
        match field {
            (1, Value::Bytes(b)) => out.0 = text(b)?,
            (2, Value::Bytes(b)) => out.1 = text(b)?,
            _ => {}
        }
    }
    Ok(out)
}

fn corrects(message: &[u8]) -> Result<Corrects<'_>, Malformed> {
    let mut c = Corrects { method: Correction::Unknown, identifier: "", value: "" };
    let mut r = Reader::new(message);
    while let Some(field) = r.next()? {
        match field {
            (1, Value::Number(n)) => {
                c.method = match n {
                    1 => Correction::None,
                    2 => Correction::Cancel,
                    3 => Correction::Negative,
                    4 => Correction::ReplaceTotal,
                    _ => Correction::Unknown,
                }
            }
            (2, Value::Bytes(b)) => c.identifier = text(b)?,
            (3, Value::Bytes(b)) => c.value = text(b)?,
            _ => {}
        }
    }
    Ok(c)
}

pub(crate) fn decode_items(message: &[u8]) -> Result<Vec<Item<'_>>, Malformed> {
    let mut out = Vec::new();
    let mut r = Reader::new(message);
    while let Some(field) = r.next()? {
        if let (1, Value::Bytes(b)) = field {
            out.push(Item::decode(b)?);
        }
    }
    Ok(out)
}

/// Asks for the sum of one customer's usage in `[from, to)`, in microseconds.
#[derive(Debug, Default, Clone)]
pub struct Question<'a> {
    pub customer: &'a str,
    pub feature: &'a str,
    pub mapping: Vec<(&'a str, &'a str)>,
    pub from: i64,
    pub to: i64,
}

impl<'a> Question<'a> {
    /// The value of a key of the mapping, or "".
    pub fn mapped(&self, key: &str) -> &'a str {
        self.mapping.iter().rev().find(|(k, _)| *k == key).map_or("", |(_, v)| v)
    }

    fn decode(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut q = Question::default();
        let mut r = Reader::new(message);
        while let Some(field) = r.next()? {
            match field {
                (1, Value::Bytes(b)) => q.customer = text(b)?,
                (2, Value::Bytes(b)) => q.feature = text(b)?,
                (3, Value::Bytes(b)) => q.mapping.push(entry(b)?),
                (4, Value::Number(n)) => q.from = n as i64,
                (5, Value::Number(n)) => q.to = n as i64,
                _ => {}
            }
        }
        Ok(q)
    }
}

pub(crate) fn decode_questions(message: &[u8]) -> Result<Vec<Question<'_>>, Malformed> {
    let mut out = Vec::new();
    let mut r = Reader::new(message);
    while let Some(field) = r.next()? {
        if let (1, Value::Bytes(b)) = field {
            out.push(Question::decode(b)?);
        }
    }
    Ok(out)
}

/// Answers one question. An empty sum says that the provider did not say, which
/// is not zero; the code tells why.
#[derive(Debug, Default, Clone)]
pub struct Sum {
    /// An exact decimal.
    pub sum: String,
    /// The provider's name for the meter.
    pub meter: String,
    pub code: String,
    pub message: String,
}

impl Sum {
    pub(crate) fn encode(&self, w: &mut Writer) {
        w.string(1, &self.sum);
        w.string(2, &self.meter);
        w.string(3, &self.code);
        w.string(4, &self.message);
    }
}

/// A message of the provider.
#[derive(Debug, Default, Clone, Copy)]
pub struct Message<'a> {
    pub body: &'a [u8],
    pub received_at: i64,
}

impl<'a> Message<'a> {
    pub(crate) fn decode(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut m = Message::default();
        let mut r = Reader::new(message);
        while let Some(field) = r.next()? {
            match field {
                (1, Value::Bytes(b)) => m.body = b,
                (2, Value::Number(n)) => m.received_at = n as i64,
                _ => {}
            }
        }
        Ok(m)
    }
}

/// What a message says of items.
#[derive(Debug, Default, Clone)]
pub struct Report {
    /// The provider's name for the message.
    pub id: String,
    pub evidence: Vec<Evidence>,
    /// Items that it concerns, if it does not name all; 0: unknown.
    pub counted: i64,
    pub code: String,
}

/// What a message says of the item that was sent with this identifier.
#[derive(Debug, Default, Clone)]
pub struct Evidence {
    pub identifier: String,
    /// Not counted after all.
    pub refused: bool,
    pub code: String,
    pub message: String,
}

impl Report {
    pub(crate) fn encode(&self, w: &mut Writer) {
        w.string(1, &self.id);
        for e in &self.evidence {
            w.message(2, |w| {
                w.string(1, &e.identifier);
                w.flag(2, e.refused);
                w.string(3, &e.code);
                w.string(4, &e.message);
            });
        }
        w.number(3, self.counted);
        w.string(4, &self.code);
    }
}

/// What became of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Accepted = 1,
    AcceptedEarlier,
    Retry,
    RateLimited,
    Rejected,
    Conflict,
    Uncertain,
}

/// Answers one item.
#[derive(Debug, Clone)]
pub struct Outcome<'a> {
    pub item: &'a str,
    pub kind: Kind,
    pub provider_ref: &'a str,
    /// Microseconds; 0: the host decides.
    pub retry_after: i64,
    pub code: Cow<'a, str>,
    pub message: Cow<'a, str>,
    pub mendable: bool,
}

impl<'a> Outcome<'a> {
    pub fn new(item: &'a str, kind: Kind, code: impl Into<Cow<'a, str>>) -> Self {
        Outcome { item, kind, provider_ref: "", retry_after: 0, code: code.into(), message: "".into(), mendable: false }
    }

    pub(crate) fn encode(&self, w: &mut Writer) {
        w.string(1, self.item);
        w.number(2, self.kind as i64);
        w.string(3, self.provider_ref);
        w.number(4, self.retry_after);
        w.string(5, &self.code);
        w.string(6, &self.message);
        w.flag(7, self.mendable);
    }
}

/// The numbers that a provider can express.
#[derive(Debug, Default, Clone, Copy)]
pub struct Values {
    /// 0: unlimited.
    pub significant_digits: i64,
    /// -1: unlimited.
    pub max_decimals: i64,
    pub negative: bool,
    pub zero: bool,
}

/// A value that the host adds to requests; the plugin only names it.
#[derive(Debug, Default, Clone, Copy)]
pub struct Secret<'a> {
    pub name: &'a str,
    pub header: &'a str,
    pub prefix: &'a str,
    pub test_prefixes: &'a [&'a str],
    pub live_prefixes: &'a [&'a str],
    pub scheme: &'a str,
}

/// How the provider can be asked for sums. Durations are microseconds.
#[derive(Debug, Default, Clone, Copy)]
pub struct ReadBack<'a> {
    /// How long a sum may lack what was accepted.
    pub lag: i64,
    /// What the bounds of a question are multiples of.
    pub granularity: i64,
    /// What settles an uncertain item.
    pub evidence: &'a [&'a str],
}

/// How the host verifies messages of the provider.
#[derive(Debug, Default, Clone, Copy)]
pub struct Signature<'a> {
    pub scheme: &'a str,
    pub header: &'a str,
    pub secret: &'a str,
    pub tolerance: i64,
}

/// What an answer means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    Duplicate = 1,
    Refused,
    Mendable,
}

/// By which the host itself recognises an answer.
#[derive(Debug, Clone, Copy)]
pub struct Pattern<'a> {
    pub class: Class,
    pub status: i64,
    /// JSON pointer into the body.
    pub path: &'a str,
    /// Exactly one of equals and contains.
    pub equals: &'a [&'a str],
    pub contains: &'a str,
}

/// What an exporter declares. Durations are microseconds.
#[derive(Debug, Default, Clone)]
pub struct Manifest<'a> {
    pub name: &'a str,
    pub version: &'a str,
    pub identifier_max_length: i64,
    pub identifier_horizon: i64,
    pub window_past: i64,
    pub window_future: i64,
    pub values: Values,
    pub max_batch: i64,
    pub rate: i64,
    pub concurrency: i64,
    pub serial_by: &'a [&'a str],
    pub corrections: Option<Correction>,
    pub capabilities: &'a [&'a str],
    pub hosts: &'a [&'a str],
    pub secrets: &'a [Secret<'a>],
    pub mapping_keys: &'a [&'a str],
    pub needs_account: bool,
    pub answers: &'a [Pattern<'a>],
    pub cancel_within: i64,
    pub read_back: Option<ReadBack<'a>>,
    pub webhook: Option<Signature<'a>>,
    /// Windows of counters only, at most one in each span of this length; 0: no
    /// such limit.
    pub every: i64,
}

impl Manifest<'_> {
    pub(crate) fn encode(&self, w: &mut Writer) {
        w.string(1, self.name);
        w.string(2, self.version);
        w.number(3, self.identifier_max_length);
        w.number(4, self.identifier_horizon);
        w.number(5, self.window_past);
        w.number(6, self.window_future);
        w.message(7, |w| {
            w.number(1, self.values.significant_digits);
            w.number(2, self.values.max_decimals);
            w.flag(3, self.values.negative);
            w.flag(4, self.values.zero);
        });
        w.number(8, self.max_batch);
        w.number(9, self.rate);
        w.number(10, self.concurrency);
        w.strings(11, self.serial_by);
        w.number(12, self.corrections.unwrap_or(Correction::None) as i64);
        w.strings(13, self.capabilities);
        w.strings(14, self.hosts);
        for s in self.secrets {
            w.message(15, |w| {
                w.string(1, s.name);
                w.string(2, s.header);
                w.string(3, s.prefix);
                w.strings(4, s.test_prefixes);
                w.strings(5, s.live_prefixes);
                w.string(6, s.scheme);
            });
        }
        w.strings(16, self.mapping_keys);
        w.flag(17, self.needs_account);
        for p in self.answers {
            w.message(18, |w| {
                w.number(1, p.class as i64);
                w.number(2, p.status);
                w.string(3, p.path);
                w.strings(4, p.equals);
                w.string(5, p.contains);
            });
        }
        w.number(19, self.cancel_within);
        if let Some(r) = self.read_back {
            w.message(20, |w| {
                w.flag(1, true);
                w.number(2, r.lag);
                w.number(3, r.granularity);
                w.strings(4, r.evidence);
            });
        }
        if let Some(s) = self.webhook {
            w.message(21, |w| {
                w.string(1, s.scheme);
                w.string(2, s.header);
                w.string(3, s.secret);
                w.number(4, s.tolerance);
            });
        }
        w.number(23, self.every);
    }
}
