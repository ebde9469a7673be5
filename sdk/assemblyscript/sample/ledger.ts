// An exporter into a file, whose provider can be asked and sends messages: the
// parts of the interface that the other sample has no use for.

import {
  ACCEPTED, ACCEPTED_EARLIER, ANSWERED, Configuration, Evidence, Exporter, Failure, Item, Manifest, Message, Outcome, Question, RETRY,
  ReadBack, Records, Report, Signature, Sum, call, invalid,
} from "../assembly/index";

const SECOND: i64 = 1000000;

class Ledger extends Exporter {
  describe(): Manifest {
    const m = new Manifest();
    m.name = "ledger";
    m.version = "1.0.0";
    m.identifierMaxLength = 64;
    m.maxBatch = 100;
    m.capabilities = ["append"];
    const r = new ReadBack(60 * SECOND, 3600 * SECOND);
    r.evidence = ["sum_present"];
    m.readBack = r;
    m.webhook = new Signature("t=,v1=", "Ledger-Signature", "webhook_secret", 300 * SECOND);
    m.every = 3600 * SECOND;
    return m;
  }

  configure(c: Configuration): Failure | null {
    return null;
  }

  deliver(items: Item[], outcomes: Outcome[]): Failure | null {
    const batch = new Records();
    for (let i = 0; i < items.length; i++) batch.push(items[i], '{"value":"' + items[i].value + '"}');
    const answers = batch.append();
    for (let i = 0; i < items.length; i++) {
      const a = answers[i];
      const o = new Outcome(items[i].id, a.failure != ANSWERED ? RETRY : a.earlier ? ACCEPTED_EARLIER : ACCEPTED, a.reason);
      o.providerRef = a.sequence.toString();
      outcomes.push(o);
    }
    return null;
  }

  /** Answers with the meter and the customer that it was asked about, and for nobody
   * says that it was not told. */
  probe(questions: Question[], sums: Sum[]): Failure | null {
    for (let i = 0; i < questions.length; i++) {
      const q = questions[i];
      const s = q.customer == "" ? new Sum("", "nobody") : new Sum(((q.to - q.from) / SECOND).toString());
      s.message = q.customer == "" ? q.feature : q.customer;
      if (q.customer != "") s.meter = q.mapped("meter");
      sums.push(s);
    }
    return null;
  }

  webhook(message: Message, report: Report): Failure | null {
    if (message.body.length == 0) return invalid("body", "not empty");
    const late = new Evidence(String.UTF8.decodeUnsafe(message.body.dataStart, message.body.length), true, "late");
    late.message = "no such customer";
    report.id = "message";
    report.evidence = [late, new Evidence("other", false)];
    report.counted = 7;
    report.code = (message.receivedAt / SECOND).toString();
    return null;
  }
}

const plugin = new Ledger();

export function fp_abi_v1(): void {}

export function fp_call(method: i32, length: i32): i32 {
  return call(plugin, method, length);
}
