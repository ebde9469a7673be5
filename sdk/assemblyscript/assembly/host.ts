// What a plugin may ask of the host.

import { Item } from "./message";
import { Reader, Writer } from "./wire";

// @ts-ignore: decorator
@external("fencepost.io/v1", "input_read")
declare function input_read(at: usize, size: u32): u32;
// @ts-ignore: decorator
@external("fencepost.io/v1", "output_write")
declare function output_write(at: usize, size: u32): void;
// @ts-ignore: decorator
@external("fencepost.http/v1", "send")
declare function http_send(at: usize, size: u32): i32;
// @ts-ignore: decorator
@external("fencepost.http/v1", "receive")
declare function http_receive(at: usize, size: u32): u32;
// @ts-ignore: decorator
@external("fencepost.append/v1", "send")
declare function append_send(at: usize, size: u32): i32;
// @ts-ignore: decorator
@external("fencepost.append/v1", "receive")
declare function append_receive(at: usize, size: u32): u32;
// @ts-ignore: decorator
@external("fencepost.log/v1", "write")
declare function log_write(level: i32, at: usize, size: u32): void;
// @ts-ignore: decorator
@external("fencepost.clock/v1", "now")
declare function clock_now(): i64;
// @ts-ignore: decorator
@external("fencepost.random/v1", "read")
declare function random_read(at: usize, size: u32): void;

/** The request of this call. */
export function input(length: i32): Uint8Array {
  const out = new Uint8Array(max(length, 0));
  const got = input_read(out.dataStart, out.length);
  return out.subarray(0, <i32>got);
}

/** Hands the answer over. */
export function output(answer: Writer): void {
  output_write(changetype<usize>(answer.buffer), answer.size);
}

/** Writes a line to the host's log; levels are -4, 0, 4 and 8. */
export function log(level: i32, line: string): void {
  const b = String.UTF8.encode(line);
  log_write(level, changetype<usize>(b), b.byteLength);
}

/** Microseconds since 1970-01-01 UTC. Never make a key of it. */
export function now(): i64 {
  return clock_now();
}

/** Bytes from the system's source. Never make a key of them. */
export function random(size: i32): Uint8Array {
  const out = new Uint8Array(size);
  random_read(out.dataStart, size);
  return out;
}

/** One HTTP request. */
export class Request {
  headers: string[] = []; // name, value, name, value
  items: string[] = []; // ids of the items that it reports
  secrets: string[] = []; // names of secrets whose values the host adds
  body: Writer = new Writer();
  signingScope: string = ""; // "region/service", of a secret that signs for AWS

  /** The url is absolute, https. */
  constructor(public method: string, public url: string) {}

  header(name: string, value: string): void {
    this.headers.push(name);
    this.headers.push(value);
  }

  encode(): Writer {
    const w = new Writer();
    w.string(1, this.method);
    w.string(2, this.url);
    for (let i = 0; i + 1 < this.headers.length; i += 2) {
      const h = new Writer();
      h.string(1, this.headers[i]);
      h.string(2, this.headers[i + 1]);
      w.message(3, h);
    }
    if (this.body.size > 0) w.message(4, this.body);
    w.strings(5, this.items);
    w.strings(6, this.secrets);
    w.string(7, this.signingScope);
    return w;
  }
}

/** Why an answer is none. */
export const ANSWERED = 0;
/** No byte left the machine. */
export const NOT_SENT = 1;
/** Something was sent, and no whole answer came back. */
export const UNKNOWN = 2;

/** The answer to one request. */
export class Answer {
  failure: i32 = ANSWERED;
  reason: string = "";
  status: i64 = 0;
  headers: string[] = []; // name, value, name, value
  body: Uint8Array = new Uint8Array(0);

  /** The first header of that name, or "". */
  header(name: string): string {
    for (let i = 0; i + 1 < this.headers.length; i += 2) {
      if (this.headers[i].toLowerCase() == name.toLowerCase()) return this.headers[i + 1];
    }
    return "";
  }

  decode(r: Reader): bool {
    while (r.next()) {
      if (r.field == 1 && r.type == 0) this.failure = r.number == 0 ? ANSWERED : r.number == 1 ? NOT_SENT : UNKNOWN;
      else if (r.field == 2 && r.type == 2) this.reason = r.text();
      else if (r.field == 3 && r.type == 0) this.status = r.number;
      else if (r.field == 4 && r.type == 2) {
        let name = "", value = "";
        const h = r.message();
        while (h.next()) {
          if (h.field == 1 && h.type == 2) name = h.text();
          else if (h.field == 2 && h.type == 2) value = h.text();
        }
        if (h.bad) return false;
        this.headers.push(name);
        this.headers.push(value);
      } else if (r.field == 5 && r.type == 2) this.body = r.bytes();
    }
    return !r.bad;
  }
}

