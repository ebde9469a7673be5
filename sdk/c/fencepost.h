/*
 * Fencepost plugins in C: one header, no library, no malloc.
 *
 * An exporter is three functions and one line:
 *
 *   static int32_t describe(fp_writer *out);
 *   static int32_t configure(const fp_configuration *c, fp_writer *out);
 *   static int32_t deliver(const fp_delivery *d, fp_writer *out);
 *   FP_SERVE(describe, configure, deliver)
 *
 * Each returns FP_OK, or what fp_fail returns. With FP_SERVE_ALL it has two more:
 *
 *   static int32_t probe(const fp_probe *p, fp_writer *out);
 *   static int32_t webhook(const fp_webhook *m, fp_writer *out);
 *
 * of which either may be NULL. Build it with
 *
 *   clang --target=wasm32 -O2 -mbulk-memory -ffreestanding -nostdlib \
 *     -Wl,--no-entry -Wl,--strip-all -I sdk/c -o my.wasm my.c
 *
 * Messages are read where they lie: a text points into the request and is good
 * until the call returns. What Configure saw stays for good if it succeeded.
 * Memory comes from one arena that is emptied before each call; when there is
 * no more, the plugin traps, and the host throws the instance away.
 *
 * The messages are in plugins/sdk/wire/v1/fencepost.proto, the interface in
 * docs/wasm-abi.md. A plugin imports only the capabilities whose functions it
 * calls.
 */
#ifndef FENCEPOST_H
#define FENCEPOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FP_FUNC static __attribute__((unused))
#define FP_IMPORT(module, name) __attribute__((import_module(module), import_name(name)))
#define FP_EXPORT(name) __attribute__((export_name(name), visibility("default")))

FP_IMPORT("fencepost.io/v1", "input_read") extern uint32_t fp_input_read(void *at, uint32_t size);
FP_IMPORT("fencepost.io/v1", "output_write") extern void fp_output_write(const void *at, uint32_t size);
FP_IMPORT("fencepost.http/v1", "send") extern int32_t fp_http_send(const void *at, uint32_t size);
FP_IMPORT("fencepost.http/v1", "receive") extern uint32_t fp_http_receive(void *at, uint32_t size);
FP_IMPORT("fencepost.append/v1", "send") extern int32_t fp_append_send(const void *at, uint32_t size);
FP_IMPORT("fencepost.append/v1", "receive") extern uint32_t fp_append_receive(void *at, uint32_t size);
FP_IMPORT("fencepost.log/v1", "write") extern void fp_log_write(int32_t level, const void *at, uint32_t size);
FP_IMPORT("fencepost.clock/v1", "now") extern int64_t fp_clock_now(void);
FP_IMPORT("fencepost.random/v1", "read") extern void fp_random_read(void *at, uint32_t size);

/* What a C compiler may call by itself. */
#ifndef FP_HAVE_LIBC
__attribute__((weak, no_builtin("memcpy"))) void *memcpy(void *to, const void *from, size_t n) {
	for (size_t i = 0; i < n; i++) ((uint8_t *)to)[i] = ((const uint8_t *)from)[i];
	return to;
}
__attribute__((weak, no_builtin("memmove"))) void *memmove(void *to, const void *from, size_t n) {
	if ((uintptr_t)to <= (uintptr_t)from) return memcpy(to, from, n);
	while (n-- > 0) ((uint8_t *)to)[n] = ((const uint8_t *)from)[n];
	return to;
}
__attribute__((weak, no_builtin("memset"))) void *memset(void *to, int value, size_t n) {
	for (size_t i = 0; i < n; i++) ((uint8_t *)to)[i] = (uint8_t)value;
	return to;
}
#else
#include <string.h>
#endif

/* ---- memory */

extern unsigned char __heap_base;
static uintptr_t fp_floor_, fp_top_; /* what stays, and what this call took */

FP_FUNC void *fp_alloc(uint32_t size) {
	if (fp_top_ == 0) fp_top_ = fp_floor_ = ((uintptr_t)&__heap_base + 15) & ~(uintptr_t)15;
	uintptr_t at = fp_top_, end = at + ((size + 15) & ~(uint32_t)15);
	if (size > 0x7fffffff || end < at) __builtin_trap();
	uintptr_t have = (uintptr_t)__builtin_wasm_memory_size(0) << 16;
	if (end > have && __builtin_wasm_memory_grow(0, (end - have + 0xffff) >> 16) == (size_t)-1) __builtin_trap();
	fp_top_ = end;
	return (void *)at;
}

/* ---- texts */

/* fp_text is a run of bytes that belongs to somebody else. */
typedef struct {
	const char *at;
	uint32_t size;
} fp_text;

#define FP_TEXT(literal) ((fp_text){(literal), sizeof(literal) - 1})

/* fp_word8 reads eight bytes at once: the host looks at the clock in every round
 * of a loop, so a loop over bytes costs more than what it does. */
FP_FUNC uint64_t fp_word8(const char *at) {
	uint64_t v;
	__builtin_memcpy(&v, at, sizeof v);
	return v;
}

