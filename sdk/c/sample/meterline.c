/* The sample exporter in C. What its provider takes and answers is told in
 * examples/exporter-go/meterline, which is the same exporter in Go. */
#include "fencepost.h"

#define MAX_IDENTIFIER 100

static fp_text mode, account, base; /* of Configure, whose memory stays */
static bool configured;

static const fp_text refused_codes[] = {{"invalid_value", 13}, {"timestamp_too_old", 17}};
static const fp_text mendable_codes[] = {{"no_such_customer", 16}, {"no_such_meter", 13}};

static void pattern(fp_writer *out, int64_t class, int64_t status, const fp_text *codes) {
	uint32_t began = fp_open(out, 18);
	fp_number(out, 1, class);
	fp_number(out, 2, status);
	fp_string(out, 3, codes ? FP_TEXT("/error/code") : FP_TEXT("/error/id"));
	for (uint32_t i = 0; codes && i < 2; i++) fp_string(out, 4, codes[i]);
	if (!codes) fp_string(out, 5, FP_TEXT("{identifier}"));
	fp_close(out, began);
}

static int32_t describe(fp_writer *out) {
	const int64_t second = 1000000, day = 24 * 3600 * second;
	uint32_t manifest = fp_open(out, 1), began;
	fp_string(out, 1, FP_TEXT("meterline"));
	fp_string(out, 2, FP_TEXT("1.0.0"));
	fp_number(out, 3, MAX_IDENTIFIER);
	fp_number(out, 4, 7 * day);
	fp_number(out, 5, 30 * day);
	fp_number(out, 6, 300 * second);
	began = fp_open(out, 7);
	fp_number(out, 1, 38); /* significant digits */
	fp_number(out, 2, -1); /* decimals: any */
	fp_number(out, 3, true);
	fp_number(out, 4, true);
	fp_close(out, began);
	fp_number(out, 8, 100); /* items in a batch */
	fp_number(out, 9, 100); /* requests a second */
	fp_number(out, 10, 8);  /* in flight */
	fp_number(out, 12, FP_CORRECT_NEGATIVE);
	fp_string(out, 13, FP_TEXT("http"));
	fp_string(out, 14, FP_TEXT("api.meterline.example"));
	began = fp_open(out, 15);
	fp_string(out, 1, FP_TEXT("token"));
	fp_string(out, 2, FP_TEXT("Authorization"));
	fp_string(out, 3, FP_TEXT("Bearer "));
	fp_close(out, began);
	fp_string(out, 16, FP_TEXT("meter"));
	pattern(out, 1, 409, NULL);
	pattern(out, 2, 400, refused_codes);
	pattern(out, 2, 422, refused_codes);
	pattern(out, 3, 400, mendable_codes);
	pattern(out, 3, 422, mendable_codes);
	fp_close(out, manifest);
	return FP_OK;
}

/* good_address: https, and nothing that would make it mean something else. */
static bool good_address(fp_text t) {
	fp_text https = FP_TEXT("https://");
	if (t.size <= https.size || !fp_equal((fp_text){t.at, https.size}, https) || t.at[https.size] == '/') return false;
	for (uint32_t i = https.size; i < t.size; i++) {
		uint8_t c = (uint8_t)t.at[i];
		if (c <= ' ' || c >= 0x7f || c == '@' || c == '?' || c == '#' || c == '\\') return false;
	}
	return true;
}

static int32_t configure(const fp_configuration *c, fp_writer *out) {
	fp_text url = c->base_url.size ? c->base_url : FP_TEXT("https://api.meterline.example");
	if (!fp_equal(c->mode, FP_TEXT("test")) && !fp_equal(c->mode, FP_TEXT("live")))
		return fp_invalid(out, FP_TEXT("mode"), FP_TEXT("test or live"));
	if (!good_address(url))
		return fp_invalid(out, FP_TEXT("base_url"), FP_TEXT("an https address without user, query and fragment"));
	if (c->settings.size && !fp_json_empty(c->settings))
		return fp_invalid(out, FP_TEXT("settings"), FP_TEXT("an empty JSON object: there are no settings"));
	while (url.at[url.size - 1] == '/') url.size--;
	mode = c->mode, account = c->account, base = url;
	configured = true;
	return FP_OK;
}

static bool plain_decimal(fp_text t) {
	uint32_t i = t.size > 0 && t.at[0] == '-', digits = 0, points = 0;
	for (; i < t.size; i++) {
		if (t.at[i] == '.' && digits > 0 && points++ == 0) {
			digits = 0;
			continue;
		}
		if (t.at[i] < '0' || t.at[i] > '9') return false;
		digits++;
	}
	return digits > 0;
}

/* unsendable says why an item must not be sent, or nothing. */
static fp_text unsendable(const fp_item *it) {
	if (!fp_equal(it->mode, mode)) return FP_TEXT("mode_not_served");
	if (!fp_equal(it->account, account)) return FP_TEXT("account_not_served");
	if (fp_mapping(it, FP_TEXT("meter")).size == 0) return FP_TEXT("mapping_incomplete");
	if (it->identifier.size == 0 || it->identifier.size > MAX_IDENTIFIER) return FP_TEXT("identifier_invalid");
	if (it->corrects && it->corrects_method != FP_CORRECT_NEGATIVE) return FP_TEXT("correction_method_unknown");
	if (it->customer.size == 0) return FP_TEXT("customer_missing");
	if (!plain_decimal(it->value)) return FP_TEXT("value_invalid");
	return FP_TEXT("");
}