/** Requests that are sent together. */
export class Batch {
  private message: Writer = new Writer();
  private count: i32 = 0;

  push(r: Request): void {
    this.message.message(1, r.encode());
    this.count++;
  }

  /** Sends the requests and returns an answer for each, in order. Where the host
   * refused the batch, each was not sent; where its answers are unreadable, each is
   * unknown, because they may have been sent. */
  send(): Answer[] {
    const answers: Answer[] = [];
    if (this.count == 0) return answers;
    const size = http_send(changetype<usize>(this.message.buffer), this.message.size);
    if (size < 0) return this.all(NOT_SENT, "batch_refused");
    const buffer = new Uint8Array(size);
    const got = http_receive(buffer.dataStart, size);
    const r = new Reader(buffer, 0, min(<i32>got, size));
    let refused = false, lost = false;
    while (r.next()) {
      if (r.field == 1 && r.type == 2) {
        const a = new Answer();
        lost = !a.decode(r.message()) || lost;
        answers.push(a);
      } else if (r.field == 2 && r.type == 2) {
        const e = r.message();
        while (e.next()) {}
        lost = e.bad || lost;
        refused = true;
      }
    }
    if (r.bad || lost || (!refused && answers.length != this.count)) return this.all(UNKNOWN, "answers_lost");
    return refused ? this.all(NOT_SENT, "batch_refused") : answers;
  }

  private all(failure: i32, reason: string): Answer[] {
    const out: Answer[] = [];
    for (let i = 0; i < this.count; i++) {
      const a = new Answer();
      a.failure = failure;
      a.reason = reason;
      out.push(a);
    }
    return out;
  }
}

/** The answer to one record. */
export class Appended {
  earlier: bool = false; // a line with this identifier was there
  sequence: i64 = 0; // of its line, from 1

  constructor(public failure: i32 = ANSWERED, public reason: string = "") {}

  decode(r: Reader): bool {
    while (r.next()) {
      if (r.field == 1 && r.type == 0) this.failure = r.number == 0 ? ANSWERED : r.number == 1 ? NOT_SENT : UNKNOWN;
      else if (r.field == 2 && r.type == 2) this.reason = r.text();
      else if (r.field == 3 && r.type == 0) this.earlier = r.number != 0;
      else if (r.field == 4 && r.type == 0) this.sequence = r.number;
    }
    return !r.bad;
  }
}

/** Records that are appended together, to the file that the operator named. */
export class Records {
  private message: Writer = new Writer();
  private count: i32 = 0;

  /** Adds one JSON object about an item. */
  push(item: Item, json: string): void {
    const w = new Writer(), body = new Writer();
    w.string(1, item.id);
    w.string(2, item.identifier);
    w.flag(3, item.attempt > 1);
    body.put(json);
    w.message(4, body);
    this.message.message(1, w);
    this.count++;
  }

  /** Appends the records and returns an answer for each, in order, as Batch.send
   * does. */
  append(): Appended[] {
    const answers: Appended[] = [];
    if (this.count == 0) return answers;
    const size = append_send(changetype<usize>(this.message.buffer), this.message.size);
    if (size < 0) return this.all(NOT_SENT, "batch_refused");
    const buffer = new Uint8Array(size);
    const got = append_receive(buffer.dataStart, size);
    const r = new Reader(buffer, 0, min(<i32>got, size));
    let refused = false, lost = false;
    while (r.next()) {
      if (r.field == 1 && r.type == 2) {
        const a = new Appended();
        lost = !a.decode(r.message()) || lost;
        answers.push(a);
      } else if (r.field == 2 && r.type == 2) {
        const e = r.message();
        while (e.next()) {}
        lost = e.bad || lost;
        refused = true;
      }
    }
    if (r.bad || lost || (!refused && answers.length != this.count)) return this.all(UNKNOWN, "answers_lost");
    return refused ? this.all(NOT_SENT, "batch_refused") : answers;
  }

  private all(failure: i32, reason: string): Appended[] {
    const out: Appended[] = [];
    for (let i = 0; i < this.count; i++) out.push(new Appended(failure, reason));
    return out;
  }
}
