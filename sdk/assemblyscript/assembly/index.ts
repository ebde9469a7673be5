// Fencepost plugins in AssemblyScript.
//
// An exporter extends Exporter, and its entry file exports two functions:
//
//   const plugin = new Mine();
//   export function fp_abi_v1(): void {}
//   export function fp_call(method: i32, length: i32): i32 { return call(plugin, method, length); }
//
// Build it with
//
//   asc my.ts --outFile my.wasm -O3 --runtime incremental --use abort= --exportStart _initialize
//
// The messages are in plugins/sdk/wire/v1/fencepost.proto, the interface in
// docs/wasm-abi.md. A plugin imports only the capabilities whose functions it
// calls. What throws, traps, and the host throws the instance away.

export { Reader, Writer } from "./wire";
export * from "./message";
export { Appended, Batch, Records, Request, Answer, log, now, random, ANSWERED, NOT_SENT, UNKNOWN } from "./host";
export { quote, textAt, isEmptyObject } from "./json";

import { Writer } from "./wire";
import {
  Configuration, Exporter, Failure, INVALID, Item, Message, Outcome, Question, Report, Sum, decodeItems, decodeQuestions, unknownMethod,
} from "./message";
import { input, output } from "./host";

/** Answers one call of the host. */
export function call(plugin: Exporter, method: i32, length: i32): i32 {
  const request = input(length);
  const out = new Writer();
  let failure: Failure | null = null;
  if (method == 1) {
    out.message(1, plugin.describe().encode());
  } else if (method == 2) {
    const c = new Configuration();
    failure = c.decode(request) ? plugin.configure(c) : malformed();
  } else if (method == 3) {
    const items: Item[] = [];
    if (decodeItems(request, items)) {
      const outcomes: Outcome[] = [];
      failure = plugin.deliver(items, outcomes);
      for (let i = 0; i < outcomes.length; i++) out.message(1, outcomes[i].encode());
    } else {
      failure = malformed();
    }
  } else if (method == 4) {
    const questions: Question[] = [];
    if (decodeQuestions(request, questions)) {
      const sums: Sum[] = [];
      failure = plugin.probe(questions, sums);
      for (let i = 0; i < sums.length; i++) out.message(1, sums[i].encode());
    } else {
      failure = malformed();
    }
  } else if (method == 5) {
    const m = new Message(), report = new Report();
    failure = m.decode(request) ? plugin.webhook(m, report) : malformed();
    report.write(out);
  } else if (method != 6) {
    failure = unknownMethod();
  }
  if (failure != null) {
    output(failure.encode());
    return 1;
  }
  output(out);
  return 0;
}

function malformed(): Failure {
  return new Failure(INVALID, "malformed_message");
}
