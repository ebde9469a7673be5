// Package remote is a storage adapter that is a plugin: it speaks to it over a
// carrier and knows no carrier.
//
// A plugin is not believed. What it answers is decoded within bounds and
// compared with what was asked: a wrong number of results, results of other
// events, items or tenants, pages that are too long, out of order or do not
// move on. Such an answer is an [sdk.Error] of tag unavailable and code
// [CodeAnswer], and nothing of it reaches the caller. What only the store can
// know, a sum that is wrong by one, no check here can see.
package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
	"github.com/fencepost/fencepost/plugins/sdk/wire/storagev1"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// Codes of the errors that this package adds. All are of tag unavailable, but
// CodeRequest, which is invalid.
const (
	// CodeUnknownOutcome: the plugin broke off during the call, which may or
	// may not have happened.
	CodeUnknownOutcome = "plugin_outcome_unknown"
	// CodeUnreached: the call did not reach the plugin; nothing happened.
	CodeUnreached = "plugin_unreached"
	// CodeAnswer: the plugin answered what no adapter may answer.
	CodeAnswer = "plugin_answer"
	// CodeChanged: the plugin that was started again is another one.
	CodeChanged = "plugin_changed"
	// CodeRequest: the request is too large to be sent.
	CodeRequest = "request_too_large"
)

// Config says how to open. Caller and Plugin are required.
type Config struct {
	// Caller carries the calls. The adapter closes it, also after a failed
	// Open.
	Caller carrier.Caller
	// Plugin is the plugin's name in the configuration, for errors.
	Plugin string
	// Opening is what the plugin gets to open its store.
	Opening storage.Opening
	// Begin starts what belongs to one call of the plugin, such as its
	// transactions: the call is made in the context that it returns, and end
	// is called when it is over, however it ended. nil: nothing does.
	Begin func(ctx context.Context) (_ context.Context, end func())
	// CloseTimeout bounds Close. Default: 30 s.
	CloseTimeout time.Duration
}

// Adapter is a storage adapter over a carrier. It has every method of the
// contract, and is [storage.Partial]: an operation that the plugin does not
// declare is answered with unsupported, without a call. It is safe for
// concurrent use. The zero value is not usable; see [Open].
type Adapter struct {
	cfg         Config
	described   storagev1.Description
	manifest    storage.Manifest
	has         map[wirev1.Method]bool
	closing     sync.Once
	mu          sync.Mutex
	closed      bool
	closeResult error
}

// Open opens the plugin's store and checks what the plugin says of itself. An
// error has a tag; the plugin's own keeps it.
func Open(ctx context.Context, cfg Config) (*Adapter, error) {
	if cfg.CloseTimeout == 0 {
		cfg.CloseTimeout = 30 * time.Second
	}
	a := &Adapter{cfg: cfg}
	err := a.open(ctx)
	if err != nil {
		a.giveUp(err)
		return nil, fmt.Errorf("open the storage plugin %s: %w", cfg.Plugin, err)
	}
	return a, nil
}

// giveUp closes what could not be opened. A plugin that broke off is not asked to
// close: it would be started for that, and be stuck again.
func (a *Adapter) giveUp(err error) {
	if _, broke := errors.AsType[*carrier.Fault](err); !broke {
		_ = a.Close()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), a.cfg.CloseTimeout)
	defer cancel()
	_ = a.cfg.Caller.Close(ctx)
}

func (a *Adapter) open(ctx context.Context) error {
	d, err := a.sendOpen(ctx)
	if err != nil {
		return err
	}
	a.described = d
	if a.manifest, a.has, err = declared(d); err != nil {
		return a.answered(storagev1.MethodOpen, err)
	}
	return nil
}

func (a *Adapter) sendOpen(ctx context.Context) (storagev1.Description, error) {
	request, err := storagev1.EncodeOpening(&a.cfg.Opening)
	if err != nil {
		return storagev1.Description{}, err
	}
	answer, err := a.send(ctx, storagev1.MethodOpen, request)
	if err != nil {
		return storagev1.Description{}, err
	}
	d, err := storagev1.DecodeDescription(answer)
	if err != nil {
		return d, a.answered(storagev1.MethodOpen, err)
	}
	return d, nil
}

// Describe implements [storage.Adapter].
func (a *Adapter) Describe() storage.Manifest {
	m := a.manifest
	m.Capabilities = append([]storage.Capability(nil), m.Capabilities...)
	return m
}

// Implements implements [storage.Partial].
func (a *Adapter) Implements(name string) bool {
	methods, ok := interfaces[name]
	for _, m := range methods {
		ok = ok && a.has[m]
	}
	return ok
}

// Ping implements [storage.Adapter].
func (a *Adapter) Ping(ctx context.Context) error {
	_, err := a.call(ctx, storagev1.MethodPing, nil)
	return err
}

// Close implements [storage.Adapter]: it closes the plugin's store, then the
// carrier. Calls that run end first, unless that takes too long.
func (a *Adapter) Close() error {
	a.closing.Do(func() {
		a.mu.Lock()
		a.closed = true
		a.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), a.cfg.CloseTimeout)
		defer cancel()
		_, err := a.send(ctx, storagev1.MethodClose, nil)
		if e, ok := errors.AsType[*carrier.Fault](err); ok && !e.Entered {
			err = nil // there is nothing to close
		}
		a.closeResult = errors.Join(err, a.cfg.Caller.Close(ctx))
	})
	return a.closeResult
}

