package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	gorunner "github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/fencepost/fencepost/host/carrier"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/guest/subprocess"
)

// child is one running process with our connection to it.
type child struct {
	cfg    *Config
	asks   *carrier.Asks
	runner *runner
	conn   *grpc.ClientConn
	ready  bool // set up
	// ended is told of its end, perhaps more than once.
	ended func()
}

// startChild starts a process and shakes hands with it. It takes as long as the
// start may take.
func (p *Process) startChild() (*child, *carrier.Fault) {
	r := &runner{
		cfg: &p.cfg, plain: &p.plain, uid: p.uid, killed: p.killed, lines: p.lines, exited: make(chan struct{}),
		stderr: &output{stream: "stderr", log: p.lines},
	}
	cfg := &plugin.ClientConfig{
		HandshakeConfig: subprocess.Handshake(),
		Plugins:         plugin.PluginSet{subprocess.PluginName: &plugin.NetRPCUnsupportedPlugin{}},
		RunnerFunc: func(_ hclog.Logger, cmd *exec.Cmd, dir string) (gorunner.Runner, error) {
			r.cmd, r.dir = cmd, dir
			return r, nil
		},
		StartTimeout:     p.cfg.Limits.StartTimeout,
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		Logger:           hclog.NewNullLogger(),
		AutoMTLS:         true,
		SkipHostEnv:      true,
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: p.sockets.dir},
	}
	c := &child{cfg: &p.cfg, asks: p.asks, runner: r}
	c.ended = func() { p.died(c) }
	addr, err := plugin.NewClient(cfg).Start()
	if err == nil {
		err = c.connect(addr, cfg)
	}
	if err == nil {
		p.born(c)
		p.cfg.Started()
		p.isolation.Store(&r.isolation)
		return c, nil
	}
	if r.pid == 0 {
		_ = os.RemoveAll(r.dir)
		return nil, &carrier.Fault{Kind: carrier.KindTrap, Plugin: p.cfg.Name, Detail: "start a process: " + err.Error(), Err: err}
	}
	f := c.broke(err, false)
	f.Detail = "start a process: " + f.Detail
	return nil, f
}

// connect prepares the one connection. It is never made anew: a process whose
// connection is lost is killed.
func (c *child) connect(addr net.Addr, cfg *plugin.ClientConfig) error {
	var dialled atomic.Bool
	conn, err := grpc.NewClient("passthrough:///plugin",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			if dialled.Swap(true) {
				return nil, errors.New("the connection was lost")
			}
			return c.dial(ctx, addr)
		}),
		grpc.WithTransportCredentials(credentials.NewTLS(cfg.TLSConfig)),
		grpc.WithDefaultCallOptions(
			grpc.ForceCodecV2(subprocess.NewCodec()),
			grpc.MaxCallRecvMsgSize(max(c.cfg.Limits.MaxOutput, c.cfg.Limits.Asks.MaxHTTPBatch)+messageOverhead),
			grpc.MaxCallSendMsgSize(maxSend),
		),
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(), grpc.WithIdleTimeout(0), grpc.WithMaxHeaderListSize(16<<10),
	)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	c.conn = conn
	return nil
}

const (
	messageOverhead = 1 << 10
	maxSend         = 64 << 20
)

// dial connects to the socket that the process named, and checks that it is the
// process that listens there.
func (c *child) dial(ctx context.Context, addr net.Addr) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, addr.Network(), addr.String())
	if err != nil {
		return nil, err
	}
	if pid, err := peer(conn); err != nil || pid != c.runner.pid {
		_ = conn.Close()
		return nil, errors.New("another process listens on the plugin's socket")
	}
	return conn, nil
}

// protocolError is what a plugin did that the protocol does not have.
type protocolError struct{ text string }

func (e protocolError) Error() string { return e.text }