static void request(fp_writer *batch, const fp_item *it) {
	uint32_t began = fp_open(batch, 1), part;
	fp_string(batch, 1, FP_TEXT("POST"));
	part = fp_open(batch, 2);
	fp_put(batch, base);
	fp_put(batch, FP_TEXT("/v1/usage"));
	fp_close(batch, part);
	fp_header(batch, FP_TEXT("Content-Type"), FP_TEXT("application/json"));
	fp_header(batch, FP_TEXT("Idempotency-Key"), it->identifier);
	part = fp_open(batch, 4);
	fp_put(batch, FP_TEXT("{\"id\":"));
	fp_put_quoted(batch, it->identifier);
	fp_put(batch, FP_TEXT(",\"customer\":"));
	fp_put_quoted(batch, it->customer);
	fp_put(batch, FP_TEXT(",\"meter\":"));
	fp_put_quoted(batch, fp_mapping(it, FP_TEXT("meter")));
	fp_put(batch, FP_TEXT(",\"value\":"));
	fp_put_quoted(batch, it->value);
	fp_put(batch, FP_TEXT(",\"timestamp\":"));
	fp_put_int(batch, fp_seconds(it->timestamp));
	fp_put(batch, FP_TEXT("}"));
	fp_close(batch, part);
	fp_string(batch, 5, it->id);
	fp_string(batch, 6, FP_TEXT("token"));
	fp_close(batch, began);
}

/* retry_after reads seconds; anything else is zero, and the host decides. */
static int64_t retry_after(const fp_answer *a) {
	fp_text t = fp_answer_header(a, FP_TEXT("Retry-After"));
	int64_t seconds = 0;
	while (t.size && (t.at[0] == ' ' || t.at[0] == '\t')) t.at++, t.size--;
	while (t.size && (t.at[t.size - 1] == ' ' || t.at[t.size - 1] == '\t')) t.size--;
	for (uint32_t i = 0; i < t.size; i++) {
		if (t.at[i] < '0' || t.at[i] > '9') return 0;
		seconds = seconds * 10 + (t.at[i] - '0');
		if (seconds > 0x7fffffff) return 0;
	}
	return seconds * 1000000;
}

static const fp_text id_key[] = {{"id", 2}};
static const fp_text error_id[] = {{"error", 5}, {"id", 2}};
static const fp_text error_code[] = {{"error", 5}, {"code", 4}};

static void duplicate(const fp_item *it, fp_text body, fp_outcome *o) {
	fp_text code, id;
	o->code = FP_TEXT("unknown_refusal");
	if (!fp_json_at(body, error_code, 2, &code) || !fp_json_equal(code, FP_TEXT("duplicate")) || !fp_json_at(body, error_id, 2, &id)) return;
	if (fp_json_equal(id, it->identifier)) {
		o->kind = FP_ACCEPTED_EARLIER, o->code = FP_TEXT("duplicate"), o->provider_ref = it->identifier;
	} else {
		o->kind = FP_UNCERTAIN, o->code = FP_TEXT("foreign_duplicate");
	}
}

static void refusal(fp_text body, fp_outcome *o) {
	fp_text code;
	o->code = FP_TEXT("unknown_refusal");
	if (!fp_json_at(body, error_code, 2, &code)) return;
	for (uint32_t i = 0; i < 2; i++) {
		if (fp_json_equal(code, refused_codes[i])) o->kind = FP_REJECTED, o->code = refused_codes[i];
		if (fp_json_equal(code, mendable_codes[i])) o->kind = FP_REJECTED, o->code = mendable_codes[i], o->mendable = true;
	}
}

/* judge says what an answer means for its item. Whatever leaves open whether the
 * item was taken is a retry: the same identifier settles it. */
static void judge(const fp_item *it, const fp_answer *a, fp_outcome *o) {
	fp_text id;
	fp_writer code = {0};
	if (a->failure != FP_ANSWERED) {
		o->code = a->failure == FP_NOT_SENT ? FP_TEXT("not_sent") : FP_TEXT("no_answer");
		return;
	}
	switch (a->status) {
	case 200: case 201:
		if (fp_json_at(a->body, id_key, 1, &id) && fp_json_equal(id, it->identifier))
			o->kind = FP_ACCEPTED, o->provider_ref = it->identifier;
		else
			o->code = FP_TEXT("foreign_answer");
		return;
	case 409:
		duplicate(it, a->body, o);
		return;
	case 400: case 422:
		refusal(a->body, o);
		return;
	case 429:
		o->kind = FP_RATE_LIMITED, o->code = FP_TEXT("rate_limited"), o->retry_after = retry_after(a);
		return;
	}
	fp_put(&code, FP_TEXT("http_"));
	fp_put_int(&code, a->status);
	o->code = (fp_text){(char *)code.at, code.size};
	o->retry_after = retry_after(a);
}

static int32_t deliver(const fp_delivery *d, fp_writer *out) {
	fp_writer batch = {0};
	fp_answer *answers = NULL;
	fp_text *codes = fp_alloc(d->count * (uint32_t)sizeof(fp_text)); /* why an item is not sent */
	fp_item it;
	uint32_t i = 0, sent = 0, seen = 0;
	if (!configured)
		return fp_fail(out, FP_INVALID, FP_TEXT("not_configured"), FP_TEXT(""), FP_TEXT("Configure before Deliver"));
	for (fp_reader r = fp_read(d->message); fp_next_item(&r, &it); i++) {
		codes[i] = unsendable(&it);
		if (codes[i].size > 0) continue;
		request(&batch, &it);
		sent++;
	}
	if (sent > 0) answers = fp_send(&batch, sent);
	i = 0;
	for (fp_reader r = fp_read(d->message); fp_next_item(&r, &it); i++) {
		fp_outcome o = {.item = it.id, .kind = FP_RETRY, .code = codes[i]};
		if (o.code.size == 0) judge(&it, &answers[seen++], &o);
		fp_put_outcome(out, &o);
	}
	return FP_OK;
}

FP_SERVE(describe, configure, deliver)
