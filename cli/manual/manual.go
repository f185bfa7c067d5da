// Package manual is the documents as the program has them: in its own version, in order, and
// searched by words. People read one section of a document at a time.
package manual

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// dir has most of the documents.
const dir = "docs"

// indexName is the document that lists the others: a part for each heading of the second level, a
// topic for each item of its list, whose first link is the topic's own page.
const indexName = dir + "/README.md"

// beside are the pages that stand elsewhere in the source, beside what they are about.
var beside = map[string]string{
	"overview": "README.md", "install": "deploy/README.md", "container": "deploy/image/README.md", "kubernetes": "charts/countersign/README.md",
}

// nameOf is the page that a link of the page at a place leads to, "" for none.
func nameOf(from, to string) string {
	at := path.Join(path.Dir(from), to)
	for name, file := range beside {
		if at == file || at == path.Dir(file) {
			return name
		}
	}
	switch {
	case at == dir+"/example.yaml":
		return configurationName
	case path.Dir(at) == dir && at != indexName:
		return strings.TrimSuffix(path.Base(at), ".md")
	}
	return ""
}

// placeOf is where the text of a page stands.
func placeOf(name string) string {
	if file, ok := beside[name]; ok {
		return file
	}
	return dir + "/" + name + ".md"
}

// reference is the title of the part that begins with the pages that are made rather than written.
const reference = "Reference"

const (
	commandsName      = "commands"
	configurationName = "configuration"
	apiName           = "api"
)

// Part is some documents with one purpose.
type Part struct {
	Title, About string
	Topics       [][]*Page // none is empty
}

// Pages are those of all topics, in order.
func (p Part) Pages() []*Page { return slices.Concat(p.Topics...) }

// Page is one document.
type Page struct {
	Name  string // in addresses: policy
	Title string
	Text  string // Markdown, without its title
	// Sections are what is below each heading of the second level; the first has what comes before
	// them.
	Sections []Section
}

// Section is a part of a page that stands for itself.
type Section struct {
	Page   *Page
	Title  string // "" for a page's beginning
	Anchor string // in addresses
	Text   string // Markdown

	words, title []string // of the text and of the headings, as a search compares them
}

// Name is the heading, with the page's before it.
func (s Section) Name() string {
	if s.Title == "" {
		return s.Page.Title
	}
	return s.Page.Title + ": " + s.Title
}

// Where is what names the section on the command line and in addresses.
func (s Section) Where() string {
	if s.Anchor == "" {
		return s.Page.Name
	}
	return s.Page.Name + "#" + s.Anchor
}

// Manual is all documents. It does not change.
type Manual struct {
	Parts []Part
	pages map[string]*Page
	api   []byte // openapi.yaml
}

// New reads the documents of a file system. commands is the page of the program's commands, as
// Markdown without a title.
func New(files fs.FS, commands string) (*Manual, error) {
	m := &Manual{pages: map[string]*Page{}}
	list, err := index(files)
	if err != nil {
		return nil, fmt.Errorf("manual: the list of pages can't be read: %w", err)
	}
	for _, p := range list {
		part := Part{Title: p.title, About: p.about}
		for _, names := range p.topics {
			var topic []*Page
			for _, name := range names {
				text, err := source(files, name, commands)
				if err != nil {
					return nil, fmt.Errorf("manual: the page %s can't be read: %w", name, err)
				}
				page := parse(name, text)
				for i, s := range page.Sections {
					page.Sections[i].words, page.Sections[i].title = fields(s.Text), fields(s.Title+" "+page.Title+" "+name)
				}
				m.pages[name] = page
				topic = append(topic, page)
			}
			part.Topics = append(part.Topics, topic)
		}
		m.Parts = append(m.Parts, part)
	}
	api, err := fs.ReadFile(files, dir+"/"+apiFile)
	if err != nil {
		return nil, fmt.Errorf("manual: the description of the API can't be read: %w", err)
	}
	m.api = api
	return m, nil
}

// listed is a part as the index has it.
type listed struct {
	title, about string
	topics       [][]string // names of pages
}

// index reads the list of pages.
func index(files fs.FS) (out []listed, err error) {
	raw, err := fs.ReadFile(files, indexName)
	if err != nil {
		return nil, err
	}
	for _, s := range parse(indexName, string(raw)).Sections {
		if s.Title == "" {
			continue
		}
		p := listed{title: s.Title}
		if p.title == reference {
			p.topics = [][]string{{commandsName}, {configurationName}, {apiName}}
		}
		for line := range strings.Lines(s.Text) {
			var names []string
			for _, m := range pageLink.FindAllStringSubmatch(line, -1) {
				if name := nameOf(indexName, m[1]); name != "" {
					names = append(names, name)
				}
			}
			switch line = strings.TrimSpace(line); {
			case len(names) > 0:
				p.topics = append(p.topics, names)
			case line != "" && p.about == "":
				p.about = line
			}
		}
		out = append(out, p)
	}
	return out, nil
}

