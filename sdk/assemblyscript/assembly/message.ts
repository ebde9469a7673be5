// The messages of an exporter.

import { Reader, Writer } from "./wire";

/** An exporter. The host calls describe, then configure once, then deliver any
 * number of times, never two at once. */
export abstract class Exporter {
  /** Always answers the same and uses no capability. */
  abstract describe(): Manifest;
  /** Takes the operator's settings, or returns invalid(...). */
  abstract configure(c: Configuration): Failure | null;
  /** Adds one outcome for each item. Problems of the provider are outcomes. */
  abstract deliver(items: Item[], outcomes: Outcome[]): Failure | null;

  /** Adds one sum for each question, in order; of exporters whose manifest has
   * readBack. */
  probe(questions: Question[], sums: Sum[]): Failure | null {
    return unknownMethod();
  }

  /** Says what a message of the provider says; of exporters whose manifest has
   * webhook. The host has verified the signature. The same message always means
   * the same. */
  webhook(message: Message, report: Report): Failure | null {
    return unknownMethod();
  }
}

// Tags: what a caller may do about a failure.
export const INVALID = 1;
export const CONFLICT_TAG = 2;
export const UNAVAILABLE = 3;
export const UNSUPPORTED = 4;
export const NOT_FOUND = 5;

/** The failure of a whole call. */
export class Failure {
  constructor(public tag: i32, public code: string = "", public field: string = "", public rule: string = "") {}

  encode(): Writer {
    const w = new Writer();
    w.number(1, this.tag);
    w.string(2, this.code);
    w.string(3, this.field);
    w.string(4, this.rule);
    return w;
  }
}

export function unknownMethod(): Failure {
  return new Failure(UNSUPPORTED, "unknown_method", "", "a method that this exporter implements");
}

/** The failure of a setting that breaks a rule. */
export function invalid(field: string, rule: string): Failure {
  return new Failure(INVALID, "", field, rule);
}

/** What the operator set. */
export class Configuration {
  name: string = "";
  account: string = "";
  mode: string = ""; // "test" or "live"
  baseUrl: string = ""; // empty: the provider's own
  settings: Uint8Array = new Uint8Array(0); // a JSON object, or empty

  decode(message: Uint8Array): bool {
    const r = new Reader(message, 0, message.length);
    while (r.next()) {
      if (r.type != 2) continue;
      switch (r.field) {
        case 1: this.name = r.text(); break;
        case 2: this.account = r.text(); break;
        case 3: this.mode = r.text(); break;
        case 4: this.baseUrl = r.text(); break;
        case 5: this.settings = r.bytes(); break;
      }
    }
    return !r.bad;
  }
}

// Methods of corrections, and modes of a manifest.
export const CORRECT_UNKNOWN = 0;
export const CORRECT_NONE = 1;
export const CORRECT_CANCEL = 2;
export const CORRECT_NEGATIVE = 3;
export const CORRECT_REPLACE_TOTAL = 4;

/** What a correction takes back. */
export class Corrects {
  method: i64 = CORRECT_UNKNOWN;
  identifier: string = ""; // with which the original was sent
  value: string = "";

  decode(r: Reader): bool {
    while (r.next()) {
      if (r.field == 1 && r.type == 0) this.method = r.number;
      else if (r.field == 2 && r.type == 2) this.identifier = r.text();
      else if (r.field == 3 && r.type == 2) this.value = r.text();
    }
    return !r.bad;
  }
}

/** One thing to report. Times are microseconds since 1970-01-01 UTC. */
export class Item {
  id: string = "";
  identifier: string = ""; // the provider's idempotency key
  attempt: i64 = 0;
  kind: string = "";
  account: string = "";
  mode: string = "";
  customer: string = "";
  feature: string = "";
  value: string = ""; // an exact decimal: send it as it is
  timestamp: i64 = 0;
  periodStart: i64 = 0;
  periodEnd: i64 = 0;
  mapping: Map<string, string> = new Map<string, string>();
  corrects: Corrects | null = null;

  /** The value of a key of the mapping, or "". */
  mapped(key: string): string {
    return this.mapping.has(key) ? this.mapping.get(key) : "";
  }

  /** The timestamp, rounded down. */
  seconds(): i64 {
    return this.timestamp / 1000000 - (this.timestamp % 1000000 < 0 ? 1 : 0);
  }

  decode(r: Reader): bool {
    while (r.next()) {
      if (r.type == 0) {
        switch (r.field) {
          case 3: this.attempt = r.number; break;
          case 10: this.timestamp = r.number; break;
          case 11: this.periodStart = r.number; break;
          case 12: this.periodEnd = r.number; break;
        }
        continue;
      }
      if (r.type == 2 && !this.take(r)) return false;
    }
    return !r.bad;
  }

