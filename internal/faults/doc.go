// Package faults holds the fault suite: tests that run the real binary, on a
// real SQLite file, with the real exporter in Wasm, against the Stripe double,
// and kill, stop and fail it at the points that docs/testing.md lists. After
// every run an auditor compares what clients sent, what the store holds and
// what the double charged.
//
// The tests have the build tag "faults"; "make faults" runs them, and
// "make soak" the long ones.
package faults
