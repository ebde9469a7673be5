// The sample exporter in AssemblyScript. What its provider takes and answers is
// told in examples/exporter-go/meterline, which is the same exporter in Go.

import {
  ACCEPTED, ACCEPTED_EARLIER, ANSWERED, Answer, Batch, CORRECT_NEGATIVE, Configuration, Corrects, DUPLICATE, Exporter, Failure,
  INVALID, Item, MENDABLE, Manifest, NOT_SENT, Outcome, Pattern, RATE_LIMITED, REFUSED, REJECTED, RETRY, Request, Secret, UNCERTAIN,
  call, invalid, isEmptyObject, quote, textAt,
} from "../assembly/index";

const MAX_IDENTIFIER = 100;
const SECOND: i64 = 1000000;
const DAY: i64 = 24 * 3600 * SECOND;
const REFUSED_CODES: string[] = ["invalid_value", "timestamp_too_old"];
const MENDABLE_CODES: string[] = ["no_such_customer", "no_such_meter"];

class Meterline extends Exporter {
  private configured: bool = false;
  private mode: string = "";
  private account: string = "";
  private url: string = "";

  describe(): Manifest {
    const m = new Manifest();
    m.name = "meterline";
    m.version = "1.0.0";
    m.identifierMaxLength = MAX_IDENTIFIER;
    m.identifierHorizon = 7 * DAY;
    m.windowPast = 30 * DAY;
    m.windowFuture = 300 * SECOND;
    m.significantDigits = 38;
    m.maxDecimals = -1;
    m.negative = true;
    m.zero = true;
    m.maxBatch = 100;
    m.rate = 100;
    m.concurrency = 8;
    m.corrections = CORRECT_NEGATIVE;
    m.capabilities = ["http"];
    m.hosts = ["api.meterline.example"];
    m.secrets = [new Secret("token", "Authorization", "Bearer ")];
    m.mappingKeys = ["meter"];
    m.answers = [
      new Pattern(DUPLICATE, 409, "/error/id", [], "{identifier}"),
      new Pattern(REFUSED, 400, "/error/code", REFUSED_CODES),
      new Pattern(REFUSED, 422, "/error/code", REFUSED_CODES),
      new Pattern(MENDABLE, 400, "/error/code", MENDABLE_CODES),
      new Pattern(MENDABLE, 422, "/error/code", MENDABLE_CODES),
    ];
    return m;
  }

  configure(c: Configuration): Failure | null {
    if (c.mode != "test" && c.mode != "live") return invalid("mode", "test or live");
    let base = c.baseUrl.length > 0 ? c.baseUrl : "https://api.meterline.example";
    if (!goodAddress(base)) return invalid("base_url", "an https address without user, query and fragment");
    if (c.settings.length > 0 && !isEmptyObject(c.settings)) return invalid("settings", "an empty JSON object: there are no settings");
    while (base.endsWith("/")) base = base.substring(0, base.length - 1);
    this.mode = c.mode;
    this.account = c.account;
    this.url = base + "/v1/usage";
    this.configured = true;
    return null;
  }

  deliver(items: Item[], outcomes: Outcome[]): Failure | null {
    if (!this.configured) return new Failure(INVALID, "not_configured", "", "Configure before Deliver");
    const batch = new Batch();
    for (let i = 0; i < items.length; i++) {
      if (this.unsendable(items[i]).length == 0) batch.push(this.request(items[i]));
    }
    const answers = batch.send();
    for (let i = 0, n = 0; i < items.length; i++) {
      const code = this.unsendable(items[i]);
      outcomes.push(code.length > 0 ? new Outcome(items[i].id, RETRY, code) : judge(items[i], answers[n++]));
    }
    return null;
  }

  /** Why an item must not be sent, or "". */
  private unsendable(it: Item): string {
    if (it.mode != this.mode) return "mode_not_served";
    if (it.account != this.account) return "account_not_served";
    if (it.mapped("meter").length == 0) return "mapping_incomplete";
    const size = String.UTF8.byteLength(it.identifier);
    if (size == 0 || size > MAX_IDENTIFIER) return "identifier_invalid";
    if (it.corrects != null && (<Corrects>it.corrects).method != CORRECT_NEGATIVE) return "correction_method_unknown";
    if (it.customer.length == 0) return "customer_missing";
    if (!plainDecimal(it.value)) return "value_invalid";
    return "";
  }

