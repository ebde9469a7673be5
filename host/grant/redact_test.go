package grant

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// O5, T6: what may be a secret or personal data goes, what an operator needs
// stays.
func TestRedact(t *testing.T) {
	t.Parallel()
	const ident = "fencepost_9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	tests := map[string]struct{ in, want string }{
		"stripe key":        {"Invalid API Key provided: sk_live_abc123", "Invalid API Key provided: ***"},
		"short test key":    {"key sk_test_1 no", "key *** no"},
		"restricted":        {"(rk_live_51H8xyz)", "(***)"},
		"publishable":       {"pk_test_51H8xyz", "***"},
		"webhook secret":    {"whsec_5f2b1c9d8e", "***"},
		"ours":              {"fp_live_a1b2c3d4", "***"},
		"bearer":            {"got Bearer abc.def-123", "got Bearer ***"},
		"authorization":     {"Authorization: Bearer abc.def-123", "Authorization: ***"},
		"basic":             {"basic dXNlcjpwYXNz", "basic ***"},
		"password":          {"host=db password=hunter2 user=u", "host=db password=*** user=u"},
		"quoted password":   {`{"password": "hunter 2", "a": 1}`, `{"password": ***, "a": 1}`},
		"open quote":        {`secret="abc def`, `secret=***`},
		"api key":           {"api_key=abc, x", "api_key=***, x"},
		"dsn":               {"dial postgres://user:pa/ss@db.local:5432/app?sslmode=disable: refused", "dial postgres://db.local:5432/app?*** refused"},
		"query":             {"GET https://h.example/p?token=x&y=z failed", "GET https://h.example/p?*** failed"},
		"fragment":          {"https://h.example/#access", "https://h.example/?***"},
		"plain url":         {"see https://stripe.com/docs/api now", "see https://stripe.com/docs/api now"},
		"email":             {"customer jenny.rosen+1@example.co.uk has", "customer *** has"},
		"email unicode":     {"用户@例子.测试", "***"},
		"email escaped":     {"q jenny%40example.com", "q ***"},
		"card":              {"card 4242424242424242 declined", "card *** declined"},
		"card in groups":    {"4242 4242 4242 4242", "***"},
		"card with dashes":  {"3782-822463-10005", "***"},
		"card, 19":          {"6304000000000000000", "***"},
		"card, odd digits":  {"４２４２４２４２４２４２４２４２", "***"},
		"12 digits":         {"n 123456789012", "n 123456789012"},
		"base64":            {"v dGhpcyBpcyBhIHNlY3JldCB0b2tlbg== x", "v *** x"},
		"base64 url":        {"eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0", "***.***"},
		"hex":               {"h 5d41402abc4b2a76b9719d911017c592", "h ***"},
		"our identifier":    {"An event already exists with identifier " + ident + ".", "An event already exists with identifier " + ident + "."},
		"like ours":         {"x" + ident, "***"},
		"code":              {"meter_event_customer_not_found", "meter_event_customer_not_found"},
		"camel code":        {"CustomerNotSubscribedException", "CustomerNotSubscribedException"},
		"path":              {"POST /v1/billing/meter_events", "POST /v1/billing/meter_events"},
		"sentence":          {"No such customer: 'cus_123'; a similar object exists in test mode", "No such customer: 'cus_123'; a similar object exists in test mode"},
		"time":              {"at 2026-11-30T12:00:00.000001Z", "at 2026-11-30T12:00:00.000001Z"},
		"not a key":         {"disk_full_on_device", "disk_full_on_device"},
		"empty":             {"", ""},
		"mask stays a mask": {"password=*** Bearer ***", "password=*** Bearer ***"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := Redact(tt.in); got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

// O5, A-T11: characters, not bytes; masked before it is cut.
func TestSanitize(t *testing.T) {
	t.Parallel()
	pad := strings.Repeat("é ", 97) // 194 characters
	tests := map[string]struct{ in, want string }{
		"short":                {"no such customer", "no such customer"},
		"runes, not bytes":     {strings.Repeat("é", 300), strings.Repeat("é", 200)},
		"four bytes":           {strings.Repeat("😀", 201), strings.Repeat("😀", 200)},
		"key across the cut":   {pad + "sk_live_abcdefgh", pad + "***"},
		"card across the cut":  {pad + "4242424242424242", pad + "***"},
		"key split by nul":     {"sk_li\x00ve_abcdefgh", "***"},
		"key split by zwsp":    {"sk_live_\u200babcdefgh", "***"},
		"escape":               {"a\x1b[31mred", "a[31mred"},
		"line ends":            {"a\r\nb\tc", "a  b c"},
		"bidi":                 {"a\u202eb", "ab"},
		"bad utf-8":            {"a\xffb", "a\uFFFDb"},
		"c1":                   {"a\u009bb", "ab"},
		"huge":                 {strings.Repeat("word ", 1<<20), strings.TrimSpace(strings.Repeat("word ", 40)) + " "},
		"huge, all secret":     {strings.Repeat("sk_live_abcdefgh", 1<<16), "***"},
		"huge, masked and cut": {strings.Repeat(" ", 16<<10-12) + "x a@b.c jenny.rosen@example.com", "***"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := Sanitize(tt.in); got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

var planted = []string{
	"sk_live_4eC39HqLyjWDarjtT1zdp7dc", "rk_test_ABCDEFGH12", "whsec_0123456789ab", "fp_live_zyxwvut9876",
	"jenny.rosen@example.com", "4242424242424242", "4242-4242-4242-4242", "dGhpcyBpcyBhIHNlY3JldCB0b2tlbg",
}

// FuzzRedact: a secret between blanks never survives, whatever is around it, and
// doing it twice changes nothing that matters: no secret comes back.
func FuzzRedact(f *testing.F) {
	f.Add("Invalid API Key: ", "", uint8(0))
	f.Add("https://u:", "@h/?q", uint8(4))
	f.Add(`password="`, `"`, uint8(1))
	f.Add("1234", "5678", uint8(5))
	f.Add("\xff", "\xfe", uint8(7))
	f.Fuzz(func(t *testing.T, before, after string, which uint8) {
		secret := planted[int(which)%len(planted)]
		if strings.Contains(before+after, secret) {
			return
		}
		got := Redact(before + " " + secret + " " + after)
		if strings.Contains(got, secret) {
			t.Fatalf("%q survives in %q", secret, got)
		}
	})
}

// FuzzSanitize: short, printable, valid, and without the secret or any half of
// it that would be of use.
func FuzzSanitize(f *testing.F) {
	f.Add("Invalid API Key: ", "", uint8(0))
	f.Add(strings.Repeat("é", 190), "x", uint8(0))
	f.Add(strings.Repeat("a ", 96), "x", uint8(4))
	f.Add(strings.Repeat(" ", 16<<10-10), "", uint8(0))
	f.Add("sk_live\u200b_", "\x00", uint8(6))
	f.Fuzz(func(t *testing.T, before, after string, which uint8) {
		secret := planted[int(which)%len(planted)]
		if strings.Contains(before+after, secret[:10]) {
			return
		}
		got := Sanitize(before + " " + secret + " " + after)
		if utf8.RuneCountInString(got) > MessageRunesMax || !utf8.ValidString(got) {
			t.Fatalf("%d characters: %q", utf8.RuneCountInString(got), got)
		}
		if strings.ContainsFunc(got, unicode.IsControl) {
			t.Fatalf("control characters: %q", got)
		}
		if clean := visible(before + after); !strings.Contains(clean, secret[:10]) && strings.Contains(got, secret[:10]) {
			t.Fatalf("%q survives in %q", secret, got)
		}
	})
}
