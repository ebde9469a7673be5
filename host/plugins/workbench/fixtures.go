package workbench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// Files of a fixture: a folder with what is delivered, what the provider said,
// and what the plugin has to say of it.
const (
	inputFileName        = "input.json"
	conversationFileName = "conversation.json"
	expectedFileName     = "expected.json"
)

// Expected is what a fixture wants.
type Expected struct {
	Outcomes []Outcome `json:"outcomes"`
}

// FixtureResult is how one fixture ended.
type FixtureResult struct {
	Name     string   `json:"name"`
	Passed   bool     `json:"passed"`
	Messages []string `json:"messages"`
}

// Fixtures delivers the input of every folder below dir, answers from its
// conversation and compares: the requests with those recorded, the outcomes with
// those expected. With update it writes what it found as what is expected; a
// conversation is only written by recording one. The error has tag invalid: there
// are no fixtures, or one cannot be read.
func (m Machine) Fixtures(ctx context.Context, a Artifact, dir string, update bool) ([]FixtureResult, error) {
	inputs, err := filepath.Glob(filepath.Join(dir, "*", inputFileName))
	if err != nil || len(inputs) == 0 {
		e := sdk.Invalid("testdata", "folders with "+inputFileName+" in "+dir)
		e.Hint = "fencepost plugin run --input testdata/NAME/input.json --answer accept --record testdata/NAME/conversation.json, then fencepost plugin test --update"
		return nil, e
	}
	slices.Sort(inputs)
	var out []FixtureResult
	for _, input := range inputs {
		folder := filepath.Dir(input)
		messages, err := m.fixture(ctx, a, folder, update)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", folder, err)
		}
		out = append(out, FixtureResult{Name: filepath.Base(folder), Passed: len(messages) == 0, Messages: nonNil(messages)})
	}
	return out, nil
}

func (m Machine) fixture(ctx context.Context, a Artifact, folder string, update bool) ([]string, error) {
	in, err := ReadInput(filepath.Join(folder, inputFileName))
	if err != nil {
		return nil, err
	}
	c, err := ReadConversation(filepath.Join(folder, conversationFileName))
	if err != nil {
		return nil, err
	}
	r, err := m.Try(ctx, Trial{Artifact: a, Input: in, Replay: c})
	if err != nil {
		return []string{err.Error()}, nil //nolint:nilerr // that it does not deliver is what was found
	}
	path := filepath.Join(folder, expectedFileName)
	if update {
		return r.Problems, writeJSON(path, Expected{r.Outcomes}, 0o644)
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return append(r.Problems, path+" is absent: fencepost plugin test --update writes it"), nil
	}
	if err != nil {
		return nil, sdk.Invalid("expected", err.Error())
	}
	var want Expected
	if err := strict(text, &want); err != nil {
		return nil, sdk.Invalid("expected", "a JSON object of the documented shape: "+err.Error())
	}
	return append(r.Problems, want.differences(r.Outcomes)...), nil
}

func (e Expected) differences(got []Outcome) []string {
	var out []string
	for _, w := range e.Outcomes {
		i := slices.IndexFunc(got, func(o Outcome) bool { return o.Item == w.Item })
		if i < 0 {
			out = append(out, "item "+w.Item+" has no outcome, expected was "+string(w.Kind))
			continue
		}
		if g := got[i]; g.text() != w.text() {
			out = append(out, fmt.Sprintf("item %s is %s, expected was %s", w.Item, g.text(), w.text()))
		}
	}
	for _, g := range got {
		if !slices.ContainsFunc(e.Outcomes, func(w Outcome) bool { return w.Item == g.Item }) {
			out = append(out, "item "+g.Item+" is "+g.text()+", and not expected")
		}
	}
	return out
}

// text is all of an outcome but its item.
func (o Outcome) text() string {
	var s strings.Builder
	s.WriteString(string(o.Kind))
	for _, part := range []struct{ name, value string }{
		{"code", o.Code}, {"message", o.Message}, {"provider_ref", o.ProviderRef}, {"retry_after", o.RetryAfter},
	} {
		if part.value != "" {
			fmt.Fprintf(&s, " %s=%q", part.name, part.value)
		}
	}
	if o.Mendable {
		s.WriteString(" mendable")
	}
	if len(o.Saw) > 0 {
		fmt.Fprintf(&s, " saw=%v", o.Saw)
	}
	return s.String()
}