FP_FUNC bool fp_equal(fp_text a, fp_text b) {
	uint32_t i = 0;
	if (a.size != b.size) return false;
	for (; i + 8 <= a.size; i += 8)
		if (fp_word8(a.at + i) != fp_word8(b.at + i)) return false;
	for (; i < a.size; i++)
		if (a.at[i] != b.at[i]) return false;
	return true;
}

/* fp_plain counts the bytes from i on that stand for themselves in a JSON string:
 * neither a quote, a backslash nor a control character. */
FP_FUNC uint32_t fp_plain(const char *at, uint32_t i, uint32_t size) {
	const uint64_t ones = 0x0101010101010101, tops = ones << 7;
	uint32_t from = i;
	for (; i + 8 <= size; i += 8) {
		uint64_t v = fp_word8(at + i), quote = v ^ ones * '"', back = v ^ ones * '\\';
		if ((((v - ones * ' ') | (quote - ones) | (back - ones)) & ~v & tops) != 0) break;
	}
	for (; i < size && (uint8_t)at[i] >= ' ' && at[i] != '"' && at[i] != '\\'; i++) {
	}
	return i - from;
}

/* fp_equal_fold compares as header names are compared. */
FP_FUNC bool fp_equal_fold(fp_text a, fp_text b) {
	if (a.size != b.size) return false;
	for (uint32_t i = 0; i < a.size; i++) {
		char x = a.at[i], y = b.at[i];
		if (x >= 'A' && x <= 'Z') x += 'a' - 'A';
		if (y >= 'A' && y <= 'Z') y += 'a' - 'A';
		if (x != y) return false;
	}
	return true;
}

/* ---- reading */

/* fp_reader walks the fields of one message. */
typedef struct {
	const uint8_t *at, *end;
	uint32_t field, type; /* of the field that fp_next found */
	uint64_t number;      /* its value, of wire type 0 */
	fp_text bytes;        /* its value, of wire type 2 */
	bool bad;             /* the message does not parse */
} fp_reader;

FP_FUNC fp_reader fp_read(fp_text message) {
	fp_reader r = {0};
	r.at = (const uint8_t *)message.at;
	r.end = r.at + message.size;
	return r;
}

FP_FUNC bool fp_varint(fp_reader *r, uint64_t *out) {
	uint64_t value = 0;
	if (r->at < r->end && *r->at < 0x80) { /* most are short */
		*out = *r->at++;
		return true;
	}
	for (uint32_t shift = 0; shift < 64; shift += 7) {
		if (r->at == r->end) break;
		uint8_t b = *r->at++;
		value |= (uint64_t)(b & 0x7f) << shift;
		if (b < 0x80) {
			*out = value;
			return true;
		}
	}
	r->bad = true;
	return false;
}

/* fp_next finds the next field; false at the end, or with r->bad set. */
FP_FUNC bool fp_next(fp_reader *r) {
	uint64_t tag, size = 0;
	if (r->bad || r->at == r->end || !fp_varint(r, &tag)) return false;
	r->field = (uint32_t)(tag >> 3);
	r->type = (uint32_t)(tag & 7);
	switch (r->type) {
	case 0:
		return r->field != 0 ? fp_varint(r, &r->number) : !(r->bad = true);
	case 1:
		size = 8;
		break;
	case 2:
		if (!fp_varint(r, &size)) return false;
		break;
	case 5:
		size = 4;
		break;
	default:
		r->bad = true;
		return false;
	}
	if (r->field == 0 || size > (uint64_t)(r->end - r->at)) {
		r->bad = true;
		return false;
	}
	r->bytes = (fp_text){(const char *)r->at, (uint32_t)size};
	r->at += size;
	return true;
}

/* fp_parses walks a whole message. */
FP_FUNC bool fp_parses(fp_text message) {
	fp_reader r = fp_read(message);
	while (fp_next(&r)) {
	}
	return !r.bad;
}

/* ---- writing */

/* fp_writer is a message that grows. Start with a zero one. Fields are written
 * in ascending order; zero values are left out. */
typedef struct {
	uint8_t *at;
	uint32_t size, room;
} fp_writer;

FP_FUNC uint8_t *fp_grow(fp_writer *w, uint32_t n) {
	if (w->room - w->size < n) {
		uint32_t room = w->room * 2 > w->size + n ? w->room * 2 : w->size + n + 256;
		uint8_t *at = fp_alloc(room);
		__builtin_memcpy(at, w->at, w->size);
		w->at = at;
		w->room = room;
	}
	uint8_t *at = w->at + w->size;
	w->size += n;
	return at;
}

FP_FUNC void fp_put(fp_writer *w, fp_text t) { __builtin_memcpy(fp_grow(w, t.size), t.at, t.size); }

FP_FUNC uint32_t fp_varint_size(uint64_t v) {
	uint32_t n = 1;
	for (; v >= 0x80; v >>= 7) n++;
	return n;
}

