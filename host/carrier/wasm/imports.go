package wasm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
)

// Import modules of the ABI.
const (
	moduleIO     = "fencepost.io/v1"
	moduleHTTP   = "fencepost.http/v1"
	moduleLog    = "fencepost.log/v1"
	moduleClock  = "fencepost.clock/v1"
	moduleRandom = "fencepost.random/v1"
	moduleAppend = "fencepost.append/v1"
	moduleSQL    = "fencepost.sql/v1"
	moduleWASI   = "wasi_snapshot_preview1"
)

// Codes of the errors that Open returns, all with tag invalid.
const (
	// CodeNotGranted: the module imports a capability that its manifest
	// declares and the operator did not grant.
	CodeNotGranted = "capability_not_granted"
	// CodeNotDeclared: the module imports a capability that its manifest does
	// not declare.
	CodeNotDeclared = "capability_not_declared"
	// CodeImportNotAllowed: the module imports something that no capability
	// stands for.
	CodeImportNotAllowed = "import_not_allowed"
	// CodeABI: the module does not export what version 1 of the ABI needs.
	CodeABI = "abi_not_supported"
	// CodeModule: the module is malformed or exceeds a limit.
	CodeModule = "module_refused"
	// CodeChecksum: the module's digest is not the expected one.
	CodeChecksum = "checksum_mismatch"
	// CodeCache: the cache directory cannot be trusted or used.
	CodeCache = "cache_refused"
)

// capabilityModule is the import module of a capability; ok is false for an
// unknown name.
func capabilityModule(name capability.Name) (module string, ok bool) {
	switch name {
	case capability.HTTPName:
		return moduleHTTP, true
	case capability.LogName:
		return moduleLog, true
	case capability.ClockName:
		return moduleClock, true
	case capability.RandomName:
		return moduleRandom, true
	case capability.AppendName:
		return moduleAppend, true
	case capability.SQLName:
		return moduleSQL, true
	default:
		return "", false
	}
}

// moduleCapability is the inverse of capabilityModule.
func moduleCapability(module string) (capability.Name, bool) {
	for _, name := range capability.Names() {
		if m, _ := capabilityModule(name); m == module {
			return name, true
		}
	}
	return "", false
}

// functionsOf lists what an import module of ours offers.
func functionsOf(module string) []string {
	switch module {
	case moduleIO:
		return []string{"input_read", "output_write"}
	case moduleHTTP, moduleAppend, moduleSQL:
		return []string{"send", "receive"}
	case moduleLog:
		return []string{"write"}
	case moduleClock:
		return []string{"now"}
	case moduleRandom:
		return []string{"read"}
	default:
		return nil
	}
}

// wasiAllowed are the functions that Go's runtime needs. None reaches a file,
// a socket, the environment or the arguments.
func wasiAllowed(name string) bool {
	switch name {
	case "args_get", "args_sizes_get", "clock_time_get", "environ_get", "environ_sizes_get",
		"fd_close", "fd_fdstat_get", "fd_fdstat_set_flags", "fd_prestat_get", "fd_prestat_dir_name",
		"fd_write", "poll_oneoff", "proc_exit", "random_get", "sched_yield":
		return true
	default:
		return false
	}
}

// wasiInert are the file functions that a Go program links when any package
// that it imports could open a file. With [Config.InertFiles] they may be
// imported and always answer "not supported".
func wasiInert(name string) bool {
	return strings.HasPrefix(name, "fd_") || strings.HasPrefix(name, "path_")
}

// checkImports compares the import section with manifest and grants, before
// anything is compiled.
func (c *Config) checkImports(imports []entry) error {
	for _, e := range imports {
		if e.kind != kindFunc {
			return c.refuse(CodeImportNotAllowed, fmt.Sprintf("imports the %s %q of module %q; a plugin imports functions only",
				kindNames[e.kind], clip(e.name), clip(e.module)), "")
		}
		if e.module == moduleWASI {
			if wasiAllowed(e.name) || c.InertFiles && wasiInert(e.name) {
				continue
			}
			return c.refuse(CodeImportNotAllowed, fmt.Sprintf("imports the WASI function %q, which no plugin gets", clip(e.name)),
				"build it without packages that open files or sockets; plugins reach the outside through fencepost.* modules")
		}
		name, ours := moduleCapability(e.module)
		if !ours && e.module != moduleIO {
			return c.refuse(CodeImportNotAllowed, fmt.Sprintf("imports %q of the unknown module %q", clip(e.name), clip(e.module)),
				"build it for the import modules of docs/wasm-abi.md")
		}
		if !slices.Contains(functionsOf(e.module), e.name) {
			return c.refuse(CodeImportNotAllowed, fmt.Sprintf("imports %q, which module %s does not have", clip(e.name), e.module),
				"build it for a version of the ABI that this host has")
		}
		if !ours {
			continue
		}
		if err := c.checkCapability(name, e.module); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) checkCapability(name capability.Name, module string) error {
	if !slices.Contains(c.Declared, name) {
		return c.refuse(CodeNotDeclared, fmt.Sprintf("imports %s, but its manifest does not declare the capability %q", module, name),
			fmt.Sprintf("the plugin's author adds %q to the capabilities of the manifest", name))
	}
	if !slices.Contains(c.Granted, name) {
		return c.refuse(CodeNotGranted, fmt.Sprintf("imports %s, but the capability %q is not granted", module, name),
			fmt.Sprintf("add %q to the grants of plugin %s", name, c.Name))
	}
	return nil
}

// refuse is the error for a module that cannot be loaded.
func (c *Config) refuse(code, what, hint string) *sdk.Error {
	return &sdk.Error{Tag: sdk.TagInvalid, Code: code, Field: "plugin", Rule: c.title() + " " + what, Hint: hint}
}

func (c *Config) title() string {
	if c.Version == "" {
		return "plugin " + c.Name
	}
	return "plugin " + c.Name + " " + c.Version
}

// clip bounds a name that a module chose.
func clip(s string) string { return clipTo(s, 80) }

func clipTo(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
