// Package awsmarketplace exports usage to AWS Marketplace as BatchMeterUsage.
//
// AWS has no key for a record: it recognises one by customer, dimension and time,
// so a customer's dimension has one record an hour, and the same record again is
// taken once. The exporter therefore takes windows of counters only, at most one
// for each customer and dimension in an hour of UTC, and the host holds the
// records in a request against the items and those in the answer too. There is no
// way to take usage back: a counter that falls is made up for by what it grows
// afterwards.
//
// # Settings
//
//	product_code: TEXT   of the product; required
//	region: us-east-1    of the metering service; required
//
// base_url is the service's own address in the region unless it is set.
//
// # Mapping of a feature
//
//	dimension   the product's usage dimension; required
//
// A tenant's customer at this exporter is the buyer's AWS account id
// (CustomerAWSAccountId).
package awsmarketplace

import (
	"bytes"
	"context"
	"encoding/json"
	"net/url"
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// New builds the exporter on the host's HTTP capability. It is an
// [exporter.New].
func New(host capability.Host) exporter.Exporter { return &Exporter{http: host.HTTP} }

// Exporter reports windows as usage records. Make it with [New]; the zero value
// can only describe itself. It is not for use from two goroutines at once.
type Exporter struct {
	http     capability.HTTP
	url      string
	settings settings
}

type settings struct {
	ProductCode string `json:"product_code"`
	Region      string `json:"region"`
}

// Describe returns the manifest.
func (*Exporter) Describe(context.Context) (exporter.Manifest, error) { return manifest(), nil }

// Configure checks and takes the operator's settings. Its errors are tagged
// invalid and name the field.
func (e *Exporter) Configure(_ context.Context, c exporter.Configuration) error {
	if e.http == nil {
		return &sdk.Error{
			Tag: sdk.TagUnsupported, Code: "capability_missing", Field: "http",
			Rule: "the capability http", Hint: "grant http to this plugin",
		}
	}
	if c.Mode != "test" && c.Mode != "live" {
		return sdk.Invalid("mode", "test or live")
	}
	var s settings
	d := json.NewDecoder(bytes.NewReader(c.Settings))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return sdk.Invalid("settings", "a JSON object with product_code and region")
	}
	switch {
	case s.ProductCode == "" || len(s.ProductCode) > 255:
		return sdk.Invalid("settings.product_code", "the product's code, 1 to 255 characters")
	case !regionName(s.Region):
		return sdk.Invalid("settings.region", `a region of AWS, such as "us-east-1"`)
	}
	base := c.BaseURL
	if base == "" {
		if s.Region != defaultRegion {
			return sdk.Invalid("base_url", `the service's address in the region, such as "https://metering.marketplace.eu-west-1.amazonaws.com"`)
		}
		base = "https://" + defaultHost
	}
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return sdk.Invalid("base_url", "an https address without user and query")
	}
	e.url, e.settings = strings.TrimRight(base, "/")+"/", s
	return nil
}

func regionName(s string) bool {
	return s != "" && len(s) <= 32 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// Close has nothing to release.
func (*Exporter) Close(context.Context) error { return nil }
