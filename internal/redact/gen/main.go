// Command gen turns the rules of gitleaks into the table gitleaks.go of package
// redact: data only, so that neither gitleaks nor a TOML library is a
// dependency. Its arguments are the unpacked module of gitleaks and the
// directory of package redact; the licence goes along as gitleaks.LICENSE.
//
// Rules that misfire on ordinary text are left out here by name. It judges
// nothing else: entropy, stopwords and allowlists are looked at when a text is.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/format"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "use: gen DIRECTORY-OF-GITLEAKS DIRECTORY-OF-REDACT")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(from, to string) error {
	raw, err := os.ReadFile(filepath.Join(filepath.Clean(from), "config", "gitleaks.toml")) //nolint:gosec // whoever generates names the directories
	if err != nil {
		return err
	}
	licence, err := os.ReadFile(filepath.Join(filepath.Clean(from), "LICENSE")) //nolint:gosec // as above
	if err != nil {
		return err
	}
	_, version, ok := strings.Cut(filepath.Base(filepath.Clean(from)), "@")
	if !ok {
		return fmt.Errorf("the name of %s has no @version: give the directory as the module cache has it", from)
	}
	src, err := generate(string(raw), version)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(to, "gitleaks.LICENSE"), licence, 0o600); err != nil { //nolint:gosec // as above
		return err
	}
	return os.WriteFile(filepath.Join(to, "gitleaks.go"), src, 0o600) //nolint:gosec // as above
}

// left lists the rules that are left out, with the reason.
func left() map[string]string {
	return map[string]string{
		"pkcs12-file":            "it looks at names of files only",
		"private-key":            "our own rule also takes a key that is cut off",
		"curl-auth-header":       "our own rules for headers do it, within a line",
		"curl-auth-user":         "our own rule for curl does it, within a line",
		"hashicorp-tf-password":  "our own rule for passwords does it, whatever the name of the file",
		"kubernetes-secret-yaml": "it takes the first entry only; our own rule takes all of them, in JSON too",
		"sidekiq-sensitive-url":  "our own rule for passwords in URLs does it",
		"slack-webhook-url":      "our own rule for webhooks does it, and leaves the address readable",
		"bittrex-access-key":     "it has the same expression as bittrex-secret-key",

		// Public names of accounts and applications: no secrets, and whoever is on
		// call needs to read them.
		"adobe-client-id":        "it is public, and any MD5",
		"asana-client-id":        "it is public, and any 16 digits",
		"bitbucket-client-id":    "it is public, and any MD5",
		"discord-client-id":      "it is public, and the number of every Discord channel",
		"flutterwave-public-key": "it is public",
		"linkedin-client-id":     "it is public, and any word of 14 letters",
		"lob-pub-api-key":        "it is public",
		"looker-client-id":       "it is public, and any word of 20 letters",
		"mailgun-pub-key":        "it is public",
		"messagebird-client-id":  "it is public, and any UUID",
		"new-relic-user-api-id":  "it is public, and any SHA-256",
		"plaid-client-id":        "it is public",
		"sendbird-access-id":     "it is public, and any UUID",
		"sumologic-access-id":    "it is public",
	}
}

// change is what is done to one rule.
type change struct {
	id   string // another name, for the second half of a rule
	re   string // takes the place of the expression
	why  string
	back int // bytes before a keyword where a match may begin: a rule that doesn't begin with a fixed text
	all  bool
	sure bool // the name says enough, whatever the value
	most int  // bytes of a match, for an expression that would go on to the line's end from everywhere
}

