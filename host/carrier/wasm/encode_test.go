package wasm

import "slices"

// The encoder writes the modules of the tests: small, hand-made, and mostly
// evil. Offsets and numbers are LEB128 where the format says so.

const (
	i32 byte = 0x7f
	i64 byte = 0x7e
)

type sig struct{ params, results []byte }

type fn struct {
	sig    sig
	locals []byte
	code   []byte // without the final end
	export string
}

type imp struct {
	module, name string
	sig          sig
}

// mod is a module before encoding. Imported functions come first in the index
// space, then funcs in order.
type mod struct {
	imports    []imp
	rawImports [][]byte // whole import entries that are not functions
	funcs      []fn
	memMin     uint32
	noMemory   bool
	tableMin   uint32
	tableMax   uint32 // zero: none
	table      []uint32
	globals    int
	start      int // function index; zero: none
	data       []byte
	custom     []byte
}

func uleb(v uint64) []byte {
	var b []byte
	for {
		c := byte(v & 0x7f)
		if v >>= 7; v == 0 {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}

func sleb(v int64) []byte {
	var b []byte
	for {
		c := byte(v & 0x7f)
		v >>= 7
		if v == 0 && c&0x40 == 0 || v == -1 && c&0x40 != 0 {
			return append(b, c)
		}
		b = append(b, c|0x80)
	}
}

func cat(parts ...[]byte) []byte { return slices.Concat(parts...) }

func text(s string) []byte { return cat(uleb(uint64(len(s))), []byte(s)) }

func vec(items ...[]byte) []byte { return cat(uleb(uint64(len(items))), cat(items...)) }

func section(id byte, content []byte) []byte {
	return cat([]byte{id}, uleb(uint64(len(content))), content)
}

func (m mod) encode() []byte {
	var types, imports, funcs, exports, codes [][]byte
	typeOf := func(s sig) []byte {
		types = append(types, cat([]byte{0x60}, uleb(uint64(len(s.params))), s.params, uleb(uint64(len(s.results))), s.results))
		return uleb(uint64(len(types) - 1))
	}
	for _, i := range m.imports {
		imports = append(imports, cat(text(i.module), text(i.name), []byte{0}, typeOf(i.sig)))
	}
	imports = append(imports, m.rawImports...)
	for i, f := range m.funcs {
		funcs = append(funcs, typeOf(f.sig))
		if f.export != "" {
			exports = append(exports, cat(text(f.export), []byte{0}, uleb(uint64(len(m.imports)+i))))
		}
		var locals [][]byte
		for _, l := range f.locals {
			locals = append(locals, []byte{1, l})
		}
		body := cat(vec(locals...), f.code, []byte{opEnd})
		codes = append(codes, cat(uleb(uint64(len(body))), body))
	}
	out := cat([]byte("\x00asm\x01\x00\x00\x00"), section(1, vec(types...)))
	if len(imports) > 0 {
		out = cat(out, section(2, vec(imports...)))
	}
	out = cat(out, section(3, vec(funcs...)))
	if m.tableMin > 0 {
		limits := cat([]byte{0x70, 0}, uleb(uint64(m.tableMin)))
		if m.tableMax > 0 {
			limits = cat([]byte{0x70, 1}, uleb(uint64(m.tableMin)), uleb(uint64(m.tableMax)))
		}
		out = cat(out, section(4, vec(limits)))
	}
	if !m.noMemory {
		out = cat(out, section(5, vec(cat([]byte{0}, uleb(uint64(max(m.memMin, 1)))))))
		exports = append(exports, cat(text("memory"), []byte{2, 0}))
	}
	if m.globals > 0 {
		var globals [][]byte
		for range m.globals {
			globals = append(globals, []byte{i64, 1, 0x42, 0, opEnd})
		}
		out = cat(out, section(6, vec(globals...)))
	}
	out = cat(out, section(7, vec(exports...)))
	if m.start > 0 {
		out = cat(out, section(8, uleb(uint64(m.start))))
	}
	if len(m.table) > 0 {
		var elems [][]byte
		for _, f := range m.table {
			elems = append(elems, uleb(uint64(f)))
		}
		out = cat(out, section(9, vec(cat([]byte{0}, i32c(0), []byte{opEnd}, vec(elems...)))))
	}
	out = cat(out, section(10, vec(codes...)))
	if len(m.data) > 0 {
		out = cat(out, section(11, vec(cat([]byte{0}, i32c(0), []byte{opEnd}, uleb(uint64(len(m.data))), m.data))))
	}
	return cat(out, m.custom)
}

// Instructions.

func i32c(v int32) []byte { return cat([]byte{opI32Const}, sleb(int64(v))) }
func i64c(v int64) []byte { return cat([]byte{0x42}, sleb(v)) }
func call(f int) []byte   { return cat([]byte{opCall}, uleb(uint64(f))) }
func get(l int) []byte    { return cat([]byte{0x20}, uleb(uint64(l))) }
func br(label int) []byte { return cat([]byte{opBr}, uleb(uint64(label))) }
func ret() []byte         { return []byte{opReturn} }
func drop() []byte        { return []byte{0x1a} }
func loop(b ...[]byte) []byte {
	return cat([]byte{opLoop, 0x40}, cat(b...), []byte{opEnd})
}

func iff(b ...[]byte) []byte {
	return cat([]byte{opIf, 0x40}, cat(b...), []byte{opEnd})
}
func memFill() []byte               { return []byte{0xfc, 11, 0} }
func repeat(n int, b []byte) []byte { return slices.Repeat(b, n) }

var (
	sigCall = sig{[]byte{i32, i32}, []byte{i32}}
	sigVoid = sig{}
)

// plugin is a module with the marker and an fp_call of the given body; rest
// are further functions, whose indexes start at first(imports)+2.
func plugin(imports []imp, fpCall []byte, rest ...fn) mod {
	return mod{imports: imports, funcs: append([]fn{
		{sig: sigVoid, export: "fp_abi_v1"},
		{sig: sigCall, export: "fp_call", code: fpCall, locals: []byte{i32, i64}},
	}, rest...)}
}

// Imports of the ABI.
var (
	impInput   = imp{moduleIO, "input_read", sig{[]byte{i32, i32}, []byte{i32}}}
	impOutput  = imp{moduleIO, "output_write", sig{[]byte{i32, i32}, nil}}
	impSend    = imp{moduleHTTP, "send", sig{[]byte{i32, i32}, []byte{i32}}}
	impReceive = imp{moduleHTTP, "receive", sig{[]byte{i32, i32}, []byte{i32}}}
	impLog     = imp{moduleLog, "write", sig{[]byte{i32, i32, i32}, nil}}
	impNow     = imp{moduleClock, "now", sig{nil, []byte{i64}}}
	impRandom  = imp{moduleRandom, "read", sig{[]byte{i32, i32}, nil}}
	impExit    = imp{moduleWASI, "proc_exit", sig{[]byte{i32}, nil}}
	impWrite   = imp{moduleWASI, "fd_write", sig{[]byte{i32, i32, i32, i32}, []byte{i32}}}
)