// exchange is one operation: its number, how its request and its answer travel,
// and what must hold of the answer. A nil check is none.
type exchange[In, Out any] struct {
	method wirev1.Method
	encode func(*In) ([]byte, error)
	decode func([]byte) (Out, error)
	check  func(*In, *Out) error
}

// ask performs one operation.
func ask[In, Out any](ctx context.Context, a *Adapter, in In, x exchange[In, Out]) (Out, error) {
	var none Out
	if !a.has[x.method] {
		op, _ := storagev1.OperationOf(x.method)
		return none, &sdk.Error{
			Tag: sdk.TagUnsupported, Code: "not_implemented", Field: op.Name,
			Rule: "an operation that the storage plugin " + a.cfg.Plugin + " has",
		}
	}
	request, err := x.encode(&in)
	if err != nil {
		return none, err
	}
	answer, err := a.call(ctx, x.method, request)
	if err != nil {
		return none, err
	}
	out, err := x.decode(answer)
	if err == nil && x.check != nil {
		err = x.check(&in, &out)
	}
	if err != nil {
		return none, a.answered(x.method, err)
	}
	return out, nil
}

// call sends a request, and once more where the plugin is a new one: what
// carries it may have started it again, and its store is not open then.
func (a *Adapter) call(ctx context.Context, method wirev1.Method, request []byte) ([]byte, error) {
	a.mu.Lock()
	closed := a.closed
	a.mu.Unlock()
	if closed {
		return nil, &sdk.Error{Tag: sdk.TagUnavailable, Code: "closed", Rule: "a store that is not closed"}
	}
	if err := ctx.Err(); err != nil {
		return nil, sdk.Unavailable(CodeUnreached, err)
	}
	answer, err := a.send(ctx, method, request)
	if !notOpen(err) {
		return answer, err
	}
	again, err := a.sendOpen(ctx)
	if err != nil {
		return nil, unreached(err)
	}
	if !reflect.DeepEqual(again, a.described) {
		return nil, &sdk.Error{
			Tag: sdk.TagUnavailable, Code: CodeChanged, Rule: "the plugin " + a.cfg.Plugin + " as it was when this process opened it",
			Hint: "restart, so that the plugin is checked again",
		}
	}
	if answer, err = a.send(ctx, method, request); notOpen(err) {
		return nil, unreached(err)
	}
	return answer, err
}

func notOpen(err error) bool {
	e, ok := errors.AsType[*sdk.Error](err)
	return ok && e.Code == storagev1.CodeNotOpen
}

// unreached says of the failure to open the store again that the call itself
// was not made, whatever the plugin calls the failure.
func unreached(err error) error {
	return &sdk.Error{Tag: sdk.TagUnavailable, Code: CodeUnreached, Err: fmt.Errorf("open the store again: %w", err)}
}

// send performs one call of the carrier and tells its errors apart.
func (a *Adapter) send(ctx context.Context, method wirev1.Method, request []byte) ([]byte, error) {
	if len(request) > wirev1.MaxMessage {
		return nil, &sdk.Error{
			Tag: sdk.TagInvalid, Code: CodeRequest, Field: nameOf(method), Rule: fmt.Sprintf("a request of at most %d bytes", wirev1.MaxMessage),
		}
	}
	if a.cfg.Begin != nil {
		var end func()
		ctx, end = a.cfg.Begin(ctx)
		defer end()
	}
	answer, err := a.cfg.Caller.Call(ctx, uint32(method), request)
	if err == nil {
		return answer, nil
	}
	if told, ok := errors.AsType[*carrier.PluginError](err); ok {
		e, err := wirev1.DecodeError(told.Payload)
		if err != nil {
			return nil, a.answered(method, err)
		}
		return nil, bounded(e)
	}
	if f, ok := errors.AsType[*carrier.Fault](err); ok && !f.Entered {
		return nil, sdk.Unavailable(CodeUnreached, err)
	}
	return nil, sdk.Unavailable(CodeUnknownOutcome, err)
}

// beside is the error that the plugin has beside a result.
func (a *Adapter) beside(problem json.RawMessage) error {
	if problem == nil {
		return nil
	}
	var p storagev1.Problem
	err := json.Unmarshal(problem, &p)
	if err == nil {
		// Through the same door as every other error of a plugin.
		var e *sdk.Error
		if e, err = wirev1.DecodeError(wirev1.EncodeError(&sdk.Error{Tag: p.Tag, Code: p.Code, Field: p.Field, Rule: p.Rule, Hint: p.Hint})); err == nil {
			return bounded(e)
		}
	}
	return a.answered(storagev1.MethodMigrationStatus, err)
}

// answered is the error of an answer that no adapter may give. Whether the
// operation happened is unknown.
func (a *Adapter) answered(method wirev1.Method, err error) error {
	return &sdk.Error{
		Tag: sdk.TagUnavailable, Code: CodeAnswer, Field: nameOf(method), Rule: "what the contract lets an adapter answer",
		Hint: "the storage plugin " + a.cfg.Plugin + " is broken: run `fencepost storage conformance` on it", Err: errors.New(err.Error()),
	}
}

func nameOf(method wirev1.Method) string {
	op, _ := storagev1.OperationOf(method)
	return op.Name
}

// maxText bounds each text of a plugin's error, which ends in logs.
const maxText = 512

// bounded cuts what a plugin says of a failure.
func bounded(e *sdk.Error) *sdk.Error {
	for _, s := range []*string{&e.Code, &e.Field, &e.Rule, &e.Hint} {
		if len(*s) > maxText {
			*s = (*s)[:maxText]
		}
	}
	return e
}