// changes lists the rules that are amended. all means that the whole match is
// the secret, though the expression has groups.
func changes() map[string][]change {
	return map[string][]change{
		"sourcegraph-access-token": {{re: `\b(sgp_(?:(?:[a-fA-F0-9]{16}|local)_)?[a-fA-F0-9]{40})\b`, why: "any 40 hexadecimal digits are a commit"}},
		"square-access-token":      {{re: `\b(sq0atp-[\w-]{22,60})` + tail, why: "EAAA and 60 letters are a line of any certificate"}},
		"atlassian-api-token": {
			{re: `(?i)` + before + `(?:(?-i:ATLASSIAN|[Aa]tlassian)|(?-i:CONFLUENCE|[Cc]onfluence)|(?-i:JIRA|[Jj]ira))` + assign +
				`([a-z0-9]{20}[a-f0-9]{4})` + tail, why: "one rule of two"},
			{id: "atlassian-api-token-v3", re: `\b(ATATT3[A-Za-z0-9_\-=]{186})` + tail, why: "the other"},
		},
		"jwt-base64":                             {{all: true, why: "its groups are pieces of the secret"}},
		"microsoft-teams-webhook":                {{all: true, why: "its groups are pieces of the secret", back: 64, most: 512}},
		"azure-ad-client-secret":                 {{back: 5}},
		"facebook-access-token":                  {{back: 200}},
		"hashicorp-tf-api-token":                 {{back: 16}},
		"maxmind-license-key":                    {{back: 38}},
		"openai-api-key":                         {{back: 90}},
		"sidekiq-secret":                         {{sure: true}},
		"sentry-org-token":                       {{re: `\b(sntrys_eyJpYXQiO[a-zA-Z0-9+/]{10,200}(?:LCJyZWdpb25fdXJs|InJlZ2lvbl91cmwi|cmVnaW9uX3VybCI6)[a-zA-Z0-9+/]{10,200}={0,2}_[a-zA-Z0-9+/]{43})(?:[^a-zA-Z0-9+/]|\z)`, why: "the character behind it is no part of it"}},
		"aws-amazon-bedrock-api-key-short-lived": {{re: `bedrock-api-key-[a-zA-Z0-9+/_-]{40,}={0,2}`, why: "the fixed beginning alone is not the secret"}},
		"freemius-secret-key":                    {{most: 256}},
		"nuget-config-password":                  {{most: 512}},
		"twilio-api-key":                         {{re: `\b(SK[0-9a-fA-F]{32})\b`, why: "in the middle of other letters it is none"}},
	}
}

// The pieces of which gitleaks makes most of its expressions: a name with the
// keyword in it, something between, a value.
const (
	before = `[\w.-]{0,50}?`
	assign = `(?:[ \t\w.-]{0,20})[\s'"]{0,3}(?:=|>|:{1,3}=|\|\||:|=>|\?=|,)[\x60'"\s=]{0,5}`
	tail   = `(?:[\x60'"\s;]|\\[nr]|$)`

	// ours has no line breaks: a stream gives whole lines, and what stands in the
	// next line must not change what was given.
	ours = `(?:[ \t\w.-]{0,20})[ \t'"]{0,3}(?:=|>|:{1,3}=|\|\||:|=>|\?=|,)[\x60'" \t=]{0,5}`
)

// out is one row of the table.
type out struct {
	id, re      string
	words       []string
	named       bool // the keyword stands in a name, the secret is its value
	sure        bool // and the value begins with a text that tells what it is
	start       bool // no letter stands before
	back, limit int
	group       int
	entropy     float64
	secret      []string // allowlist for the secret
	match, line []string // for the match, and its line
	stop        bool
	note        string
}

func generate(text, version string) ([]byte, error) {
	global, rules, err := parse(text)
	if err != nil {
		return nil, err
	}
	drop, amend := left(), changes()
	var rows []out
	var stopwords []string
	for _, t := range rules {
		id := t.text("id")
		if drop[id] != "" {
			delete(drop, id)
			continue
		}
		list := amend[id]
		delete(amend, id)
		if list == nil {
			list = []change{{}}
		}
		for _, c := range list {
			row, err := one(t, c)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", id, err)
			}
			for _, a := range t.allowlists {
				// What depends on the name of a file says nothing about a text. Known
				// examples are redacted, too: a list of them would look like keys.
				if len(a.list("paths")) > 0 || strings.HasPrefix(strings.Join(a.list("regexes"), ""), "AIza") || id == "aws-access-token" {
					continue
				}
				switch a.text("regexTarget") {
				case "":
					row.secret = append(row.secret, a.list("regexes")...)
				case "match":
					row.match = append(row.match, a.list("regexes")...)
				case "line":
					row.line = append(row.line, a.list("regexes")...)
				default:
					return nil, fmt.Errorf("%s: an allowlist for %q is not understood", id, a.text("regexTarget"))
				}
				if words := a.list("stopwords"); len(words) > 0 {
					if len(stopwords) > 0 {
						return nil, fmt.Errorf("%s: two rules with stopwords are not understood", id)
					}
					row.stop, stopwords = true, words
				}
			}
			rows = append(rows, row)
		}
	}
	if len(drop)+len(amend) > 0 {
		return nil, fmt.Errorf("these rules are gone, so what is said about them here is no longer true: %v %v",
			slices.Sorted(maps.Keys(drop)), slices.Sorted(maps.Keys(amend)))
	}
	return write(version, rows, global, stopwords)
}

