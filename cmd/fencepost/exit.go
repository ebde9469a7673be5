package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// Exit codes; scripts depend on them.
const (
	exitOK           = 0
	exitFailure      = 1
	exitUsage        = 2
	exitNotFound     = 3
	exitConflict     = 4
	exitRefused      = 5
	exitUnavailable  = 6
	exitPartial      = 7
	exitConfirm      = 8
	exitCheckFailed  = 9
	exitIncompatible = 10
	exitInterrupted  = 130
)

var exitCodeText = []struct {
	code int
	text string
}{
	{exitOK, "ok"},
	{exitFailure, "failure"},
	{exitUsage, "usage: an unknown command, flag or argument"},
	{exitNotFound, "not found"},
	{exitConflict, "conflict: an id exists with other content, or a state has moved"},
	{exitRefused, "refused: input breaks a rule; nothing was written"},
	{exitUnavailable, "unavailable or outcome unknown: safe to repeat with the same ids"},
	{exitPartial, "partial: some lines failed; details are on stdout"},
	{exitConfirm, "needs confirmation"},
	{exitCheckFailed, "a check failed"},
	{exitIncompatible, "incompatible: plugin interface or schema"},
	{exitInterrupted, "interrupted"},
}

// usageError is a mistake in the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// codeError ends the command with a code of its own.
type codeError struct {
	code int
	err  error
}

func (e codeError) Error() string { return e.err.Error() }
func (e codeError) Unwrap() error { return e.err }

// errSilent ends a command whose output already says what is wrong.
var errSilent = errors.New("reported on stdout")

func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	if c, ok := errors.AsType[codeError](err); ok {
		return c.code
	}
	var u usageError
	if errors.As(err, &u) || strings.HasPrefix(err.Error(), "unknown command") {
		return exitUsage
	}
	if errors.Is(err, context.Canceled) {
		return exitInterrupted
	}
	var tagged *sdk.Error
	if !errors.As(err, &tagged) {
		return exitFailure
	}
	switch tagged.Tag {
	case sdk.TagNotFound:
		return exitNotFound
	case sdk.TagConflict:
		return exitConflict
	case sdk.TagInvalid:
		return exitRefused
	case sdk.TagUnavailable:
		return exitUnavailable
	case sdk.TagUnsupported:
		if strings.HasPrefix(tagged.Code, "schema_") {
			return exitIncompatible
		}
		return exitRefused
	}
	return exitFailure
}

// describe renders an error for people, without control characters.
func describe(err error) string {
	text := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, err.Error())
	var u usageError
	if errors.As(err, &u) || strings.HasPrefix(text, "unknown command") {
		return text + " (see fencepost help)"
	}
	return text
}

func exitCodesTopic() *cobra.Command {
	var b strings.Builder
	b.WriteString("Exit codes:\n\n")
	for _, c := range exitCodeText {
		fmt.Fprintf(&b, "  %3d  %s\n", c.code, c.text)
	}
	return &cobra.Command{Use: "exit-codes", Short: "Exit codes and what they mean", Long: b.String()}
}