  private request(it: Item): Request {
    const r = new Request("POST", this.url);
    r.header("Content-Type", "application/json");
    r.header("Idempotency-Key", it.identifier);
    r.body.put('{"id":');
    quote(r.body, it.identifier);
    r.body.put(',"customer":');
    quote(r.body, it.customer);
    r.body.put(',"meter":');
    quote(r.body, it.mapped("meter"));
    r.body.put(',"value":');
    quote(r.body, it.value);
    r.body.put(',"timestamp":' + it.seconds().toString() + "}");
    r.items.push(it.id);
    r.secrets.push("token");
    return r;
  }
}

/** https, and nothing that would make the address mean something else. */
function goodAddress(s: string): bool {
  if (!s.startsWith("https://") || s.length == 8 || s.charAt(8) == "/") return false;
  for (let i = 8; i < s.length; i++) {
    const c = s.charCodeAt(i);
    if (c <= 0x20 || c >= 0x7f || "@?#\\".includes(s.charAt(i))) return false;
  }
  return true;
}

function plainDecimal(s: string): bool {
  let digits = 0, point = false;
  for (let i = s.startsWith("-") ? 1 : 0; i < s.length; i++) {
    const c = s.charCodeAt(i);
    if (c == 0x2e && digits > 0 && !point) {
      point = true;
      digits = 0;
    } else if (c < 0x30 || c > 0x39) {
      return false;
    } else {
      digits++;
    }
  }
  return digits > 0;
}

/** What an answer means for its item. Whatever leaves open whether the item was
 * taken is a retry: the same identifier settles it. */
function judge(it: Item, a: Answer): Outcome {
  if (a.failure != ANSWERED) return new Outcome(it.id, RETRY, a.failure == NOT_SENT ? "not_sent" : "no_answer");
  if (a.status == 200 || a.status == 201) {
    const id = textAt(a.body, ["id"]);
    return id != null && id == it.identifier ? ours(it, ACCEPTED, "") : new Outcome(it.id, RETRY, "foreign_answer");
  }
  if (a.status == 409) return duplicate(it, a);
  if (a.status == 400 || a.status == 422) return refusal(it, a);
  const o = a.status == 429
    ? new Outcome(it.id, RATE_LIMITED, "rate_limited")
    : new Outcome(it.id, RETRY, "http_" + a.status.toString());
  o.retryAfter = retryAfter(a);
  return o;
}

function ours(it: Item, kind: i32, code: string): Outcome {
  const o = new Outcome(it.id, kind, code);
  o.providerRef = it.identifier;
  return o;
}

function duplicate(it: Item, a: Answer): Outcome {
  const code = textAt(a.body, ["error", "code"]), id = textAt(a.body, ["error", "id"]);
  if (code == null || code != "duplicate" || id == null) return new Outcome(it.id, RETRY, "unknown_refusal");
  return id == it.identifier ? ours(it, ACCEPTED_EARLIER, "duplicate") : new Outcome(it.id, UNCERTAIN, "foreign_duplicate");
}

function refusal(it: Item, a: Answer): Outcome {
  const code = textAt(a.body, ["error", "code"]);
  const o = new Outcome(it.id, RETRY, "unknown_refusal");
  if (code == null) return o;
  if (REFUSED_CODES.includes(code)) {
    o.kind = REJECTED;
    o.code = code;
  } else if (MENDABLE_CODES.includes(code)) {
    o.kind = REJECTED;
    o.code = code;
    o.mendable = true;
  }
  return o;
}

/** Reads seconds; anything else is zero, and the host decides. */
function retryAfter(a: Answer): i64 {
  const value = a.header("Retry-After");
  let seconds: i64 = 0, from = 0, to = value.length;
  while (from < to && (value.charAt(from) == " " || value.charAt(from) == "\t")) from++;
  while (from < to && (value.charAt(to - 1) == " " || value.charAt(to - 1) == "\t")) to--;
  for (let i = from; i < to; i++) {
    const c = value.charCodeAt(i);
    if (c < 0x30 || c > 0x39) return 0;
    seconds = seconds * 10 + (c - 0x30);
    if (seconds > 0x7fffffff) return 0;
  }
  return seconds * SECOND;
}

const plugin = new Meterline();

export function fp_abi_v1(): void {}

export function fp_call(method: i32, length: i32): i32 {
  return call(plugin, method, length);
}
