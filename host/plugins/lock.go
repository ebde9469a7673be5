package plugins

import (
	"path/filepath"

	"github.com/fencepost/fencepost/host/grant"
	"github.com/fencepost/fencepost/plugins/sdk"
)

// LockFile locks the candidate of a file without moving it: under its own name
// if it lies in the folder, else under the name that [Folder.Install] would give
// it, for whoever puts it there later. With dryRun nothing is written.
func (f Folder) LockFile(c *Candidate, path string, t Terms, dryRun bool) (p grant.Locked, err error) {
	if dryRun {
		return f.lockFile(c, path, t, true)
	}
	return p, f.hold(func() error {
		p, err = f.lockFile(c, path, t, false)
		return err
	})
}

func (f Folder) lockFile(c *Candidate, path string, t Terms, dryRun bool) (grant.Locked, error) {
	more, before, err := f.Wants(c)
	if err != nil {
		return grant.Locked{}, err
	}
	if len(more) > 0 && !t.Accept && !dryRun {
		return grant.Locked{}, notGranted(c, more)
	}
	p := c.locked(t, before)
	if err := p.checkIsolation(c.Native); err != nil {
		return grant.Locked{}, err
	}
	if err := p.checkDigest(before); err != nil {
		return grant.Locked{}, err
	}
	if err := p.checkSignature(c); err != nil {
		return grant.Locked{}, err
	}
	there := filepath.Dir(path)
	if same, err := sameFolder(there, f.Dir); err != nil {
		return grant.Locked{}, sdk.Invalid("file", err.Error())
	} else if same {
		p.File = filepath.Base(path)
		if _, err := p.Open(f.Dir); err != nil && !p.Disabled {
			return grant.Locked{}, err // as a server would
		}
	}
	if dryRun {
		return p.Locked, nil
	}
	return p.Locked, f.changeHeld(func(l *grant.Lock) error { l.Put(p.Locked); return nil })
}

func sameFolder(a, b string) (bool, error) {
	a, err := filepath.Abs(a)
	if err != nil {
		return false, err
	}
	b, err = filepath.Abs(b)
	return a == b, err
}
