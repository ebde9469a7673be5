package engine

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fencepost/fencepost/engine/meter"
	"github.com/fencepost/fencepost/engine/period"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// Limits of one query.
const (
	maxWindows   = 10_000
	maxGroupBy   = 8
	maxUsageRows = 100_000
)

// PeriodWindow is the window of a billing period.
const PeriodWindow period.Unit = "period"

// UsageQuery asks what a tenant used. Tenant is required.
type UsageQuery struct {
	Tenant string
	// Feature is required unless the windows are billing periods; empty then
	// selects every feature.
	Feature string
	// From and To are half-open. Of billing periods they bound the start, and
	// may be zero; any other window needs both, and the first and the last
	// window are cut where From and To lie inside one.
	From, To time.Time
	// Window is a unit of [period.Grid], or [PeriodWindow], which is what the
	// empty window stands for.
	Window period.Unit
	// Timezone is the IANA zone whose clocks windows follow. Empty: UTC.
	// Billing periods have the tenant's own.
	Timezone string
	// GroupBy names at most 8 dimensions.
	GroupBy []string
	// Filter selects events whose dimensions have these values.
	Filter map[string]string
	// Aggregation is what the usage is added up to. Empty: that of the
	// feature.
	Aggregation meter.Aggregation
}

// UsageAnswer is what a tenant used.
type UsageAnswer struct {
	// Rows are in the order of feature, window and group.
	Rows []UsageRow
	AsOf time.Time
}

// UsageRow is one feature in one window, of one group.
type UsageRow struct {
	Feature     string
	From, To    time.Time
	Aggregation meter.Aggregation
	// Value is nil where there is none: the greatest, least, latest or mean
	// of no events.
	Value *decimal.Decimal
	// Count is how many usage events there are, less those fully reversed. Nil
	// for a buffered feature, and where a window has usage that was tracked
	// when the feature was one: calls of Track are not counted.
	Count *int64
	// Group has the value of each dimension of GroupBy, nil where the events
	// lack it. It is empty without GroupBy and for a window without events.
	Group map[string]*string
	// Buffered: the row is what was tracked and written to the store, by all
	// hosts. Unflushed is what this host has tracked beside it and does not
	// know to be written; what other hosts hold is not known here.
	Buffered  bool
	Unflushed decimal.Decimal
	// Refused is the code of the error that a query of this feature alone
	// would get, in an answer about all features. Value is nil then.
	Refused string
}

// Usage answers q from one snapshot of the store for each feature. Every event
// whose Record returned is in it.
//
// Windows of time select usage by the time of the event; corrections count at
// the time of the event that they correct. Billing periods select it by the
// period in which it was recorded, which a later change of the subscription does
// not move; only periods with usage are listed. All other windows are, those
// without usage too, with sum, count and unique zero and no value otherwise. Of a
// feature whose source was changed, windows of time have the sum of both sources,
// each read at its own moment; periods have a row for each. Anything but a sum is of
// events alone, and a sum with group or filter is refused. A mean is rounded half
// to even at twelve decimals; everything else is exact.
//
// # Errors
//
// Invalid: the query breaks a rule; more than 10,000 windows or 100,000 rows are
// one (code "too_many"). Unsupported: retention has removed part of what is
// asked for (code "pruned"); periods of a changed subscription overlap and the
// question cannot be answered by period ("periods_overlap"); the feature is
// buffered, or was when part of what is asked for was tracked, and only its sum is
// known ("buffered"); the store lacks a capability.
func (e *Engine) Usage(ctx context.Context, q UsageQuery) (UsageAnswer, error) {
	if err := q.check(); err != nil {
		return UsageAnswer{}, err
	}
	answer := UsageAnswer{AsOf: meter.Truncate(e.cfg.Now())}
	rows, err := e.usageRows(ctx, q)
	if err != nil {
		return UsageAnswer{}, tagged(ctx, err)
	}
	answer.Rows = rows
	return answer, nil
}

func (e *Engine) usageRows(ctx context.Context, q UsageQuery) ([]UsageRow, error) {
	if q.Window == PeriodWindow || q.Window == "" {
		return e.usageByPeriod(ctx, q)
	}
	grid, err := e.subjects.zones.Grid(q.Window, q.Timezone)
	if err != nil {
		return nil, err //nolint:wrapcheck // names the field
	}
	edges, ok := grid.Edges(period.Period{Start: q.From, End: q.To}, maxWindows)
	if !ok {
		return nil, tooMany("window", "at most 10,000 windows in one answer")
	}
	return e.usageOfBoth(ctx, q, edges)
}

func tooMany(field, rule string) *sdk.Error {
	return &sdk.Error{Tag: sdk.TagInvalid, Code: "too_many", Field: field, Rule: rule, Hint: "ask for a shorter time, longer windows or fewer groups"}
}

// check refuses what breaks a rule, without looking at anything.
func (q *UsageQuery) check() error {
	periods := q.Window == PeriodWindow || q.Window == ""
	q.From, q.To = meter.Truncate(q.From), meter.Truncate(q.To)
	switch {
	case q.Tenant == "":
		return sdk.Invalid("tenant", "required")
	case !plainText(q.Tenant, meter.MaxID):
		return sdk.Invalid("tenant", "1 to 128 bytes of UTF-8 without control characters")
	case q.Feature != "" && !meter.ValidFeature(q.Feature):
		return sdk.Invalid("feature", meter.FeatureRule)
	case q.Aggregation != "" && !q.Aggregation.Valid():
		return sdk.Invalid("aggregation", "one of sum, count, max, min, avg, latest, unique")
	case !q.From.IsZero() && !q.To.IsZero() && !q.From.Before(q.To):
		return sdk.Invalid("to", "after from")
	case periods && q.Timezone != "":
		return sdk.Invalid("timezone", "absent with billing periods, which have the tenant's own")
	case !periods && q.From.IsZero():
		return sdk.Invalid("from", "required unless window is period")
	case !periods && q.To.IsZero():
		return sdk.Invalid("to", "required unless window is period")
	case q.Feature == "" && (!periods || q.Aggregation != "" || len(q.GroupBy) > 0 || len(q.Filter) > 0):
		return sdk.Invalid("feature", "required unless window is period and nothing is grouped, filtered or aggregated")
	}
	return q.checkDimensions()
}

func (q *UsageQuery) checkDimensions() error {
	if len(q.GroupBy) > maxGroupBy {
		return sdk.Invalid("group_by", "at most 8 dimensions")
	}
	for i, name := range q.GroupBy {
		if !dimensionName(name) {
			return sdk.Invalid("group_by", dimensionRule)
		}
		if slices.Contains(q.GroupBy[:i], name) {
			return sdk.Invalid("group_by", "each dimension once")
		}
	}
	if len(q.Filter) > meter.MaxDimensions {
		return sdk.Invalid("filter", "at most 32 dimensions")
	}
	for name, value := range q.Filter {
		if !dimensionName(name) {
			return sdk.Invalid("filter", dimensionRule)
		}
		if len(value) > meter.MaxDimensionValue || !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
			return sdk.Invalid("filter", "values of at most 256 bytes of UTF-8 without NUL")
		}
	}
	return nil
}

const dimensionRule = "names of 1 to 64 bytes of UTF-8 without control characters"

func dimensionName(s string) bool {
	return s != "" && len(s) <= meter.MaxDimensionKey && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// aggregation is what q asks for of a feature.
func (e *Engine) aggregation(q UsageQuery, feature string) meter.Aggregation {
	if q.Aggregation != "" {
		return q.Aggregation
	}
	return e.cfg.feature(feature).Aggregation
}
