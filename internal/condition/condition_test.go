package condition

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

func language(t *testing.T) *Language {
	t.Helper()
	base, err := New(300, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	l, err := base.With(map[string]Type{"a.yes": Bool, "n": Int, "f": Number, "s": Text, "list": Texts, "labels": TextMap, "now": Time, "gone": Text}, map[string]int{"HIGH": 3})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

var errGone = errors.New("it is gone")

func get(name string) (any, error) {
	switch name {
	case "a.yes":
		return true, nil
	case "n":
		return 3, nil
	case "f":
		return 0.5, nil
	case "s":
		return " 91\n", nil
	case "list":
		return []string{"x", "y"}, nil
	case "labels":
		return map[string]string{"k": "v"}, nil
	case "now":
		return time.Unix(1700000000, 0), nil
	case "gone":
		return nil, errGone
	}
	return nil, nil
}

func TestConditions(t *testing.T) {
	l := language(t)
	for text, want := range map[string]string{
		"a.yes && n == HIGH && f < 1 && n > 2.5": "true",
		"number(s) == 91.0":                      "true",
		"number(s + 'x') > 1":                    "is no number",
		"'x' in list && labels.k == 'v'":         "true",
		"now.getFullYear() == 2023":              "true",
		"labels.other == 'v'":                    "no such key: other",
		"gone == '' || a.yes":                    "it is gone", // whatever stands beside it
		"a.yes || gone == ''":                    "true",       // nobody asks
		"list.all(a, list.all(b, list.all(c, list.all(d, list.all(e, list.all(g, list.all(h, list.all(i, list.all(j, list.all(k, list.all(m, list.all(o, true))))))))))))": "cost",
	} {
		c, err := l.Compile(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		ok, err := c.Holds(get)
		if err != nil && (ok || !strings.Contains(err.Error(), want)) || err == nil && ok != (want == "true") {
			t.Errorf("%s: %v %v", text, ok, err)
		}
	}
	c, err := l.Compile("n == HIGH && a.yes && (s == '' || s == 'x') && list.exists(e, e == s)")
	if err != nil || !reflect.DeepEqual(c.Names(), []string{"a.yes", "list", "n", "s"}) {
		t.Errorf("%v %v", c.Names(), err)
	}
}

func TestWhatIsNoCondition(t *testing.T) {
	for text, want := range map[string]string{
		"": "it cannot be read", "n": "it must be true or false", "n == 'x'": "it cannot be read (<input>:1:3: found no matching overload", "other == 1": "undeclared reference to 'other'",
		"s.matches('(')": "it cannot be read", strings.Repeat("a.yes && ", 60) + "a.yes": "it cannot be read",
	} {
		if _, err := language(t).Compile(text); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
