// Package guest turns an exporter into a plugin. A plugin's main is
//
//	var plugin = guest.Serve(myexporter.New, guest.WithHTTP())
//
//	func main() { plugin.Main() }
//
// and builds as a Wasm module with
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o my.wasm .
//
// Serve is called by a variable and not in main, because a Wasm reactor runs
// package initialisation but never main. Name only the capabilities that the
// plugin uses: each becomes an import of the module, and a host refuses a module
// that imports what its manifest does not declare.
package guest

import (
	"context"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// Dispatcher answers numbered calls with one instance of an exporter, whatever
// carries them. Like the exporter, it is not for use from two goroutines at
// once.
type Dispatcher struct{ exporter exporter.Exporter }

// NewDispatcher builds the exporter on the capabilities of host.
func NewDispatcher(build exporter.New, host capability.Host) *Dispatcher {
	return &Dispatcher{exporter: build(host)}
}

// Call performs one method on an encoded request and returns the encoded answer,
// or an encoded Error with [wirev1.StatusError]. A request that does not parse
// is tagged invalid, a method that this version does not know unsupported; in
// neither case was the exporter called.
//
// A panic of the exporter is not recovered: in Wasm it traps, and the host
// throws the instance away rather than trusting what is left of it.
func (d *Dispatcher) Call(ctx context.Context, method wirev1.Method, request []byte) ([]byte, wirev1.Status) {
	answer, err := d.call(ctx, method, request)
	if err != nil {
		return wirev1.EncodeError(err), wirev1.StatusError
	}
	return answer, wirev1.StatusAnswer
}

func (d *Dispatcher) call(ctx context.Context, method wirev1.Method, request []byte) ([]byte, error) {
	switch method {
	case wirev1.MethodDescribe:
		manifest, err := d.exporter.Describe(ctx)
		if err != nil {
			return nil, err
		}
		return wirev1.EncodeManifest(manifest), nil
	case wirev1.MethodConfigure:
		c, err := wirev1.DecodeConfiguration(request)
		if err != nil {
			return nil, malformed(err)
		}
		return nil, d.exporter.Configure(ctx, c)
	case wirev1.MethodDeliver:
		delivery, err := wirev1.DecodeDelivery(request)
		if err != nil {
			return nil, malformed(err)
		}
		outcomes, err := d.exporter.Deliver(ctx, delivery)
		if err != nil {
			return nil, err
		}
		return wirev1.EncodeOutcomes(outcomes), nil
	case wirev1.MethodClose:
		return nil, d.exporter.Close(ctx)
	case wirev1.MethodProbe:
		return d.probe(ctx, request)
	case wirev1.MethodWebhook:
		return d.webhook(ctx, request)
	}
	return nil, &sdk.Error{
		Tag: sdk.TagUnsupported, Code: "unknown_method", Field: method.String(),
		Rule: "a method of an exporter of version 1",
	}
}

func (d *Dispatcher) probe(ctx context.Context, request []byte) ([]byte, error) {
	prober, ok := d.exporter.(exporter.Prober)
	if !ok {
		return nil, notImplemented(wirev1.MethodProbe)
	}
	p, err := wirev1.DecodeProbe(request)
	if err != nil {
		return nil, malformed(err)
	}
	answers, err := prober.Probe(ctx, p)
	if err != nil {
		return nil, err
	}
	return wirev1.EncodeProbeAnswers(answers), nil
}

func (d *Dispatcher) webhook(ctx context.Context, request []byte) ([]byte, error) {
	receiver, ok := d.exporter.(exporter.WebhookReceiver)
	if !ok {
		return nil, notImplemented(wirev1.MethodWebhook)
	}
	w, err := wirev1.DecodeWebhook(request)
	if err != nil {
		return nil, malformed(err)
	}
	answer, err := receiver.Webhook(ctx, w)
	if err != nil {
		return nil, err
	}
	return wirev1.EncodeWebhookAnswer(answer), nil
}

func notImplemented(method wirev1.Method) error {
	return &sdk.Error{
		Tag: sdk.TagUnsupported, Code: "not_implemented", Field: method.String(),
		Rule: "a method that this exporter implements",
	}
}

func malformed(err error) error {
	return &sdk.Error{Tag: sdk.TagInvalid, Code: "malformed_message", Err: err}
}
