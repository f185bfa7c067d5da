package workflow

import (
	"strings"
	"testing"
)

// conditions are about the inputs of book and two steps: a call and a skipped one.
func conditionNames() names {
	return names{
		inputs: []Input{{Name: "dir", Type: String}, {Name: "n", Type: Integer}, {Name: "dry", Type: Boolean}, {Name: "mode", Type: Enum, Values: []string{"fast"}}, {Name: "share", Type: Number}},
		steps:  []step{{id: "df", alias: "used-space", kind: KindCall}, {id: "gone", kind: KindCall}, {id: "said", kind: KindModel}},
		later:  []string{"late"},
	}
}

func conditionScope() *scope {
	three := 3
	return &scope{inputs: map[string]string{"dir": "/srv", "n": "3", "dry": "true", "mode": "fast", "share": "0.5"}, out: []Outcome{
		{ID: "df", State: Failed, Output: "91", ExitCode: &three}, {ID: "gone", State: Skipped}, {ID: "said", State: Passed, Output: "it's\nfull"},
	}}
}

// What runs in a store were begun with, in words of then, still means the same.
func TestConditionsOfOlderRuns(t *testing.T) {
	for src, want := range map[string]string{
		"${inputs.n} == 3":                                            "true",
		"${inputs.n} == 3.0":                                          "true",
		"${inputs.n} != 3":                                            "false",
		"${inputs.n} < 4":                                             "true",
		"${inputs.n} <= 2":                                            "false",
		"${inputs.n} > -1":                                            "true",
		"${inputs.n} >= 4":                                            "false",
		"${inputs.dir} == '/srv'":                                     "true",
		"${inputs.dir} != \"/srv\"":                                   "false",
		"${inputs.mode} == 'fast'":                                    "true",
		"${inputs.dry}":                                               "true",
		"not ${inputs.dry}":                                           "false",
		"not not ${inputs.dry} == true":                               "true",
		"${inputs.dry} != false":                                      "true",
		"${steps.df.exit_code} == 3":                                  "true",
		"${steps.df.ok}":                                              "false",
		"${steps.df.output} > 90":                                     "true",
		"${steps.df.output} == '91'":                                  "true",
		"${steps.said.output} contains \"it's\"":                      "true",
		"${steps.said.output} matches 'it.*'":                         "false", // a dot is no newline
		"${steps.said.output} matches '(?s)it.*'":                     "true",
		"${inputs.dir} matches 'sr'":                                  "false", // the whole text
		"${inputs.n} == 1 or ${inputs.n} == 3":                        "true",
		"${inputs.n} == 3 or ${inputs.n} == 1 and ${inputs.n} == 2":   "true",
		"(${inputs.n} == 3 or ${inputs.n} == 1) and ${inputs.n} == 2": "false",
		"${inputs.n}==3 and(${inputs.dry})":                           "true",
		"${ inputs.n } == 3":                                          "true",
		// What has no value, or is no number, makes all of it false.
		"${steps.said.output} > 90":         "no number",
		"not ${steps.said.output} > 90":     "no number",
		"${steps.gone.output} == ''":        "was skipped",
		"not ${steps.gone.ok}":              "was skipped",
		"${steps.gone.ok} or ${inputs.dry}": "was skipped",
		"${inputs.dry} or ${steps.gone.ok}": "true", // nobody asks
	} {
		text, err := conditionNames().fromTemplates(src)
		if err != nil {
			t.Errorf("%s: %v", src, err)
			continue
		}
		holdsAs(t, src, text, want)
	}
}

// holdsAs evaluates a condition; want is true, false or a part of the error.
func holdsAs(t *testing.T, src, text, want string) {
	t.Helper()
	c, err := conditionNames().parseCondition(text)
	if err != nil {
		t.Errorf("%s: %s: %v", src, text, err)
		return
	}
	ok, err := c.holds(conditionScope())
	switch {
	case err != nil:
		if ok || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s: %v, %v", src, text, ok, err)
		}
	case ok != (want == "true") || want != "true" && want != "false":
		t.Errorf("%s: %s is %v, not %s", src, text, ok, want)
	}
}

