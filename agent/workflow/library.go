package workflow

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed runbooks/*.yaml
var shipped embed.FS

// Source is the text of one workflow.
type Source struct {
	// Name is the one that the text must have, too.
	Name string
	// From stands in front of complaints: a file's name.
	From string
	Text string
}

// Embedded returns the workflows that come with the program, by name.
func Embedded() []Source {
	var out []Source
	files, err := shipped.ReadDir("runbooks")
	if err != nil {
		panic("workflow: " + err.Error()) // a mistake in the program
	}
	for _, f := range files {
		b, err := shipped.ReadFile(path.Join("runbooks", f.Name()))
		if err != nil {
			panic("workflow: " + err.Error())
		}
		out = append(out, Source{Name: strings.TrimSuffix(f.Name(), ".yaml"), From: "the shipped " + f.Name(), Text: string(b)})
	}
	return out
}

// Library holds workflows by name. It is immutable and safe for concurrent use.
type Library struct{ byName map[string]*Workflow }

// NewLibrary reads workflows. A later layer wins over an earlier one of the same name;
// inside one layer a name may be there once. The error has a line for each workflow that
// cannot be read; there is no library then.
func NewLibrary(layers ...[]Source) (*Library, error) {
	l := &Library{byName: map[string]*Workflow{}}
	var bad []error
	for _, layer := range layers {
		from := map[string]string{}
		for _, s := range layer {
			w, err := Parse(s.From, []byte(s.Text))
			switch {
			case err != nil:
				bad = append(bad, err)
			case w.Name != s.Name:
				bad = append(bad, fmt.Errorf("%s: its name is %s and it is kept as %s; make them the same", s.From, quoted(w.Name), quoted(s.Name)))
			case from[w.Name] != "":
				bad = append(bad, fmt.Errorf("%s: the workflow %s is in %s, too; rename one", s.From, quoted(w.Name), from[w.Name]))
			default:
				from[w.Name] = s.From
				l.byName[w.Name] = w
			}
		}
	}
	if len(bad) > 0 {
		return nil, errors.Join(bad...)
	}
	return l, nil
}

// Load makes the library of a bot: the embedded workflows, and over them those of the
// directories (each *.yaml and *.yml directly in one, named like its file) and of the
// configuration (name to YAML text). It reads files; nothing else in this package does.
func Load(dirs []string, inline map[string]string) (*Library, error) {
	var own []Source
	for _, dir := range dirs {
		s, err := readDir(dir)
		if err != nil {
			return nil, err
		}
		own = append(own, s...)
	}
	for _, name := range slices.Sorted(maps.Keys(inline)) {
		own = append(own, Source{Name: name, From: "workflows." + name, Text: inline[name]})
	}
	return NewLibrary(Embedded(), own)
}

func readDir(dir string) ([]Source, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("the workflows of %s cannot be read: %w; name a directory that exists", dir, err)
	}
	defer root.Close()
	list, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("the workflows of %s cannot be read: %w", dir, err)
	}
	var out []Source
	for _, f := range list {
		ext := filepath.Ext(f.Name())
		if f.IsDir() || ext != ".yaml" && ext != ".yml" || strings.HasPrefix(f.Name(), ".") {
			continue
		}
		from := filepath.Join(dir, f.Name())
		text, err := readFile(root, f.Name())
		if err != nil {
			return nil, fmt.Errorf("%s cannot be read: %w", from, err)
		}
		out = append(out, Source{Name: strings.TrimSuffix(f.Name(), ext), From: from, Text: text})
	}
	return out, nil
}

func readFile(root *os.Root, name string) (string, error) {
	info, err := root.Stat(name)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() { // opening a pipe would wait for its writer
		return "", errors.New("it is no regular file")
	}
	f, err := root.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, MaxSource+1)) // one more, so that Parse refuses it
	return string(b), err
}

// Get returns a workflow. The error is one sentence with the nearest name, or all of them.
func (l *Library) Get(name string) (*Workflow, error) {
	if w := l.byName[name]; w != nil {
		return w, nil
	}
	known := l.Names()
	if len(known) == 0 {
		return nil, fmt.Errorf("there is no workflow %s, and no other", quoted(name))
	}
	hint := didYouMean(name, known)
	if hint == "" {
		hint = "; there are " + strings.Join(known, ", ")
	}
	return nil, fmt.Errorf("there is no workflow %s%s", quoted(name), hint)
}

// Names returns the names, sorted.
func (l *Library) Names() []string { return slices.Sorted(maps.Keys(l.byName)) }

// Summary says what a workflow does and which inputs it takes; "" without that one.
func (l *Library) Summary(name string) string {
	wf, err := l.Get(name)
	if err != nil {
		return ""
	}
	if len(wf.Params) == 0 {
		return wf.Description
	}
	var inputs []string
	for _, in := range wf.Params {
		word := in.Name
		if !in.Required {
			word += " (optional)"
		}
		inputs = append(inputs, word)
	}
	return wf.Description + " Inputs: " + strings.Join(inputs, ", ") + "."
}

// Describe lists the workflows with their inputs in Markdown, for people and for the
// description of the tool that runs them.
func (l *Library) Describe() string {
	var b strings.Builder
	for _, name := range l.Names() {
		w := l.byName[name]
		fmt.Fprintf(&b, "- `%s`: %s\n", name, w.Description)
		for _, in := range w.Params {
			fmt.Fprintf(&b, "  - `%s` (%s): %s\n", in.Name, in.says(), in.Description)
		}
	}
	return b.String()
}

// says is the type of an input with its bounds and default.
func (in Input) says() string {
	s := string(in.Type)
	if in.Type == Enum {
		s = "one of " + strings.Join(in.Values, ", ")
	}
	if in.Type == Integer || in.Type == Number {
		if in.Min != nil {
			s += ", from " + number(*in.Min)
		}
		if in.Max != nil {
			s += ", up to " + number(*in.Max)
		}
	}
	switch {
	case in.Required:
		return s + ", required"
	case in.Default == "":
		return s + ", optional"
	}
	return s + ", default " + in.Default
}
