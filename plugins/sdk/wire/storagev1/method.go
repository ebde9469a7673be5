package storagev1

import wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"

// The methods of every storage plugin, whatever it can do. Open comes first:
// until then every other but Close is answered with an Error of the code
// [CodeNotOpen], and has done nothing.
const (
	// MethodDescribe answers what [MethodOpen] did.
	MethodDescribe wirev1.Method = 100
	// MethodOpen opens the store: Opening, answered with Description. Opening
	// what is open under the same name is answered likewise.
	MethodOpen wirev1.Method = 101
	// MethodPing is [storage.Adapter].Ping.
	MethodPing wirev1.Method = 102
	// MethodClose closes the store. Closing again does nothing.
	MethodClose wirev1.Method = 103
)

// CodeNotOpen is the code of the error that a call before Open is answered
// with. Nothing happened, so a host opens and repeats the call.
const CodeNotOpen = "not_open"

// Operation is an entry of the table of methods.
type Operation struct {
	Name      string // in snake_case
	Interface string // of package storage, by its name
}

// OperationOf returns what a method is, and whether this version knows it as
// one of storage.
func OperationOf(method wirev1.Method) (Operation, bool) {
	op, ok := operations[method]
	return op, ok
}
