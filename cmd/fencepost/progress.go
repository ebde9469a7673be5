package main

import (
	"io"
	"os"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"
)

// progress is a bar on a terminal, and nothing anywhere else.
type progress struct {
	container *mpb.Progress
	bar       *mpb.Bar
}

// newProgress shows how far total bytes have come; -1 is an unknown total.
func newProgress(w io.Writer, total int64) *progress {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return &progress{}
	}
	if total < 0 {
		total = 0
	}
	p := mpb.New(mpb.WithOutput(f), mpb.WithWidth(40))
	bar := p.AddBar(total,
		mpb.PrependDecorators(decor.Name("record "), decor.CountersKibiByte("% .1f / % .1f")),
		mpb.AppendDecorators(decor.Percentage(), decor.Name(" "), decor.AverageSpeed(decor.SizeB1024(0), "% .1f"), decor.Name(" "), decor.AverageETA(decor.ET_STYLE_MMSS)),
	)
	return &progress{container: p, bar: bar}
}

// reader counts what is read through it.
func (p *progress) reader(r io.Reader) io.Reader {
	if p.bar == nil {
		return r
	}
	return counted{r, p.bar}
}

// done leaves the bar as it stands, full only if the work ended well, and waits
// until it is drawn.
func (p *progress) done(ok bool) {
	if p.bar == nil {
		return
	}
	if ok {
		p.bar.SetTotal(-1, true)
	} else {
		p.bar.Abort(false)
	}
	p.container.Wait()
}

// counted moves a bar by what is read through it.
type counted struct {
	r   io.Reader
	bar *mpb.Bar
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.bar.IncrBy(n)
	return n, err //nolint:wrapcheck // a reader passes io.EOF on as it is
}
