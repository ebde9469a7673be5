// Package wirev1 is what host and plugin say to each other, whatever carries
// it: the messages of fencepost.proto, the numbers of the methods, and pure
// mappings between the messages and the types of the contract.
//
// Encode functions never fail. Decode functions take bytes from a stranger:
// they bound the number of parts before anything is allocated for them, ignore
// fields that they do not know, and return an error that is [ErrMalformed] or
// [ErrTooLarge]. Decoded values share no memory with the input. All functions
// are safe for concurrent use.
package wirev1
