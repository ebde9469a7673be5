package engine_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(trackChild); path != "" {
		trackUntilKilled(path)
	}
	goleak.VerifyTestMain(m)
}
