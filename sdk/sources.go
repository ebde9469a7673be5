// Package sources holds the sources of the SDKs in languages other than Go, each with
// its sample exporter, for fencepost plugin new to copy.
package sources

import "embed"

// SDKs are the SDKs as they lie in this folder.
//
//go:embed c/fencepost.h c/sample/meterline.c
//go:embed rust/Cargo.toml rust/src rust/sample/Cargo.toml rust/sample/src/lib.rs
//go:embed assemblyscript/package.json assemblyscript/assembly assemblyscript/sample/meterline.ts
var SDKs embed.FS