FP_FUNC void fp_varint_put(uint8_t *at, uint64_t v) {
	for (; v >= 0x80; v >>= 7) *at++ = (uint8_t)v | 0x80;
	*at = (uint8_t)v;
}

FP_FUNC void fp_put_varint(fp_writer *w, uint64_t v) { fp_varint_put(fp_grow(w, fp_varint_size(v)), v); }

FP_FUNC void fp_number(fp_writer *w, uint32_t field, int64_t v) {
	if (v == 0) return;
	fp_put_varint(w, (uint64_t)field << 3);
	fp_put_varint(w, (uint64_t)v);
}

/* fp_bytes writes a string even if it is empty, fp_string leaves such out. */
FP_FUNC void fp_bytes(fp_writer *w, uint32_t field, fp_text t) {
	fp_put_varint(w, (uint64_t)field << 3 | 2);
	fp_put_varint(w, t.size);
	fp_put(w, t);
}

FP_FUNC void fp_string(fp_writer *w, uint32_t field, fp_text t) {
	if (t.size > 0) fp_bytes(w, field, t);
}

/* fp_open begins a field that is written in place, such as a message; fp_close
 * ends it. They nest. */
FP_FUNC uint32_t fp_open(fp_writer *w, uint32_t field) {
	fp_put_varint(w, (uint64_t)field << 3 | 2);
	fp_grow(w, 1); /* for a length below 128 */
	return w->size;
}

FP_FUNC void fp_close(fp_writer *w, uint32_t began) {
	uint32_t size = w->size - began, more = fp_varint_size(size) - 1;
	if (more > 0) {
		fp_grow(w, more);
		__builtin_memmove(w->at + began + more, w->at + began, size);
	}
	fp_varint_put(w->at + began - 1, size);
}

/* fp_put_int writes a number as text. */
FP_FUNC void fp_put_int(fp_writer *w, int64_t v) {
	char b[20];
	uint32_t n = sizeof b;
	uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
	do b[--n] = (char)('0' + u % 10);
	while ((u /= 10) > 0);
	if (v < 0) b[--n] = '-';
	fp_put(w, (fp_text){b + n, sizeof b - n});
}

/* ---- errors */

typedef enum { FP_INVALID = 1, FP_CONFLICT, FP_UNAVAILABLE, FP_UNSUPPORTED, FP_NOT_FOUND } fp_tag;

enum { FP_OK = 0, FP_ERROR = 1 };

/* fp_fail answers a call with an Error. Texts may be empty. */
FP_FUNC int32_t fp_fail(fp_writer *out, fp_tag tag, fp_text code, fp_text field, fp_text rule) {
	out->size = 0;
	fp_number(out, 1, tag);
	fp_string(out, 2, code);
	fp_string(out, 3, field);
	fp_string(out, 4, rule);
	return FP_ERROR;
}

FP_FUNC int32_t fp_invalid(fp_writer *out, fp_text field, fp_text rule) {
	return fp_fail(out, FP_INVALID, FP_TEXT(""), field, rule);
}

/* ---- the messages of an exporter */

typedef struct {
	fp_text name, account, mode, base_url, settings;
} fp_configuration;

FP_FUNC bool fp_read_configuration(fp_text message, fp_configuration *c) {
	fp_reader r = fp_read(message);
	while (fp_next(&r)) {
		if (r.type != 2) continue;
		switch (r.field) {
		case 1: c->name = r.bytes; break;
		case 2: c->account = r.bytes; break;
		case 3: c->mode = r.bytes; break;
		case 4: c->base_url = r.bytes; break;
		case 5: c->settings = r.bytes; break;
		}
	}
	return !r.bad;
}

enum { FP_CORRECT_NONE = 1, FP_CORRECT_CANCEL, FP_CORRECT_NEGATIVE, FP_CORRECT_REPLACE_TOTAL };

typedef struct {
	fp_text id, identifier, kind, account, mode, customer, feature, value;
	int64_t attempt, timestamp, period_start, period_end; /* microseconds */
	bool corrects;       /* the item takes another one back */
	int64_t corrects_method;
	fp_text corrects_identifier, corrects_value;
	fp_text mapping; /* for fp_mapping */
} fp_item;

FP_FUNC void fp_read_corrects(fp_text message, fp_item *it) {
	fp_reader r = fp_read(message);
	it->corrects = true;
	while (fp_next(&r)) {
		if (r.field == 1 && r.type == 0) it->corrects_method = (int64_t)r.number;
		if (r.field == 2 && r.type == 2) it->corrects_identifier = r.bytes;
		if (r.field == 3 && r.type == 2) it->corrects_value = r.bytes;
	}
}

