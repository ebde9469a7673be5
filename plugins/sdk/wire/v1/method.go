package wirev1

import "strconv"

// Method numbers an operation of a plugin. Numbers never change and are never
// used again (Q29); storage methods will have numbers from 100.
type Method int32

// The methods of an exporter. A plugin that cannot be probed, or that takes no
// messages of its provider, answers Probe or Webhook with an Error tagged
// unsupported.
const (
	MethodDescribe  Method = 1
	MethodConfigure Method = 2
	MethodDeliver   Method = 3
	MethodProbe     Method = 4
	MethodWebhook   Method = 5
	MethodClose     Method = 6
)

// String returns the method's name in lower case, or its number.
func (m Method) String() string {
	switch m {
	case MethodDescribe:
		return "describe"
	case MethodConfigure:
		return "configure"
	case MethodDeliver:
		return "deliver"
	case MethodProbe:
		return "probe"
	case MethodWebhook:
		return "webhook"
	case MethodClose:
		return "close"
	}
	return "method " + strconv.Itoa(int(m))
}

// Status is what a call returns beside its output.
type Status int32

// Statuses. Any other is a fault of the protocol: what the call covered is
// unknown and the instance is not used again.
const (
	// StatusAnswer: the output is the method's answer.
	StatusAnswer Status = 0
	// StatusError: the output is an Error message.
	StatusError Status = 1
)

// Names of the Wasm ABI, version 1. See docs/wasm-abi.md.
const (
	ExportCall       = "fp_call"
	ExportVersion    = "fp_abi_v1"
	ExportInitialize = "_initialize"

	ImportIO     = "fencepost.io/v1"
	ImportHTTP   = "fencepost.http/v1"
	ImportLog    = "fencepost.log/v1"
	ImportClock  = "fencepost.clock/v1"
	ImportRandom = "fencepost.random/v1"
	ImportAppend = "fencepost.append/v1"
	ImportSQL    = "fencepost.sql/v1"
)
