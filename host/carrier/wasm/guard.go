package wasm

import (
	"context"
	"errors"
	"fmt"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/sys"
)

// The guard makes the deadline hold for every module.
//
// wazero tests for the deadline at loop headers only, so code without loops
// runs on: a doubling recursion for minutes. A listener can test at entry and
// exit of a function, but listeners on every function of a Go guest cost about
// a third more. The guard watches as few functions as are enough to bound what
// can run between two tests, its stretch:
//
//   - every function that calls through a table or does more than maxUnwatched
//     by itself is watched, and so is every function on a cycle of direct calls
//     among the others. So the functions that are not watched call each other
//     without cycles, and their stretch, callees included, is a sum.
//   - of those, every function whose stretch exceeds maxUnwatched is watched.
//     So whatever a watched function calls adds at most maxUnwatched per call.
//   - a module with a function whose stretch exceeds maxStretch is refused.
//
// Both ends of a call are tested. Testing entries alone would let a deep
// recursion run on while it returns: a million frames, each with some code
// after its call. That is also why a loop header at the start of a function
// is no substitute for watching it.
const (
	// maxUnwatched is a few microseconds: smaller costs more listeners,
	// larger buys nothing more on Go guests (measured 1 Ki to 1 Mi).
	maxUnwatched = 4 << 10
	// maxStretch is some tenths of a second. The functions of a large Go
	// guest are four orders of magnitude below it.
	maxStretch = 1 << 30
	// maxDepth bounds the watched calls on the stack. The runtime walks the
	// stack at each entry of a watched function, so that depth costs its
	// square; this is a second of it, and five times what decoding the
	// deepest JSON that Go accepts takes.
	maxDepth = 50_000
)

// plan is which defined functions are watched, and the longest stretch of the
// module in units of work.
type plan struct {
	watched []bool
	stretch int
}

// planner walks the graph of direct calls; it is Tarjan's algorithm for
// strongly connected components, which yields callees before callers.
type planner struct {
	layout  *layout
	plan    plan
	stretch []int
	index   []int
	low     []int
	onStack []bool
	stack   []int
	next    int
	heavy   int
}

// planGuard chooses the functions to watch. pages is the memory limit, which
// bounds a bulk instruction.
func planGuard(l *layout, pages uint32) (plan, error) {
	n := len(l.bodies)
	p := &planner{
		layout: l, plan: plan{watched: make([]bool, n)},
		stretch: make([]int, n), index: make([]int, n), low: make([]int, n), onStack: make([]bool, n),
		heavy: int(pages) << 16 / bytesPerUnit,
	}
	for i, b := range l.bodies {
		for _, callee := range b.calls {
			if int(callee) >= l.importedFuncs+n {
				return plan{}, fmt.Errorf("function %d calls function %d, which does not exist", l.importedFuncs+i, callee)
			}
		}
		p.plan.watched[i] = b.indirect > 0 || p.own(i) > maxUnwatched
	}
	for i := range n {
		if p.index[i] == 0 {
			p.visit(i)
		}
	}
	for i, s := range p.stretch {
		p.plan.stretch = max(p.plan.stretch, s)
		if s > maxStretch {
			return plan{}, fmt.Errorf("function %d can run for too long between two tests of the deadline", l.importedFuncs+i)
		}
	}
	return p.plan, nil
}

func (p *planner) visit(v int) {
	p.next++
	p.index[v], p.low[v] = p.next, p.next
	p.stack = append(p.stack, v)
	p.onStack[v] = true
	calledItself := false
	for _, callee := range p.layout.bodies[v].calls {
		w := int(callee) - p.layout.importedFuncs
		if w < 0 || p.plan.watched[w] {
			// A cycle through a watched function is tested there.
			continue
		}
		calledItself = calledItself || w == v
		if p.index[w] == 0 {
			p.visit(w)
			p.low[v] = min(p.low[v], p.low[w])
		} else if p.onStack[w] {
			p.low[v] = min(p.low[v], p.index[w])
		}
	}
	if p.low[v] != p.index[v] {
		return
	}
	size := 0
	for p.stack[len(p.stack)-1-size] != v {
		size++
	}
	component := p.stack[len(p.stack)-1-size:]
	p.stack = p.stack[:len(p.stack)-1-size]
	for _, w := range component {
		p.onStack[w] = false
		p.plan.watched[w] = p.plan.watched[w] || calledItself || len(component) > 1
	}
	// A callee is settled, or watched so that its stretch does not count.
	for _, w := range component {
		p.settle(w)
	}
}