FP_FUNC fp_item fp_read_item(fp_text message) {
	fp_item it = {0};
	fp_reader r = fp_read(message);
	for (const uint8_t *began = r.at; fp_next(&r); began = r.at) {
		if (r.type == 0) {
			switch (r.field) {
			case 3: it.attempt = (int64_t)r.number; break;
			case 10: it.timestamp = (int64_t)r.number; break;
			case 11: it.period_start = (int64_t)r.number; break;
			case 12: it.period_end = (int64_t)r.number; break;
			}
			continue;
		}
		if (r.type != 2) continue;
		switch (r.field) {
		case 1: it.id = r.bytes; break;
		case 2: it.identifier = r.bytes; break;
		case 4: it.kind = r.bytes; break;
		case 5: it.account = r.bytes; break;
		case 6: it.mode = r.bytes; break;
		case 7: it.customer = r.bytes; break;
		case 8: it.feature = r.bytes; break;
		case 9: it.value = r.bytes; break;
		case 13: /* its entries are looked at when they are asked for */
			if (it.mapping.at == NULL) it.mapping = (fp_text){(const char *)began, (uint32_t)(r.end - began)};
			break;
		case 14: fp_read_corrects(r.bytes, &it); break;
		}
	}
	return it;
}

/* fp_mapped is the value of a key of the entries in a field, or empty. */
FP_FUNC fp_text fp_mapped(fp_text entries, uint32_t field, fp_text key) {
	fp_text found = FP_TEXT("");
	fp_reader r = fp_read(entries);
	while (fp_next(&r)) {
		if (r.field != field || r.type != 2) continue;
		fp_text k = FP_TEXT(""), v = FP_TEXT("");
		for (fp_reader e = fp_read(r.bytes); fp_next(&e);) {
			if (e.field == 1 && e.type == 2) k = e.bytes;
			if (e.field == 2 && e.type == 2) v = e.bytes;
		}
		if (fp_equal(k, key)) found = v;
	}
	return found;
}

/* fp_mapping is the value of a key of the item's mapping, or empty. */
FP_FUNC fp_text fp_mapping(const fp_item *it, fp_text key) { return fp_mapped(it->mapping, 13, key); }

/* fp_seconds rounds microseconds down. */
FP_FUNC int64_t fp_seconds(int64_t micros) { return micros / 1000000 - (micros % 1000000 < 0); }

/* fp_delivery is a batch that parses as a whole. */
typedef struct {
	fp_text message;
	uint32_t count;
} fp_delivery;

FP_FUNC bool fp_read_delivery(fp_text message, fp_delivery *d) {
	fp_reader r = fp_read(message);
	d->message = message;
	while (fp_next(&r)) {
		if (r.field != 1 || r.type != 2) continue;
		d->count++;
		fp_reader in = fp_read(r.bytes);
		while (fp_next(&in))
			if ((in.field == 13 || in.field == 14) && in.type == 2 && !fp_parses(in.bytes)) return false;
		if (in.bad) return false;
	}
	return !r.bad;
}

/* fp_next_item walks the items: for (fp_reader r = fp_read(d->message);
 * fp_next_item(&r, &item);) */
FP_FUNC bool fp_next_item(fp_reader *r, fp_item *it) {
	while (fp_next(r)) {
		if (r->field != 1 || r->type != 2) continue;
		*it = fp_read_item(r->bytes);
		return true;
	}
	return false;
}

typedef enum {
	FP_ACCEPTED = 1, FP_ACCEPTED_EARLIER, FP_RETRY, FP_RATE_LIMITED, FP_REJECTED, FP_CONFLICT_OUTCOME, FP_UNCERTAIN
} fp_kind;

typedef struct {
	fp_text item;
	fp_kind kind;
	fp_text provider_ref;
	int64_t retry_after; /* microseconds; 0: the host decides */
	fp_text code, message;
	bool mendable;
} fp_outcome;

FP_FUNC void fp_put_outcome(fp_writer *out, const fp_outcome *o) {
	uint32_t began = fp_open(out, 1);
	fp_string(out, 1, o->item);
	fp_number(out, 2, o->kind);
	fp_string(out, 3, o->provider_ref);
	fp_number(out, 4, o->retry_after);
	fp_string(out, 5, o->code);
	fp_string(out, 6, o->message);
	fp_number(out, 7, o->mendable);
	fp_close(out, began);
}

/* ---- reading back: method probe */

/* fp_probe is a set of questions that parses as a whole. */
typedef struct {
	fp_text message;
	uint32_t count;
} fp_probe;

/* fp_question asks for the sum of one customer's usage in [from, to). */
typedef struct {
	fp_text customer, feature;
	int64_t from, to; /* microseconds */
	fp_text message;  /* for fp_question_mapping */
} fp_question;

FP_FUNC bool fp_read_probe(fp_text message, fp_probe *p) {
	fp_reader r = fp_read(message);
	p->message = message;
	while (fp_next(&r)) {
		if (r.field != 1 || r.type != 2) continue;
		p->count++;
		fp_reader in = fp_read(r.bytes);
		while (fp_next(&in))
			if (in.field == 3 && in.type == 2 && !fp_parses(in.bytes)) return false;
		if (in.bad) return false;
	}
	return !r.bad;
}

