package wasm

import (
	"context"
	"errors"
	"sync"
)

var errClosed = errors.New("the plugin is closed")

// pool hands each instance to one call at a time. A token is the right to hold
// one instance, so that there are never more than the tokens; idle instances
// wait without one.
type pool struct {
	tokens  chan struct{}
	closing chan struct{}
	once    sync.Once

	mu   sync.Mutex
	idle []*instance
}

func newPool(size int) *pool {
	return &pool{tokens: make(chan struct{}, size), closing: make(chan struct{})}
}

// acquire waits for a token and returns an idle instance, or nil if the caller
// must make one. The error is errClosed or the context's cause.
func (p *pool) acquire(ctx context.Context) (*instance, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	select {
	case p.tokens <- struct{}{}:
	case <-p.closing:
		return nil, errClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case <-p.closing:
		<-p.tokens
		return nil, errClosed
	default:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle); n > 0 {
		in := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return in, nil
	}
	return nil, nil
}

// release gives back the token and, unless it is nil, the instance.
func (p *pool) release(in *instance) {
	if in != nil {
		p.mu.Lock()
		p.idle = append(p.idle, in)
		p.mu.Unlock()
	}
	<-p.tokens
}

// drain refuses new calls and takes all tokens: when it returns nil, no
// instance is in use and none will be again. It may be called once more after
// an error.
func (p *pool) drain(ctx context.Context, held int) (int, error) {
	p.once.Do(func() { close(p.closing) })
	for ; held < cap(p.tokens); held++ {
		select {
		case p.tokens <- struct{}{}:
		case <-ctx.Done():
			return held, context.Cause(ctx)
		}
	}
	return held, nil
}