  private take(r: Reader): bool {
    switch (r.field) {
      case 1: this.id = r.text(); break;
      case 2: this.identifier = r.text(); break;
      case 4: this.kind = r.text(); break;
      case 5: this.account = r.text(); break;
      case 6: this.mode = r.text(); break;
      case 7: this.customer = r.text(); break;
      case 8: this.feature = r.text(); break;
      case 9: this.value = r.text(); break;
      case 13: {
        let key = "", value = "";
        const e = r.message();
        while (e.next()) {
          if (e.field == 1 && e.type == 2) key = e.text();
          else if (e.field == 2 && e.type == 2) value = e.text();
        }
        this.mapping.set(key, value);
        return !e.bad;
      }
      case 14: {
        const c = new Corrects();
        this.corrects = c;
        return c.decode(r.message());
      }
    }
    return true;
  }
}

export function decodeItems(message: Uint8Array, out: Item[]): bool {
  const r = new Reader(message, 0, message.length);
  while (r.next()) {
    if (r.field != 1 || r.type != 2) continue;
    const it = new Item();
    if (!it.decode(r.message())) return false;
    out.push(it);
  }
  return !r.bad;
}

/** Asks for the sum of one customer's usage in [from, to), in microseconds. */
export class Question {
  customer: string = "";
  feature: string = "";
  mapping: Map<string, string> = new Map<string, string>();
  from: i64 = 0;
  to: i64 = 0;

  /** The value of a key of the mapping, or "". */
  mapped(key: string): string {
    return this.mapping.has(key) ? this.mapping.get(key) : "";
  }

  decode(r: Reader): bool {
    while (r.next()) {
      if (r.field == 1 && r.type == 2) this.customer = r.text();
      else if (r.field == 2 && r.type == 2) this.feature = r.text();
      else if (r.field == 3 && r.type == 2) {
        let key = "", value = "";
        const e = r.message();
        while (e.next()) {
          if (e.field == 1 && e.type == 2) key = e.text();
          else if (e.field == 2 && e.type == 2) value = e.text();
        }
        if (e.bad) return false;
        this.mapping.set(key, value);
      } else if (r.field == 4 && r.type == 0) this.from = r.number;
      else if (r.field == 5 && r.type == 0) this.to = r.number;
    }
    return !r.bad;
  }
}

export function decodeQuestions(message: Uint8Array, out: Question[]): bool {
  const r = new Reader(message, 0, message.length);
  while (r.next()) {
    if (r.field != 1 || r.type != 2) continue;
    const q = new Question();
    if (!q.decode(r.message())) return false;
    out.push(q);
  }
  return !r.bad;
}

/** Answers one question. An empty sum says that the provider did not say, which is
 * not zero; the code tells why. */
export class Sum {
  meter: string = ""; // the provider's name for it
  message: string = "";

  /** The sum is an exact decimal. */
  constructor(public sum: string, public code: string = "") {}

  encode(): Writer {
    const w = new Writer();
    w.string(1, this.sum);
    w.string(2, this.meter);
    w.string(3, this.code);
    w.string(4, this.message);
    return w;
  }
}

/** A message of the provider. */
export class Message {
  body: Uint8Array = new Uint8Array(0);
  receivedAt: i64 = 0;

  decode(message: Uint8Array): bool {
    const r = new Reader(message, 0, message.length);
    while (r.next()) {
      if (r.field == 1 && r.type == 2) this.body = r.bytes();
      else if (r.field == 2 && r.type == 0) this.receivedAt = r.number;
    }
    return !r.bad;
  }
}

/** What a message says of the item that was sent with an identifier. */
export class Evidence {
  message: string = "";

  /** Refused: not counted after all. */
  constructor(public identifier: string, public refused: bool, public code: string = "") {}
}

/** What a message says of items. */
export class Report {
  id: string = ""; // the provider's name for the message
  evidence: Evidence[] = [];
  counted: i64 = 0; // items that it concerns, if it does not name all; 0: unknown
  code: string = "";

  write(w: Writer): void {
    w.string(1, this.id);
    for (let i = 0; i < this.evidence.length; i++) {
      const e = this.evidence[i], m = new Writer();
      m.string(1, e.identifier);
      m.flag(2, e.refused);
      m.string(3, e.code);
      m.string(4, e.message);
      w.message(2, m);
    }
    w.number(3, this.counted);
    w.string(4, this.code);
  }
}

// What became of an item.
export const ACCEPTED = 1;
export const ACCEPTED_EARLIER = 2;
export const RETRY = 3;
export const RATE_LIMITED = 4;
export const REJECTED = 5;
export const CONFLICT = 6;
export const UNCERTAIN = 7;

