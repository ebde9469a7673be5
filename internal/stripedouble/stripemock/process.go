package stripemock

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// process is one run of stripe-mock: what it said, and how it ended.
type process struct {
	cmd   *exec.Cmd
	said  *notes
	addr  string
	ended chan struct{}
	once  sync.Once
}

// The lines by which stripe-mock names its ports. It opens the second one after
// it has announced the first, and ends if it cannot: the first line alone says
// nothing.
const (
	announcesHTTP  = "Listening for HTTP at address: "
	announcesHTTPS = "Listening for HTTPS at address: "
)

// run starts stripe-mock and returns once both ports are open. -http-addr alone
// would leave HTTPS on port 12112 of every address: of two at a time one ends.
func run(ctx context.Context, binary string) (*process, error) {
	p := &process{said: &notes{}, ended: make(chan struct{})}
	p.cmd = exec.CommandContext(ctx, binary, "-http-addr", "127.0.0.1:0", "-https-addr", "127.0.0.1:0")
	p.cmd.Stderr = p.said
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("stripe-mock: %w", err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("stripe-mock: start %s: %w", filepath.Base(binary), err)
	}
	open := make(chan struct{})
	go p.listen(out, open)
	select {
	case <-open:
		return p, nil
	case <-p.ended:
		return nil, fmt.Errorf("stripe-mock: ended before its ports were open: %s", p.said)
	}
}

// listen reads what stripe-mock prints until it ends: whoever does not read a
// process's output blocks it.
func (p *process) listen(out io.Reader, open chan<- struct{}) {
	defer close(p.ended)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		line := lines.Text()
		p.said.note("stdout: %s", line)
		if addr, ok := strings.CutPrefix(line, announcesHTTP); ok {
			p.addr = addr
		}
		if strings.HasPrefix(line, announcesHTTPS) && p.addr != "" {
			close(open)
			break
		}
	}
	_, err := io.Copy(io.Discard, out)
	p.said.note("ended: %v", errors.Join(lines.Err(), err, p.cmd.Wait()))
}

// kill ends the process and waits for it.
func (p *process) kill() {
	p.once.Do(func() {
		p.said.note("killed by Close")
		_ = p.cmd.Process.Kill() // it may have ended by itself
	})
	<-p.ended
}

// alive reports whether the process runs.
func (p *process) alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// notes is a bounded log that several goroutines write.
type notes struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

const mostNotes = 64 << 10

// Write takes what stripe-mock writes to stderr, and lines of loggers.
func (n *notes) Write(b []byte) (int, error) {
	n.note("said: %s", bytes.TrimSpace(b))
	return len(b), nil
}

func (n *notes) note(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.buf.Len() < mostNotes {
		fmt.Fprintf(&n.buf, format+"\n", args...)
	}
}

func (n *notes) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.buf.String()
}