/* fp_next_question walks the questions, as fp_next_item walks items. */
FP_FUNC bool fp_next_question(fp_reader *r, fp_question *q) {
	while (fp_next(r)) {
		if (r->field != 1 || r->type != 2) continue;
		*q = (fp_question){.message = r->bytes};
		for (fp_reader in = fp_read(r->bytes); fp_next(&in);) {
			if (in.field == 1 && in.type == 2) q->customer = in.bytes;
			if (in.field == 2 && in.type == 2) q->feature = in.bytes;
			if (in.field == 4 && in.type == 0) q->from = (int64_t)in.number;
			if (in.field == 5 && in.type == 0) q->to = (int64_t)in.number;
		}
		return true;
	}
	return false;
}

FP_FUNC fp_text fp_question_mapping(const fp_question *q, fp_text key) { return fp_mapped(q->message, 3, key); }

/* fp_sum answers one question, in their order. An empty sum says that the
 * provider did not say, which is not zero; code tells why. */
typedef struct {
	fp_text sum, meter, code, message;
} fp_sum;

FP_FUNC void fp_put_sum(fp_writer *out, const fp_sum *s) {
	uint32_t began = fp_open(out, 1);
	fp_string(out, 1, s->sum);
	fp_string(out, 2, s->meter);
	fp_string(out, 3, s->code);
	fp_string(out, 4, s->message);
	fp_close(out, began);
}

/* ---- messages of the provider: method webhook. Write the answer's fields
 * 1 id, 2 evidence (fp_put_evidence), 3 counted, 4 code */

/* fp_webhook is a message whose signature the host has verified. */
typedef struct {
	fp_text body;
	int64_t received_at; /* microseconds */
} fp_webhook;

FP_FUNC bool fp_read_webhook(fp_text message, fp_webhook *m) {
	fp_reader r = fp_read(message);
	while (fp_next(&r)) {
		if (r.field == 1 && r.type == 2) m->body = r.bytes;
		if (r.field == 2 && r.type == 0) m->received_at = (int64_t)r.number;
	}
	return !r.bad;
}

/* fp_put_evidence says what the message says of the item that was sent with an
 * identifier. */
FP_FUNC void fp_put_evidence(fp_writer *out, fp_text identifier, bool refused, fp_text code, fp_text message) {
	uint32_t began = fp_open(out, 2);
	fp_string(out, 1, identifier);
	fp_number(out, 2, refused);
	fp_string(out, 3, code);
	fp_string(out, 4, message);
	fp_close(out, began);
}

/* ---- http: write requests with fp_open(batch, 1), then fields 1 method, 2 url,
 * 3 headers (fp_header), 4 body, 5 items, 6 secrets, then fp_close */

FP_FUNC void fp_header(fp_writer *w, fp_text name, fp_text value) {
	uint32_t began = fp_open(w, 3);
	fp_string(w, 1, name);
	fp_string(w, 2, value);
	fp_close(w, began);
}

enum { FP_ANSWERED = 0, FP_NOT_SENT = 1, FP_UNKNOWN = 2 };

typedef struct {
	uint32_t failure; /* FP_ANSWERED, FP_NOT_SENT or FP_UNKNOWN */
	fp_text reason;
	int64_t status;
	fp_text body;
	fp_text message; /* of the whole answer */
} fp_answer;

FP_FUNC bool fp_read_answer(fp_text message, fp_answer *a) {
	fp_reader r = fp_read(message);
	a->message = message;
	while (fp_next(&r)) {
		if (r.field == 1 && r.type == 0) a->failure = r.number < 2 ? (uint32_t)r.number : FP_UNKNOWN;
		if (r.field == 2 && r.type == 2) a->reason = r.bytes;
		if (r.field == 3 && r.type == 0) a->status = (int64_t)r.number;
		if (r.field == 4 && r.type == 2 && !fp_parses(r.bytes)) return false;
		if (r.field == 5 && r.type == 2) a->body = r.bytes;
	}
	return !r.bad;
}

/* fp_answer_header is the first field of that name, or empty. */
FP_FUNC fp_text fp_answer_header(const fp_answer *a, fp_text name) {
	fp_reader r = fp_read(a->message);
	while (fp_next(&r)) {
		if (r.field != 4 || r.type != 2) continue;
		fp_text k = FP_TEXT(""), v = FP_TEXT("");
		for (fp_reader e = fp_read(r.bytes); fp_next(&e);) {
			if (e.field == 1 && e.type == 2) k = e.bytes;
			if (e.field == 2 && e.type == 2) v = e.bytes;
		}
		if (fp_equal_fold(k, name)) return v;
	}
	return FP_TEXT("");
}

/* fp_send sends a batch of n requests and returns n answers, in order. Where the
 * host refused the batch, each was not sent; where its answers are unreadable,
 * each is unknown: they may have been sent. */
