package sqlite

import (
	"zombiezen.com/go/sqlite"

	"github.com/fencepost/fencepost/plugins/sdk/decimal"
)

// registerFunctions gives the writer what its statements and the schema need.
//
// dec_add(a, b) is the exact sum of two canonical decimals, as canonical text:
// SQLite's own + would go through REAL. dec_min and dec_max answer one of the
// two, NULL being no value. fencepost_pruning() lets retention past the
// triggers that keep history as it is.
func registerFunctions(c *conn) error {
	for name, f := range map[string]func(a, b decimal.Decimal) decimal.Decimal{
		"dec_add": decimal.Decimal.Add,
		"dec_min": func(a, b decimal.Decimal) decimal.Decimal { return *least(&a, &b) },
		"dec_max": func(a, b decimal.Decimal) decimal.Decimal { return *most(&a, &b) },
	} {
		if err := c.CreateFunction(name, &sqlite.FunctionImpl{
			NArgs: 2, Deterministic: true, Scalar: decimalFunction(f),
		}); err != nil {
			return err
		}
	}
	return c.CreateFunction("fencepost_pruning", &sqlite.FunctionImpl{
		AllowIndirect: true, // triggers call it
		Scalar: func(sqlite.Context, []sqlite.Value) (sqlite.Value, error) {
			if c.pruning {
				return sqlite.IntegerValue(1), nil
			}
			return sqlite.IntegerValue(0), nil
		},
	})
}

// decimalFunction applies f to two values; with a NULL the other one is the
// answer.
func decimalFunction(f func(a, b decimal.Decimal) decimal.Decimal) func(sqlite.Context, []sqlite.Value) (sqlite.Value, error) {
	return func(_ sqlite.Context, args []sqlite.Value) (sqlite.Value, error) {
		for i := range 2 {
			if args[i].Type() == sqlite.TypeNull {
				return args[1-i], nil
			}
		}
		a, err := decimal.ParseTotal(args[0].Text())
		if err != nil {
			return sqlite.Value{}, err
		}
		b, err := decimal.ParseTotal(args[1].Text())
		if err != nil {
			return sqlite.Value{}, err
		}
		return sqlite.TextValue(f(a, b).String()), nil
	}
}
