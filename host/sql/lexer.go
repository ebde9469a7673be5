package sql

import (
	"regexp"
	"strings"
	"unicode"
)

// reaching are what a MySQL statement that begins with an allowed word could
// reach files with, or leave on the connection. They are looked for in the whole
// text, quoted or not: values are arguments.
var reaching = regexp.MustCompile(`(?i)\b(OUTFILE|DUMPFILE|LOAD_FILE|GET_LOCK|TEMPORARY)\b`)

// shape is what refused has to know of a statement.
type shape struct {
	// first is the first word, in capitals; empty if something else comes first.
	first string
	// rest: something follows the semicolon that ends the statement.
	rest bool
	// odd: text that is not closed, or that this host reads no further.
	odd bool
}

// lexer reads a statement by the rules of one database. PostgreSQL and MySQL
// refuse a second statement themselves, and SQLite runs it: there the rules have
// to be exactly its own.
type lexer struct {
	kind kind
	text string
	// words are the first three tokens, "" for one that is no word.
	words  []string
	body   bool // inside CREATE TRIGGER, which ends with "; END"
	last   string
	before string // the token before last
	ended  bool
	shape
}

// scan returns the shape of a statement.
func scan(k kind, text string) shape {
	l := &lexer{kind: k, text: text}
	l.odd = strings.ContainsRune(text, 0)
	for l.text != "" && !l.odd {
		l.next()
	}
	if len(l.words) > 0 {
		l.first = l.words[0]
	}
	return l.shape
}

// token notes one token that is neither space nor a comment.
func (l *lexer) token(t string) {
	if t == ";" {
		if !l.body || l.last == "END" && l.before == ";" {
			l.ended = true
		}
	} else if l.ended {
		l.rest = true
	}
	l.before, l.last = l.last, t
	if len(l.words) < 3 {
		l.words = append(l.words, t)
		w := l.words
		l.body = l.kind == kindSQLite && w[0] == "CREATE" && (len(w) > 1 && w[1] == "TRIGGER" || len(w) > 2 && strings.HasPrefix(w[1], "TEMP") && w[2] == "TRIGGER")
	}
}

func (l *lexer) next() {
	switch c := l.text[0]; {
	case strings.IndexByte(" \t\n\r\f", c) >= 0:
		l.text = l.text[1:]
	case strings.HasPrefix(l.text, "--"), c == '#' && l.kind == kindMySQL:
		ends := "\n"
		if l.kind == kindPostgres {
			ends = "\n\r"
		}
		l.skip(strings.IndexAny(l.text, ends), 1)
	case strings.HasPrefix(l.text, "/*"):
		l.comment()
	case c == '(' && len(l.words) == 0:
		l.text = l.text[1:]
	case c == '\'', c == '"', c == '`' && l.kind != kindPostgres:
		l.quoted(c, l.kind == kindMySQL && c != '`')
	case c == '[' && l.kind == kindSQLite:
		l.token("")
		l.close(strings.IndexByte(l.text, ']'), 1)
	case l.kind == kindSQLite && strings.IndexByte("$@#:", c) >= 0:
		l.odd = true // a variable's name may hold quotes
	case c == '$' && l.kind == kindPostgres:
		l.dollar()
	case c == '_' || c >= 0x80 || unicode.IsLetter(rune(c)):
		l.word()
	default:
		if c != ';' {
			l.token("")
		} else {
			l.token(";")
		}
		l.text = l.text[1:]
	}
}

// skip passes over n bytes and the closing ones, or over everything.
func (l *lexer) skip(n, closing int) {
	if n < 0 {
		l.text = ""
		return
	}
	l.text = l.text[n+closing:]
}

// close is skip for what has to be closed.
func (l *lexer) close(n, closing int) {
	l.odd = l.odd || n < 0
	l.skip(n, closing)
}

func (l *lexer) comment() {
	l.text = l.text[2:]
	for depth := 1; depth > 0; {
		n := strings.Index(l.text, "*/")
		inner := strings.Index(l.text, "/*")
		if l.kind == kindPostgres && inner >= 0 && inner < n {
			depth++
			l.text = l.text[inner+2:]
			continue
		}
		depth--
		if l.close(n, 2); n < 0 {
			return
		}
	}
}

// quoted passes over quoted text; a doubled quote begins the next piece.
func (l *lexer) quoted(c byte, backslash bool) {
	l.token("")
	for i := 1; i < len(l.text); i++ {
		if backslash && l.text[i] == '\\' {
			i++
		} else if l.text[i] == c {
			l.text = l.text[i+1:]
			return
		}
	}
	l.close(-1, 0)
}

// dollar passes over PostgreSQL's $tag$ text $tag$, or a parameter.
func (l *lexer) dollar() {
	l.token("")
	n := strings.IndexByte(l.text[1:], '$') + 2
	tag := l.text[:max(n, 1)]
	if n < 2 || strings.ContainsFunc(tag[1:n-1], notOfWord) || n > 2 && unicode.IsDigit(rune(tag[1])) {
		l.text = l.text[1:]
		return
	}
	l.text = l.text[n:]
	l.close(strings.Index(l.text, tag), n)
}

func (l *lexer) word() {
	n := strings.IndexFunc(l.text, func(r rune) bool { return notOfWord(r) && r != '$' })
	if n < 0 {
		n = len(l.text)
	}
	w := strings.ToUpper(l.text[:n])
	l.text = l.text[n:]
	if l.kind == kindPostgres && w == "E" && strings.HasPrefix(l.text, "'") {
		l.quoted('\'', true)
		return
	}
	l.token(w)
}

func notOfWord(r rune) bool {
	return r != '_' && r < 0x80 && !unicode.IsLetter(r) && !unicode.IsDigit(r)
}
