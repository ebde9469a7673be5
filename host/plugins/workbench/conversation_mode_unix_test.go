//go:build unix

package workbench

import (
	"os"
	"path/filepath"
	"testing"
)

// An answer may hold what a provider tells nobody else: a conversation is its
// owner's alone.
func TestConversationIsPrivate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "conversation.json")
	if err := (&Conversation{}).Write(path); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}
