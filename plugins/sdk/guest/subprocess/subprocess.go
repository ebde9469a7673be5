//go:build !wasip1

// Package subprocess is the part of a plugin that serves calls from a process
// of its own, and what the host's side must know of it. Go authors call
// guest.Serve; other languages find the messages in subprocess.proto.
package subprocess

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
)

// Names of the handshake and of the service.
const (
	// Cookie is an environment variable by whose value a program knows that a
	// host started it. It is no secret and protects nothing.
	Cookie      = "FENCEPOST_PLUGIN"
	CookieValue = "c1e2f0a2-plugin-of-fencepost"
	// Protocol is the version of this protocol in the handshake.
	Protocol = 1
	// PluginName is what the handshake calls the one plugin of a process.
	PluginName = "fencepost"

	// Timeout is a header of a call: the microseconds that it has, where the
	// host waits longer than that for the plugin to end it.
	Timeout = "fencepost-timeout"

	service = "fencepost.process.v1.Plugin"
	// CallMethod is the full gRPC name of a call.
	CallMethod = "/" + service + "/Call"
)

// Handshake is what go-plugin compares on both sides.
func Handshake() plugin.HandshakeConfig {
	return plugin.HandshakeConfig{ProtocolVersion: Protocol, MagicCookieKey: Cookie, MagicCookieValue: CookieValue}
}

// Ask carries one question to the host and brings the answer. refused says
// that the host did nothing; any other error that nobody knows what it did. It
// fails once the call is over.
type Ask func(ctx context.Context, name capability.Name, payload []byte) (answer []byte, refused bool, err error)

// Handler answers calls, one at a time unless it has a method Concurrent that
// answers true. A panic ends the process, which the host takes for a trap.
type Handler interface {
	// Call answers one method: status 0 with an answer, 1 with an Error.
	Call(ctx context.Context, method uint32, request []byte, ask Ask) (answer []byte, status int32)
}

// Started reports whether a host started this program.
func Started() bool { return os.Getenv(Cookie) == CookieValue }

// Serve answers the host's calls until the host ends the process. Call it from
// main, after Started.
func Serve(h Handler) {
	s := &server{handler: h, stdout: os.Stdout, stderr: os.Stderr}
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: Handshake(),
		Plugins:         plugin.PluginSet{PluginName: s},
		GRPCServer: func(options []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(options,
				grpc.ForceServerCodecV2(NewCodec()), grpc.MaxRecvMsgSize(math.MaxInt32), grpc.MaxSendMsgSize(math.MaxInt32))...)
		},
		Logger: hclog.NewNullLogger(),
	})
}

// server is the plugin's side of the service.
type server struct {
	plugin.NetRPCUnsupportedPlugin

	handler Handler
	mu      sync.Mutex

	once           sync.Once
	stdout, stderr *os.File
}

// GRPCServer registers the service.
func (s *server) GRPCServer(_ *plugin.GRPCBroker, g *grpc.Server) error {
	g.RegisterService(&grpc.ServiceDesc{
		ServiceName: service, HandlerType: (*any)(nil), Metadata: "subprocess.proto",
		Streams: []grpc.StreamDesc{{StreamName: "Call", Handler: s.call, ServerStreams: true, ClientStreams: true}},
	}, s)
	return nil
}

// GRPCClient is for go-plugin's client, which the host does not use.
func (*server) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("the host calls by itself")
}

func (s *server) call(_ any, stream grpc.ServerStream) error {
	// go-plugin puts pipes in the place of the two and sends what comes out
	// over gRPC. The host reads the real ones, which also take what is written
	// by a panic and by code that is not Go.
	s.once.Do(func() { os.Stdout, os.Stderr = s.stdout, s.stderr })
	var request FromHost
	if err := stream.RecvMsg(&request); err != nil {
		return fmt.Errorf("receive the request: %w", err)
	}
	if c, ok := s.handler.(interface{ Concurrent() bool }); !ok || !c.Concurrent() {
		s.mu.Lock()
		defer s.mu.Unlock()
	}
	ctx, cancel := limited(stream.Context())
	defer cancel()
	q := &questions{stream: stream}
	answer, status := s.handler.Call(ctx, request.GetMethod(), request.GetPayload(), q.ask)
	q.end()
	if err := stream.SendMsg(&FromPlugin{Payload: answer, Status: status}); err != nil {
		return fmt.Errorf("send the result: %w", err)
	}
	return nil
}

// limited gives the handler the deadline that the host put into the header.
func limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if header, ok := metadata.FromIncomingContext(ctx); ok {
		if values := header.Get(Timeout); len(values) == 1 {
			if us, err := strconv.ParseInt(values[0], 10, 64); err == nil && us > 0 && us < int64(math.MaxInt64/time.Microsecond) {
				return context.WithTimeout(ctx, time.Duration(us)*time.Microsecond)
			}
		}
	}
	return context.WithCancel(ctx)
}

// questions are those of one call, one at a time.
type questions struct {
	mu     sync.Mutex
	stream grpc.ServerStream
	err    error
}

var errOver = errors.New("the call is over")

func (q *questions) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.err = errOver
}

func (q *questions) ask(ctx context.Context, name capability.Name, payload []byte) ([]byte, bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil {
		return nil, true, q.err // nothing was sent
	}
	if err := ctx.Err(); err != nil {
		return nil, true, err
	}
	if err := q.stream.SendMsg(&FromPlugin{Ask: string(name), Payload: payload}); err != nil {
		q.err = fmt.Errorf("ask the host: %w", err)
		return nil, false, q.err
	}
	var answer FromHost
	if err := q.stream.RecvMsg(&answer); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		q.err = fmt.Errorf("hear the host: %w", err)
		return nil, false, q.err
	}
	if answer.GetRefused() != "" {
		return nil, true, errors.New(answer.GetRefused())
	}
	return answer.GetPayload(), false, nil
}
