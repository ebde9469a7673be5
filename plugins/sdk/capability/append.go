package capability

import "context"

// Append adds records to a file that the operator named, whose lines form a
// chain: each carries the hash of the one before, so that a line that was
// changed, removed or put in between is found out. The plugin sees no path and
// cannot read.
type Append interface {
	// Append writes records in order and answers one result for each. When
	// it returns, what it calls appended has reached the disk. A record that
	// the file has already, by its identifier, is not written again if Again
	// is set. It returns an error only if nothing was written.
	Append(ctx context.Context, records []Record) ([]Appended, error)
}

// Record is one line to be.
type Record struct {
	// Item is the id of the delivery item that the record reports. The host
	// checks that the item's identifier is the record's.
	Item string
	// Identifier is what a reader recognises a repetition by.
	Identifier string
	// Again says that an earlier attempt may have written it.
	Again bool
	// JSON is the record, one JSON object.
	JSON []byte
}

// Appended answers one record.
type Appended struct {
	// Failure as in Response: none, not_sent if no byte of it was written, or
	// unknown.
	Failure Failure
	// Reason is a short code for Failure, such as "disk_full".
	Reason string
	// Earlier is set if the file has it from an earlier attempt.
	Earlier bool
	// Sequence is the number of its line, from 1.
	Sequence int64
}