// one makes the row of one rule.
func one(t *table, c change) (out, error) {
	row := out{id: t.text("id"), re: t.text("regex"), entropy: t.number("entropy"), group: int(t.number("secretGroup")), back: c.back, note: c.why}
	if c.id != "" {
		row.id = c.id
	}
	if c.re != "" {
		row.re = c.re
	}
	keywords := t.list("keywords")
	if row.id == "" || row.re == "" || len(keywords) == 0 {
		return row, errors.New("there is no id, expression or keyword")
	}
	if name, value, ok := strings.Cut(row.re, assign); ok {
		row.named = true
		fold := strings.HasPrefix(name, "(?i)")
		name = strings.TrimPrefix(name, "(?i)")
		name = strings.TrimPrefix(name, before)
		if !fold { // the newer form: only the name folds
			name, ok = strings.CutPrefix(name, `(?i:`+before)
			if !ok {
				return row, fmt.Errorf("the name is not understood: %s", name)
			}
		}
		words, err := prefixes(`(?i)` + name)
		if err != nil {
			return row, err
		}
		row.words = words
		row.re = `(?i:` + name + ours + `)` + value
		if fold {
			row.re = `(?i)` + name + ours + value
		}
	} else if early, value, ok := splitNewer(row.re); ok {
		row.named = true
		words, err := prefixes(`(?i)` + early)
		if err != nil {
			return row, err
		}
		row.words = words
		row.re = `(?i:` + early + ours + `)` + value
	} else {
		row.re = strings.NewReplacer(`\s*`, `[ \t]*`, `\r\n`, ``).Replace(row.re)
		if row.back > 0 {
			row.words = keywords
		} else {
			words, err := prefixes(row.re)
			if err != nil {
				return row, err
			}
			row.words = words
			for _, p := range []string{`\b`, `(?i)\b`} {
				if rest, ok := strings.CutPrefix(row.re, p); ok {
					row.start, row.re = true, strings.TrimSuffix(p, `\b`)+rest
				}
			}
		}
	}
	if _, value, ok := strings.Cut(row.re, ours); ok {
		set, err := syntax.Parse(`(?i)`+strings.TrimPrefix(value, ")"), syntax.Perl)
		if err != nil {
			return row, err
		}
		row.sure = true
		first, _ := begin(set)
		for w := range first {
			row.sure = row.sure && len(w) >= 2
		}
		row.sure = row.sure || c.sure
	}
	re, err := regexp.Compile(row.re)
	if err != nil {
		return row, err
	}
	switch {
	case c.all:
		row.group = 0
	case row.group == 0 && re.NumSubexp() > 0:
		row.group = 1
	}
	tree, err := syntax.Parse(row.re, syntax.Perl)
	if err != nil {
		return row, err
	}
	if row.limit = longest(tree); c.most > 0 {
		row.limit = c.most
	}
	return row, nil
}

// splitNewer takes apart the form in which the part between name and value
// folds together with the name.
func splitNewer(re string) (name, value string, ok bool) {
	i := strings.Index(assign, `(?:=|>`)
	name, value, ok = strings.Cut(re, assign[:i]+`)`+assign[i:])
	if !ok {
		return "", "", false
	}
	name, ok = strings.CutPrefix(name, before+`(?i:`+before)
	return name, value, ok
}

// longest returns the longest match in bytes, 0 if it has no limit. Runes count
// as one byte: no rule names a longer one.
func longest(re *syntax.Regexp) int {
	const none = 1 << 20
	var of func(re *syntax.Regexp) int
	of = func(re *syntax.Regexp) int {
		n := 0
		switch re.Op {
		case syntax.OpLiteral:
			return len(re.Rune)
		case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
			return 1
		case syntax.OpStar, syntax.OpPlus:
			return none
		case syntax.OpRepeat:
			if re.Max < 0 {
				return none
			}
			return min(none, re.Max*of(re.Sub[0]))
		case syntax.OpAlternate:
			for _, s := range re.Sub {
				n = max(n, of(s))
			}
			return n
		default:
			for _, s := range re.Sub {
				n = min(none, n+of(s))
			}
			return n
		}
	}
	if n := of(re); n < none {
		return n
	}
	return 0
}

// prefixes returns fixed texts, in lower case, with one of which every match
// begins.
func prefixes(expr string) ([]string, error) {
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil, err
	}
	set, _ := begin(re)
	var words []string
	for w := range set {
		if len(w) < 2 {
			return nil, fmt.Errorf("no fixed text begins %s: give it bytes to look back", expr)
		}
		shorter := false
		for v := range set {
			shorter = shorter || v != w && strings.HasPrefix(w, v)
		}
		if !shorter {
			words = append(words, w)
		}
	}
	slices.Sort(words)
	return words, nil
}

