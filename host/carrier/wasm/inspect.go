package wasm

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/tetratelabs/wazero/api"
)

// Bounds on what a module declares. Each stands against a few bytes that would
// cost the host far more memory than they take.
const (
	maxTable   = 200_000
	maxTables  = 16
	maxGlobals = 10_000
	maxParams  = 255
	maxResults = 32
	maxBody    = 2 << 20
)

// inspect checks the module's bytes: digest, size, imports, exports, limits.
// Nothing of it has run or been compiled.
func (c *Config) inspect() (*layout, plan, error) {
	if len(c.Module) > maxModule {
		return nil, plan{}, c.refuse(CodeModule, fmt.Sprintf("has %d bytes, more than %d", len(c.Module), maxModule), "")
	}
	sum := sha256.Sum256(c.Module)
	if got := hex.EncodeToString(sum[:]); c.SHA256 != "" && !strings.EqualFold(c.SHA256, got) {
		return nil, plan{}, c.refuse(CodeChecksum, fmt.Sprintf("has the SHA-256 digest %s, but %s is pinned", got, clip(c.SHA256)),
			"restore the pinned file, or pin the new digest after checking where it comes from")
	}
	l, err := parseLayout(c.Module)
	if err != nil {
		return nil, plan{}, c.refuse(CodeModule, "cannot be read: "+err.Error(), "")
	}
	if err := c.checkImports(l.imports); err != nil {
		return nil, plan{}, err
	}
	if err := c.checkExports(l.exports); err != nil {
		return nil, plan{}, err
	}
	if err := c.checkLimits(l); err != nil {
		return nil, plan{}, err
	}
	p, err := planGuard(l, c.Limits.MemoryPages)
	if err != nil {
		return nil, plan{}, c.refuse(CodeModule, "is refused: "+err.Error(), "")
	}
	return l, p, nil
}

func (c *Config) checkExports(exports []entry) error {
	has := func(name string, kind byte) bool {
		for _, e := range exports {
			if e.name == name && e.kind == kind {
				return true
			}
		}
		return false
	}
	hint := "build it with the guest package as a reactor (Go: GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared)"
	if !has("fp_abi_v1", kindFunc) {
		for _, e := range exports {
			if strings.HasPrefix(e.name, "fp_abi_v") {
				return c.refuse(CodeABI, fmt.Sprintf("speaks the ABI %q, and this host speaks fp_abi_v1", clip(e.name)),
					"use a build of the plugin for this host, or a host for this plugin")
			}
		}
		what := "does not export the marker fp_abi_v1, so it is not a plugin of this ABI"
		if has("_start", kindFunc) {
			what += " (it exports _start: it was built as a command)"
		}
		return c.refuse(CodeABI, what, hint)
	}
	if !has("fp_call", kindFunc) {
		return c.refuse(CodeABI, "does not export the function fp_call", hint)
	}
	if !has("memory", kindMemory) {
		return c.refuse(CodeABI, "does not export its memory as \"memory\"", hint)
	}
	return nil
}

// checkSignatures compares the types of the exports that the carrier calls.
func (c *Config) checkSignatures(exports map[string]api.FunctionDefinition) error {
	const i32 = api.ValueTypeI32
	for _, want := range []struct {
		name            string
		params, results []api.ValueType
		text            string
	}{
		{"fp_abi_v1", nil, nil, "() -> ()"},
		{"_initialize", nil, nil, "() -> ()"},
		{"fp_call", []api.ValueType{i32, i32}, []api.ValueType{i32}, "(i32, i32) -> i32"},
	} {
		def, ok := exports[want.name]
		if ok && (string(def.ParamTypes()) != string(want.params) || string(def.ResultTypes()) != string(want.results)) {
			return c.refuse(CodeABI, fmt.Sprintf("exports %s with a wrong type; it must be %s", want.name, want.text), "")
		}
	}
	return nil
}

func (c *Config) checkLimits(l *layout) error {
	bound := func(what string, got, most int) error {
		if got <= most {
			return nil
		}
		return c.refuse(CodeModule, fmt.Sprintf("has %s %d, more than %d", what, got, most), "")
	}
	var grows, largest int
	for _, b := range l.bodies {
		largest = max(largest, b.size)
		if b.growsTable {
			grows++
		}
	}
	for _, m := range l.memories {
		if err := bound("a memory whose initial pages are", int(m.min), int(c.Limits.MemoryPages)); err != nil {
			return err
		}
	}
	for _, t := range l.tables {
		size := int(t.min)
		if grows > 0 {
			// The runtime bounds a growing table by its declared maximum only.
			if size = int(t.max); !t.bounded {
				return c.refuse(CodeModule, "grows a table that has no maximum", "")
			}
		}
		if err := bound("a table whose entries are", size, maxTable); err != nil {
			return err
		}
	}
	for _, item := range []struct {
		what      string
		got, most int
	}{
		{"functions:", len(l.bodies), c.Limits.MaxFunctions},
		{"globals:", l.globals, maxGlobals},
		{"tables:", len(l.tables), maxTables},
		{"a function whose parameters are", l.maxParams, maxParams},
		{"a function whose results are", l.maxResults, maxResults},
		{"a function whose code in bytes is", largest, maxBody},
	} {
		if err := bound(item.what, item.got, item.most); err != nil {
			return err
		}
	}
	return nil
}
