package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/engine/outbox"
	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/host/carrier/process"
	"github.com/fencepost/fencepost/host/egress"
	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/host/journal"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// loaded is one version of an exporter's plugin and what it may reach. A reload
// puts another in its place, whole: a batch, with its evidence, is of one
// version from beginning to end.
type loaded struct {
	of       *exporterRuntime
	plugin   plugin
	manifest exporter.Manifest // with the operator's smaller limits
	granted  grant.Grant
	http     *egress.Client // nil: it does not ask for http
	file     *journal.File  // nil: it does not ask for append
	// users are the calls that it may not be closed under.
	users sync.WaitGroup

	// opened is closed when the plugin can be called, or never will be: then err
	// says why. What follows is not read before.
	opened chan struct{}
	err    error
	caller carrier.Caller
	image  *process.Image // nil: no process of it is started
	// grade is who vouches for what the plugin sent.
	grade func() outbox.Grade
	usage func() carrier.Usage // nil: unknown

	parked atomic.Bool
	// failed is why the last attempt to open it behind the host's start failed.
	failed atomic.Pointer[error]
	// replaced is closed when another version has its place.
	replaced chan struct{}
}

func (x *exporterRuntime) newLoaded(p plugin) *loaded {
	return &loaded{of: x, plugin: p, opened: make(chan struct{}), replaced: make(chan struct{})}
}

// settle says that the plugin can be called, or why it never will be.
func (l *loaded) settle(err error) {
	l.err = err
	close(l.opened)
}

// open opens the plugin, or as much of it as what it said of itself before
// allows: behind says that [loaded.start] is still to be called.
func (l *loaded) open(ctx context.Context) (behind bool, err error) {
	if err := hasWorker(l.plugin.isolation, l.of.host.cfg.Worker); err != nil {
		return false, fmt.Errorf("load plugin: %w", err)
	}
	if said := l.kept(); said != nil {
		return true, l.accept(ctx, said)
	}
	if err := l.carry(ctx); err != nil {
		return false, err
	}
	said, err := l.describe(ctx)
	if err != nil {
		return false, err
	}
	if err := l.accept(ctx, said); err != nil {
		return false, err
	}
	l.keep(said)
	l.plugin.bytes = nil // the carrier has them
	l.settle(nil)
	return false, nil
}

// start opens what open left, and makes sure that the plugin says what it said
// before.
func (l *loaded) start(ctx context.Context) error {
	kept := l.kept()
	err := l.carry(ctx)
	if err == nil {
		var said []byte
		if said, err = l.describe(ctx); err == nil && string(said) != string(kept) {
			l.forget()
			err = errDescribesAnew
		}
	}
	if err != nil {
		// A process that never starts to serve holds its call until it is ended.
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		err = errors.Join(err, l.closeCarrier(ending))
		cancel()
		l.caller, l.image = nil, nil
		return err
	}
	l.plugin.bytes = nil
	return nil
}

var errDescribesAnew = errors.New("the plugin describes itself differently than before, with the same content and settings: start the host again")

// describe asks the plugin what it is, which sets an instance up as well.
func (l *loaded) describe(ctx context.Context) ([]byte, error) {
	answer, err := l.perform(ctx, wirev1.MethodDescribe, nil)
	if err != nil {
		return nil, describeError{err}
	}
	return answer, nil
}

// describeError is what keeps a plugin from saying what it is.
type describeError struct{ err error }

func (e describeError) Error() string { return "describe: " + e.err.Error() }
func (e describeError) Unwrap() error { return e.err }

// accept takes what the plugin says of itself, checks it against mapping and
// grants, and opens the ways out.
func (l *loaded) accept(ctx context.Context, said []byte) error {
	var err error
	if l.manifest, err = wirev1.DecodeManifest(said); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	s := l.of.settings
	l.manifest.Rate = smaller(l.manifest.Rate, s.Rate)
	l.manifest.Concurrency = smaller(l.manifest.Concurrency, s.Concurrency)
	if h := time.Duration(s.Horizon); h > 0 && (l.manifest.IdentifierHorizon == 0 || h < l.manifest.IdentifierHorizon) {
		l.manifest.IdentifierHorizon = h
	}
	if err := errors.Join(l.checkMapping(), l.checkWindows(), l.checkReplaced()); err != nil {
		return err
	}
	if l.of.host.cfg.WithoutDelivery {
		return nil // nothing will be sent, so neither secret nor certificate is needed
	}
	if l.granted, err = l.grant(); err != nil {
		return err
	}
	if err := grant.Check(l.manifest, l.granted); err != nil {
		return fmt.Errorf("grants: %w", err)
	}
	return l.openWays(ctx, l.granted)
}

