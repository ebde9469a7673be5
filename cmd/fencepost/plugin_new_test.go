package main

import (
	"os"
	"strings"
	"testing"
)

// Issue 5: an author outside a checkout learns what is missing, and both ways to
// name it.
func TestPluginNewWithoutACheckout(t *testing.T) {
	t.Setenv("FENCEPOST_SDK", "")
	t.Chdir(t.TempDir())
	if strings.HasPrefix(programVersion(), "v") {
		t.Skip("a released version")
	}
	var out, errs strings.Builder
	code := run([]string{"plugin", "new", "meterline"}, streams{in: strings.NewReader(""), out: &out, err: &errs})
	if code != exitUsage {
		t.Errorf("code %d: %s", code, errs.String())
	}
	for _, want := range []string{"no checkout of this project was found", "--sdk DIR", "FENCEPOST_SDK=DIR"} {
		if !strings.Contains(errs.String(), want) {
			t.Errorf("no %q: %s", want, errs.String())
		}
	}
	if _, err := os.Stat("meterline"); err == nil {
		t.Error("it began one")
	}
}
