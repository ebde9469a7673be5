package sqlite

import (
	"zombiezen.com/go/sqlite"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// registerFunctions gives a connection dec_add(a, b): the exact sum of two
// canonical decimals, as canonical text. SQLite's own + would go through REAL.
func registerFunctions(c *sqlite.Conn) error {
	return c.CreateFunction("dec_add", &sqlite.FunctionImpl{
		NArgs:         2,
		Deterministic: true,
		Scalar: func(_ sqlite.Context, args []sqlite.Value) (sqlite.Value, error) {
			a, err := decimal.ParseTotal(args[0].Text())
			if err != nil {
				return sqlite.Value{}, err
			}
			b, err := decimal.ParseTotal(args[1].Text())
			if err != nil {
				return sqlite.Value{}, err
			}
			return sqlite.TextValue(a.Add(b).String()), nil
		},
	})
}
