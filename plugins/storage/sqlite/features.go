package sqlite

import (
	"encoding/json"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

func features(c *conn) ([]storage.Feature, error) {
	all := []storage.Feature{}
	err := c.bind(qFeatures).each(func(r *row) error {
		all = append(all, r.feature())
		return nil
	})
	return all, err
}

func (r *row) feature() (f storage.Feature) {
	f.Name, f.Signed = r.text(), r.bool()
	r.decode(&f.Buckets)
	f.Revision = r.int()
	return f
}

// loadFeature answers the zero value for a feature that nobody declared.
func loadFeature(c *conn, name string) (f storage.Feature, err error) {
	_, err = c.bind(qFeature).text(name).one(func(r *row) { f = r.feature() })
	return f, err
}

// putFeature creates or replaces a feature, at the revision that the change
// leads to. Totals remember whether they may
// fall below zero, and retention keeps them: what has totals is in use (Q7).
func putFeature(c *conn, f storage.Feature, revision int64) error {
	if f.Name == "" {
		return sdk.Invalid("features", "a name")
	}
	before, err := loadFeature(c, f.Name)
	if err != nil {
		return err
	}
	if known := before.Name != ""; !known || before.Signed != f.Signed {
		var signed, unsigned bool
		used, err := c.bind(qFeatureUsed).text(f.Name).one(func(r *row) { signed, unsigned = r.bool(), !r.bool() })
		if err != nil {
			return err
		}
		if used && (known || signed && !f.Signed || unsigned && f.Signed) {
			return &sdk.Error{
				Tag: sdk.TagConflict, Code: "signed_in_use", Field: "features." + f.Name,
				Rule: "signed as it was when the feature was first used",
			}
		}
	}
	var buckets json.RawMessage
	if f.Buckets != nil {
		if buckets, err = json.Marshal(f.Buckets); err != nil {
			return err
		}
	}
	_, err = c.bind(qFeaturePut).text(f.Name).bool(f.Signed).json(buckets).int(revision).run()
	return err
}
