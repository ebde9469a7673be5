// Package examples holds the sources of the sample plugins, which fencepost
// plugin new copies: what an author begins with is what is tested here.
package examples

import "embed"

// Sources are the samples: an exporter in Go with what its provider answers,
// whatever the language, and a storage adapter in Go.
//
//go:embed exporter-go/main.go exporter-go/provider.json exporter-go/testdata
//go:embed exporter-go/meterline/answer.go exporter-go/meterline/meterline.go exporter-go/meterline/meterline_test.go
//go:embed storage-go/main.go storage-go/manifest.json storage-go/tally
var Sources embed.FS