FP_FUNC fp_answer *fp_send(const fp_writer *batch, uint32_t n) {
	fp_answer *answers = fp_alloc(n * (uint32_t)sizeof(fp_answer));
	__builtin_memset(answers, 0, n * sizeof(fp_answer));
	uint32_t failure = FP_ANSWERED, found = 0;
	int32_t size = fp_http_send(batch->at, batch->size);
	if (size < 0) {
		failure = FP_NOT_SENT;
	} else {
		uint8_t *at = fp_alloc((uint32_t)size);
		uint32_t got = fp_http_receive(at, (uint32_t)size);
		fp_reader r = fp_read((fp_text){(char *)at, got < (uint32_t)size ? got : (uint32_t)size});
		bool lost = false, refused = false;
		while (fp_next(&r)) {
			if (r.field == 1 && r.type == 2 && found++ < n) lost |= !fp_read_answer(r.bytes, &answers[found - 1]);
			if (r.field == 2 && r.type == 2) {
				refused = true;
				lost |= !fp_parses(r.bytes);
			}
		}
		if (r.bad || lost || (!refused && found != n)) failure = FP_UNKNOWN;
		else if (refused) failure = FP_NOT_SENT;
	}
	for (uint32_t i = 0; failure != FP_ANSWERED && i < n; i++)
		answers[i] = (fp_answer){.failure = failure, .reason = failure == FP_UNKNOWN ? FP_TEXT("answers_lost") : FP_TEXT("batch_refused")};
	return answers;
}

/* ---- append: write records with fp_put_record */

FP_FUNC void fp_put_record(fp_writer *batch, const fp_item *it, fp_text json) {
	uint32_t began = fp_open(batch, 1);
	fp_string(batch, 1, it->id);
	fp_string(batch, 2, it->identifier);
	fp_number(batch, 3, it->attempt > 1);
	fp_string(batch, 4, json);
	fp_close(batch, began);
}

typedef struct {
	uint32_t failure; /* as of an fp_answer */
	fp_text reason;
	bool earlier; /* a line with this identifier was there */
	int64_t sequence;
} fp_appended;

FP_FUNC bool fp_read_appended(fp_text message, fp_appended *a) {
	fp_reader r = fp_read(message);
	while (fp_next(&r)) {
		if (r.field == 1 && r.type == 0) a->failure = r.number < 2 ? (uint32_t)r.number : FP_UNKNOWN;
		if (r.field == 2 && r.type == 2) a->reason = r.bytes;
		if (r.field == 3 && r.type == 0) a->earlier = r.number != 0;
		if (r.field == 4 && r.type == 0) a->sequence = (int64_t)r.number;
	}
	return !r.bad;
}

/* fp_append appends n records and returns n answers, in order, as fp_send does. */
FP_FUNC fp_appended *fp_append(const fp_writer *batch, uint32_t n) {
	fp_appended *answers = fp_alloc(n * (uint32_t)sizeof(fp_appended));
	__builtin_memset(answers, 0, n * sizeof(fp_appended));
	uint32_t failure = FP_ANSWERED, found = 0;
	int32_t size = fp_append_send(batch->at, batch->size);
	if (size < 0) {
		failure = FP_NOT_SENT;
	} else {
		uint8_t *at = fp_alloc((uint32_t)size);
		uint32_t got = fp_append_receive(at, (uint32_t)size);
		fp_reader r = fp_read((fp_text){(char *)at, got < (uint32_t)size ? got : (uint32_t)size});
		bool lost = false, refused = false;
		while (fp_next(&r)) {
			if (r.field == 1 && r.type == 2 && found++ < n) lost |= !fp_read_appended(r.bytes, &answers[found - 1]);
			if (r.field == 2 && r.type == 2) {
				refused = true;
				lost |= !fp_parses(r.bytes);
			}
		}
		if (r.bad || lost || (!refused && found != n)) failure = FP_UNKNOWN;
		else if (refused) failure = FP_NOT_SENT;
	}
	for (uint32_t i = 0; failure != FP_ANSWERED && i < n; i++)
		answers[i] = (fp_appended){.failure = failure, .reason = failure == FP_UNKNOWN ? FP_TEXT("answers_lost") : FP_TEXT("batch_refused")};
	return answers;
}

/* ---- JSON, as far as requests and answers need it */

/* fp_put_quoted writes a JSON string. */
FP_FUNC void fp_put_quoted(fp_writer *w, fp_text t) {
	static const char digits[] = "0123456789abcdef";
	fp_put(w, FP_TEXT("\""));
	for (uint32_t i = 0; i < t.size; i++) {
		uint32_t n = fp_plain(t.at, i, t.size);
		fp_put(w, (fp_text){t.at + i, n});
		if ((i += n) == t.size) break;
		uint8_t c = (uint8_t)t.at[i];
		if (c < ' ') {
			char b[] = {'\\', 'u', '0', '0', digits[c >> 4], digits[c & 15]};
			fp_put(w, (fp_text){b, sizeof b});
		} else {
			char b[] = {'\\', (char)c};
			fp_put(w, (fp_text){b, sizeof b});
		}
	}
	fp_put(w, FP_TEXT("\""));
}

typedef struct {
	const char *at, *end;
	uint32_t depth;
} fp_json;

