//go:build !wasip1

package guest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/guest/subprocess"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

func serve(build exporter.New, host capability.Host) Plugin {
	names := named(host)
	return Plugin{run: func() {
		serveProcess("exporters", names, func(h capability.Host) answering { return NewDispatcher(build, h) })
	}}
}

// answering is a dispatcher of any kind of plugin.
type answering interface {
	Call(ctx context.Context, method wirev1.Method, request []byte) ([]byte, wirev1.Status)
}

// serveProcess answers the calls of the host that started this program, or says
// that none did.
func serveProcess(kind string, names []capability.Name, build func(capability.Host) answering) {
	if !subprocess.Started() {
		fmt.Fprintf(os.Stderr, "%s is a fencepost plugin and not a command: name it as exec:%s under %s in fencepost.yaml, "+
			"or build it with GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared and name the file as wasm:FILE\n",
			filepath.Base(os.Args[0]), os.Args[0], kind)
		os.Exit(2)
	}
	p := &process{}
	p.plugin = build(HostOver(p.askHost, names...))
	subprocess.Serve(p)
}

// process is the one instance of a plugin process. It runs one call at a time;
// what it asks belongs to that call.
type process struct {
	plugin answering
	mu     sync.Mutex
	ask    subprocess.Ask
}

func (p *process) Call(ctx context.Context, method uint32, request []byte, ask subprocess.Ask) ([]byte, int32) {
	p.mu.Lock()
	p.ask = ask // of an ended call it refuses
	p.mu.Unlock()
	answer, status := p.plugin.Call(context.WithValue(ctx, askKey{}, ask), wirev1.Method(method), request)
	return answer, int32(status)
}

// askKey is for the ask of a call in its context: calls of a plugin that takes
// several at once must not ask for one another.
type askKey struct{}

func (p *process) askHost(ctx context.Context, name capability.Name, payload []byte) ([]byte, bool, error) {
	if ask, ok := ctx.Value(askKey{}).(subprocess.Ask); ok {
		return ask(ctx, name, payload)
	}
	p.mu.Lock()
	ask := p.ask
	p.mu.Unlock()
	return ask(ctx, name, payload)
}

// WithHTTP gives the exporter [capability.Host].HTTP.
func WithHTTP() Option { return func(h *capability.Host) { h.HTTP = httpOver{} } }

// WithAppend gives the exporter [capability.Host].Append.
func WithAppend() Option { return func(h *capability.Host) { h.Append = appendOver{} } }

// WithLog gives the exporter [capability.Host].Log.
func WithLog() Option { return func(h *capability.Host) { h.Log = logOver{} } }

// WithClock gives the exporter [capability.Host].Clock.
func WithClock() Option { return func(h *capability.Host) { h.Clock = clockOver{} } }

// WithRandom gives the exporter [capability.Host].Random.
func WithRandom() Option { return func(h *capability.Host) { h.Random = randomOver{} } }

// WithSQL gives the plugin [capability.Host].SQL.
func WithSQL() Option { return func(h *capability.Host) { h.SQL = sqlOver{} } }

// named lists the capabilities that options put into host. What is in there is
// a mark only; the process makes its own.
func named(host capability.Host) []capability.Name {
	var names []capability.Name
	for name, present := range map[capability.Name]bool{
		capability.HTTPName: host.HTTP != nil, capability.LogName: host.Log != nil, capability.AppendName: host.Append != nil,
		capability.ClockName: host.Clock != nil, capability.RandomName: host.Random != nil,
		capability.SQLName: host.SQL != nil,
	} {
		if present {
			names = append(names, name)
		}
	}
	return names
}
