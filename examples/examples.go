// Package examples holds the sources of the sample plugins, which fencepost
// plugin new copies: what an author begins with is what is tested here.
package examples

import "embed"

// Sources are the samples: an exporter in Go with what its provider answers,
// whatever the language.
//
//go:embed exporter-go/main.go exporter-go/provider.json exporter-go/testdata
//go:embed exporter-go/meterline/answer.go exporter-go/meterline/meterline.go exporter-go/meterline/meterline_test.go
var Sources embed.FS
