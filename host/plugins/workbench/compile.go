package workbench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// compilation is one run of a language's compiler.
type compilation struct {
	dir, tmp, out string
	native        bool
	says          func(string)
}

// missing is the error for a compiler that is not there, and says how to get it.
func missing(what, how string) error {
	return &sdk.Error{Tag: sdk.TagUnsupported, Code: "compiler_missing", Field: "compiler", Rule: what + ", which is not found here", Hint: how}
}

func (c compilation) compile(ctx context.Context, l Language) (compiler string, err error) {
	var list []command
	switch l {
	case Go:
		compiler, list, err = c.goCommands(ctx)
	case C:
		compiler, list, err = c.cCommands(ctx)
	case Rust:
		compiler, list, err = c.rustCommands(ctx)
	case AssemblyScript:
		compiler, list, err = c.assemblyScriptCommands(ctx)
	}
	if err != nil {
		return "", err
	}
	for _, cmd := range list {
		out, err := run(ctx, cmd)
		if err == nil || ctx.Err() != nil {
			continue
		}
		if c.says != nil {
			c.says(out)
		}
		return "", &sdk.Error{Tag: sdk.TagInvalid, Code: "does_not_compile", Field: "source", Rule: "compiles with " + cmd.String(), Err: err}
	}
	return compiler, ctx.Err()
}

