package code

import (
	"bytes"
	_ "embed"
	"path"
	"regexp"
	"strings"
	"sync"
)

// detectBytes is how much of a file its language is judged by.
const detectBytes = 16 << 10

// languagesText is written by gen, from Linguist's tables.
//
//go:embed languages.txt
var languagesText string

// languageTable is what names and extensions say.
type languageTable struct {
	extensions, names, interpreters map[string]string
	types                           map[string]string
	lower                           map[string]string // the names of the languages, by their small letters
	xml                             map[string]bool   // extensions whose files may be XML
}

var languages = sync.OnceValue(func() *languageTable {
	t := &languageTable{map[string]string{}, map[string]string{}, map[string]string{}, map[string]string{}, map[string]string{}, map[string]bool{}}
	for line := range strings.Lines(languagesText) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if f[1] == "" {
			for ext := range strings.SplitSeq(f[2], "/") {
				t.xml[ext] = true
			}
			continue
		}
		t.types[f[1]], t.lower[strings.ToLower(f[1])] = f[0], f[1]
		for i, to := range []map[string]string{t.extensions, t.names, t.interpreters} {
			for name := range strings.SplitSeq(f[2+i], "/") {
				if name != "" {
					to[name] = f[1]
				}
			}
		}
	}
	return t
})

// language names the language of a file as Linguist does, or "". It goes by the file's
// name, then by a mode line or the interpreter, then by the extension, and for some
// extensions by the text.
func language(name string, content []byte) string {
	t := languages()
	base := path.Base(name)
	if lang := t.names[base]; lang != "" {
		return lang
	}
	content = content[:min(len(content), detectBytes)]
	ext, lang := t.extension(base)
	if lang == "" || scripted(ext) {
		if said := t.declared(content); said != "" {
			return said
		}
	}
	if t.xml[ext] || lang == "" {
		if head := bytes.TrimLeft(content, "\ufeff \t\r\n"); bytes.HasPrefix(head, []byte("<?xml")) || lang != "" && bytes.HasPrefix(head, []byte("<!DOCTYPE")) {
			return "XML"
		}
	}
	return byContent(ext, lang, content)
}

// extension is the longest extension that is known, of names such as "a.cmake.in".
func (t *languageTable) extension(base string) (ext, lang string) {
	base = strings.ToLower(base)
	for i := range len(base) {
		if base[i] == '.' {
			if lang := t.extensions[base[i:]]; lang != "" {
				return base[i:], lang
			}
		}
	}
	return "", ""
}

// scripted tells whether files of an extension are of whatever interpreter they name.
func scripted(ext string) bool {
	switch ext {
	case ".cgi", ".fcgi", ".t", ".pl", ".pm", ".command", ".tool", ".trigger", ".spec":
		return true
	}
	return false
}

var (
	vimMode   = regexp.MustCompile(`(?m)(?:\b|^)(?:vim?|ex):.*\b(?:ft|filetype|syntax)=([a-zA-Z0-9+#-]+)`)
	emacsMode = regexp.MustCompile(`-\*-(?:.*\bmode:)?\s*([a-zA-Z0-9+#-]+)\s*(?:;.*)?-\*-`)
)

// declared is the language that a text names itself: by a mode line at its beginning or
// end, or by its interpreter.
func (t *languageTable) declared(content []byte) string {
	const around = 512 // bytes in which mode lines are looked for
	head := content[:min(len(content), around)]
	for _, part := range [][]byte{head, content[max(len(content)-around, 0):]} {
		for _, re := range []*regexp.Regexp{vimMode, emacsMode} {
			if m := re.FindSubmatch(part); m != nil {
				mode := strings.TrimSuffix(strings.ToLower(string(m[1])), "-script") // Emacs' shell-script
				for _, lang := range []string{t.lower[mode], t.interpreters[mode], t.extensions["."+mode]} {
					if lang != "" {
						return lang
					}
				}
			}
		}
	}
	line, _, _ := bytes.Cut(head, []byte("\n"))
	if !bytes.HasPrefix(line, []byte("#!")) {
		return ""
	}
	for word := range strings.FieldsSeq(string(line[2:])) {
		program := path.Base(word)
		if program == "env" || strings.HasPrefix(program, "-") || strings.Contains(program, "=") {
			continue
		}
		if lang := t.interpreters[program]; lang != "" {
			return lang
		}
		return t.interpreters[strings.TrimRight(program, "0123456789.")]
	}
	return ""
}

var (
	cppText    = regexp.MustCompile(`(?m)^\s*(?:template\s*<|namespace\b|class\s+\w+|using\s+\w|#include\s+<(?:string|vector|map|memory|iostream|cstd\w+)>|public:|private:|protected:)|\bstd::`)
	objcText   = regexp.MustCompile(`(?m)^\s*@(?:interface|implementation|protocol|end|class|import)\b|^\s*#import\b`)
	matlabText = regexp.MustCompile(`(?m)^\s*(?:%|function\b)`)
	prologText = regexp.MustCompile(`(?m)^[^#]*:-`)
	perlText   = regexp.MustCompile(`(?m)\buse\s+(?:strict\b|warnings\b|v?5\b)|^\s*(?:my|sub|package)\s`)
	plpgsql    = regexp.MustCompile(`(?i)\blanguage\s+'?plpgsql|\$\$|\bRAISE\s+(?:NOTICE|EXCEPTION)\b`)
	tsqlText   = regexp.MustCompile(`(?im)^\s*GO\s*$|\bDECLARE\s+@|\bBEGIN\s+TRY\b`)
	openapi    = regexp.MustCompile(`(?m)^\s*"?(openapi|swagger)"?\s*:\s*["']?([23])\.`)
)

// byContent decides between the languages of an extension by the text, where both are
// common; lang is what the extension says.
func byContent(ext, lang string, content []byte) string {
	switch ext {
	case ".h":
		switch {
		case objcText.Match(content):
			return "Objective-C"
		case cppText.Match(content):
			return "C++"
		}
	case ".mo": // mostly the compiled texts of gettext
		if bytes.IndexByte(content, 0) >= 0 {
			return ""
		}
	case ".m":
		if !objcText.Match(content) && matlabText.Match(content) {
			return "MATLAB"
		}
	case ".pl":
		if !perlText.Match(content) && prologText.Match(content) {
			return "Prolog"
		}
	case ".sql":
		switch {
		case plpgsql.Match(content):
			return "PLpgSQL"
		case tsqlText.Match(content):
			return "TSQL"
		}
	case ".json", ".yaml", ".yml":
		if m := openapi.FindSubmatch(content); m != nil {
			return "OASv" + string(m[2]) + "-" + strings.ToLower(lang)
		}
	}
	return lang
}

// typeOf is the type of a language: programming, data, markup or prose; "" if it is not
// known.
func typeOf(lang string) string { return languages().types[lang] }
