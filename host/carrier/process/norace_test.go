//go:build !race

package process

// memoryLimit of the plugins in these tests.
const memoryLimit = 1 << 30
