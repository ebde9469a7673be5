package storagev1_test

import (
	"encoding/hex"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/*.txt anew, with protoc")

// Our bytes are those that protoc makes of the same message: of every message a
// filled value was written as text by protoc, and encoded by protoc, whose code
// shares nothing with ours. scripts/generate-wire-vectors.sh does the latter.
func TestSchema(t *testing.T) {
	t.Parallel()
	for _, c := range codecs {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			data, err := c.encode(c.filled(t).Interface())
			if err != nil {
				t.Fatal(err)
			}
			name := filepath.Join("testdata", c.message)
			if *update {
				writeText(t, name+".txt", c.message, data)
				return
			}
			text, err := os.ReadFile(name + ".hex")
			if err != nil {
				t.Fatalf("run go test -run TestSchema -update and scripts/generate-wire-vectors.sh: %v", err)
			}
			want, err := hex.DecodeString(strings.ReplaceAll(string(text), "\n", ""))
			if err != nil {
				t.Fatal(err)
			}
			if string(want) != string(data) {
				t.Errorf("other bytes than protoc's:\n%x\n%x", data, want)
			}
		})
	}
}

func writeText(t *testing.T, file, message string, data []byte) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "protoc", "--decode=fencepost.storage.v1."+message, "storage.proto")
	cmd.Stdin = strings.NewReader(string(data))
	text, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if number := strings.TrimSpace(line); number != "" && number[0] >= '0' && number[0] <= '9' {
			t.Fatalf("%s: the schema does not know field %s", message, number)
		}
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
}
