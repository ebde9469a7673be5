// Package conformance says whether a storage adapter keeps the contract of
// package storage. It knows that contract and nothing of any database, so that
// an adapter can be judged without reading our code or showing its own.
//
// It is a list of named cases. Each case says which requirements it proves,
// which capabilities it needs, and what it saw if it fails. Cases of
// capabilities that the adapter does not declare are skipped, and that the
// adapter's refusal would be clean is a case of its own. [Start] opens a store
// for a run; [Suite.Run] runs one case; [Run] runs them all. A test uses
// package storagetest, which does this under *testing.T.
//
// Every run works under a tenant prefix and an exporter name of its own, so
// that it can run in a database with other data. What it writes stays there:
// the contract has no deletion. Cases that cannot be kept to a prefix, those of
// projections and of retention, run only if [Options].Fresh says that the store
// is there for this run alone.
//
// Passing is necessary, not sufficient. A suite that calls methods of one
// process sees no kill between two statements, no lost answer of a COMMIT, no
// partition, no clock that steps and no disk that lies. // B50
package conformance