func TestConditions(t *testing.T) {
	for src, want := range map[string]string{
		"inputs.n == 3": "true",
		"inputs.n < 4 && inputs.n > -1 && inputs.n >= 3": "true",
		"inputs.n > 2.5": "true",
		"inputs.share == 0.5 && inputs.share < 1":           "true",
		"inputs.dir == '/srv'":                              "true",
		"inputs.mode in ['slow', 'fast']":                   "true",
		"!inputs.dry":                                       "false",
		"inputs.dry != false":                               "true",
		"steps.df.exit_code == 3":                           "true",
		"steps.df.ok":                                       "false",
		"number(steps.df.output) > 90":                      "true",
		"steps.used_space.output == '91'":                   "true", // - is _
		"steps.said.output.contains(\"it's\")":              "true",
		"steps.said.output.matches('^it.*$')":               "false", // a dot is no newline
		"inputs.n == 3 || inputs.n == 1 && inputs.n == 2":   "true",
		"(inputs.n == 3 || inputs.n == 1) && inputs.n == 2": "false",
		// What has no value, or is no number, makes all of it false.
		"number(steps.said.output) > 90":    "no number",
		"!(number(steps.said.output) > 90)": "no number",
		"steps.gone.output == ''":           "was skipped",
		"!steps.gone.ok":                    "was skipped",
		"steps.gone.ok || inputs.dry":       "was skipped",
		"inputs.dry || steps.gone.ok":       "true", // nobody asks
	} {
		holdsAs(t, src, src, want)
	}
}

func TestConditionsThatCannotBeRead(t *testing.T) {
	for src, want := range map[string]string{
		"inputs.n":                           "it must be true or false",
		"inputs.n == ":                       "it cannot be read (<input>:1:",
		"inputs.n = 3":                       "it cannot be read (<input>:1:10",
		"inputs.n == '3'":                    "no matching overload",
		"inputs.dir == true":                 "no matching overload",
		"inputs.dir < 3":                     "no matching overload",
		"inputs.dir.matches('(')":            "it cannot be read",
		"inputs.dirr == 'x'":                 `did you mean "dir"?`,
		"steps.df.code == 3":                 `has no "code"; use output, exit_code, ok`,
		"steps.late.ok":                      "does not come before this one",
		"command == 'x'":                     "undeclared reference",
		"(inputs.dry":                        "it cannot be read",
		strings.Repeat("(", 100):             "it cannot be read",
		strings.Repeat("inputs.dry || ", 99): "longer than 1000 bytes",
	} {
		if _, err := conditionNames().parseCondition(src); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.60s: %v, not %s", src, err, want)
		}
	}
}

func TestAConditionWithTemplatesIsToldHowToBeWritten(t *testing.T) {
	for src, want := range map[string]string{
		"not ${steps.df.ok}": "write it as '!steps.df.ok'",
		"${steps.df.output} > 90 and ${inputs.dir} matches '/[a-z]*'": `write it as 'number(steps.df.output) > 90.0 && inputs.dir.matches("\\A(?:/[a-z]*)\\z")'`,
		"${steps.said.output} contains \"it's\"":                      `write it as 'steps.said.output.contains("it''s")'`,
		"${inputs.n} = 3":                                             "write them like steps.df.exit_code == 0",
		"${inputs.dirr} == 'x'":                                       "write them like steps.df.exit_code == 0",
		"${inputs.n} == '3'":                                          "write them like steps.df.exit_code == 0",
	} {
		if err := conditionNames().errTemplates(src); !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, not %s", src, err, want)
		}
	}
	source := []byte(book("- id: a\n  if: not ${inputs.dry}\n  wait: 1s\n- id: b\n  if: ${inputs.n} > 3 or ${inputs.dry}\n  wait: 1s"))
	if _, err := Parse("f.yaml", source); err == nil || !strings.Contains(err.Error(), "line ") || !strings.Contains(err.Error(), "step a: if: conditions are CEL without templates; write it as '!inputs.dry'") {
		t.Error(err)
	}
	w, err := Stored("f", source)
	if err != nil || w.Source != string(source) {
		t.Fatal(err)
	}
	if next := Next(w, map[string]string{"n": "4", "dry": "true", "dir": "/srv", "mode": "fast"}, nil); next.ID != "b" {
		t.Errorf("%+v", next)
	}
}

func FuzzCondition(f *testing.F) {
	for _, s := range []string{"inputs.n == 3 && !(inputs.dry || steps.df.output.matches('a.*'))", "steps.gone.ok", "(((", "!!inputs.dry"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, src string) {
		c, err := conditionNames().parseCondition(src)
		if (c == nil) == (err == nil) {
			t.Fatalf("%v, %v", c, err)
		}
		if err != nil {
			return
		}
		ok, err := c.holds(conditionScope())
		if err != nil && ok {
			t.Error("true, with an error")
		}
		// The opposite of a condition is the opposite, unless it cannot be known.
		if n, nerr := conditionNames().parseCondition("!(" + src + ")"); nerr == nil && err == nil {
			if no, err := n.holds(conditionScope()); err != nil || no == ok {
				t.Errorf("both %q and its opposite are %v", src, ok)
			}
		}
	})
}
