package verifier_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"countersign/test/needstest"
)

// change is one line of JSON with one thing of it changed.
type change struct{ what, line string }

// changes are all ways in which a line can say something else: each value another one, each member left out, there
// twice, or beside one of the same name in capitals, and in each object one more.
func changes(t *testing.T, line string) (all []change) {
	t.Helper()
	var walk func(from, to int, at string)
	walk = func(from, to int, at string) {
		raw := line[from:to]
		put := func(what string, from, to int, text string) {
			all = append(all, change{at + ": " + what, line[:from] + text + line[to:]})
		}
		d := json.NewDecoder(strings.NewReader(raw))
		open, err := d.Token()
		must(t, err)
		if open != json.Delim('{') && open != json.Delim('[') {
			put("another value", from, to, other(raw))
			return
		}
		comma := ","
		if !d.More() {
			comma = ""
		}
		if open == json.Delim('{') {
			put("a member more", from+1, from+1, `"more":1`+comma)
		} else {
			put("an element more", from+1, from+1, `"more"`+comma)
		}
		for before := from + 1; d.More(); {
			inner, name := at+"[]", ""
			if open == json.Delim('{') {
				tok, err := d.Token()
				must(t, err)
				name = tok.(string) //nolint:forcetypeassert // a name is a string
				inner = strings.TrimPrefix(at+"."+name, ".")
			}
			var v json.RawMessage
			must(t, d.Decode(&v))
			end := from + int(d.InputOffset())
			member := strings.TrimPrefix(line[before:end], ",")
			start, after := end-len(member), end
			switch {
			case line[end] == ',':
				after++
			case before > from+1:
				start--
			}
			put("without "+name, start, after, "")
			put("twice "+name, end, end, ","+member)
			if name != "" {
				put("twice in capitals "+name, end, end, ","+strings.Replace(member, name, strings.ToUpper(name), 1))
				put("twice, another first "+name, end-len(member), end-len(member), strings.TrimSuffix(member, string(v))+other(string(v))+",")
				put("in capitals "+name, end-len(member), end, strings.Replace(member, name, strings.ToUpper(name), 1))
			}
			walk(end-len(v), end, inner)
			before = end
		}
	}
	walk(0, len(line), "")
	return all
}

// other is another value of the same type.
func other(raw string) string {
	switch raw[0] {
	case '"':
		if raw[1] >= '0' && raw[1] < '9' { // as the year of a time
			return `"` + string(raw[1]+1) + raw[2:]
		}
		return raw[:len(raw)-1] + `x"`
	case 't':
		return "false"
	case 'f', 'n':
		return "true"
	case '{':
		return `{"more":1}`
	case '[':
		return `["more"]`
	}
	return raw + "1"
}

// unchecked are the changes that leave an archive right, by file, place and change, with the reason.
var unchecked = map[string]string{
	"approvals.jsonl 3 preview":                                     "before a decision: the output says that it isn't checked",
	"approvals.jsonl 3 : without preview":                           "the same",
	"audit.jsonl export.at: another value":                          "when it was made: the output says that this is the archive's word",
	"audit.jsonl chain: without from":                               "a number that isn't there is 0, which it was",
	"statements/aaaaaaaaaa.intoto.json signatures[].keyid: another": "a hint on which key to try",
	"statements/aaaaaaaaaa.intoto.json signatures[]: without keyid": "the same",
	"statements/aaaaaaaaaa.intoto.json signatures: twice":           "one good signature is enough",
}

// TestEachFieldOfAnArchiveIsCovered changes each field of each line by somebody who has no key, but calculates what can be
// calculated. Nothing of this is right, but for what is listed.
func TestEachFieldOfAnArchiveIsCovered(t *testing.T) {
	needstest.Long(t)
	m := makeArchive(t)
	if bad, all := m.check(t, m.files); len(bad) > 0 || strings.Contains(all, "open ") {
		t.Fatalf("%q\n%s", bad, all)
	}
	tried, taken := 0, map[string]bool{}
	try := func(name, what, text string) {
		if text == m.files[name] {
			return // the right sum again
		}
		tried++
		files := maps.Clone(m.files)
		files[name] = text
		bad, all := m.check(t, files)
		if len(bad) > 0 || strings.Contains(all, "open ") {
			return
		}
		for except := range unchecked {
			if strings.HasPrefix(name+" "+what, except) {
				taken[except] = true
				return
			}
		}
		t.Errorf("%s %s: it is right\n%s", name, what, all)
	}
	for _, name := range []string{"audit.jsonl", "approvals.jsonl", "statements/aaaaaaaaaa.intoto.json"} {
		var lines []string
		for line := range strings.Lines(m.files[name]) {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
		with := func(lines ...string) string {
			text := strings.Join(lines, "\n") + "\n"
			if name == "audit.jsonl" {
				text = ended(text)
			}
			return text
		}
		kinds := map[string]int{}
		for i, line := range lines {
			kind, _, _ := strings.Cut(line, ":")
			if kinds[kind]++; name == "audit.jsonl" && kinds[kind] > 3 {
				continue // as the others of its kind
			}
			before, after := lines[:i:i], lines[i+1:]
			for _, c := range changes(t, line) {
				what := c.what
				if name == "approvals.jsonl" && i > 0 {
					what = fmt.Sprint(i+1, " ", what)
				}
				try(name, what, with(append(append(before, c.line), after...)...))
			}
			try(name, "without "+line, with(append(before, after...)...))
			try(name, "twice "+line, with(append(append(before, line, line), after...)...))
			if i > 0 && name != "approvals.jsonl" { // the order of requests says nothing
				try(name, "swapped "+line, with(append(append(before[:i-1:i-1], line, lines[i-1]), after...)...))
			}
		}
	}
	t.Logf("%d changes", tried)
	if tried < 1000 {
		t.Error("there should be more")
	}
	for except := range unchecked {
		if !taken[except] {
			t.Errorf("%s: nothing needs this exception", except)
		}
	}
}

// ended is an export with the right sum at its end, if it has an end.
func ended(text string) string {
	at := strings.LastIndex(text, `{"end":`)
	i := strings.Index(text[max(at, 0):], `"sha256":"`)
	if at < 0 || i < 0 || !bytes.Contains([]byte(text[at:]), []byte(`"}}`)) {
		return text
	}
	cut := at + i + len(`"sha256":"`)
	return text[:cut] + sha([]byte(text[:at])) + text[cut+64:]
}