var pageLink = regexp.MustCompile(`\]\(([A-Za-z./-]+\.md)\)`)

func source(files fs.FS, name, commands string) (string, error) {
	switch name {
	case commandsName:
		return "# Commands\n\n" + commands, nil
	case configurationName:
		raw, err := fs.ReadFile(files, dir+"/example.yaml")
		return "# Configuration\n\nEvery key of the file that `COUNTERSIGN_CONFIG` names, with its default.\n\n```yaml\n" + string(raw) + "```\n", err
	}
	if name == apiName {
		return describeAPI(files)
	}
	raw, err := fs.ReadFile(files, placeOf(name))
	return string(raw), err
}

// apiFile is the description of the API.
const apiFile = "openapi.yaml"

// describeAPI writes what of the API is for programs, from its description.
func describeAPI(files fs.FS) (string, error) {
	raw, err := fs.ReadFile(files, dir+"/"+apiFile)
	if err != nil {
		return "", err
	}
	var api struct {
		Info struct {
			Description string `yaml:"description"`
		} `yaml:"info"`
		Paths map[string]struct {
			Get, Post *struct {
				Summary string `yaml:"summary"`
				Console bool   `yaml:"x-console"`
			}
		} `yaml:"paths"`
	}
	if err := yaml.Unmarshal(raw, &api); err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("# The API\n\n" + api.Info.Description + "\n\nAll of it, with its schemas: [openapi.yaml](" + Root + "/" + apiFile + ").\n\n## For programs\n\n| call | what it does |\n|---|---|\n")
	for _, path := range slices.Sorted(maps.Keys(api.Paths)) {
		p := api.Paths[path]
		if p.Get != nil && !p.Get.Console {
			fmt.Fprintf(&b, "| `GET /api%s` | %s |\n", path, p.Get.Summary)
		}
		if p.Post != nil && !p.Post.Console {
			fmt.Fprintf(&b, "| `POST /api%s` | %s |\n", path, p.Post.Summary)
		}
	}
	return b.String(), nil
}

// Page returns the page of a name.
func (m *Manual) Page(name string) (*Page, bool) {
	p, ok := m.pages[name]
	return p, ok
}

// Find returns what a name such as policy or policy-rules#match stands for.
func (m *Manual) Find(where string) (Section, bool) {
	name, anchor, whole := strings.Cut(where, "#")
	p, ok := m.pages[name]
	if !ok {
		return Section{}, false
	}
	if !whole {
		return Section{Page: p, Text: p.Text}, true
	}
	for _, s := range p.Sections {
		if s.Anchor == anchor {
			return s, true
		}
	}
	return Section{}, false
}

// parse splits a document into its title and sections.
func parse(name, text string) *Page {
	p := &Page{Name: name, Title: name}
	text = images.ReplaceAllString(text, "")
	if first, rest, ok := strings.Cut(text, "\n"); ok && strings.HasPrefix(first, "# ") {
		p.Title, text = strings.TrimPrefix(first, "# "), strings.TrimSpace(rest)+"\n"
	}
	p.Text = text
	now := Section{Page: p}
	fenced := false
	var b strings.Builder
	end := func() {
		if now.Text = strings.TrimSpace(b.String()); now.Text != "" || now.Title != "" {
			p.Sections = append(p.Sections, now)
		}
		b.Reset()
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		}
		if title, ok := strings.CutPrefix(line, "## "); ok && !fenced {
			end()
			title = strings.TrimSpace(title)
			now = Section{Page: p, Title: strings.ReplaceAll(title, "`", ""), Anchor: anchor(title)}
			continue
		}
		b.WriteString(line)
	}
	end()
	return p
}

// images are the pictures of a page, which are not part of the program.
var images = regexp.MustCompile(`(?m)^!\[[^\]]*\]\([^)]*\)\n?`)

// anchor is a heading in addresses, as GitHub writes it.
func anchor(title string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_':
			return r
		case r == ' ':
			return '-'
		}
		return -1
	}, strings.ToLower(title))
}

// Hit is a section that has the words that were looked for.
type Hit struct {
	Section
	// Excerpt is a line of it, with some of the words.
	Excerpt string
	score   float64
}

// Search returns the sections that have most of some words, or the beginnings of them, the best
// first. A word in a heading counts most, and engineering least.
func (m *Manual) Search(words string, most int) []Hit {
	var wanted []word
	for _, w := range fields(words) {
		wanted = append(wanted, append(word{w}, meanings[w]...))
	}
	if len(wanted) == 0 {
		return nil
	}
	var hits []Hit
	for i, part := range m.Parts {
		for _, p := range part.Pages() {
			for _, s := range p.Sections {
				if h, ok := match(s, wanted); ok {
					h.score *= []float64{1.2, 1.2, 1, 0.8, 0.5}[i]
					hits = append(hits, h)
				}
			}
		}
	}
	slices.SortStableFunc(hits, func(a, b Hit) int { return cmp.Compare(b.score, a.score) })
	hits = hits[:min(len(hits), most)]
	for i, h := range hits {
		hits[i].Excerpt = excerpt(h.Text, wanted)
	}
	return hits
}

