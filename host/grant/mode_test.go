package grant

import (
	"errors"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// F34: a key of the other mode is refused before anything is sent, and the
// error shows what was expected but not what was given.
func TestCheckModes(t *testing.T) {
	t.Parallel()
	const tail = "CANARYcanary0123456789"
	test, live := []string{"sk_test_", "rk_test_"}, []string{"sk_live_", "rk_live_"}
	many := strings.Split(strings.Repeat("\x1b[31m"+strings.Repeat("x", 900)+"\n", 128), "\n")
	tests := map[string]struct {
		mode, value string
		test, live  []string
		rule        string // part of the error; empty: allowed
	}{
		"test key, test":            {"test", "sk_test_" + tail, test, live, ""},
		"restricted test key, test": {"test", "rk_test_" + tail, test, live, ""},
		"live key, live":            {"live", "sk_live_" + tail, test, live, ""},
		"restricted live key, live": {"live", "rk_live_" + tail, test, live, ""},
		"live key, test":            {"test", "sk_live_" + tail, test, live, `begins with "sk_test_" or "rk_test_"`},
		"restricted live key, test": {"test", "rk_live_" + tail, test, live, `begins with "sk_test_" or "rk_test_"`},
		"test key, live":            {"live", "sk_test_" + tail, test, live, `begins with "sk_live_" or "rk_live_"`},
		"neither, test":             {"test", tail, test, live, `begins with "sk_test_"`},
		"neither, live":             {"live", tail, test, live, `begins with "sk_live_"`},
		"capitals":                  {"test", "SK_TEST_" + tail, test, live, `begins with "sk_test_"`},
		"prefix inside":             {"test", tail + "sk_test_", test, live, `begins with "sk_test_"`},
		"blank before":              {"test", " sk_test_" + tail, test, live, `begins with "sk_test_"`},
		"no mode":                   {"", "sk_test_" + tail, test, live, "has a mode"},
		"another mode":              {"TEST", "sk_test_" + tail, test, live, "has a mode"},
		"none declared, test":       {"test", "sk_live_" + tail, nil, nil, ""},
		"none declared, live":       {"live", "sk_test_" + tail, nil, nil, ""},
		"none declared, no mode":    {"", tail, nil, nil, ""},
		"only live: live key, test": {"test", "sk_live_" + tail, nil, live, `does not begin with "sk_live_"`},
		"only live: other, test":    {"test", tail, nil, live, ""},
		"only test: test key, live": {"live", "sk_test_" + tail, test, nil, `does not begin with "sk_test_"`},
		"only test: other, live":    {"live", tail, test, nil, ""},
		"an empty prefix":           {"test", "sk_live_" + tail, []string{""}, live, `begins with ""`},
		"very many":                 {"test", tail, many, live, " more"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			manifest := exporter.Manifest{
				Name: "stripe", Version: "1.2.3",
				Secrets: []exporter.Secret{{Name: "other"}, {Name: "api_key", TestPrefixes: tt.test, LivePrefixes: tt.live}},
			}
			err := Check(manifest, Grant{
				Mode:    tt.mode,
				Secrets: map[string]Secret{"other": NewSecret("x"), "api_key": NewSecret(tt.value)},
			})
			if tt.rule == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, &sdk.Error{Tag: sdk.TagInvalid, Code: "secret_of_other_mode"}) {
				t.Fatalf("%v", err)
			}
			for _, part := range []string{tt.rule, `secret "api_key"`, `mode "` + tt.mode + `"`, `plugin "stripe"`} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%v does not say %s", err, part)
				}
				// A log masks what looks like a key; this must outlive that.
				if !strings.Contains(Redact(err.Error()), part) {
					t.Errorf("redacted, %s does not say %s", Redact(err.Error()), part)
				}
			}
			if strings.Contains(err.Error(), "CANARY") || strings.Contains(err.Error(), "\x1b") || len(err.Error()) > 3000 {
				t.Errorf("%q", err)
			}
		})
	}
}
