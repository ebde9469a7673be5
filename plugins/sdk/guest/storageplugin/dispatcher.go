// Package storageplugin turns a storage adapter into a plugin. A plugin's main
// is
//
//	var plugin = storageplugin.Serve(open)
//
//	func open(ctx context.Context, host capability.Host, o storage.Opening) (storage.Adapter, error) {
//		return myadapter.Open(ctx, o.DSN)
//	}
//
//	func main() { plugin.Main() }
//
// It is built as package guest says. Of the interfaces of package storage the
// host sees those that the adapter implements.
package storageplugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/sdk/wire/storagev1"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// Open opens the store of an adapter. Like the adapter's methods it answers
// with an [sdk.Error]. It is called again if it failed, never while it runs.
type Open func(ctx context.Context, host capability.Host, o storage.Opening) (storage.Adapter, error)

// Dispatcher answers numbered calls with one adapter, whatever carries them. It
// is safe for concurrent use, as adapters are.
type Dispatcher struct {
	open Open
	host capability.Host

	// opening is held while the adapter is opened or closed.
	opening sync.Mutex
	// mu guards what follows, and is never held during a call.
	mu      sync.Mutex
	adapter storage.Adapter
	name    storage.Opening
	closed  bool
}

// NewDispatcher returns a dispatcher of a store that is opened by a call.
func NewDispatcher(open Open, host capability.Host) *Dispatcher {
	return &Dispatcher{open: open, host: host}
}

// Concurrent reports that calls may run side by side.
func (d *Dispatcher) Concurrent() bool { return true }

// Call performs one method on an encoded request and returns the encoded answer,
// or an encoded Error with [wirev1.StatusError]. A request that does not parse
// is tagged invalid, a method that this version or the adapter does not have
// unsupported; in neither case was the adapter called. An error of the adapter
// keeps its tag, code, field, rule, hint and item; one without a tag is
// unavailable, and so is an answer that cannot be sent.
//
// A panic of the adapter is not recovered; see package guest.
func (d *Dispatcher) Call(ctx context.Context, method wirev1.Method, request []byte) ([]byte, wirev1.Status) {
	answer, err := d.call(ctx, method, request)
	if err == nil && len(answer) > wirev1.MaxMessage {
		err = tooLarge(method)
	}
	if err != nil {
		return wirev1.EncodeError(err), wirev1.StatusError
	}
	return answer, wirev1.StatusAnswer
}

func (d *Dispatcher) call(ctx context.Context, method wirev1.Method, request []byte) ([]byte, error) {
	if method == storagev1.MethodOpen {
		return d.openStore(ctx, request)
	}
	if method == storagev1.MethodClose {
		return nil, d.closeStore()
	}
	a, err := d.opened()
	if err != nil {
		return nil, err
	}
	if method == storagev1.MethodDescribe {
		return describe(a)
	}
	if method == storagev1.MethodPing {
		return nil, a.Ping(ctx)
	}
	return operation(ctx, a, method, request)
}

func (d *Dispatcher) opened() (storage.Adapter, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return nil, closed()
	case d.adapter == nil:
		return nil, &sdk.Error{Tag: sdk.TagUnavailable, Code: storagev1.CodeNotOpen, Rule: "a store that the host opened"}
	}
	return d.adapter, nil
}

func closed() error {
	return &sdk.Error{Tag: sdk.TagUnavailable, Code: "closed", Rule: "a store that is not closed"}
}

func (d *Dispatcher) openStore(ctx context.Context, request []byte) ([]byte, error) {
	o, err := storagev1.DecodeOpening(request)
	if err != nil {
		return nil, malformed(err)
	}
	d.opening.Lock()
	defer d.opening.Unlock()
	a, err := d.opened()
	switch e := (*sdk.Error)(nil); {
	case err == nil && d.name != o:
		return nil, &sdk.Error{Tag: sdk.TagConflict, Code: "already_open", Field: "storage.dsn", Rule: "the store that is open"}
	case err == nil:
		return describe(a)
	case errors.As(err, &e) && e.Code != storagev1.CodeNotOpen:
		return nil, err
	}
	if a, err = d.open(ctx, d.host, o); err != nil {
		return nil, err
	}
	if a == nil {
		return nil, errors.New("open returned no adapter")
	}
	d.mu.Lock()
	d.adapter, d.name = a, o
	d.mu.Unlock()
	return describe(a)
}

func (d *Dispatcher) closeStore() error {
	d.opening.Lock()
	defer d.opening.Unlock()
	d.mu.Lock()
	a := d.adapter
	d.adapter, d.closed = nil, true
	d.mu.Unlock()
	if a == nil {
		return nil
	}
	return a.Close()
}

func describe(a storage.Adapter) ([]byte, error) {
	return storagev1.EncodeDescription(&storagev1.Description{Manifest: a.Describe(), Operations: storagev1.Implemented(a)})
}

// perform calls one method of one interface of the adapter.
func perform[A, In, Out any](
	a storage.Adapter, request []byte, decode func([]byte) (In, error), encode func(*Out) ([]byte, error), method func(A, In) (Out, error),
) ([]byte, error) {
	impl, ok := storage.As[A](a)
	if !ok {
		return nil, &sdk.Error{Tag: sdk.TagUnsupported, Code: "not_implemented", Rule: "an operation that this adapter has"}
	}
	in, err := decode(request)
	if err != nil {
		return nil, malformed(err)
	}
	out, err := method(impl, in)
	if err != nil {
		return nil, err
	}
	answer, err := encode(&out)
	if err != nil {
		// The operation was done: that its answer breaks a rule is no fault
		// of the input.
		return nil, sdk.Unavailable("answer_invalid", fmt.Errorf("encode the answer: %w", errors.New(err.Error())))
	}
	return answer, nil
}

// beside turns an error that comes with a result into a part of the answer: an
// Error message alone would lose the result.
func beside(results int, err error) (json.RawMessage, error) {
	if err == nil || results == 0 {
		return nil, err
	}
	e, ok := errors.AsType[*sdk.Error](err)
	if !ok {
		e = sdk.Unavailable("", err)
	}
	return json.Marshal(storagev1.Problem{Tag: e.Tag, Code: e.Code, Field: e.Field, Rule: e.Rule, Hint: e.Hint})
}

func unknown(method wirev1.Method) error {
	return &sdk.Error{
		Tag: sdk.TagUnsupported, Code: "unknown_method", Field: method.String(), Rule: "a method of storage of version 1",
	}
}

func malformed(err error) error {
	return &sdk.Error{Tag: sdk.TagInvalid, Code: "malformed_message", Err: err}
}

func tooLarge(method wirev1.Method) error {
	op, _ := storagev1.OperationOf(method)
	return &sdk.Error{
		Tag: sdk.TagUnavailable, Code: "answer_too_large", Field: op.Name,
		Rule: fmt.Sprintf("an answer of at most %d bytes", wirev1.MaxMessage), Hint: "ask for less at a time",
	}
}
