package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/host/api"
)

// TestReplayEndedPaused: a replay that somebody paused is shown as paused, not
// as failed, and the command says how it goes on (B40).
func TestReplayEndedPaused(t *testing.T) {
	t.Parallel()
	var out, diag bytes.Buffer
	a := &app{streams: streams{out: &out, err: &diag}, output: "table"}
	err := a.replayEnded(api.ReplayStatus{
		Active: "1", Building: "2", Cursor: "20", Watermark: "60", Paused: true,
		Run: &api.ReplayRunView{State: "paused", Phase: "scan", Scanned: "20", Differing: "0"},
	})
	if !errors.Is(err, errPaused) || exitCode(err) != exitConflict || !strings.Contains(describe(err, ""), "fencepost replay resume") {
		t.Errorf("%v", err)
	}
	if text := out.String(); !strings.Contains(text, "paused, scan") || strings.Contains(text, "failed") || strings.Contains(text, "error") {
		t.Errorf("%s", text)
	}
}
