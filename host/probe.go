package host

import (
	"context"
	"fmt"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// Probe asks the plugin what its provider counted. Its requests share the rate
// and the places in flight of the deliveries. It fails with tag unsupported if
// the exporter cannot be asked, or nothing is sent from this host.
func (x *exporterRuntime) Probe(ctx context.Context, p exporter.Probe) ([]exporter.ProbeAnswer, error) {
	if !x.manifest.ReadBack.Sums || !x.sends() {
		return nil, &sdk.Error{
			Tag: sdk.TagUnsupported, Code: "no_read_back", Field: "exporter",
			Rule: "an exporter that can be asked for sums, on a host that delivers",
		}
	}
	if deadline, ok := ctx.Deadline(); ok {
		p.Deadline = deadline
	}
	answer, err := x.call(ctx, wirev1.MethodProbe, wirev1.EncodeProbe(p))
	if err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	return wirev1.DecodeProbeAnswers(answer, len(p.Questions))
}
