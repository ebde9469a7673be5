package host

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// remembered is what a host knows of a store beside the store: how far it had
// come when this host last sent something. // Q17.
type remembered struct {
	Store    string `json:"store"`
	System   string `json:"system,omitempty"`
	Timeline int64  `json:"timeline,omitempty"`
	Claims   int64  `json:"claims"`
	Restores int64  `json:"restores"`
	// Last are the first items of the pages that this host sent last, with the
	// token that it held them by: rows that a claim's own transaction wrote,
	// which a counter that runs ahead of its transactions does not tell.
	Last [16]witness `json:"last"`
	// Behind is set while the store is known to have gone back in time and
	// nobody has settled what that means. Since is the last heartbeat before
	// it went back, and Noticed when that was noticed, both by its clock.
	Behind  bool      `json:"behind,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Noticed time.Time `json:"noticed,omitzero"`
}

// witness is an item, the lease token that a claim gave it, and by which name this
// host claimed. Two servers that both live give the same item the same token, each
// to its own host.
type witness struct {
	Item  int64  `json:"item,omitempty"`
	Token int64  `json:"token,omitempty"`
	Owner string `json:"owner,omitempty"`
}

// missing reports whether an item shows that the claim is not in its store.
func (w witness) missing(d *storage.ItemDetail) bool {
	if d.Item.LeaseToken < w.Token {
		return true
	}
	if w.Owner == "" { // written by a release that did not keep it
		return false
	}
	if d.Item.LeaseToken == w.Token && d.Item.LeaseOwner != "" && d.Item.LeaseOwner != w.Owner {
		return true
	}
	return slices.ContainsFunc(d.Attempts, func(a storage.Attempt) bool { return a.LeaseToken == w.Token && a.Owner != w.Owner })
}

// saw returns what is remembered once a page was claimed.
func (m remembered) saw(c storage.Claim, owner string) remembered {
	m.Claims = max(m.Claims, c.Incarnation.Claims)
	if len(c.Items) > 0 {
		copy(m.Last[1:], m.Last[:])
		m.Last[0] = witness{c.Items[0].ItemID, c.Items[0].LeaseToken, owner}
	}
	return m
}

// at returns what is remembered once the store has been seen as in.
func (m remembered) at(in storage.Incarnation) remembered {
	m.Store, m.System, m.Timeline, m.Restores = in.Store, in.System, in.Timeline, in.Restores
	m.Claims = max(m.Claims, in.Claims)
	return m
}

// memoryFile keeps what is remembered of one store in a file of its own. Its
// content comes with a digest, so that a file that was damaged is not believed.
type memoryFile struct{ dir, path string }

// errDamaged is the error of a file that does not say what was written.
var errDamaged = errors.New("the file is damaged")

func newMemoryFile(dir, store string) memoryFile {
	sum := sha256.Sum256([]byte(store))
	return memoryFile{dir: dir, path: filepath.Join(dir, "store-"+hex.EncodeToString(sum[:8])+".json")}
}

// sealed is the file's form.
type sealed struct {
	Memory json.RawMessage `json:"memory"`
	Digest string          `json:"sha256"`
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// load returns what is remembered, nil if nothing was ever written, and
// [errDamaged] for a file that cannot be believed.
func (f memoryFile) load(store string) (*remembered, error) {
	raw, err := os.ReadFile(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil //nolint:nilnil // absence is an answer here, and no error
	case err != nil:
		return nil, fmt.Errorf("read what is remembered of the store: %w", err)
	}
	var s sealed
	var m remembered
	if json.Unmarshal(raw, &s) != nil || digest(s.Memory) != s.Digest || json.Unmarshal(s.Memory, &m) != nil || m.Store != store {
		return nil, errDamaged
	}
	return &m, nil
}

// save writes what is remembered so that it outlasts a crash of the machine, all
// of it or nothing. Hosts that share the folder take turns, and none takes back
// what another one has seen.
func (f memoryFile) save(m remembered) (remembered, error) {
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return m, fmt.Errorf("state_dir: %w", err)
	}
	unlock, err := lockFolder(f.dir)
	if err != nil {
		return m, fmt.Errorf("state_dir: %w", err)
	}
	defer unlock()
	if old, err := f.load(m.Store); err == nil && old != nil && old.Claims > m.Claims {
		m.Claims = old.Claims
	}
	body, err := json.Marshal(m)
	if err != nil {
		return m, fmt.Errorf("encode what is remembered: %w", err)
	}
	raw, err := json.Marshal(sealed{Memory: body, Digest: digest(body)})
	if err != nil {
		return m, fmt.Errorf("encode what is remembered: %w", err)
	}
	return m, f.replace(append(bytes.TrimSpace(raw), '\n'))
}

// replace puts content in the file's place and waits for the disk, twice: for
// the content and for its name.
func (f memoryFile) replace(content []byte) (err error) {
	tmp, err := os.CreateTemp(f.dir, ".store-*") // 0600
	if err != nil {
		return fmt.Errorf("state_dir: %w", err)
	}
	defer func() {
		if err != nil {
			_ = tmp.Close()
			_ = os.Remove(tmp.Name())
		}
	}()
	if _, err = tmp.Write(content); err != nil {
		return fmt.Errorf("state_dir: %w", err)
	}
	if err = tmp.Sync(); err != nil {
		return fmt.Errorf("state_dir: %w", err)
	}
	if err = tmp.Close(); err != nil {
		return fmt.Errorf("state_dir: %w", err)
	}
	if err = os.Rename(tmp.Name(), f.path); err != nil {
		return fmt.Errorf("state_dir: %w", err)
	}
	return syncFolder(f.dir)
}

// usableFolder fails unless a folder exists, or can be made, and takes files.
func usableFolder(dir string) error {
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		var unlock func()
		if unlock, err = lockFolder(dir); err == nil {
			unlock()
		}
	}
	if err != nil {
		return &sdk.Error{Tag: sdk.TagInvalid, Field: "state_dir", Rule: "a folder that this program can write to", Err: err}
	}
	return nil
}

// syncFolder makes the names in a folder durable.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("state_dir: %w", err)
	}
	defer func() { _ = d.Close() }()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("state_dir: %w", err)
	}
	return nil
}
