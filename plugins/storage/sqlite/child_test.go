package sqlite

import "os"

// roleVar makes a run of the test binary a child of a test.
const roleVar = "FENCEPOST_SQLITE_CHILD"

// childRole answers what this process is to do instead of testing, or nil.
func childRole() func() int {
	return map[string]func() int{"record": childRecord, "open": childOpen}[os.Getenv(roleVar)]
}
func childRecord() int { return 0 }
func childOpen() int   { return 0 }
