/* An exporter into a file, whose provider can be asked and sends messages: the
 * parts of the interface that the other sample has no use for. */
#include "fencepost.h"

static int32_t describe(fp_writer *out) {
	uint32_t manifest = fp_open(out, 1), began;
	fp_string(out, 1, FP_TEXT("ledger"));
	fp_string(out, 2, FP_TEXT("1.0.0"));
	fp_number(out, 3, 64);
	fp_number(out, 8, 100);
	fp_string(out, 13, FP_TEXT("append"));
	began = fp_open(out, 20);
	fp_number(out, 1, true);
	fp_number(out, 2, 60000000);
	fp_number(out, 3, 3600000000);
	fp_string(out, 4, FP_TEXT("sum_present"));
	fp_close(out, began);
	began = fp_open(out, 21);
	fp_string(out, 1, FP_TEXT("t=,v1="));
	fp_string(out, 2, FP_TEXT("Ledger-Signature"));
	fp_string(out, 3, FP_TEXT("webhook_secret"));
	fp_number(out, 4, 300000000);
	fp_close(out, began);
	fp_number(out, 23, 3600000000);
	fp_close(out, manifest);
	return FP_OK;
}

static int32_t configure(const fp_configuration *c, fp_writer *out) { return (void)c, (void)out, FP_OK; }

static int32_t deliver(const fp_delivery *d, fp_writer *out) {
	fp_writer batch = {0};
	fp_item it;
	for (fp_reader r = fp_read(d->message); fp_next_item(&r, &it);) {
		fp_writer line = {0};
		fp_put(&line, FP_TEXT("{\"value\":"));
		fp_put_quoted(&line, it.value);
		fp_put(&line, FP_TEXT("}"));
		fp_put_record(&batch, &it, (fp_text){(char *)line.at, line.size});
	}
	fp_appended *a = fp_append(&batch, d->count);
	for (fp_reader r = fp_read(d->message); fp_next_item(&r, &it); a++) {
		fp_kind kind = a->failure != FP_ANSWERED ? FP_RETRY : a->earlier ? FP_ACCEPTED_EARLIER : FP_ACCEPTED;
		fp_writer ref = {0};
		fp_put_int(&ref, a->sequence);
		fp_outcome o = {.item = it.id, .kind = kind, .provider_ref = {(char *)ref.at, ref.size}, .code = a->reason};
		fp_put_outcome(out, &o);
	}
	return FP_OK;
}

/* probe answers with the meter and the customer that it was asked about, and for
 * nobody says that it was not told. */
static int32_t probe(const fp_probe *p, fp_writer *out) {
	fp_question q;
	for (fp_reader r = fp_read(p->message); fp_next_question(&r, &q);) {
		fp_writer sum = {0};
		fp_put_int(&sum, fp_seconds(q.to - q.from));
		fp_sum s = {.sum = {(char *)sum.at, sum.size}, .meter = fp_question_mapping(&q, FP_TEXT("meter")), .message = q.customer};
		if (q.customer.size == 0) s = (fp_sum){.code = FP_TEXT("nobody"), .message = q.feature};
		fp_put_sum(out, &s);
	}
	return FP_OK;
}

static int32_t webhook(const fp_webhook *m, fp_writer *out) {
	fp_writer code = {0};
	if (m->body.size == 0) return fp_invalid(out, FP_TEXT("body"), FP_TEXT("not empty"));
	fp_put_int(&code, fp_seconds(m->received_at));
	fp_string(out, 1, FP_TEXT("message"));
	fp_put_evidence(out, m->body, true, FP_TEXT("late"), FP_TEXT("no such customer"));
	fp_put_evidence(out, FP_TEXT("other"), false, FP_TEXT(""), FP_TEXT(""));
	fp_number(out, 3, 7);
	fp_string(out, 4, (fp_text){(char *)code.at, code.size});
	return FP_OK;
}

FP_SERVE_ALL(describe, configure, deliver, probe, webhook)
