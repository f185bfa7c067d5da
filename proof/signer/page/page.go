// Package page draws the page on which people sign at the signer. It is apart from package signer, since a
// program with a template engine is 11 MB larger, and the bot serves no such page.
package page

import (
	"embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"countersign/targets/certificate"
)

//go:embed page.css page.html page.js
var files embed.FS

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"visible": visible,
	"row":     func(name string, value any) any { return struct{ Name, Value any }{name, value} },
	"host":    func(target string) string { return strings.Split(strings.TrimPrefix(target, "ssh:"), "#")[0] },
	"runs":    func(a certificate.Action) bool { return a.Env["process"] == certificate.Environment },
}).ParseFS(files, "page.html"))

// Draw is signer.Draw.
func Draw(w io.Writer, name string, data any) error {
	if raw, err := files.ReadFile(name); err == nil {
		_, err = w.Write(raw)
		return err
	}
	return pages.ExecuteTemplate(w, name, data)
}

// visible is foreign text as HTML. What a reader wouldn't see for what it is, and all but the first mark on a character, stands there by its number.
func visible(v any) template.HTML {
	s, b := fmt.Sprintf("%s", v), strings.Builder{}
	for i, r := range s {
		last, _ := utf8.DecodeLastRuneInString(s[:i])
		switch {
		case r == utf8.RuneError:
			fmt.Fprintf(&b, "<mark>\\x%02x</mark>", s[i])
		case r != '\n' && r != '\t' && !unicode.IsPrint(r) || r == 0x2800 || unicode.In(r, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point), unicode.In(last, unicode.Mn, unicode.Me) && unicode.In(r, unicode.Mn, unicode.Me):
			fmt.Fprintf(&b, "<mark>U+%04X</mark>", r)
		default:
			b.WriteString(template.HTMLEscapeString(string(r)))
		}
	}
	return template.HTML(b.String()) //nolint:gosec // each of its characters is escaped
}
