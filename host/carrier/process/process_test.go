package process

import (
	"errors"
	"testing"

	"github.com/fencepost/fencepost/host/carrier"
)

func TestCalls(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.Setup = []carrier.SetupCall{{Method: echo, Request: []byte("a")}, {Method: echo, Request: []byte("b")}}
	p := open(t, cfg)
	if got := call(t, p, echo, "hello"); got != "hello" {
		t.Errorf("echo %q", got)
	}
	if got := call(t, p, count, ""); got != "4" {
		t.Errorf("counted %s, want two setup calls before the first", got)
	}
	_, err := p.Call(t.Context(), fails, []byte("why"))
	if answered, ok := errors.AsType[*carrier.PluginError](err); !ok || string(answered.Payload) != "why" {
		t.Error(err)
	}
	if got := call(t, p, count, ""); got != "6" {
		t.Errorf("counted %s: an Error message is no fault", got)
	}
	if got := call(t, p, asksHTTP, "batch"); got != "answered batch false <nil>" {
		t.Errorf("asked: %s", got)
	}
	if s := p.Stats(); s.Started != 1 || s.Running != 1 {
		t.Errorf("%+v", s)
	}
}

func playHost([]string) {}
