package guest

import (
	"context"
	"unsafe"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// current is what fp_call answers with. An exported function cannot carry
// state, and an instance serves one plugin, one call at a time.
var current struct {
	build  func(capability.Host) Answerer
	host   capability.Host
	plugin Answerer
}

func serve(build exporter.New, host capability.Host) Plugin {
	return serveAnswerer("", func(h capability.Host) Answerer { return NewDispatcher(build, h) }, host)
}

func serveAnswerer(_ string, build func(capability.Host) Answerer, host capability.Host) Plugin {
	current.build, current.host, current.plugin = build, host, nil
	return Plugin{}
}

//go:wasmimport fencepost.io/v1 input_read
func inputRead(ptr unsafe.Pointer, length uint32) uint32

//go:wasmimport fencepost.io/v1 output_write
func outputWrite(ptr unsafe.Pointer, length uint32)

//go:wasmexport fp_abi_v1
func fpABIv1() {}

//go:wasmexport fp_call
func fpCall(method, length int32) int32 {
	request := make([]byte, max(length, 0))
	n := inputRead(pointer(request), uint32(len(request)))
	answer, status := call(wirev1.Method(method), request[:min(n, uint32(len(request)))])
	outputWrite(pointer(answer), uint32(len(answer)))
	return int32(status)
}

func call(method wirev1.Method, request []byte) ([]byte, wirev1.Status) {
	if current.plugin == nil {
		if current.build == nil {
			return wirev1.EncodeError(&sdk.Error{
				Tag: sdk.TagUnsupported, Code: "no_plugin", Hint: "call guest.Serve in a package variable of main",
			}), wirev1.StatusError
		}
		current.plugin = current.build(current.host)
	}
	return current.plugin.Call(context.Background(), method, request)
}

// pointer is the address of b's first byte, or nil.
func pointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }
