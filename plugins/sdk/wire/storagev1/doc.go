// Package storagev1 is what the host and a storage plugin say to each other,
// whatever carries it: the numbers of the operations, and the encoding of the
// values of package storage as the messages of storage.proto.
//
// All but this and two files is generated from package storage, see
// internal/wiregen. The encoding is that of protobuf, written straight from the
// values: no structs of messages lie between.
//
// Encode functions fail with an [sdk.Error] of tag invalid for what the schema
// cannot hold, text that is not UTF-8 and times outside the years 1 to 9999,
// rather than sending something else: such text may be an identity. Parts of
// times below a microsecond are dropped; a duration is rounded away from zero,
// so that no short one becomes "none". One value has one encoding.
//
// Decode functions take bytes from a stranger. They bound how often a list may
// have an element and what all of them may take in memory before they allocate,
// ignore fields that they do not know, and return an error that is
// [wirev1.ErrMalformed] or [wirev1.ErrTooLarge]. Those of answers refuse values
// of enumerations that the contract does not list, and JSON that is none.
// Decoded values share no memory with the input, but with each other. All
// functions are safe for concurrent use.
package storagev1
