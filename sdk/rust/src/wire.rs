//! Reading and writing of protobuf messages, as far as plugins need it.

use alloc::vec::Vec;

/// A message that does not parse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// The value of one field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Of a fixed size, which no message of ours has.
    Fixed,
}

/// Walks the fields of one message.
#[derive(Debug, Clone)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub fn new(message: &'a [u8]) -> Self {
        Reader(message)
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for (i, &b) in self.0.iter().take(10).enumerate() {
            value |= u64::from(b & 0x7f) << (7 * i);
            if b < 0x80 {
                self.0 = &self.0[i + 1..];
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    fn take(&mut self, n: u64) -> Result<&'a [u8], Malformed> {
        if n > self.0.len() as u64 {
            return Err(Malformed);
        }
        let (head, tail) = self.0.split_at(n as usize);
        self.0 = tail;
        Ok(head)
    }

    /// The next field and its value, or None at the end.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<(u32, Value<'a>)>, Malformed> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let field = (tag >> 3) as u32;
        if field == 0 {
            return Err(Malformed);
        }
        let value = match tag & 7 {
            0 => Value::Number(self.varint()?),
            1 => self.take(8).map(|_| Value::Fixed)?,
            2 => {
                let n = self.varint()?;
                Value::Bytes(self.take(n)?)
            }
            5 => self.take(4).map(|_| Value::Fixed)?,
            _ => return Err(Malformed),
        };
        Ok(Some((field, value)))
    }
}

/// Reads a string field.
pub fn text(bytes: &[u8]) -> Result<&str, Malformed> {
    core::str::from_utf8(bytes).map_err(|_| Malformed)
}

/// A message that grows. Fields are written in ascending order, and zero values
/// are left out.
#[derive(Debug, Default, Clone)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    fn varint(&mut self, mut v: u64) {
        while v >= 0x80 {
            self.0.push(v as u8 | 0x80);
            v >>= 7;
        }
        self.0.push(v as u8);
    }

    pub fn number(&mut self, field: u32, v: i64) {
        if v != 0 {
            self.varint(u64::from(field) << 3);
            self.varint(v as u64);
        }
    }

    pub fn flag(&mut self, field: u32, v: bool) {
        self.number(field, i64::from(v));
    }

    /// Writes a field even if it is empty.
    pub fn bytes(&mut self, field: u32, b: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(b.len() as u64);
        self.0.extend_from_slice(b);
    }

    pub fn string(&mut self, field: u32, s: &str) {
        if !s.is_empty() {
            self.bytes(field, s.as_bytes());
        }
    }

    pub fn strings(&mut self, field: u32, list: &[&str]) {
        for s in list {
            self.bytes(field, s.as_bytes());
        }
    }

    /// Writes a message inside this one.
    pub fn message(&mut self, field: u32, fill: impl FnOnce(&mut Writer)) {
        let mut inner = Writer::default();
        fill(&mut inner);
        self.bytes(field, &inner.0);
    }
}
