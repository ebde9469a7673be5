package main

import (
	"context"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost/host/api"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// pages reads a listing page by page, up to limit items. more is the cursor to
// go on from, empty at the end.
func pages[T any](ctx context.Context, c *client, path string, flags map[string]*string, limit int) (all []T, more string, err error) {
	params := map[string]string{}
	for name, v := range flags {
		params[name] = *v
	}
	all = []T{}
	for len(all) < limit {
		params["limit"] = strconv.Itoa(min(1000, limit-len(all)))
		var page api.Page[T]
		if err := c.get(ctx, path, params, &page); err != nil {
			return nil, "", err
		}
		all = append(all, page.Data...)
		more = page.Next
		if more == "" {
			break
		}
		params["after"] = more
	}
	return all, more, nil
}

// checkLimit judges --limit before anything is opened.
func checkLimit(limit int) error {
	if limit < 1 || limit > maxListed {
		return usageError{errLimit}
	}
	return nil
}

func flagName(param string) string { return strings.ReplaceAll(param, "_", "-") }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// pathEscape makes any legal id one path, slashes included. Dots alone would be
// taken for steps between folders.
func pathEscape(id string) string {
	if id == "." || id == ".." {
		return strings.ReplaceAll(id, ".", "%2E")
	}
	return url.PathEscape(id)
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// reason is why an item is where it is, in a few words. An accepted item has
// none, whatever its earlier attempts met.
func reason(it api.ItemView) string {
	charged := it.State == string(storage.Accepted) || it.State == string(storage.Confirmed)
	var why string
	switch {
	case it.SupersededBy != nil:
		return "superseded by item " + *it.SupersededBy
	case it.Waits:
		return "waits for item " + text(it.DependsOn)
	case charged && it.Disputed == nil:
		return ""
	case charged:
	case it.QuarantineReason != nil && it.State == string(storage.Quarantined): // it keeps the one that it had
		why = *it.QuarantineReason
	case it.LastError != nil:
		why = it.LastError.Code
	}
	if it.Disputed != nil {
		why += ", disputed"
	}
	if it.SettledAt != nil {
		why += ", settled"
	}
	return strings.TrimPrefix(why, ", ")
}

// waitsFor is what an item waits for, with where that stands.
func waitsFor(it api.ItemView) string {
	if !it.Waits {
		return ""
	}
	s := "item " + text(it.DependsOn)
	if it.OriginalState != "" {
		s += ", which is " + string(it.OriginalState)
	}
	return s
}

func compact(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	b, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(b)
}
