package postgres

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// decimalInto reads a number from its text. NULL is zero.
type decimalInto struct{ d *decimal.Decimal }

// ScanText implements pgtype.TextScanner.
func (s decimalInto) ScanText(v pgtype.Text) (err error) {
	*s.d = decimal.Decimal{}
	if v.Valid {
		*s.d, err = decimal.ParseTotal(v.String)
	}
	return err
}

// optDecimalInto reads a number from its text. NULL is nil.
type optDecimalInto struct{ d **decimal.Decimal }

// ScanText implements pgtype.TextScanner.
func (s optDecimalInto) ScanText(v pgtype.Text) error {
	*s.d = nil
	if !v.Valid {
		return nil
	}
	d, err := decimal.ParseTotal(v.String)
	*s.d = &d
	return err
}

// utcInto reads a time. NULL is the zero time.
type utcInto struct{ t *time.Time }

// ScanTimestamptz implements pgtype.TimestamptzScanner.
func (s utcInto) ScanTimestamptz(v pgtype.Timestamptz) error {
	*s.t = time.Time{}
	if v.Valid {
		*s.t = v.Time.UTC()
	}
	return nil
}