// run runs a command and returns what it wrote, also if it failed.
func run(ctx context.Context, c command) (string, error) {
	cmd := exec.CommandContext(ctx, c.args[0], c.args[1:]...) //nolint:gosec // an author's own compiler
	cmd.Dir, cmd.Env = c.dir, append(os.Environ(), c.env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// firstLine is what a program says of its version.
func firstLine(ctx context.Context, args ...string) string {
	out, err := run(ctx, command{args: args})
	if err != nil {
		return args[0]
	}
	line, _, _ := strings.Cut(out, "\n")
	return strings.TrimSpace(line)
}

func (c compilation) goCommands(ctx context.Context) (string, []command, error) {
	program, err := exec.LookPath("go")
	if err != nil {
		return "", nil, missing("Go 1.26 or newer", "https://go.dev/dl has it")
	}
	build := command{dir: c.dir, env: []string{"CGO_ENABLED=0"}, args: []string{program, "build", "-trimpath", "-ldflags", "-s -w", "-o", c.out, "."}}
	if !c.native {
		build.env = append(build.env, "GOOS=wasip1", "GOARCH=wasm")
		build.args = slices.Insert(build.args, 2, "-buildmode=c-shared")
	}
	return firstLine(ctx, program, "version"), []command{build}, nil
}

func (c compilation) cCommands(ctx context.Context) (string, []command, error) {
	clang, err := exec.LookPath("clang")
	if err != nil {
		return "", nil, missing("clang 14 or newer", "apt install clang lld; brew install llvm lld")
	}
	if _, err := exec.LookPath("wasm-ld"); err != nil {
		return "", nil, missing("wasm-ld, the linker of lld", "apt install lld; brew install lld")
	}
	sources, err := filepath.Glob(filepath.Join(c.dir, "*.c"))
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", c.dir, err)
	}
	args := []string{
		clang, "--target=wasm32", "-O2", "-mbulk-memory", "-ffreestanding", "-nostdlib", "-Wall", "-Wextra",
		"-Wl,--no-entry", "-Wl,--strip-all", "-I", c.dir, "-o", c.out,
	}
	return firstLine(ctx, clang, "--version"), []command{{dir: c.dir, args: append(args, sources...)}}, nil
}

const rustTarget = "wasm32-unknown-unknown"

// rustCommands call rustc as cargo would. A plugin with other dependencies than
// the SDK needs cargo, which also finds them.
func (c compilation) rustCommands(ctx context.Context) (string, []command, error) {
	rustc, err := c.rustc(ctx)
	if err != nil {
		return "", nil, err
	}
	manifest, err := os.ReadFile(filepath.Join(c.dir, "Cargo.toml"))
	if err != nil {
		return "", nil, sdk.Invalid("Cargo.toml", err.Error())
	}
	compiler := firstLine(ctx, rustc, "--version")
	crate, sdkPath, alone := cargo(string(manifest))
	if !alone {
		program, err := exec.LookPath("cargo")
		if err != nil {
			return "", nil, missing("cargo, for a plugin with dependencies of its own", "apt install cargo, or https://rustup.rs")
		}
		target := filepath.Join(c.tmp, "target")
		return compiler, []command{
			{dir: c.dir, env: []string{"RUSTC=" + rustc, "CARGO_TARGET_DIR=" + target}, args: []string{program, "build", "--release", "--target", rustTarget}},
			{dir: c.dir, args: []string{"cp", filepath.Join(target, rustTarget, "release", strings.ReplaceAll(crate, "-", "_")+".wasm"), c.out}},
		}, nil
	}
	flags := []string{rustc, "--edition", "2021", "--target", rustTarget, "-C", "opt-level=s", "-C", "panic=abort"}
	library := append(slices.Clone(flags), "--crate-type", "rlib", "--crate-name", "fencepost", "--out-dir", c.tmp, filepath.Join(c.dir, sdkPath, "src", "lib.rs"))
	module := append(slices.Clone(flags), "-C", "lto", "-C", "strip=symbols", "--crate-type", "cdylib", "--crate-name", strings.ReplaceAll(crate, "-", "_"),
		"--extern", "fencepost="+filepath.Join(c.tmp, "libfencepost.rlib"), "-o", c.out, filepath.Join(c.dir, "src", "lib.rs"))
	return compiler, []command{{dir: c.dir, args: library}, {dir: c.dir, args: module}}, nil
}

// rustc finds a compiler that can link for Wasm: that of a toolchain manager,
// first in the path, often cannot.
func (c compilation) rustc(ctx context.Context) (string, error) {
	probe := filepath.Join(c.tmp, "probe.rs")
	if err := os.WriteFile(probe, nil, 0o600); err != nil {
		return "", fmt.Errorf("probe: %w", err)
	}
	first, _ := exec.LookPath("rustc")
	for _, program := range []string{os.Getenv("RUSTC"), first, "/usr/bin/rustc"} {
		if program == "" {
			continue
		}
		_, err := run(ctx, command{args: []string{
			program, "--crate-type", "cdylib", "--crate-name", "probe", "--target", rustTarget, "-o", filepath.Join(c.tmp, "probe.wasm"), probe,
		}})
		if err == nil {
			return program, nil
		}
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
	}
	return "", missing("rustc 1.63 or newer with the target "+rustTarget, "rustup target add "+rustTarget+"; apt install rustc libstd-rust-dev-wasm32 lld")
}

// cargo reads of a Cargo.toml what is needed without cargo: the crate's name, the
// path of the SDK, and whether that is the only dependency.
func cargo(text string) (crate, sdkPath string, alone bool) {
	section := ""
	alone = true
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			section = line
			if strings.Contains(section, "dependencies.") {
				alone = false
			}
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		switch {
		case section == "[package]" && key == "name":
			crate = strings.Trim(value, `"`)
		case section == "[dependencies]" && key == "fencepost":
			if _, rest, ok := strings.Cut(value, `path = "`); ok {
				sdkPath, _, _ = strings.Cut(rest, `"`)
			}
		case strings.HasSuffix(section, "dependencies]"):
			alone = false
		}
	}
	return crate, sdkPath, alone && sdkPath != ""
}

func (c compilation) assemblyScriptCommands(ctx context.Context) (string, []command, error) {
	var asc []string
	if own := filepath.Join(c.dir, "node_modules", "assemblyscript", "bin", "asc.js"); exists(own) {
		node, err := exec.LookPath("node")
		if err != nil {
			return "", nil, missing("node 18 or newer", "apt install nodejs npm; https://nodejs.org")
		}
		asc = []string{node, own}
	} else if program, err := exec.LookPath("asc"); err == nil {
		asc = []string{program}
	} else {
		return "", nil, missing("the compiler of AssemblyScript", "npm install in "+c.dir+", or npm install --global assemblyscript@0.28.20")
	}
	entries, err := filepath.Glob(filepath.Join(c.dir, "*.ts"))
	if err != nil || len(entries) != 1 {
		return "", nil, sdk.Invalid("DIR", "has one .ts file, which exports fp_call; other files lie in folders below")
	}
	args := append(slices.Clone(asc), filepath.Base(entries[0]), "--outFile", c.out, "-O3", "--runtime", "incremental", "--use", "abort=", "--exportStart", "_initialize")
	return "assemblyscript " + firstLine(ctx, append(slices.Clone(asc), "--version")...), []command{{dir: c.dir, args: args}}, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
