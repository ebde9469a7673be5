// JSON, as far as requests and answers need it.

import { Writer } from "./wire";

const DIGITS = "0123456789abcdef";

/** Writes a JSON string. */
export function quote(w: Writer, s: string): void {
  const b = Uint8Array.wrap(String.UTF8.encode(s));
  w.byte(0x22);
  for (let i = 0; i < b.length; i++) {
    const c = b[i];
    if (c == 0x22 || c == 0x5c) {
      w.byte(0x5c);
      w.byte(c);
    } else if (c < 0x20) {
      w.put("\\u00");
      w.byte(<u8>DIGITS.charCodeAt(c >> 4));
      w.byte(<u8>DIGITS.charCodeAt(c & 15));
    } else {
      w.byte(c);
    }
  }
  w.byte(0x22);
}

/** The string below these keys of a document that parses as a whole, or null. Of
 * equal keys the last counts. */
export function textAt(document: Uint8Array, keys: string[]): string | null {
  const p = new Parser(document);
  if (!p.value(keys, 0) || p.peek() >= 0) return null;
  return p.found;
}

/** Whether a document is an object without keys. */
export function isEmptyObject(document: Uint8Array): bool {
  const p = new Parser(document);
  if (p.peek() != 0x7b) return false;
  p.at++;
  if (p.peek() != 0x7d) return false;
  p.at++;
  return p.peek() < 0;
}

class Parser {
  at: i32 = 0;
  depth: i32 = 0;
  found: string | null = null;
  text: string = ""; // that string() read

  constructor(private b: Uint8Array) {}

  /** The byte here, or -1 at the end. */
  private here(): i32 {
    return this.at < this.b.length ? <i32>this.b[this.at] : -1;
  }

  /** The byte after white space. */
  peek(): i32 {
    while (true) {
      const c = this.here();
      if (c != 0x20 && c != 0x09 && c != 0x0a && c != 0x0d) return c;
      this.at++;
    }
  }

  /** Reads a value and looks for a string below keys[from..]; from < 0: for none. */
  value(keys: string[], from: i32): bool {
    const c = this.peek();
    if (this.depth > 100) return false; // no answer is that deep
    if (c == 0x22) {
      if (!this.string()) return false;
      if (from == keys.length) this.found = this.text;
      return true;
    }
    if (c == 0x7b || c == 0x5b) return this.group(c, keys, from);
    if (this.word("true") || this.word("false") || this.word("null")) return true;
    return (c == 0x2d || (c >= 0x30 && c <= 0x39)) && this.number();
  }

  private word(w: string): bool {
    if (this.b.length - this.at < w.length) return false;
    for (let i = 0; i < w.length; i++) {
      if (<i32>this.b[this.at + i] != w.charCodeAt(i)) return false;
    }
    this.at += w.length;
    return true;
  }

  private group(open: i32, keys: string[], from: i32): bool {
    const close = open + 2;
    this.at++;
    this.depth++;
    if (this.peek() == close) {
      this.at++;
      this.depth--;
      return true;
    }
    while (true) {
      let inside = -1;
      if (open == 0x7b) {
        if (this.peek() != 0x22 || !this.string() || this.peek() != 0x3a) return false;
        this.at++;
        if (from >= 0 && from < keys.length && this.text == keys[from]) {
          inside = from + 1;
          this.found = null;
        }
      }
      if (!this.value(keys, inside)) return false;
      const after = this.peek();
      this.at++;
      if (after == close) {
        this.depth--;
        return true;
      }
      if (after != 0x2c) return false;
    }
  }

  private digits(): bool {
    const began = this.at;
    while (this.here() >= 0x30 && this.here() <= 0x39) this.at++;
    return this.at > began;
  }

  private number(): bool {
    if (this.here() == 0x2d) this.at++;
    if (this.here() == 0x30) this.at++;
    else if (!this.digits()) return false;
    if (this.here() == 0x2e) {
      this.at++;
      if (!this.digits()) return false;
    }
    if (this.here() == 0x65 || this.here() == 0x45) {
      this.at++;
      if (this.here() == 0x2b || this.here() == 0x2d) this.at++;
      return this.digits();
    }
    return true;
  }

  private string(): bool {
    let out = "", from = ++this.at;
    while (true) {
      const c = this.here();
      if (c < 0x20) return false; // also the end
      if (c != 0x22 && c != 0x5c) {
        this.at++;
        continue;
      }
      out += String.UTF8.decodeUnsafe(this.b.dataStart + from, this.at - from);
      this.at++;
      if (c == 0x22) {
        this.text = out;
        return true;
      }
      const unit = this.escape();
      if (unit < 0) return false;
      out += String.fromCharCode(unit);
      from = this.at;
    }
  }

  /** Reads what follows a backslash: a unit of UTF-16, or -1. */
  private escape(): i32 {
    const c = this.here();
    this.at++;
    switch (c) {
      case 0x22: case 0x5c: case 0x2f: return c;
      case 0x62: return 8;
      case 0x66: return 12;
      case 0x6e: return 10;
      case 0x72: return 13;
      case 0x74: return 9;
      case 0x75: {
        let v = 0;
        for (let i = 0; i < 4; i++) {
          const d = hex(this.here());
          if (d < 0) return -1;
          v = (v << 4) | d;
          this.at++;
        }
        return v;
      }
    }
    return -1;
  }
}

function hex(c: i32): i32 {
  if (c >= 0x30 && c <= 0x39) return c - 0x30;
  if (c >= 0x61 && c <= 0x66) return c - 0x57;
  if (c >= 0x41 && c <= 0x46) return c - 0x37;
  return -1;
}