// ignored are words that say nothing.
var ignored = strings.Fields("a an and are as at be by can do does for from how i in is it my of on or the this to what when where with")

// meanings are what pages call what people look for.
var meanings = map[string][]string{
	"k8": {"kubernete"}, "sso": {"oidc"}, "saml": {"oidc"}, "yubikey": {"passkey"}, "webauthn": {"passkey"}, "fido2": {"passkey"}, "mfa": {"passkey"}, "2fa": {"passkey"},
	"gdpr": {"forget", "delete"}, "prune": {"keep"}, "setup": {"install"}, "ha": {"replica"}, "siem": {"stream"}, "postgresql": {"postgre"}, "budget": {"cap"}, "llm": {"model"}, "port": {"listen"},
	"offline": {"air"}, "rollback": {"undo"}, "revert": {"undo"}, "simulate": {"rehears"}, "bastion": {"jump"}, "loglevel": {"log_level"}, "mobile": {"phone"}, "login": {"sign"},
}

// fields are the words of a text. A name with _ is found by its parts, too.
func fields(text string) (out []string) {
	for _, w := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_'
	}) {
		all := []string{w}
		if strings.Contains(w, "_") {
			all = append(all, strings.Split(w, "_")...)
		}
		for _, w := range all {
			if w = stem(w); w != "" && !slices.Contains(ignored, w) {
				out = append(out, w)
			}
		}
	}
	return out
}

// word is one that is looked for, with what else it is called.
type word []string

// begins reports whether a word of a text is this one, or begins so.
func (w word) begins(t string) bool {
	return slices.ContainsFunc(w, func(s string) bool { return strings.HasPrefix(t, s) })
}

// stem takes the end off a word, so that one form of it finds others.
func stem(w string) string {
	for _, end := range []string{"ing", "ed", "es", "s"} {
		if s := strings.TrimSuffix(w, end); s != w && len(s) > 3 {
			return s
		}
	}
	return w
}

// match scores a section: how often each word is in it, for its length, where, and which follow each other.
func match(s Section, wanted []word) (Hit, bool) {
	h, missing := Hit{Section: s}, 0
	text, title := s.words, s.title
	for _, w := range wanted {
		n := 0.0
		for _, t := range text {
			if w.begins(t) {
				n++
			}
		}
		in := n > 0
		if slices.ContainsFunc(title, w.begins) {
			h.score += 4
			in = true
		}
		if !in {
			missing++
		}
		h.score += n / (n + 2) * 3 // the tenth says little more than the third
	}
	if 2*missing >= len(wanted) {
		return h, false
	}
	for range missing {
		h.score *= 0.4
	}
	if own := fields(s.Title); len(own) == len(wanted) && !slices.ContainsFunc(wanted, func(w word) bool { return !slices.ContainsFunc(own, w.begins) }) {
		h.score += 3 // it is about that alone
	}
	// Words that follow each other there say what they say here.
	for i := range len(wanted) - 1 {
		for _, of := range [][]string{text, title} {
			for j := range len(of) - 1 {
				if wanted[i].begins(of[j]) && wanted[i+1].begins(of[j+1]) {
					h.score += 3
					break
				}
			}
		}
	}
	h.score /= 1 + float64(len(text))/1500
	return h, true
}

// excerpt is the sentence of a text that has most of the words.
func excerpt(text string, wanted []word) (out string) {
	best := 0
	for _, sentence := range sentences(text) {
		n := 0
		for _, w := range wanted {
			if slices.ContainsFunc(fields(sentence), w.begins) {
				n++
			}
		}
		if n > best {
			best, out = n, sentence
		}
	}
	out = plain(out)
	if r := []rune(out); len(r) > 160 {
		out = string(r[:160]) + "…"
	}
	return out
}

// sentences are those of a text, however its lines break; a row of a table is one. Those of blocks
// come last, a line each.
func sentences(text string) (out []string) {
	var code []string
	var now strings.Builder
	end := func() {
		out = append(out, sentenceEnd.Split(now.String(), -1)...)
		now.Reset()
	}
	fenced := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "```"):
			end()
			fenced = !fenced
		case fenced:
			code = append(code, line)
		case line == "" || listItem.MatchString(line):
			end()
			now.WriteString(line)
		default:
			now.WriteString(" " + line)
		}
	}
	end()
	return append(out, code...)
}

var (
	sentenceEnd = regexp.MustCompile(`(?:[.!?:])\s+`)
	listItem    = regexp.MustCompile(`^(?:[-|#]|\d+\. )`)
)

// link is a link of Markdown, with its text.
var link = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

// plain is a line of Markdown without its marks.
func plain(line string) string {
	line = link.ReplaceAllString(line, "$1")
	return strings.Join(strings.Fields(strings.NewReplacer("**", "", "`", "", "|", " ").Replace(strings.TrimLeft(line, "-> "))), " ")
}
