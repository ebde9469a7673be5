// Package outbox decides what happens to an outbox item: who it is, whether it
// may be sent, what an attempt proved, and when to try again. It holds the only
// table of transitions and the loop that moves items along it.
//
// Everything but [Deliverer] is a pure function. The store it drives knows no
// transition by name; it applies conditional updates and says how many rows
// changed. docs/outbox-transitions.md shows both tables of this package.
package outbox
