package wasm

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/examples/exporter-go/meterline/meterlinetest"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// running is one sample, and what passed between it and its host in the last
// call.
type running struct {
	language string
	module   *Module
	answers  []byte
	sent     []byte
}

func run(t *testing.T, language string) *running {
	t.Helper()
	r := &running{language: language}
	cfg := config(sample(t, language))
	cfg.InertFiles, cfg.CacheDir = true, filepath.Join(scratch, "cache")
	cfg.Limits.MaxInstances = 1
	cfg.Setup = []SetupCall{{
		Method:  uint32(wirev1.MethodConfigure),
		Request: wirev1.EncodeConfiguration(meterlinetest.Provider().Configuration),
	}}
	cfg.Host.HTTPSend = func(_ context.Context, batch []byte) ([]byte, error) {
		r.sent = append(r.sent, batch...)
		return r.answers, nil
	}
	r.module = mustOpen(t, cfg)
	return r
}

// Issue 5: the same exporter in four languages sends the same bytes and answers
// the same outcomes, whatever it is given and whatever comes back.
func TestSamplesDoTheSame(t *testing.T) {
	t.Parallel()
	samples := make([]*running, len(languages))
	for i, language := range languages {
		samples[i] = run(t, language)
	}
	seen := map[string]int{}
	deliver := func(rt *rapid.T) {
		items := rapid.SliceOfN(rapid.Custom(drawItem), 0, 6).Draw(rt, "items")
		var responses []capability.Response
		for i := range items {
			if sendable(&items[i]) {
				responses = append(responses, drawResponse(rt, &items[i]))
			}
		}
		request := wirev1.EncodeDelivery(exporter.Delivery{Items: items})
		answers := wirev1.EncodeResponses(responses, nil)
		var want *running
		var wanted []byte
		for _, r := range samples {
			r.answers, r.sent = answers, nil
			outcomes, err := r.module.Call(t.Context(), uint32(wirev1.MethodDeliver), request)
			if err != nil {
				rt.Fatalf("%s: %v", r.language, err)
			}
			if want == nil {
				want, wanted = r, outcomes
				continue
			}
			if !bytes.Equal(r.sent, want.sent) {
				rt.Fatalf("%s sends\n%q\n%s sends\n%q", want.language, want.sent, r.language, r.sent)
			}
			if !bytes.Equal(outcomes, wanted) {
				rt.Fatalf("%s answers\n%q\n%s answers\n%q", want.language, wanted, r.language, outcomes)
			}
		}
		outcomes, err := wirev1.DecodeOutcomes(wanted)
		if err != nil {
			rt.Fatal(err)
		}
		for _, o := range outcomes {
			seen[string(o.Kind)+" "+o.Code]++
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		for range 10 {
			deliver(rt)
		}
	})
	// What is drawn reaches every kind of outcome that the sample has.
	for _, kind := range []string{
		"accepted ", "accepted_earlier duplicate", "uncertain foreign_duplicate", "rejected invalid_value", "rejected no_such_meter",
		"rate_limited rate_limited", "retry foreign_answer", "retry unknown_refusal", "retry no_answer", "retry not_sent", "retry http_503",
		"retry value_invalid", "retry customer_missing", "retry correction_method_unknown", "retry mapping_incomplete",
	} {
		if seen[kind] == 0 && !testing.Short() {
			t.Errorf("nothing drawn led to %q: %v", kind, seen)
		}
	}
}

var drawText = rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
	"cus_1", "", "Zoë", "🦄", "\"\\/\b\f\n\r\t\x00\x1f\x7f", "\u2028<&>", "%41", strings.Repeat("long ", 60),
}))

func drawItem(t *rapid.T) exporter.Item {
	it := exporter.Item{
		ID: rapid.StringMatching(`item-[a-z0-9]{1,6}`).Draw(t, "id"), Identifier: rapid.StringMatching(`fencepost_[a-z2-7]{1,26}`).Draw(t, "identifier"),
		Attempt: rapid.IntRange(1, 9).Draw(t, "attempt"), Kind: "event", Account: "acme", Mode: "test",
		Customer: rapid.OneOf(drawText, rapid.Just("cus_1")).Draw(t, "customer"), Feature: "tokens",
		Value: rapid.OneOf(rapid.StringMatching(`-?[0-9]{1,26}(\.[0-9]{1,12})?`), rapid.SampledFrom([]string{
			"0", "", "-", ".5", "5.", "1.2.3", "1e5", "+1", "-0", "00.10", "٣", " 1",
		})).Draw(t, "value"),
		Timestamp: time.UnixMicro(rapid.Int64Range(-1<<52, 1<<52).Draw(t, "timestamp")),
		Mapping:   map[string]string{"other": "x"},
	}
	if meter := rapid.SampledFrom([]string{"m", "tokens", "", "none", "\"\\\x01é"}).Draw(t, "meter"); meter != "none" {
		it.Mapping["meter"] = meter
	}
	switch rapid.IntRange(0, 19).Draw(t, "odd") {
	case 13, 14:
		it.Identifier = "fencepost_🦄é"
	case 15:
		it.Mode = "live"
	case 16:
		it.Account = ""
	case 17:
		it.Identifier = strings.Repeat("i", rapid.SampledFrom([]int{0, 99, 100, 101}).Draw(t, "length"))
	case 18, 19:
		it.Corrects = &exporter.Corrects{Method: rapid.SampledFrom([]exporter.CorrectionMode{
			"", exporter.CorrectNone, exporter.CorrectCancel, exporter.CorrectNegative, exporter.CorrectTotal,
		}).Draw(t, "method"), Identifier: "o", Value: "1"}
	}
	return it
}

