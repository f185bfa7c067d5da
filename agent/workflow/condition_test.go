package workflow

import (
	"strings"
	"testing"
)

// conditions are about the inputs of book and two steps: a call and a skipped one.
func conditionNames() names {
	return names{
		inputs: []Input{{Name: "dir", Type: String}, {Name: "n", Type: Integer}, {Name: "dry", Type: Boolean}, {Name: "mode", Type: Enum, Values: []string{"fast"}}},
		steps:  []step{{id: "df", kind: KindCall}, {id: "gone", kind: KindCall}, {id: "said", kind: KindModel}},
	}
}

func conditionScope() *scope {
	three := 3
	return &scope{inputs: map[string]string{"dir": "/srv", "n": "3", "dry": "true", "mode": "fast"}, out: []Outcome{
		{ID: "df", State: Failed, Output: "91", ExitCode: &three}, {ID: "gone", State: Skipped}, {ID: "said", State: Passed, Output: "it's\nfull"},
	}}
}

func TestConditions(t *testing.T) {
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
		c, err := conditionNames().parseCondition(src)
		if err != nil {
			t.Errorf("%s: %v", src, err)
			continue
		}
		ok, err := c.holds(conditionScope())
		switch {
		case err != nil:
			if ok || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, %v", src, ok, err)
			}
		case ok != (want == "true") || want != "true" && want != "false":
			t.Errorf("%s is %v, not %s", src, ok, want)
		}
	}
}

func TestConditionsThatCannotBeRead(t *testing.T) {
	for src, want := range map[string]string{
		"":                                            "position 1: it ends too early",
		"${inputs.n}":                                 "position 1: ${inputs.n} alone is neither true nor false",
		"${inputs.n} == ":                             "position 16: \"\" is no literal",
		"${inputs.n} == abc":                          "position 16: \"abc\" is no literal",
		"${inputs.n} = 3":                             "position 13: \"= 3\" cannot be read",
		"3 == ${inputs.n}":                            "position 1: \"3\" stands where a template must",
		"${inputs.n} == ${inputs.n}":                  "not with another template",
		"${inputs.n} == '3'":                          "is a number; compare it with a number",
		"${inputs.dir} == true":                       "is text; put the literal in quotes",
		"${inputs.dir} < 'b'":                         "compares numbers",
		"${inputs.dry} < true":                        "compare it with == or !=",
		"${inputs.dry} == 'true'":                     "compare it with == or !=",
		"${inputs.n} contains '3'":                    "takes a template that is text",
		"${inputs.dir} contains 3":                    "takes a template that is text",
		"${inputs.dir} matches '('":                   "no pattern in RE2 syntax",
		"${inputs.dirr} == 'x'":                       `did you mean "dir"?`,
		"(${inputs.dry}":                              "position 1: this ( is never closed",
		"${inputs.dry})":                              "position 14: \")\" is one too many",
		"${inputs.dry} ${inputs.dry}":                 "is no operator",
		"${inputs.dry} and":                           "ends too early",
		"${inputs.dir} == 'é' x":                      "position 22: \"x\" is one too many",
		"${inputs.dir} is 'x'":                        "\"is\" is no operator",
		strings.Repeat("(", 100):                      "nested deeper",
		strings.Repeat("not ", 100):                   "nested deeper",
		strings.Repeat("${inputs.dry} or ", 99):       "longer than 1000 bytes",
		"${inputs.n} == 9" + strings.Repeat("9", 400): "too large",
	} {
		if _, err := conditionNames().parseCondition(src); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, not %s", src, err, want)
		}
	}
}

func FuzzCondition(f *testing.F) {
	for _, s := range []string{"${inputs.n} == 3 and not (${inputs.dry} or ${steps.df.output} matches 'a.*')", "${steps.gone.ok}", "(((", "not not ${inputs.dry}"} {
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
		if n, nerr := conditionNames().parseCondition("not (" + src + ")"); nerr == nil && err == nil {
			if no, err := n.holds(conditionScope()); err != nil || no == ok {
				t.Errorf("both %q and its opposite are %v", src, ok)
			}
		}
	})
}
