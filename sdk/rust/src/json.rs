//! JSON, as far as requests and answers need it.

use alloc::string::String;
use alloc::vec::Vec;

/// Writes a JSON string.
pub fn quote(out: &mut Vec<u8>, s: &str) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    for &c in s.as_bytes() {
        match c {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', c]),
            0..=0x1f => {
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&[DIGITS[usize::from(c >> 4)], DIGITS[usize::from(c & 15)]]);
            }
            _ => out.push(c),
        }
    }
    out.push(b'"');
}

/// The string below these keys of a document that parses as a whole. Of equal
/// keys the last counts.
pub fn text_at(document: &[u8], keys: &[&str]) -> Option<String> {
    let mut parser = Parser { at: document, depth: 0 };
    let mut found = None;
    parser.value(Some(keys), &mut found)?;
    match parser.peek() {
        None => found,
        Some(_) => None,
    }
}

/// Whether a document is an object without keys.
pub fn is_empty_object(document: &[u8]) -> bool {
    let mut parser = Parser { at: document, depth: 0 };
    for want in [Some(b'{'), Some(b'}'), None] {
        if parser.peek() != want {
            return false;
        }
        parser.skip();
    }
    true
}

struct Parser<'a> {
    at: &'a [u8],
    depth: u32,
}

impl Parser<'_> {
    fn skip(&mut self) {
        self.at = self.at.get(1..).unwrap_or_default();
    }

    fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.at.first() {
            self.skip();
        }
        self.at.first().copied()
    }

    /// Reads a value and looks for a string in it, unless keys is None.
    fn value(&mut self, keys: Option<&[&str]>, found: &mut Option<String>) -> Option<()> {
        let first = self.peek()?;
        if self.depth > 100 {
            return None; // no answer is that deep
        }
        match first {
            b'"' => {
                let s = self.string()?;
                if let Some([]) = keys {
                    *found = Some(s);
                }
                Some(())
            }
            b'{' | b'[' => self.group(first, keys, found),
            b'-' | b'0'..=b'9' => self.number(),
            _ => {
                let word = [&b"true"[..], b"false", b"null"].into_iter().find(|w| self.at.starts_with(w))?;
                self.at = &self.at[word.len()..];
                Some(())
            }
        }
    }

    fn group(&mut self, first: u8, keys: Option<&[&str]>, found: &mut Option<String>) -> Option<()> {
        let close = if first == b'{' { b'}' } else { b']' };
        self.skip();
        self.depth += 1;
        if self.peek()? == close {
            self.skip();
            self.depth -= 1;
            return Some(());
        }
        loop {
            let mut inside = None;
            if first == b'{' {
                if self.peek()? != b'"' {
                    return None;
                }
                let key = self.string()?;
                if self.peek()? != b':' {
                    return None;
                }
                self.skip();
                if let Some([want, rest @ ..]) = keys {
                    if key == *want {
                        inside = Some(rest);
                        *found = None;
                    }
                }
            }
            self.value(inside, found)?;
            let after = self.peek()?;
            self.skip();
            if after == close {
                self.depth -= 1;
                return Some(());
            }
            if after != b',' {
                return None;
            }
        }
    }

    fn digits(&mut self) -> Option<()> {
        let n = self.at.iter().take_while(|c| c.is_ascii_digit()).count();
        self.at = &self.at[n..];
        if n > 0 {
            Some(())
        } else {
            None
        }
    }

    fn number(&mut self) -> Option<()> {
        if self.at.first() == Some(&b'-') {
            self.skip();
        }
        if self.at.first() == Some(&b'0') {
            self.skip();
        } else {
            self.digits()?;
        }
        if self.at.first() == Some(&b'.') {
            self.skip();
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.at.first() {
            self.skip();
            if let Some(b'+' | b'-') = self.at.first() {
                self.skip();
            }
            self.digits()?;
        }
        Some(())
    }

    fn string(&mut self) -> Option<String> {
        let mut out = Vec::new();
        loop {
            self.skip();
            match *self.at.first()? {
                b'"' => {
                    self.skip();
                    return Some(String::from_utf8_lossy(&out).into_owned());
                }
                b'\\' => {
                    self.skip();
                    match *self.at.first()? {
                        c @ (b'"' | b'\\' | b'/') => out.push(c),
                        b'b' => out.push(8),
                        b'f' => out.push(12),
                        b'n' => out.push(b'\n'),
                        b'r' => out.push(b'\r'),
                        b't' => out.push(b'\t'),
                        b'u' => self.escape(&mut out)?,
                        _ => return None,
                    }
                }
                0..=0x1f => return None,
                c => out.push(c),
            }
        }
    }

    fn hex(at: &[u8]) -> Option<u32> {
        let mut v = 0;
        for &c in at.get(..4)? {
            v = v << 4 | char::from(c).to_digit(16)?;
        }
        Some(v)
    }

    /// Reads the digits of \u, and of the \u that makes a pair with it, up to the
    /// last digit.
    fn escape(&mut self, out: &mut Vec<u8>) -> Option<()> {
        let mut c = Self::hex(&self.at[1..])?;
        self.at = &self.at[4..];
        if (0xd800..0xe000).contains(&c) {
            let low = match self.at {
                [_, b'\\', b'u', rest @ ..] if c < 0xdc00 => Self::hex(rest).unwrap_or(0),
                _ => 0,
            };
            if (0xdc00..0xe000).contains(&low) {
                c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
                self.at = &self.at[6..];
            } else {
                c = 0xfffd;
            }
        }
        let mut b = [0; 4];
        out.extend_from_slice(char::from_u32(c)?.encode_utf8(&mut b).as_bytes());
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text() {
        let cases: [(&str, &[&str], Option<&str>); 12] = [
            (r#"{"id":"x"}"#, &["id"], Some("x")),
            (r#" {"a":[1,-0.5e+3,{}],"error":{"id":"\u00e9\ud83e\udd84\n"}} "#, &["error", "id"], Some("é🦄\n")),
            (r#"{"id":"x","id":"y"}"#, &["id"], Some("y")),
            (r#"{"id":"x","id":5}"#, &["id"], None),
            (r#"{"id":"x""#, &["id"], None),
            (r#"{"id":"x"}{"#, &["id"], None),
            (r#"{"id":"\ud800"}"#, &["id"], Some("\u{fffd}")),
            (r#"{"id":01}"#, &["id"], None),
            (r#"{"id":"x","a":tru}"#, &["id"], None),
            (r#"{"\u0069d":"x"}"#, &["id"], Some("x")),
            (r#"["x"]"#, &["id"], None),
            ("", &["id"], None),
        ];
        for (document, keys, want) in cases {
            assert_eq!(text_at(document.as_bytes(), keys).as_deref(), want, "{}", document);
        }
        assert!(is_empty_object(b" { } "));
        assert!(!is_empty_object(b"{}{}") && !is_empty_object(b"null") && !is_empty_object(b"{"));
    }
}
