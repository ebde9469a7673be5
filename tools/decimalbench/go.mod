module github.com/fencepost/fencepost/tools/decimalbench

go 1.26.0

require (
	github.com/cockroachdb/apd/v3 v3.2.3
	github.com/quagmt/udecimal v1.10.1
)