// call performs one call. entered reports whether the process may have seen it.
func (c *child) call(ctx context.Context, call carrier.SetupCall) (answer []byte, entered bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, subprocess.CallMethod)
	if err != nil {
		return nil, false, err
	}
	if err := stream.SendMsg(&subprocess.FromHost{Method: call.Method, Payload: call.Request}); err != nil {
		return nil, true, c.cause(stream, err)
	}
	asked := &carrier.Asked{}
	for range maxAsks {
		var m subprocess.FromPlugin
		if err := stream.RecvMsg(&m); err != nil {
			return nil, true, err
		}
		if m.GetAsk() == "" {
			return c.result(&m)
		}
		reply := &subprocess.FromHost{}
		reply.Payload, err = c.asks.Answer(ctx, asked, capability.Name(m.GetAsk()), m.GetPayload())
		if err != nil {
			reply.Refused = err.Error()
		}
		if err := stream.SendMsg(reply); err != nil {
			return nil, true, c.cause(stream, err)
		}
	}
	return nil, true, protocolError{fmt.Sprintf("the plugin asked more than %d questions in one call", maxAsks)}
}

// cause is what ended a stream: a failed SendMsg only says that it did.
func (*child) cause(stream grpc.ClientStream, err error) error {
	if e := stream.RecvMsg(&subprocess.FromPlugin{}); e != nil {
		return e
	}
	return err
}

func (c *child) result(m *subprocess.FromPlugin) ([]byte, bool, error) {
	if n, most := len(m.GetPayload()), c.cfg.Limits.MaxOutput; n > most {
		return nil, true, protocolError{fmt.Sprintf("the answer has %d bytes, more than %d", n, most)}
	}
	switch m.GetStatus() {
	case 0:
		return m.GetPayload(), true, nil
	case 1:
		return nil, true, &carrier.PluginError{Payload: m.GetPayload()}
	case 2:
		if c.cfg.Fault != nil {
			f := c.cfg.Fault(m.GetPayload())
			return nil, f.Entered, f
		}
		fallthrough
	default:
		return nil, true, protocolError{fmt.Sprintf("the call returned the unknown status %d", m.GetStatus())}
	}
}

// gone reports whether the process has ended.
func (c *child) gone() bool {
	select {
	case <-c.runner.exited:
		return true
	default:
		return false
	}
}

// endWait bounds the wait for a killed process: one in the middle of a disk
// access ends when that does.
const endWait = 5 * time.Second

// end kills the process and everything that it started, and cleans up.
func (c *child) end() {
	c.runner.killGroup()
	select {
	case <-c.runner.exited:
	case <-time.After(endWait):
		c.cfg.Logger.Error("a killed plugin process does not end", "pid", c.runner.pid)
	}
	if c.conn != nil {
		_ = c.conn.Close()
	}
	_ = os.RemoveAll(c.runner.dir)
	c.ended()
}

// memory is what the process has in memory now, in bytes; zero: unknown.
func (c *child) memory() uint64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", c.runner.pid))
	if err != nil {
		return 0 // it has ended
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseUint(fields[1], 10, 64)
	return pages * uint64(os.Getpagesize())
}

const (
	maxDetail  = 1 << 10
	maxExcerpt = 1 << 10
	// exitWait is how long an end by itself may follow a lost connection.
	exitWait = 200 * time.Millisecond
)

// broke ends the process and says why the call got no answer.
func (c *child) broke(err error, entered bool) *carrier.Fault {
	f := &carrier.Fault{Kind: carrier.KindProtocol, Plugin: c.cfg.Name, Entered: entered, Err: err, Detail: clip(err.Error())}
	lost := c.conn == nil || status.Code(err) == codes.Unavailable
	if lost {
		select {
		case <-c.runner.exited:
		case <-time.After(exitWait):
			lost = false // it lives and has closed the connection
		}
	}
	c.end()
	if s := c.runner.state; lost && s != nil && c.runner.byItself() {
		c.explain(f, s)
	}
	if said := c.runner.stderr.excerpt(maxExcerpt); said != "" {
		f.Detail += "; on stderr: " + said
	}
	return f
}

// explain classifies the end of a process that ended by itself.
func (c *child) explain(f *carrier.Fault, s *os.ProcessState) {
	f.Detail = s.String()
	switch {
	case c.runner.stderr.outOfMemory():
		f.Kind = carrier.KindMemory
	case s.Exited() && !c.runner.stderr.panicked():
		f.Kind = carrier.KindExit
	default:
		f.Kind = carrier.KindTrap
	}
}

func clip(s string) string {
	if len(s) <= maxDetail {
		return s
	}
	return strings.ToValidUTF8(s[:maxDetail], "") + "…"
}
