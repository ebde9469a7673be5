package wasm

import (
	"errors"
	"fmt"
)

// layout is what a module's sections say, read before the runtime sees it.
// Only what the checks need is kept; the runtime validates the rest.
type layout struct {
	imports       []entry
	importedFuncs int
	exports       []entry
	memories      []limit
	tables        []limit
	globals       int
	maxParams     int
	maxResults    int
	bodies        []body
}

// entry is an import or an export.
type entry struct {
	module, name string
	kind         byte
}

// Kinds of entry.
const (
	kindFunc = iota
	kindTable
	kindMemory
	kindGlobal
)

var kindNames = [...]string{"function", "table", "memory", "global"}

// limit is the declared size of a memory in pages or of a table in elements.
type limit struct {
	min, max uint32
	bounded  bool
}

// Numbers of the sections that are read.
const (
	sectionType   = 1
	sectionImport = 2
	sectionTable  = 4
	sectionMemory = 5
	sectionGlobal = 6
	sectionExport = 7
	sectionCode   = 10
	sectionLast   = 12
)

// parseLayout reads a module. It fails on anything that it cannot read to the
// end; it does not validate types or control flow.
func parseLayout(module []byte) (*layout, error) {
	r := &reader{b: module}
	magic := r.take(8)
	if r.err != nil || string(magic[:4]) != "\x00asm" {
		return nil, errors.New("not a WebAssembly module")
	}
	if string(magic[4:]) != "\x01\x00\x00\x00" {
		return nil, errors.New("not a core module of version 1 (components are not supported)")
	}
	l := &layout{}
	var seen [sectionLast + 1]bool
	for !r.done() {
		id := r.byte()
		s := &reader{b: r.take(r.u32())}
		if r.err != nil {
			return nil, r.err
		}
		if id > sectionLast {
			return nil, fmt.Errorf("section %d is not part of WebAssembly 2.0", id)
		}
		if id != 0 && seen[id] {
			return nil, fmt.Errorf("section %d occurs twice", id)
		}
		seen[id] = true
		if err := l.section(id, s); err != nil {
			return nil, fmt.Errorf("section %d: %w", id, err)
		}
	}
	return l, nil
}

func (l *layout) section(id byte, r *reader) error {
	switch id {
	case sectionType:
		l.typeSection(r)
	case sectionImport:
		l.importSection(r)
	case sectionTable:
		for range r.count() {
			r.byte()
			l.tables = append(l.tables, r.limit())
		}
	case sectionMemory:
		for range r.count() {
			l.memories = append(l.memories, r.limit())
		}
	case sectionGlobal:
		// The initialisers are not read, so the rest of the section is not.
		l.globals = r.count()
		return r.err
	case sectionExport:
		for range r.count() {
			l.exports = append(l.exports, entry{name: r.name(), kind: r.byte()})
			r.u32()
		}
	case sectionCode:
		return l.codeSection(r)
	default:
		return nil
	}
	if r.err == nil && !r.done() {
		return errTruncated
	}
	return r.err
}

func (l *layout) typeSection(r *reader) {
	for range r.count() {
		if r.byte() != 0x60 {
			r.fail(errors.New("a type is not a function type"))
		}
		params := r.count()
		r.take(uint32(params))
		results := r.count()
		r.take(uint32(results))
		l.maxParams, l.maxResults = max(l.maxParams, params), max(l.maxResults, results)
	}
}

func (l *layout) importSection(r *reader) {
	for range r.count() {
		e := entry{module: r.name(), name: r.name(), kind: r.byte()}
		switch e.kind {
		case kindFunc:
			r.u32()
			l.importedFuncs++
		case kindTable:
			r.byte()
			r.limit()
		case kindMemory:
			r.limit()
		case kindGlobal:
			r.byte()
			r.byte()
		default:
			r.fail(fmt.Errorf("import kind %d is not part of WebAssembly 2.0", e.kind))
		}
		l.imports = append(l.imports, e)
	}
}

func (l *layout) codeSection(r *reader) error {
	n := r.count()
	l.bodies = make([]body, 0, n)
	for i := range n {
		code := r.take(r.u32())
		if r.err != nil {
			return r.err
		}
		b, err := scanBody(code)
		if err != nil {
			return fmt.Errorf("function %d: %w", l.importedFuncs+i, err)
		}
		l.bodies = append(l.bodies, b)
	}
	return r.err
}

func (r *reader) limit() limit {
	flags := r.byte()
	if flags > 1 {
		r.fail(errors.New("shared and 64-bit memories are not supported"))
		return limit{}
	}
	l := limit{min: r.u32()}
	if flags == 1 {
		l.max, l.bounded = r.u32(), true
	}
	return l
}
