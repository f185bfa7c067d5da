package code

import (
	"bytes"
	"strings"
)

// syntaxOf is the comment syntax of a language.
type syntaxOf struct {
	line   []string
	block  [2]string // begin and end; "" if there is none
	quotes string    // characters that enclose strings
	multi  string    // those of quotes whose strings may span lines
}

func cFamily() syntaxOf {
	return syntaxOf{line: []string{"//"}, block: [2]string{"/*", "*/"}, quotes: `"'`}
}

// comments returns the comment syntax of a language; ok is false if it is unknown.
func comments(lang string) (syntaxOf, bool) {
	c := cFamily()
	switch lang {
	case "C", "C++", "Java", "C#", "Objective-C", "Scala", "Swift", "Dart", "Protocol Buffer", "Zig", "CUDA", "Less", "SCSS":
	case "Rust": // a single quote also begins a lifetime
		c.quotes = `"`
		c.multi = `"`
	case "Go", "JavaScript", "TypeScript", "TSX", "JSX", "Vue", "Svelte", "Groovy", "Kotlin":
		c.quotes, c.multi = "\"'`", "`"
	case "PHP", "HCL":
		c.line = []string{"//", "#"}
	case "CSS":
		c.line = nil
	case "Python", "Shell", "Ruby", "Perl", "R", "YAML", "TOML", "Makefile", "Dockerfile", "CMake", "Elixir", "PowerShell", "Nix",
		"Starlark", "fish", "Awk", "Tcl", "INI":
		c = syntaxOf{line: []string{"#"}, quotes: `"'`}
	case "SQL", "PLpgSQL", "PLSQL", "TSQL":
		c = syntaxOf{line: []string{"--"}, block: [2]string{"/*", "*/"}, quotes: `"'`}
	case "Lua":
		c = syntaxOf{line: []string{"--"}, block: [2]string{"--[[", "]]"}, quotes: `"'`}
	case "Haskell":
		c = syntaxOf{line: []string{"--"}, block: [2]string{"{-", "-}"}, quotes: `"`}
	case "HTML", "XML", "SVG", "Maven POM", "Markdown":
		c = syntaxOf{block: [2]string{"<!--", "-->"}}
	case "Emacs Lisp", "Common Lisp", "Scheme", "Clojure", "Assembly":
		c = syntaxOf{line: []string{";"}, quotes: `"`}
	case "Erlang", "TeX":
		c = syntaxOf{line: []string{"%"}}
	default:
		return syntaxOf{}, false
	}
	return c, true
}

// lines counts lines: each is blank, comment or code. A line with code and a comment is code, and
// so is a string that serves as documentation.
type lines struct{ total, blank, comment, code int32 }

// count counts the lines of a file. The last line needs no newline.
func count(content []byte, s syntaxOf) lines {
	var l lines
	c := counter{s: s}
	if len(s.line)+len(s.block[0]) > 0 {
		c.starts = s.quotes
		for _, m := range s.line {
			c.starts += m[:1]
		}
		if s.block[0] != "" {
			c.starts += s.block[0][:1]
		}
	}
	for len(content) > 0 {
		line := content
		if i := bytes.IndexByte(content, '\n'); i >= 0 {
			line, content = content[:i], content[i+1:]
		} else {
			content = nil
		}
		l.total++
		switch code, comment := c.line(line); {
		case code:
			l.code++
		case comment:
			l.comment++
		default:
			l.blank++
		}
	}
	return l
}

// counter scans the lines of a file.
type counter struct {
	s      syntaxOf
	starts string // bytes that begin a comment or a string
	block  bool   // inside a block comment
	quote  byte   // inside a string that spans lines
}

// line reports what one line contains.
func (c *counter) line(b []byte) (code, comment bool) {
	b = bytes.TrimSpace(b)
	if len(b) == 0 {
		return c.quote != 0, c.block
	}
	for len(b) > 0 {
		switch {
		case c.block:
			comment = true
			_, after, ok := bytes.Cut(b, []byte(c.s.block[1]))
			if !ok {
				return code, comment
			}
			c.block, b = false, after
			continue
		case c.quote != 0:
			code = true
			end := stringEnd(b, c.quote)
			if end < 0 {
				return code, comment
			}
			c.quote, b = 0, b[end+1:]
			continue
		}
		if c.starts == "" {
			return true, false
		}
		i := bytes.IndexAny(b, c.starts)
		if i < 0 {
			return code || len(bytes.TrimSpace(b)) > 0, comment
		}
		code = code || len(bytes.TrimSpace(b[:i])) > 0
		b = b[i:]
		switch {
		case c.s.block[0] != "" && bytes.HasPrefix(b, []byte(c.s.block[0])):
			c.block, b = true, b[len(c.s.block[0]):]
			comment = true
		case c.isLine(b):
			return code, true
		default:
			code = true
			q := b[0]
			b = b[1:]
			if strings.IndexByte(c.s.quotes, q) < 0 {
				continue
			}
			if end := stringEnd(b, q); end >= 0 {
				b = b[end+1:]
			} else if strings.IndexByte(c.s.multi, q) >= 0 {
				c.quote = q
				return code, comment
			}
		}
	}
	return code, comment
}

func (c *counter) isLine(b []byte) bool {
	for _, m := range c.s.line {
		if bytes.HasPrefix(b, []byte(m)) {
			return true
		}
	}
	return false
}

// stringEnd returns the index after a string's closing quote, or -1.
func stringEnd(b []byte, quote byte) int {
	for i := 0; i < len(b); i++ {
		switch {
		case b[i] == '\\' && quote != '`':
			i++
		case b[i] == quote:
			return i
		}
	}
	return -1
}