FP_FUNC int32_t fp_json_peek(fp_json *j) {
	while (j->at < j->end && (*j->at == ' ' || *j->at == '\t' || *j->at == '\n' || *j->at == '\r')) j->at++;
	return j->at < j->end ? (uint8_t)*j->at : -1;
}

FP_FUNC int32_t fp_hex(const char *at, uint32_t n) {
	int32_t v = 0;
	for (uint32_t i = 0; i < n; i++) {
		char c = at[i];
		int32_t d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
		if (d < 0) return -1;
		v = v << 4 | d;
	}
	return v;
}

/* fp_json_string reads a string; out is what stands between its quotes. */
FP_FUNC bool fp_json_string(fp_json *j, fp_text *out) {
	const char *began = ++j->at;
	for (; j->at < j->end; j->at++) {
		j->at += fp_plain(j->at, 0, (uint32_t)(j->end - j->at));
		if (j->at == j->end) return false;
		uint8_t c = (uint8_t)*j->at;
		if (c == '"') {
			*out = (fp_text){began, (uint32_t)(j->at++ - began)};
			return true;
		}
		if (c < ' ') return false;
		if (c != '\\') continue;
		if (++j->at == j->end) return false;
		switch (*j->at) {
		case '"': case '\\': case '/': case 'b': case 'f': case 'n': case 'r': case 't': break;
		case 'u':
			if (j->end - j->at < 5 || fp_hex(j->at + 1, 4) < 0) return false;
			j->at += 4;
			break;
		default: return false;
		}
	}
	return false;
}

/* fp_json_equal compares what stands between quotes with a text. */
FP_FUNC bool fp_json_equal(fp_text raw, fp_text t) {
	uint32_t n = fp_plain(raw.at, 0, raw.size);
	if (n == raw.size) return fp_equal(raw, t); /* most have no escapes */
	n = 0;
	for (uint32_t i = 0; i < raw.size; i++) {
		uint32_t c = (uint8_t)raw.at[i];
		char b[4] = {(char)c};
		uint32_t size = 1;
		if (c == '\\') {
			switch (raw.at[++i]) {
			case 'b': b[0] = '\b'; break;
			case 'f': b[0] = '\f'; break;
			case 'n': b[0] = '\n'; break;
			case 'r': b[0] = '\r'; break;
			case 't': b[0] = '\t'; break;
			case 'u':
				c = (uint32_t)fp_hex(raw.at + i + 1, 4);
				i += 4;
				if (c >= 0xd800 && c < 0xe000) {
					int32_t low = c < 0xdc00 && raw.size - i > 6 && raw.at[i + 1] == '\\' && raw.at[i + 2] == 'u' ? fp_hex(raw.at + i + 3, 4) : -1;
					bool pair = low >= 0xdc00 && low < 0xe000;
					c = pair ? 0x10000 + ((c - 0xd800) << 10) + ((uint32_t)low - 0xdc00) : 0xfffd;
					i += pair ? 6 : 0;
				}
				if (c < 0x80) b[0] = (char)c;
				else if (c < 0x800) { size = 2; b[0] = (char)(0xc0 | c >> 6); }
				else if (c < 0x10000) { size = 3; b[0] = (char)(0xe0 | c >> 12); }
				else { size = 4; b[0] = (char)(0xf0 | c >> 18); }
				for (uint32_t k = 1; k < size; k++) b[k] = (char)(0x80 | (c >> (6 * (size - 1 - k)) & 0x3f));
				break;
			default: b[0] = raw.at[i];
			}
		}
		if (t.size - n < size) return false;
		for (uint32_t k = 0; k < size; k++)
			if (t.at[n + k] != b[k]) return false;
		n += size;
	}
	return n == t.size;
}

FP_FUNC bool fp_json_digits(fp_json *j) {
	const char *began = j->at;
	while (j->at < j->end && *j->at >= '0' && *j->at <= '9') j->at++;
	return j->at > began;
}

FP_FUNC bool fp_json_number(fp_json *j) {
	if (*j->at == '-') j->at++;
	if (j->at < j->end && *j->at == '0') j->at++;
	else if (!fp_json_digits(j)) return false;
	if (j->at < j->end && *j->at == '.' && (j->at++, !fp_json_digits(j))) return false;
	if (j->at < j->end && (*j->at == 'e' || *j->at == 'E')) {
		j->at++;
		if (j->at < j->end && (*j->at == '+' || *j->at == '-')) j->at++;
		return fp_json_digits(j);
	}
	return true;
}

/* fp_json_value reads a value and looks for a string at keys[0..n) in it; n < 0:
 * for none. Of equal keys the last counts. */
