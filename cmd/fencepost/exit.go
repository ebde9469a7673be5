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
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	if errors.Is(err, context.Canceled) {
		return exitInterrupted
	}
	tagged, ok := errors.AsType[*sdk.Error](err)
	if !ok {
		return exitFailure
	}
	if strings.HasPrefix(tagged.Code, "schema_") {
		return exitIncompatible
	}
	switch tagged.Tag {
	case sdk.TagNotFound:
		return exitNotFound
	case sdk.TagConflict:
		return exitConflict
	case sdk.TagInvalid, sdk.TagUnsupported:
		return exitRefused
	case sdk.TagUnavailable:
		return exitUnavailable
	}
	return exitFailure
}

// describe renders an error for people, safe for a terminal. command is the
// command line whose help says more about a mistake in it.
func describe(err error, command string) string {
	if errors.Is(err, context.Canceled) {
		return "interrupted"
	}
	text := visible(err.Error())
	if _, ok := errors.AsType[usageError](err); ok {
		return text + " (see " + command + " --help)"
	}
	if tagged, ok := errors.AsType[*sdk.Error](err); ok && tagged.Hint == "" && hints[tagged.Code] != "" {
		return text + " (" + hints[tagged.Code] + ")"
	}
	return text
}

// notFound adds to an error of that tag where to look.
func notFound(err error, hint string) error {
	tagged, ok := errors.AsType[*sdk.Error](err)
	if !ok || tagged.Tag != sdk.TagNotFound {
		return err
	}
	e := *tagged
	e.Hint = hint
	return &e
}

// hints say what to do about codes whose errors do not say it themselves.
var hints = map[string]string{
	"disk_full": "free space on the disk of the database file, then run the same command again: what is recorded counts once",
}

func exitCodesTopic() *cobra.Command {
	var b strings.Builder
	b.WriteString("Exit codes:\n\n")
	for _, c := range exitCodeText {
		fmt.Fprintf(&b, "  %3d  %s\n", c.code, c.text)
	}
	return &cobra.Command{Use: "exit-codes", Short: "Exit codes and what they mean", Long: b.String()}
}
