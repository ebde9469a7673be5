// Package arch holds the direction of imports as a test over the closure of
// each room's build. The linter's rules (.golangci.yml, depguard) see only what
// a file imports itself; this sees what is reached through others.
package arch
