package postgres

import "github.com/fencepost/fencepost/plugins/sdk/storage"

// incarnationInto receives id, system, timeline, claims and restores. NULL is
// zero.
func incarnationInto(in *storage.Incarnation) []any {
	return []any{
		textInto(&in.Store), textInto(&in.System), intInto(&in.Timeline), intInto(&in.Claims), intInto(&in.Restores),
	}
}
