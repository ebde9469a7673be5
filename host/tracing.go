package host

import (
	"context"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/host/telemetry"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// tracedRecording is the engine's observer where spans are made, too.
type tracedRecording struct {
	*telemetry.Metrics
	*telemetry.Tracing
}

// tracedDelivery is a deliverer's.
type tracedDelivery struct {
	deliveryObserver
	tracing *telemetry.Tracing
}

// StartSend is [outbox.Tracer].
func (o tracedDelivery) StartSend(ctx context.Context, items []storage.ClaimedItem) (context.Context, func(map[int64]storage.ItemState)) {
	return o.tracing.StartSend(ctx, o.exporter, items)
}

func (h *Host) recordObserver() engine.Observer {
	if h.tracing == nil {
		return h.metrics
	}
	return tracedRecording{Metrics: h.metrics, Tracing: h.tracing}
}

func (h *Host) deliveryObserver(x *exporterRuntime) outbox.Observer {
	o := deliveryObserver{host: h, exporter: x.settings.Name}
	if h.tracing == nil {
		return o
	}
	return tracedDelivery{deliveryObserver: o, tracing: h.tracing}
}
