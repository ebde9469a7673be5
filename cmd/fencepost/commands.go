package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// finishTree gives every command of the tree the same manners: groups refuse a
// word that they do not know (cobra shows their help and calls it a success),
// and mistakes in flags name the flag and what it takes.
func finishTree(root *cobra.Command) {
	root.SetHelpCommand(helpCommand())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	root.SetFlagErrorFunc(flagError)
	// A group runs only to say what it does not know; its usage is the one with
	// a command.
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), "{{if .Runnable}}", "{{if and .Runnable (not .HasAvailableSubCommands)}}", 1))
	finishGroups(root)
}

func finishGroups(c *cobra.Command) {
	if c.HasSubCommands() && !c.Runnable() {
		c.Args = cobra.ArbitraryArgs
		c.RunE = runGroup
		c.SuggestionsMinimumDistance = 2
	} else if c.Parent() != nil && c.Parent().Name() == "completion" {
		c.Args = noArgs // cobra's own says what it got, not what it wants
	}
	for _, sub := range c.Commands() {
		finishGroups(sub)
	}
}

// runGroup answers a command line that ends at a group.
func runGroup(c *cobra.Command, args []string) error {
	if len(args) == 0 && !c.HasParent() {
		return c.Help() //nolint:wrapcheck // a failure to write
	}
	if len(args) == 0 {
		return usageError{fmt.Errorf("%s: one of %s must follow", c.Name(), strings.Join(subcommands(c), ", "))}
	}
	text := fmt.Sprintf("unknown command %q", args[0])
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		text += "; did you mean " + strings.Join(near, " or ") + "?"
	} else if c.HasParent() {
		text += "; " + c.Name() + " has " + strings.Join(subcommands(c), ", ")
	}
	return usageError{errors.New(text)}
}

func subcommands(c *cobra.Command) []string {
	var names []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	slices.Sort(names)
	return names
}

// helpCommand is cobra's, except that an unknown topic is a mistake.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Help about any command",
		RunE: func(c *cobra.Command, args []string) error {
			topic, rest, err := c.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return usageError{fmt.Errorf("no help about %q", strings.Join(args, " "))}
			}
			topic.InitDefaultHelpFlag() // otherwise it is not listed
			return topic.Help()         //nolint:wrapcheck // a failure to write
		},
	}
}

func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("nothing may follow, not %q", args[0])}
	}
	return nil
}

// oneArg takes exactly one argument that is not empty.
func oneArg(name string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return usageError{errors.New(name + " is missing")}
		case len(args) > 1:
			return usageError{fmt.Errorf("one %s, not %d (quote it if it holds spaces)", name, len(args))}
		case args[0] == "":
			return usageError{errors.New(name + ": required, not empty")}
		}
		return nil
	}
}

// required refuses a command whose flag is absent or empty.
func required(c *cobra.Command, flags ...string) {
	run := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		for _, name := range flags {
			if f := cmd.Flags().Lookup(name); f.Value.String() == "" {
				return usageError{errors.New("--" + name + ": required")}
			}
		}
		return run(cmd, args)
	}
}

var badValue = regexp.MustCompile(`^invalid argument .* for "(?:-\w, )?--([a-z-]+)" flag`)

// flagValues says what a flag of a type takes.
var flagValues = map[string]string{
	"int": "a whole number", "uint64": "a whole number from 0", "duration": "a duration such as 500ms, 2s or 24h",
	"bool": "true or false", "stringSlice": "values separated by commas",
}

// flagError rewords what the flag library says for people: its own text shows
// how numbers are parsed in Go.
func flagError(c *cobra.Command, err error) error {
	if m := badValue.FindStringSubmatch(err.Error()); m != nil {
		if f := c.Flags().Lookup(m[1]); f != nil && flagValues[f.Value.Type()] != "" {
			return usageError{errors.New("--" + m[1] + ": " + flagValues[f.Value.Type()])}
		}
	}
	if strings.HasPrefix(err.Error(), "unknown shorthand flag") {
		return usageError{fmt.Errorf("%w; put -- before an argument that begins with a dash", err)}
	}
	return usageError{err}
}
