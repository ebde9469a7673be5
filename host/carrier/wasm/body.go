package wasm

import "fmt"

// body is what the guard needs to know of one function.
type body struct {
	// size is the length of the code in bytes.
	size int
	// work bounds what one activation does between two loop headers, not
	// counting its calls: a byte of code is one unit, since no instruction is
	// shorter, and so are eight bytes moved by a bulk instruction.
	work int
	// calls are the functions that it calls by number, repeated per call.
	calls []uint32
	// indirect counts the calls through a table.
	indirect int
	// bulk counts bulk instructions whose size is not a constant; each may
	// touch all memory.
	bulk int
	// growsTable: it can ask for a larger table.
	growsTable bool
}

// maxLocals is the bound that browsers use. The runtime expands the
// run-length-encoded declarations, so a few bytes could ask for gigabytes.
const maxLocals = 50_000

// scanBody reads the locals and every instruction of one entry of the code
// section. An instruction outside the features that the runtime enables is an
// error: what the scanner cannot read, it cannot vouch for.
func scanBody(code []byte) (body, error) {
	b := body{size: len(code), work: len(code)}
	r := &reader{b: code}
	var locals uint64
	for range r.count() {
		locals += uint64(r.u32())
		r.byte()
	}
	if locals > maxLocals {
		return b, fmt.Errorf("a function has %d locals, more than %d", locals, maxLocals)
	}
	// The size of a bulk instruction is the operand on top of the stack: what
	// an i32.const right before it pushed, with nothing in between.
	var size int64 = -1
	for !r.done() {
		op := r.byte()
		if op == opI32Const {
			size = int64(r.s32())
			continue
		}
		r.operands(op, &b, size)
		size = -1
		if r.err != nil {
			return b, r.err
		}
	}
	return b, r.err
}

// Opcodes with a name here.
const (
	opBlock        = 0x02
	opLoop         = 0x03
	opIf           = 0x04
	opElse         = 0x05
	opEnd          = 0x0b
	opBr           = 0x0c
	opBrIf         = 0x0d
	opBrTable      = 0x0e
	opReturn       = 0x0f
	opCall         = 0x10
	opCallIndirect = 0x11
	opI32Const     = 0x41
)

// operands passes the immediates of an instruction and notes calls and bulk
// instructions. size is the constant on top of the stack, negative if there is
// none.
func (r *reader) operands(op byte, b *body, size int64) {
	switch {
	case op == opBlock, op == opLoop, op == opIf:
		r.skipLEB(5)
	case op == opBr, op == opBrIf, op >= 0x20 && op <= 0x26, op == 0xd2:
		r.u32() // a label, local, global, table or function
	case op == opBrTable:
		for range r.count() {
			r.u32()
		}
		r.u32()
	case op == opCall:
		b.calls = append(b.calls, r.u32())
	case op == opCallIndirect:
		b.indirect++
		r.u32()
		r.u32()
	case op == 0x1c: // select with types
		for range r.count() {
			r.byte()
		}
	case op >= 0x28 && op <= 0x3e: // loads and stores
		r.u32()
		r.u32()
	case op == 0x3f, op == 0x40: // memory.size, memory.grow
		r.u32()
	case op == 0x42:
		r.skipLEB(10)
	case op == 0x43:
		r.take(4)
	case op == 0x44:
		r.take(8)
	case op == 0xd0: // ref.null
		r.skipLEB(5)
	case op == 0xfc:
		r.bulkOperands(b, size)
	case op == 0xfd:
		r.vectorOperands()
	case op == 0x00, op == 0x01, op == opElse, op == opEnd, op == opReturn,
		op == 0x1a, op == 0x1b, op >= 0x45 && op <= 0xc4, op == 0xd1:
	default:
		r.fail(fmt.Errorf("instruction 0x%02x is not part of WebAssembly 2.0", op))
	}
}

// bulkOperands passes the immediates after the prefix 0xfc.
func (r *reader) bulkOperands(b *body, size int64) {
	switch sub := r.u32(); {
	case sub <= 7: // saturating conversions
		return
	case sub == 9, sub == 13, sub == 16: // data.drop, elem.drop, table.size
		r.u32()
		return
	case sub == 15: // table.grow
		r.u32()
		b.growsTable = true
	case sub == 11, sub == 17: // memory.fill, table.fill
		r.u32()
	case sub == 8, sub == 10, sub == 12, sub == 14: // init and copy
		r.u32()
		r.u32()
	default:
		r.fail(fmt.Errorf("instruction 0xfc %d is not part of WebAssembly 2.0", sub))
		return
	}
	// A negative constant is a huge unsigned size, so it counts as unknown.
	if size >= 0 && size <= maxConstantBulk {
		b.work += int(size) / bytesPerUnit
	} else {
		b.bulk++
	}
}

const (
	// maxConstantBulk is the largest constant size that counts by itself.
	maxConstantBulk = 1 << 20
	// bytesPerUnit is how much a bulk instruction moves in the time of one
	// unit of work, about 0.3 ns.
	bytesPerUnit = 8
)

// vectorOperands passes the immediates after the prefix 0xfd.
func (r *reader) vectorOperands() {
	switch sub := r.u32(); {
	case sub <= 11, sub == 92, sub == 93: // loads and stores
		r.u32()
		r.u32()
	case sub == 12, sub == 13: // a constant, a shuffle
		r.take(16)
	case sub >= 21 && sub <= 34: // one lane
		r.byte()
	case sub >= 84 && sub <= 91: // load or store of one lane
		r.u32()
		r.u32()
		r.byte()
	case sub > 255:
		r.fail(fmt.Errorf("instruction 0xfd %d is not part of WebAssembly 2.0", sub))
	}
}
