package period

import (
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// New returns the calendar of a subscription. See [Zones.New], which remembers
// time zones and is what a hot path should use.
func New(anchor time.Time, interval storage.Interval, zone string) (Calendar, error) {
	var z Zones
	return z.New(anchor, interval, zone)
}

// Zones remembers the time zones it has loaded, which saves reading a file for
// every calendar. The zero value is ready to use; it is safe for concurrent use
// and must not be copied. It holds no more than there are zones.
type Zones struct {
	loaded sync.Map // name → *time.Location
}

// New returns the calendar with a boundary at anchor and at every interval from
// it in both directions. The anchor is an instant: its day and time of day are
// those that clocks in the zone show then. Zone is an IANA name; empty is UTC.
//
// It fails with tag invalid naming "anchor", "interval" or "timezone".
func (z *Zones) New(anchor time.Time, interval storage.Interval, zone string) (Calendar, error) {
	if anchor.IsZero() || anchor.Year() < 1900 || anchor.Year() > 9999 {
		return Calendar{}, sdk.Invalid("anchor", "a time from the year 1900 to 9999")
	}
	known := []storage.Interval{storage.Day, storage.Week, storage.Month, storage.Year}
	if !slices.Contains(known, interval) {
		return Calendar{}, sdk.Invalid("interval", "one of day, week, month, year")
	}
	location, err := z.load(zone)
	if err != nil {
		return Calendar{}, err
	}
	local := wall(anchor.In(location)).Truncate(time.Microsecond)
	return Calendar{interval: interval, zone: location, anchor: local}, nil
}

// Of returns the calendar of a subscription, as New does.
func (z *Zones) Of(s storage.Subscription) (Calendar, error) {
	return z.New(s.Anchor, s.Interval, s.Timezone)
}

func (z *Zones) load(name string) (*time.Location, error) {
	if name == "" || name == "UTC" {
		return time.UTC, nil
	}
	if known, ok := z.loaded.Load(name); ok {
		return known.(*time.Location), nil //nolint:errcheck // the only type that is stored
	}
	// "Local" is whatever the host is set to; "right/" and "posix/" exist on
	// some systems only, and the first counts leap seconds. A name that is not
	// clean is another spelling of one zone, of which there is no end.
	refused := name == "Local" || name == "localtime" || name == "posixrules" || path.Clean(name) != name ||
		strings.HasPrefix(name, "right/") || strings.HasPrefix(name, "posix/")
	location, err := time.LoadLocation(name)
	if err != nil || refused {
		return nil, sdk.Invalid("timezone", "an IANA time zone, such as Europe/Paris")
	}
	z.loaded.Store(name, location)
	return location, nil
}
