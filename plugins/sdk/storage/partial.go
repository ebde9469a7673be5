package storage

import "reflect"

// Partial is implemented by an adapter that stands for another one, such as one
// in another process: its type has every method of the contract, and the other
// one may lack some. Use [As], which asks.
type Partial interface {
	// Implements reports whether the methods of the named interface of this
	// package are really there: "ProjectionFolder".
	Implements(name string) bool
}

// As returns an interface of this package that an adapter implements, and
// whether it does. It is the type assertion, for an adapter that is [Partial]
// too. What the manifest declares is another question.
func As[T any](a Adapter) (T, bool) {
	impl, ok := a.(T)
	if !ok {
		return impl, false
	}
	if p, partial := a.(Partial); partial && !p.Implements(reflect.TypeFor[T]().Name()) {
		var none T
		return none, false
	}
	return impl, true
}

// Opening is what an adapter that is a plugin gets to open its store.
type Opening struct {
	// DSN names the store, as the operator wrote it and with references to
	// secrets resolved.
	DSN string
	// Migrate applies what is missing of the schema. Without it a store that
	// lacks some is opened all the same, for [Migrator]; [Adapter].Ping says
	// that it does.
	Migrate bool
}
