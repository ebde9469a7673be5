//go:build wasip1

// Command goguest is the Go guest of the carrier's tests. It speaks the ABI by
// itself, so that the carrier is tested against the document and not against
// the guest package.
package main

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"
	"unsafe"
)

//go:wasmimport fencepost.io/v1 input_read
func inputRead(ptr unsafe.Pointer, n uint32) uint32

//go:wasmimport fencepost.io/v1 output_write
func outputWrite(ptr unsafe.Pointer, n uint32)

//go:wasmimport fencepost.http/v1 send
func httpSend(ptr unsafe.Pointer, n uint32) int32

//go:wasmimport fencepost.http/v1 receive
func httpReceive(ptr unsafe.Pointer, n uint32) uint32

//go:wasmimport fencepost.log/v1 write
func logWrite(level int32, ptr unsafe.Pointer, n uint32)

//go:wasmimport fencepost.clock/v1 now
func clockNow() int64

//go:wasmimport fencepost.random/v1 read
func randomRead(ptr unsafe.Pointer, n uint32)

//go:wasmexport fp_abi_v1
func abi() {}

// The methods of this guest. They are the tests' own: the carrier moves bytes
// and knows no method.
const (
	echo = iota + 1
	work
	panics
	exits
	deadlocks
	floods
	sends
	allocates
	sleeps
	recurses
	spins
	logs
	times
	fails
	status7
	calls
	ambient
	outputBomb
	closureRecursion
)

var count uint64

//go:wasmexport fp_call
func call(method, length uint32) uint32 {
	in := make([]byte, length)
	if length > 0 {
		in = in[:inputRead(unsafe.Pointer(&in[0]), length)]
	}
	count++
	switch method {
	case echo:
		write(in)
	case work:
		write(deliver(in))
	case panics:
		var m map[string]int
		m["boom"] = len(in)
	case exits:
		os.Exit(3)
	case deadlocks:
		<-make(chan struct{})
	case floods:
		line := strings.Repeat("x", 200)
		for range 10_000 {
			fmt.Fprintln(os.Stderr, line)
		}
		fmt.Fprintln(os.Stderr, "last words")
		panic("flooded")
	case sends:
		n := httpSend(unsafe.Pointer(unsafe.SliceData(in)), uint32(len(in)))
		if n < 0 {
			write([]byte("refused"))
			return 0
		}
		out := make([]byte, n)
		if n > 0 {
			out = out[:httpReceive(unsafe.Pointer(&out[0]), uint32(n))]
		}
		write(out)
	case allocates:
		n, _ := strconv.Atoi(string(in))
		held = make([]byte, n)
		for i := 0; i < n; i += 4096 {
			held[i] = 1
		}
		write([]byte("allocated"))
	case sleeps:
		d, _ := time.ParseDuration(string(in))
		time.Sleep(d)
	case recurses:
		write(strconv.AppendUint(nil, fib(60), 10))
	case closureRecursion:
		var f func(n uint64) uint64
		f = func(n uint64) uint64 {
			if n < 2 {
				return n
			}
			return f(n-1) + f(n-2)
		}
		write(strconv.AppendUint(nil, f(60), 10))
	case spins:
		for count > 0 {
			count++
		}
	case logs:
		n, _ := strconv.Atoi(string(in))
		msg := []byte("line from the guest")
		for range n {
			logWrite(4, unsafe.Pointer(&msg[0]), uint32(len(msg)))
		}
	case times:
		out := binary.LittleEndian.AppendUint64(nil, uint64(clockNow()))
		out = binary.LittleEndian.AppendUint64(out, uint64(time.Now().UnixMicro()))
		var b [16]byte
		randomRead(unsafe.Pointer(&b[0]), 16)
		out = append(out, b[:]...)
		write(binary.LittleEndian.AppendUint64(out, rand.Uint64()))
	case fails:
		write(in)
		return 1
	case status7:
		write(in)
		return 7
	case calls:
		write(strconv.AppendUint(nil, count, 10))
	case ambient:
		write(fmt.Appendf(nil, "args=%d env=%d", len(os.Args), len(os.Environ())))
	case outputBomb:
		n, _ := strconv.Atoi(string(in))
		write(make([]byte, n))
	default:
		write([]byte("unknown method"))
		return 1
	}
	return 0
}

var held []byte

func write(out []byte) {
	outputWrite(unsafe.Pointer(unsafe.SliceData(out)), uint32(len(out)))
}

//go:noinline
func fib(n uint64) uint64 {
	if n < 2 {
		return n
	}
	return fib(n-1) + fib(n-2)
}

// item is one record of the work method.
type item struct {
	id, customer, value string
	unix                int64
}

// deliver does what an exporter does: decodes a batch of length-prefixed
// records, builds a form for each, and answers with one outcome per record.
func deliver(in []byte) []byte {
	var items []item
	field := func() string {
		n := binary.LittleEndian.Uint16(in)
		s := string(in[2 : 2+n])
		in = in[2+n:]
		return s
	}
	for len(in) > 0 {
		it := item{id: field(), customer: field(), value: field()}
		it.unix = int64(binary.LittleEndian.Uint64(in))
		in = in[8:]
		items = append(items, it)
	}
	var out []byte
	for _, it := range items {
		var b strings.Builder
		for _, kv := range [][2]string{
			{"identifier", it.id}, {"event_name", "llm_tokens"}, {"timestamp", strconv.FormatInt(it.unix, 10)},
			{"payload[stripe_customer_id]", it.customer}, {"payload[value]", it.value},
		} {
			if b.Len() > 0 {
				b.WriteByte('&')
			}
			escape(&b, kv[0])
			b.WriteByte('=')
			escape(&b, kv[1])
		}
		out = binary.LittleEndian.AppendUint16(out, uint16(b.Len()))
		out = append(out, b.String()...)
	}
	return out
}

func escape(b *strings.Builder, s string) {
	for i := range len(s) {
		if c := s[i]; c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(b, "%%%02X", c)
		}
	}
}

func main() {}