// own is the stretch of a function without its direct calls.
func (p *planner) own(v int) int {
	b := &p.layout.bodies[v]
	return b.work + b.bulk*p.heavy + b.indirect*maxUnwatched
}

// settle computes the stretch of a function whose callees are settled.
func (p *planner) settle(v int) {
	s := p.own(v)
	for _, callee := range p.layout.bodies[v].calls {
		if w := int(callee) - p.layout.importedFuncs; w >= 0 && !p.plan.watched[w] {
			s += p.stretch[w]
		}
	}
	p.stretch[v] = s
	if s > maxUnwatched {
		p.plan.watched[v] = true
	}
}

// factory returns the listeners of the plan. A function outside the plan is
// watched.
func (p plan) factory(importedFuncs int) experimental.FunctionListenerFactory {
	return experimental.FunctionListenerFactoryFunc(func(def api.FunctionDefinition) experimental.FunctionListener {
		if i := int(def.Index()) - importedFuncs; i >= 0 && i < len(p.watched) && !p.watched[i] {
			return nil
		}
		return watch{}
	})
}

// watchHost watches every function of a host module, each of which may take
// long compared with guest code.
func watchHost(api.FunctionDefinition) experimental.FunctionListener { return hostWatch{} }

// hostWatch asks the context itself: the runtime closes the module from another
// goroutine, a moment later, and a guest should not go on from a host function
// that gave up because the context was done.
type hostWatch struct{ watch }

// Before implements [experimental.FunctionListener].
func (hostWatch) Before(ctx context.Context, mod api.Module, def api.FunctionDefinition, params []uint64, si experimental.StackIterator) {
	watch{}.Before(ctx, mod, def, params, si)
	stopIfDone(ctx)
}

// After implements [experimental.FunctionListener].
func (hostWatch) After(ctx context.Context, mod api.Module, def api.FunctionDefinition, results []uint64) {
	watch{}.After(ctx, mod, def, results)
	stopIfDone(ctx)
}

func stopIfDone(ctx context.Context) {
	if ctx.Err() != nil {
		panic(sys.NewExitError(sys.ExitCodeDeadlineExceeded))
	}
}

var errDepth = errors.New("call stack deeper than the limit")

// watch ends the call when its context is done. It has no state of its own:
// one value serves all instances.
type watch struct{}

// Before implements [experimental.FunctionListener].
func (watch) Before(ctx context.Context, mod api.Module, _ api.FunctionDefinition, _ []uint64, _ experimental.StackIterator) {
	if in := instanceOf(ctx); in != nil {
		if in.depth++; in.depth > maxDepth {
			panic(errDepth)
		}
	}
	stopIfClosed(mod)
}

// After implements [experimental.FunctionListener].
func (watch) After(ctx context.Context, mod api.Module, _ api.FunctionDefinition, _ []uint64) {
	if in := instanceOf(ctx); in != nil {
		in.depth--
	}
	stopIfClosed(mod)
}

// Abort implements [experimental.FunctionListener].
func (watch) Abort(context.Context, api.Module, api.FunctionDefinition, error) {}

// stopIfClosed breaks off the guest if the runtime closed its module because
// the context is done: the same test that wazero makes at loop headers.
func stopIfClosed(mod api.Module) {
	if mod.IsClosed() {
		panic(sys.NewExitError(sys.ExitCodeDeadlineExceeded))
	}
}
