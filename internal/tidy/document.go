package tidy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// unfinished matches the words of work put off. What is missing is an issue,
// not a comment. The words are split so that this file passes its own check.
var unfinished = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X|HA` + `CK)\b`)

// machinePath matches a path of the machine that a file was written on.
var machinePath = regexp.MustCompile(`(^|[^A-Za-z0-9_.])(/wo` + `rk/|/ro` + `ot/|/ho` + `me/[a-z])`)

// CheckText returns the violations that any text file can have.
func CheckText(name, text string) []string {
	var out []string
	for i, line := range strings.Split(text, "\n") {
		if m := unfinished.FindString(line); m != "" {
			out = append(out, fmt.Sprintf("%s:%d: %s: file an issue instead", name, i+1, m))
		}
		if machinePath.MatchString(line) {
			out = append(out, fmt.Sprintf("%s:%d: a path of one machine", name, i+1))
		}
	}
	return out
}

// Link is a link of a document to another place in the repository.
type Link struct {
	Line int
	// Path is as written, without the fragment; empty for a link to the
	// document itself.
	Path string
	// Fragment is what follows "#", empty if nothing does.
	Fragment string
}

var (
	linkPattern    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	codeSpan       = regexp.MustCompile("`[^`]*`")
	headingPattern = regexp.MustCompile(`^#{1,6} +(.*?) *$`)
	makePattern    = regexp.MustCompile(`(?:^|&& |; )(?:\w+=\S+ )*make ([a-z][a-z-]*)`)
)

// Links returns the relative links of a Markdown text. Code is not looked at.
func Links(text string) []Link {
	var out []Link
	prose(text, func(n int, line string) {
		for _, m := range linkPattern.FindAllStringSubmatch(codeSpan.ReplaceAllString(line, ""), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			path, fragment, _ := strings.Cut(m[1], "#")
			out = append(out, Link{Line: n, Path: path, Fragment: fragment})
		}
	})
	return out
}

// Anchors returns the fragments that a Markdown text's headings can be reached
// by, as GitHub makes them.
func Anchors(text string) []string {
	var out []string
	prose(text, func(_ int, line string) {
		m := headingPattern.FindStringSubmatch(line)
		if m == nil {
			return
		}
		slug := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r > 127:
				return r
			default:
				return -1
			}
		}, strings.ToLower(m[1]))
		anchor := slug
		for i := 1; slices.Contains(out, anchor); i++ {
			anchor = fmt.Sprintf("%s-%d", slug, i)
		}
		out = append(out, anchor)
	})
	return out
}

// MakeTargets returns the targets that a Markdown text tells its reader to
// make, in code; "make" in prose is a word.
func MakeTargets(text string) []string {
	var out []string
	find := func(code string) {
		for _, m := range makePattern.FindAllStringSubmatch(code, -1) {
			out = append(out, m[1])
		}
	}
	fenced := false
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "```"):
			fenced = !fenced
		case fenced:
			find(strings.TrimPrefix(line, "$ "))
		default:
			for _, span := range codeSpan.FindAllString(line, -1) {
				find(strings.Trim(span, "`"))
			}
		}
	}
	return out
}

// prose calls f with each line outside fenced code, numbered from 1.
func prose(text string, f func(n int, line string)) {
	fenced := false
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			continue
		}
		if !fenced {
			f(i+1, line)
		}
	}
}

var (
	releasePattern  = regexp.MustCompile(`^## \[(\d+\.\d+\.\d+)\] - \d{4}-\d{2}-\d{2}$`)
	changeKinds     = []string{"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
	changelogHeader = "# Changelog"
)

// CheckChangelog returns what keeps a text from being in the form of
// keepachangelog.com: an Unreleased part first, then dated releases, each with
// lists under the six known headings.
func CheckChangelog(text string) []string {
	var out []string
	report := func(n int, what string) { out = append(out, fmt.Sprintf("CHANGELOG.md:%d: %s", n, what)) }
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if lines[0] != changelogHeader {
		report(1, "begins with "+changelogHeader)
	}
	part, kind := "", ""
	for i, line := range lines {
		n := i + 1
		switch {
		case strings.HasPrefix(line, "## "):
			if part == "" && line != "## [Unreleased]" {
				report(n, "the first part is [Unreleased]")
			}
			if part != "" && !releasePattern.MatchString(line) {
				report(n, "a release is ## [1.2.3] - 2026-12-31")
			}
			part, kind = line, ""
		case strings.HasPrefix(line, "### "):
			kind = strings.TrimPrefix(line, "### ")
			if !slices.Contains(changeKinds, kind) {
				report(n, "a heading is one of "+strings.Join(changeKinds, ", "))
			}
		case line == "" || part == "" || strings.HasPrefix(line, "["):
		case kind == "":
			report(n, "a change stands under a heading")
		case !strings.HasPrefix(line, "- ") && !strings.HasPrefix(line, "  "):
			report(n, "a change is a list item")
		}
	}
	if part == "" {
		report(len(lines), "has no [Unreleased] part")
	}
	return out
}
