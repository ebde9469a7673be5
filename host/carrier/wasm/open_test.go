package wasm

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
)

// Q29 and finding 9 of the plugin page: the import section is compared with
// manifest and grants before anything runs, and the error says what to do.
func TestCapabilities(t *testing.T) {
	t.Parallel()
	for name, i := range map[capability.Name]imp{
		capability.HTTPName: impSend, capability.LogName: impLog, capability.ClockName: impNow, capability.RandomName: impRandom,
	} {
		others := func(in []capability.Name) (out []capability.Name) {
			for _, n := range in {
				if n != name {
					out = append(out, n)
				}
			}
			return out
		}
		m := plugin([]imp{i}, i32c(0)).encode()
		cfg := config(m)
		cfg.Granted = others(allCapabilities)
		wantRefused(t, cfg, CodeNotGranted, "evil 1.2.3", string(name), i.module, "grants of plugin evil")
		cfg.Declared = others(allCapabilities)
		wantRefused(t, cfg, CodeNotDeclared, "evil 1.2.3", string(name), i.module, "manifest")
		cfg.Granted = allCapabilities
		wantRefused(t, cfg, CodeNotDeclared, string(name))
		mustOpen(t, config(m))
	}
	// No capability at all is enough for a module that only answers.
	mustOpen(t, Config{Name: "answers", Module: plugin([]imp{impInput, impOutput}, i32c(0)).encode()})
}

// F43: extra imports.
func TestImportsOutsideTheABI(t *testing.T) {
	t.Parallel()
	v := sigVoid
	global := cat(text("env"), text("g"), []byte{kindGlobal, i32, 0})
	memory := cat(text("env"), text("memory"), []byte{kindMemory, 0, 1})
	for name, c := range map[string]struct {
		m    mod
		says string
	}{
		"other module":       {plugin([]imp{{"env", "abort", v}}, i32c(0)), `"env"`},
		"later version":      {plugin([]imp{{"fencepost.http/v2", "send", impSend.sig}}, i32c(0)), "fencepost.http/v2"},
		"unknown capability": {plugin([]imp{{"fencepost.sql/v1", "query", v}}, i32c(0)), "fencepost.sql/v1"},
		"unknown function":   {plugin([]imp{{moduleIO, "input_peek", v}}, i32c(0)), "input_peek"},
		"path_open":          {plugin([]imp{{moduleWASI, "path_open", v}}, i32c(0)), "path_open"},
		"sock_accept":        {plugin([]imp{{moduleWASI, "sock_accept", v}}, i32c(0)), "sock_accept"},
		"fd_read":            {plugin([]imp{{moduleWASI, "fd_read", v}}, i32c(0)), "fd_read"},
		"global":             {mod{rawImports: [][]byte{global}, funcs: plugin(nil, i32c(0)).funcs}, "global"},
		"memory":             {mod{rawImports: [][]byte{memory}, funcs: plugin(nil, i32c(0)).funcs, noMemory: true}, "memory"},
		"long name":          {plugin([]imp{{strings.Repeat("m", 10_000), "f", v}}, i32c(0)), "…"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantRefused(t, config(c.m.encode()), CodeImportNotAllowed, "evil 1.2.3", c.says)
		})
	}
	// A known function with another type does not link; the error says so.
	wantRefused(t, config(plugin([]imp{{moduleIO, "input_read", v}}, i32c(0)).encode()), CodeABI, "input_read", "type")
}

// With InertFiles file functions link and do nothing; sockets stay refused.
func TestInertFiles(t *testing.T) {
	t.Parallel()
	open := imp{moduleWASI, "path_open", sig{[]byte{i32, i32, i32, i32, i32, i64, i64, i32, i32}, []byte{i32}}}
	args := cat(i32c(3), i32c(0), i32c(0), i32c(1), i32c(0), i64c(-1), i64c(-1), i32c(0), i32c(64))
	m := plugin([]imp{open, impOutput}, cat(i32c(128), args, call(0), []byte{0x36, 2, 0}, i32c(128), i32c(4), call(1), i32c(0)))
	m.data = []byte("/")
	cfg := config(m.encode())
	wantRefused(t, cfg, CodeImportNotAllowed, "path_open")
	cfg.InertFiles = true
	if got := mustCall(t, mustOpen(t, cfg), 1, ""); got != "\x34\x00\x00\x00" {
		t.Errorf("path_open answered %q, want ENOSYS (52)", got)
	}
	cfg.Module = plugin([]imp{{moduleWASI, "sock_accept", sigVoid}}, i32c(0)).encode()
	wantRefused(t, cfg, CodeImportNotAllowed, "sock_accept")
}

