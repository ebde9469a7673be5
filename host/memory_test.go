package host

import (
	"testing"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Q17: a claim is in a store whose item got its token from this host. Where the old
// primary lived on, another host got the same token from the other server.
func TestWitness(t *testing.T) {
	t.Parallel()
	w := witness{Item: 7, Token: 3, Owner: "us"}
	tried := func(token int64, owner string) storage.Attempt {
		return storage.Attempt{LeaseToken: token, Owner: owner}
	}
	for name, tc := range map[string]struct {
		token    int64
		held     string
		attempts []storage.Attempt
		missing  bool
	}{
		"never claimed again":         {2, "", nil, true},
		"held by us":                  {3, "us", nil, false},
		"held by another":             {3, "them", nil, true},
		"tried by us":                 {3, "", []storage.Attempt{tried(2, "them"), tried(3, "us")}, false},
		"tried by another":            {3, "", []storage.Attempt{tried(2, "us"), tried(3, "them")}, true},
		"ours and another's after it": {4, "them", []storage.Attempt{tried(3, "us")}, false},
		"another's, and ours after":   {4, "us", []storage.Attempt{tried(3, "them")}, true},
		"nobody says who had it":      {4, "", nil, false}, // a host that was killed writes no attempt
	} {
		d := storage.ItemDetail{Item: storage.Item{ItemID: 7, LeaseToken: tc.token, LeaseOwner: tc.held}, Attempts: tc.attempts}
		if got := w.missing(&d); got != tc.missing {
			t.Errorf("%s: missing %v, want %v", name, got, tc.missing)
		}
		old := witness{Item: 7, Token: 3} // of a release that did not keep the name
		if got := old.missing(&d); got != (tc.token < 3) {
			t.Errorf("%s, without a name: missing %v", name, got)
		}
	}
}