// sendable repeats the sample's own rule, so that there are as many answers as
// requests; where it is wrong, all answers are lost alike.
func sendable(it *exporter.Item) bool {
	return it.Mode == "test" && it.Account == "acme" && it.Mapping["meter"] != "" && it.Customer != "" && it.Identifier != "" &&
		len(it.Identifier) <= 100 && (it.Corrects == nil || it.Corrects.Method == exporter.CorrectNegative) && plainNumber(it.Value)
}

func plainNumber(s string) bool {
	whole, fraction, point := strings.Cut(strings.TrimPrefix(s, "-"), ".")
	return whole != "" && (!point || fraction != "") && strings.Trim(whole+fraction, "0123456789") == ""
}

func drawResponse(t *rapid.T, it *exporter.Item) capability.Response {
	r := capability.Response{
		Status: rapid.SampledFrom([]int{200, 200, 201, 204, 302, 400, 400, 401, 404, 409, 409, 422, 422, 429, 429, 500, 503}).Draw(t, "status"),
		Body:   drawBody(t, it),
	}
	if rapid.Bool().Draw(t, "coherent") { // so that not only broken answers are compared
		c := rapid.SampledFrom([]struct {
			status int
			body   string
		}{
			{200, `{"id":"%s"}`},
			{201, `{"id":"%s","n":1}`},
			{409, `{"error":{"code":"duplicate","id":"%s"}}`},
			{409, `{"error":{"id":"%sx","code":"duplicate"}}`},
			{400, `{"error":{"code":"no_such_meter","id":"%s"}}`},
			{422, `{"error":{"code":"invalid_value","id":"%s"}}`},
			{503, `%s`},
		}).Draw(t, "answer")
		r.Status, r.Body = c.status, fmt.Appendf(nil, c.body, it.Identifier)
	}
	if rapid.Bool().Draw(t, "waits") {
		r.Headers = []capability.Header{{Name: "Date", Value: "x"}, {
			Name:  rapid.SampledFrom([]string{"Retry-After", "retry-after", "RETRY-AFTER"}).Draw(t, "name"),
			Value: rapid.SampledFrom([]string{"", "0", "7", " 86400\t", "2147483647", "2147483648", "-1", "1.5", "99999999999999999999", "soon"}).Draw(t, "wait"),
		}}
	}
	switch rapid.IntRange(0, 9).Draw(t, "failure") {
	case 8:
		r.Failure = capability.FailureNotSent
	case 9:
		r.Failure = capability.FailureUnknown
	}
	return r
}

// drawBody is what the provider says, right or wrong, and sometimes broken.
func drawBody(t *rapid.T, it *exporter.Item) []byte {
	escaped := strings.NewReplacer("🦄", `\ud83e\udd84`, "é", `\u00e9`).Replace(it.Identifier)
	id := rapid.SampledFrom([]string{it.Identifier, escaped, it.Identifier + "x", "", `\u0066` + strings.TrimPrefix(it.Identifier, "f")}).Draw(t, "named")
	code := rapid.SampledFrom([]string{"duplicate", "duplicate", "invalid_value", "timestamp_too_old", "no_such_customer", "no_such_meter", "other", `\ud83e\udd84`, `\ud800`}).Draw(t, "code")
	filler := rapid.SampledFrom([]string{
		`0`, `-0.5e+3`, `1e400`, `[]`, `[1,{"id":"x"}]`, `{}`, `{"a":{"b":null}}`, `true`, `"\u00e9\n"`, `01`, `.5`, `nul`, "\"\x01\"", `"\x"`, `"\u12"`,
	}).Draw(t, "filler")
	body := fmt.Sprintf(rapid.SampledFrom([]string{
		`{"id":"%[1]s","n":%[3]s}`,
		` {"n":%[3]s , "id" : "%[1]s"} `,
		`{"error":{"code":"%[2]s","id":"%[1]s","n":%[3]s}}`,
		`{"error":{"n":%[3]s,"id":"%[1]s","code":"%[2]s"},"id":"%[1]s"}`,
		`{"id":"x","id":"%[1]s"}`,
		`{"id":"%[1]s","id":%[3]s}`,
		`{"error":{"code":"%[2]s"},"error":{"id":"%[1]s"}}`,
		`[{"id":"%[1]s"}]`,
		`{"nested":{"id":"%[1]s"}}`,
		`%[3]s`,
	}).Draw(t, "shape"), id, code, filler)
	switch rapid.IntRange(0, 9).Draw(t, "broken") {
	case 7:
		return []byte(body[:rapid.IntRange(0, len(body)).Draw(t, "cut")])
	case 8:
		return []byte(body + rapid.SampledFrom([]string{"}", "{}", ",", "\n\t ", "\x00", "x"}).Draw(t, "rest"))
	case 9:
		return rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
	}
	return []byte(body)
}
