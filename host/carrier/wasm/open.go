package wasm

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
)

// Open checks and compiles a module. No code of the module runs yet:
// instances are made when calls need them.
//
// An error of the module or of the cache directory is an *sdk.Error with tag
// invalid and one of the codes of this package.
func Open(ctx context.Context, cfg Config) (*Module, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("open plugin: %w", err)
	}
	l, p, err := cfg.inspect()
	if err != nil {
		return nil, fmt.Errorf("open plugin: %w", err)
	}
	if cfg.Host.AppendSend == nil && cfg.checkCapability(capability.AppendName, moduleAppend) == nil {
		return nil, fmt.Errorf("open plugin %s: append is granted and Host.AppendSend is missing", cfg.Name)
	}
	if cfg.Host.SQLDo == nil && cfg.checkCapability(capability.SQLName, moduleSQL) == nil {
		return nil, fmt.Errorf("open plugin %s: sql is granted and Host.SQLDo is missing", cfg.Name)
	}
	if cfg.Host.HTTPSend == nil && cfg.checkCapability(capability.HTTPName, moduleHTTP) == nil {
		return nil, fmt.Errorf("open plugin %s: http is granted and Host.HTTPSend is missing", cfg.Name)
	}
	var dir string
	if cfg.CacheDir != "" {
		if dir, err = cfg.cacheDir(); err != nil {
			return nil, fmt.Errorf("open plugin: %w", err)
		}
	}
	m, err := load(ctx, &cfg, loaded{layout: l, plan: p, cacheDir: dir})
	if mistrust, ok := errors.AsType[*cacheError](err); ok {
		// A damaged cache entry must cost one slow start, not the plugin.
		cfg.Logger.WarnContext(ctx, "compile cache damaged, compiling anew", "error", mistrust.err.Error())
		if err := os.RemoveAll(dir); err != nil {
			return nil, fmt.Errorf("open plugin %s: remove damaged cache: %w", cfg.Name, err)
		}
		if dir, err = cfg.cacheDir(); err != nil {
			return nil, fmt.Errorf("open plugin: %w", err)
		}
		m, err = load(ctx, &cfg, loaded{layout: l, plan: p, cacheDir: dir, fresh: true})
	}
	if err != nil {
		return nil, fmt.Errorf("open plugin: %w", err)
	}
	return m, nil
}

// loaded is what inspection found, and where compiled code goes.
type loaded struct {
	layout   *layout
	plan     plan
	cacheDir string
	// fresh: the cache directory is empty, so an error is not its fault.
	fresh bool
}

// cacheError is a failure to compile that the cache may be to blame for.
type cacheError struct{ err error }

func (e *cacheError) Error() string { return e.err.Error() }

func load(ctx context.Context, cfg *Config, from loaded) (_ *Module, err error) {
	m := &Module{cfg: *cfg, lines: cfg.newLineLog(), pool: newPool(cfg.Limits.MaxInstances)}
	m.killed, m.kill = context.WithCancelCause(context.Background())
	runtime := wazero.NewRuntimeConfig().
		WithCloseOnContextDone(true).
		WithCoreFeatures(api.CoreFeaturesV2).
		WithMemoryLimitPages(cfg.Limits.MemoryPages).
		WithDebugInfoEnabled(false)
	if from.cacheDir != "" {
		if m.cache, err = wazero.NewCompilationCacheWithDir(from.cacheDir); err != nil {
			return nil, fmt.Errorf("open compile cache: %w", err)
		}
		runtime = runtime.WithCompilationCache(m.cache)
	}
	m.runtime = wazero.NewRuntimeWithConfig(ctx, runtime)
	defer func() {
		if err != nil {
			m.kill(errClosed)
			err = errors.Join(err, m.release())
		}
	}()
	if err := m.cfg.instantiateHost(ctx, m.runtime); err != nil {
		return nil, err
	}
	guarded := experimental.WithFunctionListenerFactory(ctx, from.plan.factory(from.layout.importedFuncs))
	m.compiled, err = m.runtime.CompileModule(guarded, m.cfg.Module)
	if err != nil {
		refused := m.cfg.refuse(CodeModule, "does not compile: "+clipTo(err.Error(), maxDetail), "")
		if from.cacheDir != "" && !from.fresh {
			return nil, &cacheError{refused}
		}
		return nil, refused
	}
	if err := m.checkCompiled(from.layout); err != nil {
		return nil, err
	}
	m.cfg.Module = nil
	return m, nil
}

// checkCompiled compares what the runtime read with what the checks read, so
// that a module on which the two readers disagree is not run, and the types of
// imports and exports.
func (m *Module) checkCompiled(l *layout) error {
	imports := m.compiled.ImportedFunctions()
	differ := len(imports) != len(l.imports)
	for i := 0; i < len(imports) && !differ; i++ {
		module, name, _ := imports[i].Import()
		differ = module != l.imports[i].module || name != l.imports[i].name
	}
	if differ {
		return m.cfg.refuse(CodeModule, "has an import section that two readers read differently", "")
	}
	for _, def := range imports {
		module, name, _ := def.Import()
		have, ok := m.runtime.Module(module).ExportedFunctionDefinitions()[name]
		if !ok {
			return m.cfg.refuse(CodeImportNotAllowed, fmt.Sprintf("imports %q, which module %s does not have", clip(name), module), "")
		}
		if string(have.ParamTypes()) != string(def.ParamTypes()) || string(have.ResultTypes()) != string(def.ResultTypes()) {
			return m.cfg.refuse(CodeABI, fmt.Sprintf("imports %q of module %s with a wrong type", name, module),
				"build it for the ABI of docs/wasm-abi.md")
		}
	}
	return m.cfg.checkSignatures(m.compiled.ExportedFunctions())
}