// call performs one method of the plugin, once it can be called.
func (l *loaded) call(ctx context.Context, method wirev1.Method, request []byte) ([]byte, error) {
	refused := func(err error) error {
		return &carrier.Fault{Kind: carrier.KindRefused, Plugin: l.of.settings.Name, Err: err, Detail: err.Error()}
	}
	select {
	case <-l.opened:
	case <-ctx.Done():
		return nil, refused(errStillLoading)
	}
	if l.err != nil {
		return nil, refused(l.err)
	}
	return l.perform(ctx, method, request)
}

var errStillLoading = errors.New("the plugin is still being loaded")

// perform makes the call and counts it.
func (l *loaded) perform(ctx context.Context, method wirev1.Method, request []byte) ([]byte, error) {
	h, name := l.of.host, l.of.settings.Name
	start := h.cfg.Now()
	answer, err := l.caller.Call(ctx, uint32(method), request)
	outcome := "ok"
	var fault *carrier.Fault
	var refused *carrier.PluginError
	switch {
	case errors.As(err, &fault):
		outcome = string(fault.Kind)
		if fault.Entered {
			h.metrics.PluginEnded(name, outcome)
		}
	case errors.As(err, &refused):
		outcome = "error"
		if decoded, derr := wirev1.DecodeError(refused.Payload); derr == nil {
			err = decoded
		}
	}
	h.metrics.PluginCalled(name, outcome, h.cfg.Now().Sub(start))
	return answer, err
}

// vouches is the grade of what was sent by now.
func (l *loaded) vouches() outbox.Grade {
	select {
	case <-l.opened:
		if l.grade != nil {
			return l.grade()
		}
	default:
	}
	return outbox.GradeHost // nothing of it has run
}

// send is the http capability of this plugin, over bytes.
func (l *loaded) send(ctx context.Context, batch []byte) ([]byte, error) {
	requests, err := wirev1.DecodeRequests(batch)
	if err != nil {
		return nil, fmt.Errorf("decode requests: %w", err)
	}
	if l.http == nil { // before Describe was answered nothing may be sent
		return nil, errors.New("the http capability is not open yet")
	}
	// The requests end before the call does, so that the plugin can still read
	// the answers that did come: a call that is cut answers for no item.
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-readingTime(deadline.Sub(l.of.host.cfg.Now()))))
		defer cancel()
	}
	responses, err := l.http.Send(ctx, requests)
	return wirev1.EncodeResponses(responses, err), nil
}

// append is the append capability of this plugin, over bytes.
func (l *loaded) append(ctx context.Context, batch []byte) ([]byte, error) {
	records, err := wirev1.DecodeRecords(batch)
	if err != nil {
		return nil, fmt.Errorf("decode records: %w", err)
	}
	if l.file == nil { // before Describe was answered nothing may be written
		return nil, errors.New("the append capability is not open")
	}
	appended, err := l.file.Append(ctx, records)
	return wirev1.EncodeAppended(appended, err), nil
}

// retire closes the plugin when nobody uses it any more, at the latest when ctx
// ends: calls that still run then are ended.
func (l *loaded) retire(ctx context.Context) error {
	unused := make(chan struct{})
	go func() {
		l.users.Wait()
		close(unused)
	}()
	select {
	case <-unused:
	case <-ctx.Done():
	}
	err := l.close(ctx)
	<-unused // the calls that were ended return
	return err
}

// close ends the plugin and its connections. Nobody may be opening it.
func (l *loaded) close(ctx context.Context) error {
	err := l.closeCarrier(ctx)
	if l.http != nil {
		err = errors.Join(err, l.http.Close())
	}
	return err
}

func (l *loaded) closeCarrier(ctx context.Context) error {
	var err error
	if l.caller != nil {
		err = l.caller.Close(ctx)
	}
	if l.image != nil {
		err = errors.Join(err, l.image.Close())
	}
	return err
}
