package config

import (
	"fmt"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// Outpost says what applications read balances of.
type Outpost struct {
	Meters []OutpostMeter `yaml:"meters"`
}

// OutpostMeter is one of which tenants have a balance: credits less usage.
type OutpostMeter struct {
	Name string `yaml:"name"`
	// Feature has buckets and adds up by sum, count, avg, min or max.
	Feature string `yaml:"feature"`
	// Filter selects usage by dimensions that the buckets keep.
	Filter map[string]string `yaml:"filter"`
	// Renew is what the credit is reset to when a billing period begins, a
	// decimal in quotes. Empty: never.
	Renew string `yaml:"renew"`
}

// RenewAmount is Renew, nil if it is empty. It is meant for a meter that Validate
// accepts.
func (m OutpostMeter) RenewAmount() *decimal.Decimal {
	if m.Renew == "" {
		return nil
	}
	d, err := decimal.Parse(m.Renew)
	if err != nil {
		return nil
	}
	return &d
}

// validate checks what the engine does not see: it checks the rest.
func (o Outpost) validate() error {
	for i, m := range o.Meters {
		if d := m.RenewAmount(); m.Renew != "" && (d == nil || d.Sign() < 0) {
			return sdk.Invalid(fmt.Sprintf("outpost.meters[%d].renew", i), "a decimal in quotes, zero or more")
		}
	}
	return nil
}