FP_FUNC bool fp_json_value(fp_json *j, const fp_text *keys, int32_t n, fp_text *found) {
	static const fp_text words[] = {{"true", 4}, {"false", 5}, {"null", 4}};
	fp_text s;
	int32_t c = fp_json_peek(j);
	if (j->depth > 100) return false; /* no answer is that deep */
	if (c == '"') {
		if (!fp_json_string(j, &s)) return false;
		if (n == 0) *found = s;
		return true;
	}
	if (c == '{' || c == '[') {
		char close = c == '{' ? '}' : ']';
		j->at++, j->depth++;
		if (fp_json_peek(j) == close) return j->at++, j->depth--, true;
		for (;;) {
			int32_t next = -1;
			if (c == '{') {
				if (fp_json_peek(j) != '"' || !fp_json_string(j, &s) || fp_json_peek(j) != ':') return false;
				j->at++;
				if (n > 0 && fp_json_equal(s, keys[0])) {
					next = n - 1;
					*found = (fp_text){0};
				}
			}
			if (!fp_json_value(j, keys + 1, next, found)) return false;
			int32_t after = fp_json_peek(j);
			j->at++;
			if (after == close) return j->depth--, true;
			if (after != ',') return false;
		}
	}
	for (uint32_t i = 0; i < 3; i++)
		if (j->end - j->at >= (ptrdiff_t)words[i].size && fp_equal((fp_text){j->at, words[i].size}, words[i])) return j->at += words[i].size, true;
	return (c == '-' || (c >= '0' && c <= '9')) && fp_json_number(j);
}

/* fp_json_at is the string below these keys of a document that parses as a
 * whole: what stands between its quotes, for fp_json_equal. */
FP_FUNC bool fp_json_at(fp_text document, const fp_text *keys, int32_t n, fp_text *found) {
	fp_json j = {document.at, document.at + document.size, 0};
	*found = (fp_text){0};
	return fp_json_value(&j, keys, n, found) && fp_json_peek(&j) < 0 && found->at != NULL;
}

/* fp_json_empty reports whether a document is an object without keys. */
FP_FUNC bool fp_json_empty(fp_text document) {
	fp_json j = {document.at, document.at + document.size, 0};
	if (fp_json_peek(&j) != '{') return false;
	j.at++;
	if (fp_json_peek(&j) != '}') return false;
	j.at++;
	return fp_json_peek(&j) < 0;
}

/* ---- serving */

typedef struct {
	int32_t (*describe)(fp_writer *out);
	int32_t (*configure)(const fp_configuration *c, fp_writer *out);
	int32_t (*deliver)(const fp_delivery *d, fp_writer *out);
	int32_t (*probe)(const fp_probe *p, fp_writer *out);
	int32_t (*webhook)(const fp_webhook *m, fp_writer *out);
} fp_exporter;

FP_FUNC int32_t fp_dispatch(const fp_exporter *e, int32_t method, fp_text request, fp_writer *out) {
	fp_text malformed = FP_TEXT("malformed_message"), none = FP_TEXT("");
	switch (method) {
	case 1:
		return e->describe(out);
	case 2: {
		fp_configuration c = {0};
		if (!fp_read_configuration(request, &c)) return fp_fail(out, FP_INVALID, malformed, none, none);
		int32_t status = e->configure(&c, out);
		if (status == FP_OK) fp_floor_ = fp_top_; /* what it saw stays */
		return status;
	}
	case 3: {
		fp_delivery d = {0};
		if (!fp_read_delivery(request, &d)) return fp_fail(out, FP_INVALID, malformed, none, none);
		return e->deliver(&d, out);
	}
	case 4: {
		fp_probe p = {0};
		if (e->probe == NULL) break;
		if (!fp_read_probe(request, &p)) return fp_fail(out, FP_INVALID, malformed, none, none);
		return e->probe(&p, out);
	}
	case 5: {
		fp_webhook m = {0};
		if (e->webhook == NULL) break;
		if (!fp_read_webhook(request, &m)) return fp_fail(out, FP_INVALID, malformed, none, none);
		return e->webhook(&m, out);
	}
	case 6:
		return FP_OK;
	}
	return fp_fail(out, FP_UNSUPPORTED, FP_TEXT("unknown_method"), none, FP_TEXT("a method that this exporter implements"));
}

FP_FUNC int32_t fp_serve(const fp_exporter *e, int32_t method, int32_t length) {
	fp_top_ = fp_floor_;
	uint32_t size = length > 0 ? (uint32_t)length : 0;
	char *at = fp_alloc(size);
	uint32_t got = fp_input_read(at, size);
	fp_writer out = {0};
	int32_t status = fp_dispatch(e, method, (fp_text){at, got < size ? got : size}, &out);
	fp_output_write(out.at, out.size);
	return status;
}

/* FP_SERVE makes the module's exports. */
#define FP_SERVE(describe, configure, deliver) FP_SERVE_ALL(describe, configure, deliver, NULL, NULL)

/* FP_SERVE_ALL is for exporters that can be asked, or get messages. */
#define FP_SERVE_ALL(describe, configure, deliver, probe, webhook) \
	FP_EXPORT("fp_abi_v1") void fp_abi_v1(void) {} \
	FP_EXPORT("fp_call") int32_t fp_call(int32_t method, int32_t length) { \
		static const fp_exporter e = {describe, configure, deliver, probe, webhook}; \
		return fp_serve(&e, method, length); \
	}

#endif
