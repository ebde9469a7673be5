package main

import (
	"context"
	"io"
	"os"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// openInput opens a file or standard input and says how large it is, or -1.
func openInput(ctx context.Context, path string, stdin io.Reader) (io.ReadCloser, int64, error) {
	if path == "-" {
		return io.NopCloser(&interruptible{ctx: ctx, r: stdin}), -1, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, &sdk.Error{Tag: sdk.TagInvalid, Field: "FILE", Rule: "a readable file", Err: err}
	}
	info, err := f.Stat()
	if err != nil || info.IsDir() {
		_ = f.Close()
		return nil, 0, sdk.Invalid("FILE", "a file, not a folder")
	}
	if !info.Mode().IsRegular() { // a pipe or a terminal by its name
		return readCloser{&interruptible{ctx: ctx, r: f}, f}, -1, nil
	}
	return f, info.Size(), nil
}

type readCloser struct {
	io.Reader
	io.Closer
}

// interruptible reads from a pipe or a terminal and stops waiting for it when
// ctx ends; a read itself cannot be stopped, and is left behind.
type interruptible struct {
	ctx  context.Context //nolint:containedctx // a reader has no other way to be told
	r    io.Reader
	buf  []byte
	over bool
}

func (i *interruptible) Read(p []byte) (int, error) {
	if i.over {
		return 0, i.ctx.Err()
	}
	if i.buf == nil {
		i.buf = make([]byte, 64<<10)
	}
	part := i.buf[:min(len(p), len(i.buf))]
	type result struct {
		n   int
		err error
	}
	done := make(chan result, 1)
	go func() {
		n, err := i.r.Read(part)
		done <- result{n, err}
	}()
	select {
	case res := <-done:
		return copy(p, part[:res.n]), res.err //nolint:wrapcheck // a reader passes io.EOF on as it is
	case <-i.ctx.Done():
		i.over = true // the read that was left behind owns the buffer
		return 0, i.ctx.Err()
	}
}
