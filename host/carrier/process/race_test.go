//go:build race

package process

// memoryLimit is none: the race detector reserves terabytes.
const memoryLimit = -1
