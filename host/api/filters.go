package api

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// A filter that can select nothing is a mistake, and "there is none" would be the
// wrong answer to it: whoever looks for what is stuck would be told that nothing
// is.

// oneOf is a parameter that is one of a closed list, or absent.
func (q *query) oneOf(name string, list []string) string {
	text := q.text(name)
	if text != "" && !slices.Contains(list, text) && q.err == nil {
		q.err = sdk.Invalid(name, "one of "+strings.Join(list, ", "))
	}
	return text
}

// texts are the values of a closed list.
func texts[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = string(v)
	}
	return out
}

var modes = []string{"test", "live"}

func quarantineReasons() []string { return texts(outbox.QuarantineReasons()) }

func actionKinds() []string {
	return texts([]storage.ActionKind{
		storage.ActionResolve, storage.ActionRequeue, storage.ActionSupersede, storage.ActionAbandon, storage.ActionEvidence,
		storage.ActionConfirm, storage.ActionRestore, storage.ActionAdopt, storage.ActionBackfill, storage.ActionRoute,
	})
}

// knownPlace refuses the name of an exporter or an account that no route has or
// had, and under which there is no item: that of one that was renamed has. It is
// asked where a listing is empty, so that one with rows costs nothing more.
func (s *server) knownPlace(ctx context.Context, exporter, account string) error {
	if exporter == "" && account == "" {
		return nil
	}
	set, err := s.cfg.Engine.Routes(ctx)
	if err != nil {
		return err
	}
	exporters, accounts := map[string]bool{}, map[string]bool{}
	for _, r := range set.Routes {
		exporters[r.Exporter], accounts[r.Account] = true, true
	}
	for _, x := range []struct {
		field, name string
		known       map[string]bool
		query       storage.ItemQuery
	}{
		{"exporter", exporter, exporters, storage.ItemQuery{Exporter: exporter, Limit: 1}},
		{"account", account, accounts, storage.ItemQuery{Account: account, Limit: 1}},
	} {
		if x.name == "" || x.known[x.name] {
			continue
		}
		page, err := s.cfg.Outbox.ListItems(ctx, x.query)
		if err != nil {
			return err
		}
		if len(page.Items) == 0 {
			return sdk.Invalid(x.field, "one with routes or items in this store, "+listed(x.known))
		}
	}
	return nil
}

func listed(names map[string]bool) string {
	if len(names) == 0 {
		return "which has none"
	}
	return "such as " + strings.Join(slices.Sorted(maps.Keys(names)), ", ")
}

// knownItem refuses the id of an item that does not exist.
func (s *server) knownItem(ctx context.Context, id int64) error {
	if id == 0 {
		return nil
	}
	_, err := s.cfg.Outbox.LoadItem(ctx, id)
	if errors.Is(err, sdk.ErrNotFound) {
		return &sdk.Error{Tag: sdk.TagNotFound, Field: "item", Rule: "the id of an outbox item that exists"}
	}
	return err
}
