package remote

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/sdk/wire/storagev1"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// needs lists the interfaces without which a capability is none. Others of the
// contract belong to a capability, and an adapter may lack them.
var needs = map[storage.Capability][]string{
	storage.DurableEvents:         {"EventStore"},
	storage.Subscriptions:         {"SubscriptionStore"},
	storage.EventStreaming:        {"EventStreamer"},
	storage.Outbox:                {"OutboxStore", "RouteStore"},
	storage.Counters:              {"CounterStore"},
	storage.Corrections:           {"CorrectionStore"},
	storage.ProjectionGenerations: {"ProjectionStore", "ProjectionKeeper"},
	storage.Buckets:               {"BucketStore", "SnapshotStore"},
	storage.Retention:             {"RetentionStore"},
}

// declared checks what a plugin says of itself. Capabilities and operations
// that this version does not know are left out: a later one may have more.
func declared(d storagev1.Description) (storage.Manifest, map[wirev1.Method]bool, error) {
	m := storage.Manifest{Name: d.Manifest.Name, Version: d.Manifest.Version}
	if m.Name == "" || len(m.Name) > maxText || len(m.Version) > maxText {
		return m, nil, fmt.Errorf("a name of 1 to %d bytes, and no longer a version", maxText)
	}
	has := map[wirev1.Method]bool{}
	for _, n := range d.Operations {
		method := wirev1.Method(n)
		if has[method] || int64(method) != n {
			return m, nil, errors.New("numbers of operations, each once")
		}
		if _, known := storagev1.OperationOf(method); known && method > storagev1.MethodClose {
			has[method] = true
		}
	}
	for _, c := range d.Manifest.Capabilities {
		required, known := needs[c]
		if slices.Contains(m.Capabilities, c) {
			return m, nil, errors.New("capabilities, each once")
		}
		if !known {
			continue
		}
		for _, name := range required {
			for _, method := range interfaces[name] {
				if !has[method] {
					return m, nil, fmt.Errorf("the operation %s, which belongs to the declared capability %s", nameOf(method), c)
				}
			}
		}
		m.Capabilities = append(m.Capabilities, c)
	}
	return m, has, nil
}
