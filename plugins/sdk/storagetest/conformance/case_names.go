package conformance

import (
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// Names hold characters that are wildcards in patterns. Whoever asks for such a
// tenant gets that tenant's, and none of those that the pattern would match.
func namesAreNotPatterns(r *run) {
	tenants := []string{r.tenant("a_c"), r.tenant("abc"), r.tenant("a%"), r.tenant("a*c"), r.tenant("a?c"), r.tenant(`a\_c`)}
	for i, t := range tenants {
		r.put(usage(t, "e_"+decimalInt(i), decimalInt(i+1)), usage(t, "e%", "100"))
	}
	for i, t := range tenants {
		r.totalIs("total of "+t, t, decimalInt(101+i), 2, 2)
		got, err := r.eventStore().LoadEvent(r.ctx, storage.EventKey{Tenant: t, EventID: "e%"})
		r.must("load", err)
		r.same("an event of "+t, []string{got.Tenant, got.EventID}, []string{t, "e%"})
		_, err = r.eventStore().LoadEvent(r.ctx, storage.EventKey{Tenant: t, EventID: "e_"})
		r.tagIs("an id that would match as a pattern", err, "not_found", "")
	}
}
