package outbox_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/engine/outbox"
)

// D14: a filter by reason is refused unless the list has it, so the list has every
// constant of the type, and the manual says of each what to do.
func TestQuarantineReasonsAreAll(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	constants := 0
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), e.Name(), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if kind, named := specType(spec, ok); !named || kind != "Reason" {
				return true
			}
			for _, name := range spec.Names {
				if strings.HasPrefix(name.Name, "Reason") && name.Name != "ReasonNone" {
					constants++
				}
			}
			return true
		})
	}
	list := outbox.QuarantineReasons()
	if slices.Sort(list); constants != len(list) || len(slices.Compact(list)) != len(list) {
		t.Errorf("%d constants, %d in the list", constants, len(list))
	}
	manual, err := os.ReadFile("../../docs/operate-outbox.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list {
		if !strings.Contains(string(manual), "| `"+string(r)+"` |") {
			t.Errorf("the manual does not say what to do about %s", r)
		}
	}
}

func specType(spec *ast.ValueSpec, ok bool) (string, bool) {
	if !ok {
		return "", false
	}
	id, named := spec.Type.(*ast.Ident)
	if !named {
		return "", false
	}
	return id.Name, true
}
