package wasm

import (
	"sync"
	"syscall"
)

// regions are reserved stretches of address space, all of one size.
type regions struct {
	mu   sync.Mutex
	idle [][]byte
	all  [][]byte
}

// take returns a region of size zeros, or nil if the system has none.
func (r *regions) take(size uint64) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.idle); n > 0 && uint64(len(r.idle[n-1])) == size {
		region := r.idle[n-1]
		r.idle = r.idle[:n-1]
		return region
	}
	if size == 0 || size > maxPages<<16 {
		return nil
	}
	region, err := syscall.Mmap(-1, 0, int(size), syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	if err != nil {
		return nil
	}
	r.all = append(r.all, region)
	return region
}

// give takes a region back. The system drops its pages: the next instance
// starts with zeros, and what the last one held counts for nobody. A region
// that the system does not clear is not used again.
func (r *regions) give(region []byte) {
	if err := syscall.Madvise(region, syscall.MADV_DONTNEED); err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.idle = append(r.idle, region)
}

func (r *regions) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, region := range r.all {
		_ = syscall.Munmap(region) // it cannot fail for what Mmap returned
	}
	r.idle, r.all = nil, nil
}