// begin returns the texts with which matches of re begin, and whether each is a
// whole match.
func begin(re *syntax.Regexp) (map[string]bool, bool) {
	const most = 40
	unknown := map[string]bool{"": true}
	switch re.Op {
	case syntax.OpEmptyMatch, syntax.OpWordBoundary, syntax.OpBeginText:
		return unknown, true
	case syntax.OpLiteral:
		return map[string]bool{strings.ToLower(string(re.Rune)): true}, true
	case syntax.OpCharClass:
		set := map[string]bool{}
		for i := 0; i < len(re.Rune); i += 2 {
			for r := re.Rune[i]; r <= re.Rune[i+1]; r++ {
				if r < unicode.MaxASCII {
					set[string(unicode.ToLower(r))] = true
				}
				if len(set) > 4 {
					return unknown, false
				}
			}
		}
		return set, true
	case syntax.OpCapture:
		return begin(re.Sub[0])
	case syntax.OpQuest:
		set, whole := begin(re.Sub[0])
		if !whole {
			return unknown, false
		}
		set = maps.Clone(set)
		set[""] = true
		return set, true
	case syntax.OpAlternate:
		set, whole := map[string]bool{}, true
		for _, s := range re.Sub {
			more, w := begin(s)
			maps.Copy(set, more)
			whole = whole && w
		}
		return set, whole
	case syntax.OpConcat:
		set := unknown
		for _, s := range re.Sub {
			more, whole := begin(s)
			next := map[string]bool{}
			for a := range set {
				for b := range more {
					next[a+b] = true
				}
			}
			if len(next) > most {
				return set, false
			}
			set = next
			if !whole {
				return set, false
			}
		}
		return set, true
	default:
		return unknown, false
	}
}

func quote(s string) string {
	if strings.Contains(s, "`") || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' }) {
		return strconv.Quote(s)
	}
	return "`" + s + "`"
}

func quotes(list []string) string {
	var b strings.Builder
	b.WriteString("[]string{")
	for i, s := range list {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(quote(s))
	}
	b.WriteString("}")
	return b.String()
}

// write writes the table as a Go file.
func write(version string, rows []out, global *table, stopwords []string) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, `// Code generated by gen from the rules of gitleaks %s; DO NOT EDIT.
// Copyright (c) 2019 Zachary Rice; the MIT licence is in gitleaks.LICENSE.

package redact

// Left out:
//
`, version)
	for _, id := range slices.Sorted(maps.Keys(left())) {
		fmt.Fprintf(&b, "//   - %s: %s\n", id, left()[id])
	}
	b.WriteString("\n// gitleaksRules returns the rules.\nfunc gitleaksRules() []foreign {\n\treturn []foreign{\n")
	for _, r := range rows {
		if r.note != "" {
			fmt.Fprintf(&b, "// amended: %s\n", r.note)
		}
		fmt.Fprintf(&b, "{id: %q, re: %s, words: %s", r.id, quote(r.re), quotes(r.words))
		if r.named {
			b.WriteString(", named: true")
		}
		if r.sure {
			b.WriteString(", sure: true")
		}
		if r.start {
			b.WriteString(", start: true")
		}
		for _, n := range []struct {
			name string
			v    int
		}{{"back", r.back}, {"limit", r.limit}, {"group", r.group}} {
			if n.v > 0 {
				fmt.Fprintf(&b, ", %s: %d", n.name, n.v)
			}
		}
		if r.entropy > 0 {
			fmt.Fprintf(&b, ", entropy: %v", r.entropy)
		}
		for _, l := range []struct {
			name string
			v    []string
		}{{"allowSecret", r.secret}, {"allowMatch", r.match}, {"allowLine", r.line}} {
			if len(l.v) > 0 {
				fmt.Fprintf(&b, ", %s: %s", l.name, quotes(l.v))
			}
		}
		if r.stop {
			b.WriteString(", stop: true")
		}
		b.WriteString("},\n")
	}
	b.WriteString("}\n}\n\n// gitleaksAllow returns the expressions for values that are no secrets, whatever\n// the rule.\nfunc " +
		"gitleaksAllow() []string {\n\treturn []string{\n")
	for _, s := range global.list("regexes") {
		if s == `(?i)^true|false|null$` {
			s = `(?i)^(?:true|false|null)$` // as it was meant: not any text that has "false" in it
		}
		fmt.Fprintf(&b, "%s,\n", quote(s))
	}
	b.WriteString("}\n}\n\n// gitleaksStopwords are words, divided by blanks, that no value of generic-api-key\n// contains.\nconst gitleaksStopwords = ``")
	line := 0
	for _, w := range stopwords {
		if strings.ContainsAny(w, " `\n") {
			return nil, fmt.Errorf("the stopword %q is not understood", w)
		}
		if line == 0 || line+len(w) > 100 {
			b.WriteString(" +\n\t\"")
			line = 1
		} else {
			b.Truncate(b.Len() - 1)
		}
		b.WriteString(w + " \"")
		line += len(w) + 1
	}
	b.WriteString("\n")
	return format.Source(b.Bytes())
}
