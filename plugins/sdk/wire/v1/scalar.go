package wirev1

import (
	"math"
	"strings"
	"time"
)

// micros and duration convert durations; what a time.Duration cannot hold
// becomes the nearest that it can. Parts below a microsecond are dropped.
func micros(d time.Duration) int64 { return int64(d / time.Microsecond) }

func duration(us int64) time.Duration {
	const most = int64(math.MaxInt64 / time.Microsecond)
	return time.Duration(min(max(us, -most), most)) * time.Microsecond
}

// instant is the inverse of time.Time.UnixMicro, in UTC. The zero Time is a
// microsecond count like any other and comes back as the zero Time.
func instant(us int64) time.Time { return time.UnixMicro(us).UTC() }

// deadline treats 0 and the zero Time as "none".
func deadline(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// count narrows to int, which has 32 bits on some machines.
func count(n int64) int { return int(min(max(n, math.MinInt32), math.MaxInt32)) }

// text makes s valid UTF-8, as protobuf demands of strings. Readers in other
// languages refuse a message over one bad byte of a provider's answer.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// blob copies b; empty becomes nil, because the wire does not tell them apart.
func blob(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return append([]byte(nil), b...)
}

// strs copies a list of strings; empty becomes nil.
func strs(in []string) []string {
	if len(in) == 0 {
		return nil
	}
	return append([]string(nil), in...)
}
