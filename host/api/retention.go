package api

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// PruneAnswer answers POST /v1/retention/prune. Removed is what was removed, or
// if DryRun is true what would be; More says that there is more than was counted, or
// that the request's time was up.
type PruneAnswer struct {
	Kind    storage.PruneKind `json:"kind"`
	Age     string            `json:"age"`
	DryRun  bool              `json:"dry_run"`
	Removed string            `json:"removed"`
	Kept    string            `json:"kept"`
	More    bool              `json:"more"`
}

func (s *server) prune(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Kind   storage.PruneKind `json:"kind"`
		Age    string            `json:"age"`
		DryRun *bool             `json:"dry_run"` // absent: true
	}
	err := readQuery(r).err
	if err == nil {
		err = decodeInput(r.Body, &in, "kind, age and dry_run")
	}
	var age time.Duration
	if err == nil {
		age, err = ParseAge(in.Age)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	o := engine.PruneOptions{Kind: in.Kind, Age: age, Remove: in.DryRun != nil && !*in.DryRun}
	res, err := s.cfg.Engine.Prune(r.Context(), o)
	if err != nil && res.Removed == 0 {
		s.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, PruneAnswer{
		Kind: in.Kind, Age: in.Age, DryRun: !o.Remove, More: res.More || err != nil,
		Removed: strconv.FormatInt(res.Removed, 10), Kept: strconv.FormatInt(res.Kept, 10),
	})
}

// maxAgeDays is a hundred years, which no usage reaches.
const maxAgeDays = 36_500

// ParseAge reads a duration as Go writes it, or a number of days such as 400d,
// up to 36500 days.
func ParseAge(text string) (time.Duration, error) {
	refused := sdk.Invalid("age", "at most 36500d: a number of days such as 400d, or a duration such as 36h")
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil || n > maxAgeDays {
			return 0, refused
		}
		return time.Duration(n) * 24 * time.Hour, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d > maxAgeDays*24*time.Hour {
		return 0, refused
	}
	return d, nil
}
