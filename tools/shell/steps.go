package shell

import (
	"maps"
	"path"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"countersign/approvals"
	"countersign/internal/bash"
	"countersign/targets/backend"
	"countersign/tools/shell/imports"
	"countersign/tools/shell/named"
)

// earlierTexts returns the steps before an action that are typed into the same shell.
func earlierTexts(steps []approvals.Action, a approvals.Action) (texts []string) {
	for _, s := range steps {
		if s.Kind == approvals.KindShell && s.Target == a.Target && s.Session == a.Session && s.Pane == a.Pane {
			texts = append(texts, string(s.Bytes))
		}
	}
	return texts
}

// dirAfter returns the directory of a shell after texts were typed into it, as far as the texts
// tell.
func dirAfter(texts []string, dir string) string {
	for _, text := range texts {
		file, err := bash.Parse(text)
		if err != nil {
			continue
		}
		for _, s := range file.Stmts {
			dir = changedDir(s, dir)
		}
	}
	return dir
}

func changedDir(s *syntax.Stmt, dir string) string {
	if s.Background || s.Negated || s.Coprocess {
		return dir
	}
	switch c := s.Cmd.(type) {
	case *syntax.CallExpr:
		if len(c.Args) != 2 || c.Args[0].Lit() != "cd" {
			return dir
		}
		to, ok := literal(c.Args[1])
		switch {
		case !ok || to == "" || strings.HasPrefix(to, "-") || strings.HasPrefix(to, "~"):
			return dir
		case path.IsAbs(to):
			return path.Clean(to)
		}
		return path.Clean(dir + "/" + to)
	case *syntax.BinaryCmd:
		if c.Op == syntax.AndStmt {
			return changedDir(c.Y, changedDir(c.X, dir))
		}
	}
	return dir
}

// literal returns the text of a word that does not change at run time.
func literal(w *syntax.Word) (string, bool) {
	var out strings.Builder
	for _, p := range w.Parts {
		switch p := p.(type) {
		case *syntax.Lit:
			if strings.ContainsAny(p.Value, "*?[{\\") {
				return "", false
			}
			out.WriteString(p.Value)
		case *syntax.SglQuoted:
			out.WriteString(p.Value)
		case *syntax.DblQuoted:
			for _, in := range p.Parts {
				l, ok := in.(*syntax.Lit)
				if !ok || strings.Contains(l.Value, "\\") {
					return "", false
				}
				out.WriteString(l.Value)
			}
		default:
			return "", false
		}
	}
	return out.String(), true
}

// bindAsLeft returns the files of a step. Files that earlier steps may create or change, and paths
// that do not exist yet, are bound to whatever those steps leave. Scripts that an interpreter runs
// stay bound to their content, because running a script does not change it.
func (t *tool) bindAsLeft(b binding, before []approvals.Action, text string, caps backend.Caps) map[string]string {
	n := binder{home: caps.Home}
	changed := map[string]bool{}
	for _, s := range before {
		if s.Target != t.cfg.Target.ID() {
			continue
		}
		for _, p := range append([]string{s.Path}, s.Paths...) {
			if p != "" && s.Kind == approvals.KindChange {
				changed[path.Clean(p)] = true
			}
		}
		if s.Kind != approvals.KindShell {
			continue
		}
		l := named.Find(string(s.Bytes))
		for _, f := range l.Files {
			if r := f.Reader(); f.Use == named.Content && (r == "" || r == "." || imports.ByProgram(r) != imports.None) {
				continue
			}
			for _, dir := range append([]string{""}, l.Dirs...) {
				changed[path.Clean(n.absolute(n.absolute(s.Dir, dir), f.Name))] = true
			}
		}
	}
	out := maps.Clone(b.files)
	if changed[b.dir] || below(b.dir, changed) {
		out[slashed(b.dir)] = approvals.LeftBySteps
	}
	l := named.Find(text)
	for _, f := range l.Files {
		for _, dir := range append([]string{""}, l.Dirs...) {
			name := path.Clean(n.absolute(n.absolute(b.dir, dir), f.Name))
			made := strings.Contains(f.Name, "/") && (f.Use == named.Data || f.Reader() == "") && out[name] == "" && out[name+"/"] == ""
			if !made && !changed[name] && !below(name, changed) {
				continue
			}
			delete(out, name+"/")
			out[name] = approvals.LeftBySteps
		}
	}
	return out
}

// below reports whether a name is inside one of the directories.
func below(name string, dirs map[string]bool) bool {
	for d := path.Dir(name); d != "/" && d != "."; d = path.Dir(d) {
		if dirs[d] {
			return true
		}
	}
	return false
}
