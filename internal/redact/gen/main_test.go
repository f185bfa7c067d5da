package main

import (
	"reflect"
	"strings"
	"testing"
)

func TestParseReadsWhatGitleaksWrites(t *testing.T) {
	global, rules, err := parse(`# a comment
title = "x"
[allowlist]
regexes = [
    '''^a"b$''',
    # a comment
    "c",
]

[[rules]]
id = "one"
regex = '''\b(one_[a-z]{9})\b'''
entropy = 2.5
keywords = ["one_", "x"]
[[rules.allowlists]]
regexTarget = "match"
stopwords = []
[[rules.allowlists]]
regexes = ['''y''']
`)
	if err != nil {
		t.Fatal(err)
	}
	if got := global.list("regexes"); !reflect.DeepEqual(got, []string{`^a"b$`, "c"}) {
		t.Errorf("the global list is %q", got)
	}
	if len(rules) != 1 || len(rules[0].allowlists) != 2 {
		t.Fatalf("%+v", rules)
	}
	r := rules[0]
	if r.text("id") != "one" || r.text("regex") != `\b(one_[a-z]{9})\b` || r.number("entropy") != 2.5 || !reflect.DeepEqual(r.list("keywords"), []string{"one_", "x"}) {
		t.Errorf("%+v", r)
	}
	if r.allowlists[0].text("regexTarget") != "match" || r.allowlists[1].list("regexes")[0] != "y" {
		t.Errorf("%+v", r.allowlists)
	}
}

func TestParseRefusesWhatItDoesNotKnow(t *testing.T) {
	for name, text := range map[string]string{
		"another table":                "[[other]]",
		"an inline table":              "a = {b = 1}",
		"a dotted key":                 "a.b = 1",
		"a key that is set twice":      "a = 1\na = 2",
		"a string of many lines":       "a = '''x\ny'''",
		"a list that does not end":     "a = [\n\"x\",",
		"a number in a list":           "a = [1]",
		"something behind a value":     `a = "x" "y"`,
		"an allowlist without a rule":  "[[rules.allowlists]]",
		"a rule that was renamed here": "[[rules]]\nid = \"x\"\nregex = '''xyz'''\nkeywords = [\"xyz\"]",
	} {
		if _, err := generate(text, "v0"); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func TestARowIsTriedWhereItsTextBegins(t *testing.T) {
	rule := func(regex string, keywords ...string) *table {
		return &table{keys: map[string]any{"id": "x", "regex": regex, "keywords": keywords}}
	}
	for name, tc := range map[string]struct {
		rule *table
		want out
	}{
		"a token":        {rule(`\b(xy_[a-z]{5})`+tail, "xy_"), out{words: []string{"xy_"}, start: true, limit: 10, group: 1}},
		"a choice":       {rule(`X[YZ]-[a-z]{2,4}`, "x"), out{words: []string{"xy-", "xz-"}, limit: 7}},
		"without an end": {rule(`xy[a-z]+`, "xy"), out{words: []string{"xy"}}},
		"a name":         {rule(`(?i)`+before+`(?:foo[_-]?bar)`+assign+`([a-z]{9})`+tail, "foo"), out{words: []string{"foo-bar", "foo_bar", "foobar"}, named: true, limit: 50, group: 1}},
		"a newer name":   {rule(before+`(?i:`+before+`(?:foo)`+strings.Replace(assign, `(?:=|>`, `)(?:=|>`, 1)+`(ab[a-z]{9})`+tail, "foo"), out{words: []string{"foo"}, named: true, sure: true, limit: 48, group: 1}},
	} {
		got, err := one(tc.rule, change{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if strings.Contains(got.re, `\s'"`) && tc.want.named {
			t.Errorf("%s goes on in the next line: %s", name, got.re)
		}
		got.id, got.re = "", ""
		if !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
	for _, bad := range []*table{rule("", "x"), rule(`[a-z]{9}`, "x"), rule(`xy(`, "xy"), rule(`xyz`)} {
		if row, err := one(bad, change{}); err == nil {
			t.Errorf("%+v is taken", row)
		}
	}
}
