package outbox

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// O5, A-T11.
func TestSanitize(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, in, want string }{
		{"plain", "No such meter", "No such meter"},
		{"secret key", "Invalid API Key provided: sk_live_51Habcdefgh", "Invalid API Key provided: [masked]"},
		{"starred key", "Invalid API Key: sk_test_****1234", "Invalid API Key: [masked]"},
		{"bearer", "header was Bearer abc.def-ghi", "header was [masked]"},
		{"token", "got eyJhbGciOiJIUzI1NiJ9.eyJzdWIi.sig here", "got [masked] here"},
		{"assignment", `config api_key="hunter22" bad`, `config [masked]" bad`},
		{"mail", "customer jane.doe@example.org unknown", "customer [masked] unknown"},
		{"card", "card 4242 4242 4242 4242 declined", "card [masked] declined"},
		{"card in a row", "card 4242424242424242 declined", "card [masked] declined"},
		{"unix time stays", "at 1796000000 refused", "at 1796000000 refused"},
		{"control characters", "a\x00b\nc", "a b c"},
		{"broken utf-8", "a\xffb", "a\uFFFDb"},
		{"200 characters, not bytes", strings.Repeat("é", 201), strings.Repeat("é", 200)},
		{"masked before it is cut", strings.Repeat("x", 190) + " sk_live_51Habcdefghijkl", strings.Repeat("x", 190) + " [masked]"},
	}
	for _, tt := range tests {
		if got := Sanitize("c", 400, tt.in).Message; got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	if got := Sanitize("resource missing\n<b>", 0, "").Code; got != "resource_missing__b_" {
		t.Errorf("code %q", got)
	}
	if got := Sanitize("sk_live_51Habcdefgh", 0, "").Code; got != "masked" {
		t.Errorf("code %q", got)
	}
}

func FuzzSanitize(f *testing.F) {
	f.Add("code", "Bearer abcdef jane@example.org 4242424242424242 é\xff")
	f.Add("", strings.Repeat("\xe2\x82", 500))
	f.Fuzz(func(t *testing.T, code, message string) {
		e := Sanitize(code, 0, message)
		if !utf8.ValidString(e.Message) || utf8.RuneCountInString(e.Message) > 200 || len(e.Code) > 64 {
			t.Errorf("%q %q", e.Code, e.Message)
		}
		for _, m := range masks {
			if m.MatchString(e.Message) && utf8.RuneCountInString(e.Message) < 200 {
				t.Errorf("%q holds what %s masks", e.Message, m)
			}
		}
	})
}
