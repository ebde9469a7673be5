package wasm

import (
	"github.com/tetratelabs/wazero/experimental"
)

// memories gives instances their linear memory. By default wazero keeps it on
// the Go heap, where each growth leaves a copy behind and every byte of it lets
// the heap grow by one more before it is collected. Here an instance gets a
// region of its own, as large as it may ever be, of which the system backs what
// was touched; what it gives back serves the next instance, and the system
// takes the pages at once.
//
// A region stays mapped until the module is closed: nothing that still holds a
// view of a memory that was given back can fault. It is safe for concurrent
// use. The zero value is ready.
type memories struct{ regions regions }

// Allocate implements [experimental.MemoryAllocator].
func (m *memories) Allocate(_, most uint64) experimental.LinearMemory {
	if region := m.regions.take(most); region != nil {
		return &regionMemory{from: &m.regions, region: region}
	}
	return &heapMemory{}
}

// close gives all regions back to the system. No instance may exist.
func (m *memories) close() { m.regions.close() }

// regionMemory is the front of a region. One goroutine at a time uses it.
type regionMemory struct {
	from   *regions
	region []byte
}

// Reallocate returns the first size bytes; they never move.
func (m *regionMemory) Reallocate(size uint64) []byte {
	if size > uint64(len(m.region)) {
		return nil
	}
	return m.region[:size:size]
}

// Free may be called again.
func (m *regionMemory) Free() {
	if m.region != nil {
		m.from.give(m.region)
		m.region = nil
	}
}

// heapMemory is for systems without regions, and for when there is none left.
type heapMemory struct{ b []byte }

// Reallocate returns the first size bytes of what may be a copy.
func (m *heapMemory) Reallocate(size uint64) []byte {
	if have := uint64(len(m.b)); size > have {
		m.b = append(m.b, make([]byte, size-have)...)
	}
	return m.b[:size:size]
}

// Free leaves the rest to the collector.
func (m *heapMemory) Free() { m.b = nil }
