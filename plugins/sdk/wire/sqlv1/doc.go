// Package sqlv1 encodes what a plugin asks of the sql capability and what the
// host answers. It is apart from wire/v1 so that a plugin without a database
// carries none of it.
package sqlv1