// F43: wrong ABI version, missing export, wrong checksum.
func TestExports(t *testing.T) {
	t.Parallel()
	good := func() mod { return plugin(nil, i32c(0)) }
	change := func(f func(*mod)) mod { m := good(); f(&m); return m }
	for name, c := range map[string]struct {
		m    mod
		says string
	}{
		"no marker":          {change(func(m *mod) { m.funcs[0].export = "" }), "fp_abi_v1"},
		"other version":      {change(func(m *mod) { m.funcs[0].export = "fp_abi_v2" }), `"fp_abi_v2"`},
		"a command":          {change(func(m *mod) { m.funcs[0].export = "_start" }), "built as a command"},
		"no fp_call":         {change(func(m *mod) { m.funcs[1].export = "" }), "fp_call"},
		"no memory":          {change(func(m *mod) { m.noMemory = true }), "memory"},
		"type of the marker": {change(func(m *mod) { m.funcs[0].sig.params = []byte{i32} }), "fp_abi_v1"},
		"type of fp_call":    {change(func(m *mod) { m.funcs[1].sig.params = []byte{i32, i64} }), "(i32, i32) -> i32"},
		"type of _initialize": {change(func(m *mod) {
			m.funcs = append(m.funcs, fn{sig: sig{[]byte{i32}, nil}, export: "_initialize"})
		}), "_initialize"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantRefused(t, config(c.m.encode()), CodeABI, "evil 1.2.3", c.says)
		})
	}
	cfg := config(good().encode())
	sum := sha256.Sum256(cfg.Module)
	cfg.SHA256 = hex.EncodeToString(sum[:])
	mustOpen(t, cfg)
	cfg.SHA256 = strings.Repeat("0", 64)
	wantRefused(t, cfg, CodeChecksum, hex.EncodeToString(sum[:]), "pin")
}

// F40: what would cost the host more than it may is refused before it is
// compiled.
func TestBombs(t *testing.T) {
	t.Parallel()
	with := func(f func(*mod)) []byte { m := plugin(nil, i32c(0)); f(&m); return m.encode() }
	grow := fn{sig: sigVoid, code: cat([]byte{0xd0, 0x70}, i32c(1<<20), []byte{0xfc, 15, 0}, drop())}
	bodyWithLocals := func(locals []byte) []byte {
		body := cat(locals, []byte{opEnd})
		code := section(10, vec(cat(uleb(uint64(len(body))), body)))
		return cat([]byte("\x00asm\x01\x00\x00\x00"), section(1, vec([]byte{0x60, 0, 0})), section(3, vec([]byte{0})), code)
	}
	for name, c := range map[string]struct {
		module []byte
		says   string
	}{
		"4 GiB of memory":   {with(func(m *mod) { m.memMin = 65_536 }), "65536, more than 512"},
		"33 MiB of memory":  {with(func(m *mod) { m.memMin = 513 }), "513, more than 512"},
		"a huge table":      {with(func(m *mod) { m.tableMin = 1 << 27 }), "table"},
		"a growing table":   {with(func(m *mod) { m.tableMin = 1; m.funcs = append(m.funcs, grow) }), "no maximum"},
		"a table to grow":   {with(func(m *mod) { m.tableMin, m.tableMax = 1, 1<<27; m.funcs = append(m.funcs, grow) }), "table"},
		"globals":           {with(func(m *mod) { m.globals = 10_001 }), "globals"},
		"100,000 functions": {with(func(m *mod) { m.funcs = append(m.funcs, make([]fn, 100_000)...) }), "functions"},
		"locals":            {bodyWithLocals(vec(cat(uleb(1<<31), []byte{i64}))), "locals"},
		"results":           {with(func(m *mod) { m.funcs = append(m.funcs, fn{sig: sig{nil, repeat(1000, []byte{i32})}, code: []byte{0}}) }), "results"},
		"a huge function":   {with(func(m *mod) { m.funcs = append(m.funcs, fn{code: repeat(3<<20, []byte{1})}) }), "code"},
		"17 MiB":            {with(func(m *mod) { m.custom = section(0, make([]byte, 17<<20)) }), "bytes"},
		"fills of memory": {with(func(m *mod) {
			m.funcs = append(m.funcs, fn{locals: []byte{i32}, code: repeat(300, cat(get(0), get(0), get(0), memFill()))})
		}), "too long"},
		"not a module":       {[]byte("MZ not wasm"), "not a WebAssembly module"},
		"a component":        {[]byte("\x00asm\x0d\x00\x01\x00"), "components"},
		"empty":              {nil, "not a WebAssembly module"},
		"truncated":          {with(func(*mod) {})[:40], "cannot be read"},
		"threads":            {with(func(m *mod) { m.funcs = append(m.funcs, fn{code: []byte{0xfe, 3, 0}}) }), "instruction 0xfe"},
		"a call to nowhere":  {with(func(m *mod) { m.funcs = append(m.funcs, fn{code: call(77)}) }), "does not exist"},
		"a type error":       {with(func(m *mod) { m.funcs = append(m.funcs, fn{code: drop()}) }), "compile"},
		"a section repeated": {with(func(m *mod) { m.custom = section(10, []byte{0}) }), "twice"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantRefused(t, config(c.module), CodeModule, c.says)
		})
	}
	// A table that can grow within bounds is fine.
	mustOpen(t, config(with(func(m *mod) { m.tableMin, m.tableMax = 1, 100; m.funcs = append(m.funcs, grow) })))
	// So is a memory whose declared maximum is larger: it is capped.
	mustOpen(t, config(with(func(m *mod) { m.memMin = 512 })))
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	if _, err := Open(t.Context(), Config{}); err == nil || !strings.Contains(err.Error(), "name") {
		t.Errorf("error %v", err)
	}
	cfg := config(plugin(nil, i32c(0)).encode())
	cfg.Host.HTTPSend = nil
	if _, err := Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "HTTPSend") {
		t.Errorf("error %v", err)
	}
}
