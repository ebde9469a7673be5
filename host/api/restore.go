package api

import (
	"context"
	"net/http"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// RestoreAsk asks for what follows a restore. Unnoticed insists where no host
// noticed one.
type RestoreAsk struct {
	Act       engine.Act
	Unnoticed bool
}

// RestoreAnswer answers POST /v1/recover/restore and /v1/recover/adopt. Items is
// how many became uncertain, or in a dry run would; Of is what those are now, in a
// dry run.
type RestoreAnswer struct {
	DryRun bool           `json:"dry_run"`
	Items  string         `json:"items"`
	Of     []RestoreCount `json:"of,omitempty"`
}

// RestoreCount is how many items of one state and reason there are.
type RestoreCount struct {
	State  storage.ItemState `json:"state"`
	Reason string            `json:"reason,omitempty"`
	Items  string            `json:"items"`
}

func (s *server) recoverRestore(w http.ResponseWriter, r *http.Request) {
	var in struct {
		confirmed
		// Unnoticed has to be said where no host noticed a restore: on a healthy
		// store this makes everything uncertain that is open, and nothing brings it
		// back.
		Unnoticed bool `json:"unnoticed"`
	}
	err := readQuery(r).err
	if err == nil {
		err = decodeInput(r.Body, &in, "actor, reason, dry_run, confirm and unnoticed")
	}
	s.restoring(w, r, in.confirmed, err, func(ctx context.Context, a engine.Act) (RestoreAnswer, error) {
		return s.cfg.Restorer.RecoverRestore(ctx, RestoreAsk{Act: a, Unnoticed: in.Unnoticed})
	})
}

func (s *server) recoverAdopt(w http.ResponseWriter, r *http.Request) {
	var in confirmed
	err := readQuery(r).err
	if err == nil {
		err = decodeInput(r.Body, &in, "actor, reason, dry_run and confirm")
	}
	s.restoring(w, r, in, err, func(ctx context.Context, a engine.Act) (RestoreAnswer, error) {
		return RestoreAnswer{DryRun: a.DryRun, Items: "0"}, s.cfg.Restorer.RecoverAdopt(ctx, a)
	})
}

// confirmed is an act that is done only if it says so twice.
type confirmed struct {
	act
	Confirm bool `json:"confirm"`
}

func (s *server) restoring(w http.ResponseWriter, r *http.Request, in confirmed, err error, do func(context.Context, engine.Act) (RestoreAnswer, error)) {
	switch {
	case err != nil:
	case !in.DryRun && !in.Confirm:
		err = &sdk.Error{Tag: sdk.TagInvalid, Code: "not_confirmed", Field: "confirm", Rule: "true, or dry_run", Hint: "dry_run says what would be done"}
	case s.cfg.Restorer == nil:
		err = &sdk.Error{Tag: sdk.TagUnsupported, Field: "recover", Rule: "a host that delivers"}
	}
	var out RestoreAnswer
	if err == nil {
		out, err = do(r.Context(), in.engine())
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, out)
}
