// Reading and writing of protobuf messages, as far as plugins need it.

/** Walks the fields of one message. */
export class Reader {
  /** Of the field that next found. */
  field: u32 = 0;
  type: u32 = 0;
  /** Its value, of wire type 0. */
  number: i64 = 0;
  /** Where its value stands, of wire type 2. */
  from: i32 = 0;
  to: i32 = 0;
  /** The message does not parse. */
  bad: bool = false;

  private at: i32;

  /** Reads the bytes of buffer from begin to end. */
  constructor(private buffer: Uint8Array, begin: i32, private end: i32) {
    this.at = begin;
  }

  private varint(): u64 {
    let value: u64 = 0;
    for (let shift: u64 = 0; shift < 64 && this.at < this.end; shift += 7) {
      const b = this.buffer[this.at++];
      value |= (<u64>(b & 0x7f)) << shift;
      if (b < 0x80) return value;
    }
    this.bad = true;
    return 0;
  }

  /** Finds the next field; false at the end, or with bad set. */
  next(): bool {
    if (this.bad || this.at >= this.end) return false;
    const tag = this.varint();
    if (this.bad) return false;
    this.field = <u32>(tag >> 3);
    this.type = <u32>(tag & 7);
    if (this.field == 0) {
      this.bad = true;
      return false;
    }
    let size: u64 = 0;
    switch (this.type) {
      case 0:
        this.number = <i64>this.varint();
        return !this.bad;
      case 1:
        size = 8;
        break;
      case 2:
        size = this.varint();
        break;
      case 5:
        size = 4;
        break;
      default:
        this.bad = true;
    }
    if (this.bad || size > <u64>(this.end - this.at)) {
      this.bad = true;
      return false;
    }
    this.from = this.at;
    this.at += <i32>size;
    this.to = this.at;
    return true;
  }

  /** The value as a string, of wire type 2. */
  text(): string {
    return String.UTF8.decodeUnsafe(this.buffer.dataStart + this.from, this.to - this.from);
  }

  /** The value as bytes, of wire type 2: a view, not a copy. */
  bytes(): Uint8Array {
    return this.buffer.subarray(this.from, this.to);
  }

  /** The value as a message, of wire type 2. */
  message(): Reader {
    return new Reader(this.buffer, this.from, this.to);
  }
}

/** A message that grows. Fields are written in ascending order, and zero values
 * are left out. */
export class Writer {
  buffer: ArrayBuffer = new ArrayBuffer(256);
  size: i32 = 0;

  private grow(n: i32): usize {
    const need = this.size + n;
    if (need > this.buffer.byteLength) {
      const larger = new ArrayBuffer(max(need, this.buffer.byteLength * 2));
      memory.copy(changetype<usize>(larger), changetype<usize>(this.buffer), this.size);
      this.buffer = larger;
    }
    const at = changetype<usize>(this.buffer) + this.size;
    this.size = need;
    return at;
  }

  byte(b: u8): void {
    store<u8>(this.grow(1), b);
  }

  /** Appends bytes that stand somewhere. */
  raw(at: usize, size: i32): void {
    memory.copy(this.grow(size), at, size);
  }

  /** Appends a string, without a field around it. */
  put(s: string): void {
    const size = String.UTF8.byteLength(s);
    String.UTF8.encodeUnsafe(changetype<usize>(s), s.length, this.grow(size));
  }

  private varint(v: u64): void {
    for (; v >= 0x80; v >>= 7) this.byte((<u8>v) | 0x80);
    this.byte(<u8>v);
  }

  number(field: u32, v: i64): void {
    if (v == 0) return;
    this.varint((<u64>field) << 3);
    this.varint(<u64>v);
  }

  flag(field: u32, v: bool): void {
    this.number(field, v ? 1 : 0);
  }

  private head(field: u32, size: i32): void {
    this.varint(((<u64>field) << 3) | 2);
    this.varint(<u64>size);
  }

  string(field: u32, s: string): void {
    if (s.length == 0) return;
    this.head(field, String.UTF8.byteLength(s));
    this.put(s);
  }

  strings(field: u32, list: string[]): void {
    for (let i = 0; i < list.length; i++) {
      this.head(field, String.UTF8.byteLength(list[i]));
      this.put(list[i]);
    }
  }

  /** Writes a message, or bytes, inside this one, even if it is empty. */
  message(field: u32, inner: Writer): void {
    this.head(field, inner.size);
    this.raw(changetype<usize>(inner.buffer), inner.size);
  }
}
