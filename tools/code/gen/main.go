// Command gen writes package code's languages.txt from GitHub Linguist's tables, as go-enry ships
// them.
//
//	go run ./tools/code/gen >tools/code/languages.txt
//
// Each line is one language: type, name, extensions, file names and interpreters, separated by
// tabs. The last line lists the extensions that may also be XML.
package main

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/go-enry/go-enry/v2"
	"github.com/go-enry/go-enry/v2/data"
)

// preferred picks the language of extensions that several languages share, where the first in
// alphabetical order is not the one that on-call engineers usually have.
var preferred = map[string]string{
	".asc": "AsciiDoc", ".asm": "Assembly", ".bas": "Visual Basic 6.0", ".bb": "BitBake", ".cfg": "INI", ".cls": "TeX", ".cp": "C++",
	".ddl": "SQL", ".es": "JavaScript", ".f": "Fortran", ".fcgi": "Shell", ".for": "Fortran", ".frag": "GLSL", ".fs": "F#", ".gd": "GDScript",
	".gml": "XML", ".gs": "JavaScript", ".html": "HTML", ".i": "SWIG", ".inc": "PHP", ".jq": "jq", ".l": "Lex", ".m": "Objective-C",
	".md": "Markdown", ".mod": "Linux Kernel Module", ".ms": "Roff", ".msg": "ROS Interface", ".n": "Roff", ".nu": "Nushell",
	".odin": "Odin", ".php": "PHP", ".plist": "XML Property List", ".pp": "Puppet", ".prc": "SQL", ".pro": "QMake",
	".properties": "Java Properties", ".re": "Reason", ".rpy": "Ren'Py", ".rs": "Rust", ".sch": "Scheme", ".sol": "Solidity",
	".spec": "RPM Spec", ".sql": "SQL", ".srt": "SubRip Text", ".star": "Starlark", ".trigger": "Shell", ".txt": "Text", ".typ": "Typst",
	".v": "Verilog", ".vba": "VBA", ".vcf": "vCard", ".vhost": "Nginx", ".yaml": "YAML", ".yml": "YAML", ".yy": "Yacc",
}

func main() {
	if err := write(os.Stdout); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func write(to io.Writer) error {
	type language struct{ extensions, names, interpreters []string }
	all := map[string]*language{}
	of := func(name string) *language {
		if all[name] == nil {
			all[name] = &language{}
		}
		return all[name]
	}
	var xml []string
	for ext, list := range data.LanguagesByExtension {
		for _, name := range list {
			of(name)
		}
		lang := list[0]
		if p := preferred[ext]; slices.Contains(list, p) {
			lang = p
		}
		if len(list) > 1 && lang != "XML" && slices.Contains(list, "XML") {
			xml = append(xml, ext)
		}
		of(lang).extensions = append(of(lang).extensions, ext)
	}
	for name, list := range data.LanguagesByFilename {
		of(list[0]).names = append(of(list[0]).names, name)
	}
	for name, list := range data.LanguagesByInterpreter {
		of(list[0]).interpreters = append(of(list[0]).interpreters, name)
	}
	types := map[enry.Type]string{enry.Programming: "programming", enry.Data: "data", enry.Markup: "markup", enry.Prose: "prose"}
	w := bufio.NewWriter(to)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		l := all[name]
		var parts []string
		for _, list := range [][]string{l.extensions, l.names, l.interpreters} {
			slices.Sort(list)
			parts = append(parts, strings.Join(list, "/")) // no file name contains a slash
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", types[enry.GetLanguageType(name)], name, strings.Join(parts, "\t"))
	}
	slices.Sort(xml)
	_, _ = fmt.Fprintf(w, "\t\t%s\n", strings.Join(xml, "/"))
	return w.Flush()
}
