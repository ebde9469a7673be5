package egress

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Bounds of a provider's wish to wait (O15).
const (
	retryAfterMin = time.Second
	retryAfterMax = time.Hour
)

// parseRetryAfter reads Retry-After, seconds or an HTTP date, clamped to 1 s to
// 1 h. Absent, repeated or garbage is zero: the host decides.
func parseRetryAfter(values []string, now time.Time) time.Duration {
	if len(values) != 1 {
		return 0
	}
	v := strings.TrimSpace(values[0])
	if v == "" || len(v) > 64 {
		return 0
	}
	if strings.Trim(v, "0123456789") == "" {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil || n > uint64(retryAfterMax/time.Second) {
			return retryAfterMax
		}
		return max(retryAfterMin, time.Duration(n)*time.Second)
	}
	t, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	return min(retryAfterMax, max(retryAfterMin, t.Sub(now)))
}