/** Answers one item. */
export class Outcome {
  providerRef: string = "";
  retryAfter: i64 = 0; // microseconds; 0: the host decides
  message: string = "";
  mendable: bool = false;

  constructor(public item: string, public kind: i32, public code: string = "") {}

  encode(): Writer {
    const w = new Writer();
    w.string(1, this.item);
    w.number(2, this.kind);
    w.string(3, this.providerRef);
    w.number(4, this.retryAfter);
    w.string(5, this.code);
    w.string(6, this.message);
    w.flag(7, this.mendable);
    return w;
  }
}

/** A value that the host adds to requests; the plugin only names it. */
export class Secret {
  testPrefixes: string[] = [];
  livePrefixes: string[] = [];
  scheme: string = "";

  constructor(public name: string, public header: string, public prefix: string) {}
}

// Classes of an answer.
export const DUPLICATE = 1;
export const REFUSED = 2;
export const MENDABLE = 3;

/** By which the host itself recognises an answer. Exactly one of equals and
 * contains is set; path is a JSON pointer into the body. */
export class Pattern {
  constructor(public klass: i32, public status: i32, public path: string, public equals: string[], public contains: string = "") {}
}

/** How the provider can be asked for sums. Durations are microseconds. */
export class ReadBack {
  evidence: string[] = []; // what settles an uncertain item

  /** Lag is how long a sum may lack what was accepted; the bounds of a question
   * are multiples of the granularity. */
  constructor(public lag: i64, public granularity: i64) {}
}

/** How the host verifies messages of the provider. */
export class Signature {
  constructor(public scheme: string, public header: string, public secret: string, public tolerance: i64) {}
}

/** What an exporter declares. Durations are microseconds. */
export class Manifest {
  name: string = "";
  version: string = "";
  identifierMaxLength: i64 = 0;
  identifierHorizon: i64 = 0;
  windowPast: i64 = 0;
  windowFuture: i64 = 0;
  significantDigits: i64 = 0; // 0: unlimited
  maxDecimals: i64 = 0; // -1: unlimited
  negative: bool = false;
  zero: bool = false;
  maxBatch: i64 = 0;
  rate: i64 = 0;
  concurrency: i64 = 0;
  serialBy: string[] = [];
  corrections: i64 = CORRECT_NONE;
  capabilities: string[] = [];
  hosts: string[] = [];
  secrets: Secret[] = [];
  mappingKeys: string[] = [];
  needsAccount: bool = false;
  answers: Pattern[] = [];
  cancelWithin: i64 = 0;
  readBack: ReadBack | null = null;
  webhook: Signature | null = null;
  every: i64 = 0; // windows of counters only, at most one in each span; 0: no such limit

  encode(): Writer {
    const w = new Writer();
    w.string(1, this.name);
    w.string(2, this.version);
    w.number(3, this.identifierMaxLength);
    w.number(4, this.identifierHorizon);
    w.number(5, this.windowPast);
    w.number(6, this.windowFuture);
    const values = new Writer();
    values.number(1, this.significantDigits);
    values.number(2, this.maxDecimals);
    values.flag(3, this.negative);
    values.flag(4, this.zero);
    w.message(7, values);
    w.number(8, this.maxBatch);
    w.number(9, this.rate);
    w.number(10, this.concurrency);
    w.strings(11, this.serialBy);
    w.number(12, this.corrections);
    w.strings(13, this.capabilities);
    w.strings(14, this.hosts);
    for (let i = 0; i < this.secrets.length; i++) {
      const s = this.secrets[i], m = new Writer();
      m.string(1, s.name);
      m.string(2, s.header);
      m.string(3, s.prefix);
      m.strings(4, s.testPrefixes);
      m.strings(5, s.livePrefixes);
      m.string(6, s.scheme);
      w.message(15, m);
    }
    w.strings(16, this.mappingKeys);
    w.flag(17, this.needsAccount);
    for (let i = 0; i < this.answers.length; i++) {
      const p = this.answers[i], m = new Writer();
      m.number(1, p.klass);
      m.number(2, p.status);
      m.string(3, p.path);
      m.strings(4, p.equals);
      m.string(5, p.contains);
      w.message(18, m);
    }
    w.number(19, this.cancelWithin);
    const r = this.readBack, g = this.webhook;
    if (r != null) {
      const m = new Writer();
      m.flag(1, true);
      m.number(2, r.lag);
      m.number(3, r.granularity);
      m.strings(4, r.evidence);
      w.message(20, m);
    }
    if (g != null) {
      const m = new Writer();
      m.string(1, g.scheme);
      m.string(2, g.header);
      m.string(3, g.secret);
      m.number(4, g.tolerance);
      w.message(21, m);
    }
    w.number(23, this.every);
    return w;
  }
}
