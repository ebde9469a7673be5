package engine

import (
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// need returns the adapter's implementation of one capability. It answers
// unsupported itself when the capability is not declared, so an adapter's
// method is never reached; a declared capability without its methods is a
// fault of the adapter and is refused in the same way. // B8, B9.
func need[T any](a storage.Adapter, c storage.Capability) (T, error) {
	var zero T
	m := a.Describe()
	if !m.Has(c) {
		return zero, &sdk.Error{
			Tag: sdk.TagUnsupported, Code: string(c),
			Rule: "the storage adapter " + m.Name + " does not declare this capability",
		}
	}
	impl, ok := storage.As[T](a)
	if !ok {
		return zero, &sdk.Error{
			Tag: sdk.TagUnsupported, Code: string(c),
			Rule: "the storage adapter " + m.Name + " declares this capability and does not implement it",
		}
	}
	return impl, nil
}
