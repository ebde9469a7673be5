// Package migrations holds the schema changes of every dialect that this
// project versions, as numbered SQL files and nothing else. An adapter reads
// the folder of its dialect; a file that was released never changes again.
package migrations

import "embed"

// FS holds <dialect>/<NNNN>_<name>.sql, applied in the order of their numbers.
//
//go:embed sqlite/*.sql postgres/*.sql
var FS embed.FS
