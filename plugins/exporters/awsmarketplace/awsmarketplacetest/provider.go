// Package awsmarketplacetest says how AWS Marketplace answers, for the conformance suite of
// exporters.
package awsmarketplacetest

import (
	"encoding/json"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	"github.com/fencepost/fencepost/plugins/sdk/exportertest/conformance"
)

// Provider returns AWS Marketplace, in test mode.
func Provider() conformance.Provider {
	return conformance.Provider{
		Configuration: exporter.Configuration{Name: "aws", Mode: "test", Settings: json.RawMessage(`{"product_code":"p","region":"us-east-1"}`)},
		Nonsense:      []exporter.Configuration{{Mode: "test"}, {Mode: "test", Settings: json.RawMessage(`{"product_code":"p"}`)}},
		Mapping:       map[string]string{"dimension": "calls"},
		Item: func(i *exporter.Item) {
			i.Kind, i.Timestamp, i.Corrects = "usage_window", i.Timestamp.Truncate(time.Hour), nil
		},
		Answer: answer,
	}
}

func answer(a conformance.Answer, r capability.Request, _ []exporter.Item) (capability.Response, bool) {
	var request struct{ UsageRecords []json.RawMessage }
	if json.Unmarshal(r.Body, &request) != nil {
		return capability.Response{Status: 400}, true
	}
	var status string
	switch a {
	case conformance.Accept:
		status = "Success"
	case conformance.Refuse:
		status = "CustomerNotSubscribed"
	case conformance.Mend:
		return capability.Response{Status: 400, Body: []byte(`{"__type":"com.amazonaws.marketplacemetering#InvalidUsageDimensionException"}`)}, true
	default:
		return capability.Response{}, false
	}
	type result struct {
		UsageRecord json.RawMessage
		Status      string
	}
	var results []result
	for _, record := range request.UsageRecords {
		results = append(results, result{record, status})
	}
	body, err := json.Marshal(map[string]any{"Results": results, "UnprocessedRecords": []string{}})
	if err != nil {
		panic(err) // what was just read
	}
	return capability.Response{Status: 200, Body: body}, true
}
