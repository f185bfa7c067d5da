package workflow

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var given = map[string]string{"dir": "/srv/o'neill $(id)", "n": "3", "dry": "false", "mode": "fast"}

// callOf returns the arguments of the only call of a workflow of one step.
func callOf(t testing.TB, tool, arguments string) map[string]any {
	t.Helper()
	w := parsed(t, "- id: a\n  call: {tool: "+tool+", arguments: "+arguments+"}")
	s := Next(w, given, nil)
	if s.Kind != KindCall {
		t.Fatalf("%+v", s)
	}
	var m map[string]any
	if err := json.Unmarshal(s.Args, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestAValueKeepsItsTypeOnlyWhereItIsAlone(t *testing.T) {
	m := callOf(t, "other", `{a: '${inputs.n}', b: 'x${inputs.n}', c: '${inputs.dry}', d: ['${inputs.dir}', null, 1, 2.5, true], e: {f: '$${inputs.n}'}, g: 0x10}`)
	got, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"a":3,"b":"x3","c":false,"d":["/srv/o'neill $(id)",null,1,2.5,true],"e":{"f":"${inputs.n}"},"g":16}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestShellTextQuotesEveryValueAndLeavesTheShellItsOwn(t *testing.T) {
	m := callOf(t, "run_shell", `{command: 'for f in ${inputs.dir} "$HOME/${USER:-x}"; do echo "$(ls ${inputs.dir}/sub)" ${x%.*}; done'}`)
	const want = `for f in '/srv/o'\''neill $(id)' "$HOME/${USER:-x}"; do echo "$(ls '/srv/o'\''neill $(id)'/sub)" ${x%.*}; done`
	if m["command"] != want {
		t.Errorf("got  %s\nwant %s", m["command"], want)
	}
}

func TestLabelsAreAddedWhereTheToolRequiresThem(t *testing.T) {
	m := callOf(t, "run_shell", `{command: 'sudo ls ${inputs.dir}'}`)
	if m["risk"] != "low" || m["mutation"] != false || m["privesc"] != true || !strings.Contains(m["why"].(string), "runbook t") {
		t.Errorf("%v", m)
	}
	if m = callOf(t, "run_shell", `{command: ls, why: mine, mutation: true, risk: high}`); m["risk"] != "high" || m["mutation"] != true || m["why"] != "mine" || m["privesc"] != false {
		t.Errorf("%v", m)
	}
	if m = callOf(t, "read_file", `{path: x}`); len(m) != 1 {
		t.Errorf("%v", m)
	}
	w := parsed(t, "- id: a\n  gate: true\n  call: {tool: run_shell, arguments: {command: rm x}}")
	if s := Next(w, given, nil); !s.Gate || !strings.Contains(string(s.Args), `"mutation":true`) || !strings.Contains(string(s.Args), `"risk":"medium"`) {
		t.Errorf("%s", s.Args)
	}
}

func TestShellTextRefusesValuesThatQuotesWouldNotHold(t *testing.T) {
	n := names{inputs: []Input{{Name: "x", Type: String}, {Name: "i", Type: Integer}}}
	for _, c := range []struct {
		src  string
		ok   bool // as it is
		gate bool // in a gate
	}{
		{"ls ${inputs.x}", true, true},
		{"ls a${inputs.x}b", true, true},
		{`ls "$(ls ${inputs.x})"`, true, true},
		{`ls "$(ls "$(ls ${inputs.x})")"`, true, true},
		{"diff <(ls ${inputs.x}) b", true, true},
		{"A=${inputs.x} ls", true, true},
		{"A=${inputs.x}; ls \"$A\"", true, true},
		{"ls > ${inputs.x}", true, true},
		{"cat <<< ${inputs.x}", true, true},
		{"for i in a ${inputs.x}; do ls \"$i\"; done", true, true},
		{"case ${inputs.x} in a) ls;; esac", true, true},
		{"f() { ls ${inputs.x}; }; f", true, true},
		{"awk -v n=${inputs.x} '{ print n }'", true, true},
		{"ls 'a b'${inputs.x}'c'", true, true},
		{"ls \"${inputs.x}\"", false, false},
		{"ls '${inputs.x}'", false, false},
		{"ls $'${inputs.x}'", false, false},
		{"ls $${inputs.x}", false, false},
		{"ls \\${inputs.x}", false, false},
		{"ls `ls ${inputs.x}`", false, false},
		{"ls # ${inputs.x}", false, false},
		{"cat <<EOF\n${inputs.x}\nEOF", false, false},
		{"cat <<'EOF'\n${inputs.x}\nEOF", false, false},
		{"cat <<${inputs.x}\na\n${inputs.x}", false, false},
		{"echo $((${inputs.x} + 1))", false, false},
		{"echo $((${inputs.i} + 1))", false, false},
		{"(( ${inputs.x} ))", false, false},
		{"[[ ${inputs.x} -eq 1 ]]", false, false},
		{"case a in ${inputs.x}) ls;; esac", false, false},
		{"echo ${a:-${inputs.x}}", false, false},
		{"echo ${a[${inputs.x}]}", false, false},
		{"a[${inputs.x}]=1", false, false},
		{"declare -i a=${inputs.x}", false, false},
		{"export A=${inputs.x}", false, false},
		{"a=(${inputs.x})", false, false},
		{"${inputs.x}() { ls; }", false, false},
		{"for ${inputs.x} in a; do ls; done", false, false},
		{"sh -c ${inputs.x}", false, true},
		{"timeout 5 /bin/bash -c ${inputs.x}", false, true},
		{`\bash -c ${inputs.x}`, false, true},
		{`"ba"sh -c ${inputs.x}`, false, true},
		{"echo ${inputs.x} | sh", false, true},
		{"eval ls ${inputs.x}", false, true},
		{". ${inputs.x}", false, true},
		{"command eval ${inputs.x}", false, true},
		{"builtin -- . ${inputs.x}", false, true},
		{"find . -name ${inputs.x}", true, true},
		{"ssh web1 cat ${inputs.x}", false, true},
		{"watch df ${inputs.x}", false, true},
		{"trap ${inputs.x} EXIT", false, true},
		{"${inputs.x} -l", false, true},
		{"$SHELL -c ${inputs.x}", false, true},
		{"A=${inputs.x}; echo $((A + 1))", false, true},
		{"A=${inputs.x}; echo ${B[A]}", false, true},
		{"A=${inputs.x}; echo ${!A}", false, true},
		{"A=${inputs.x}; echo ${A@P}", false, true},
		{"A=${inputs.x}; [[ A -eq 1 ]]", false, true},
		{"A=${inputs.x}; let A+=1", false, true},
		{"printf -v ${inputs.x} a", false, true},
		{"test -v ${inputs.x}", false, true},
		{"read ${inputs.x}", false, true},
		{"A=${inputs.i}; echo $((A + 1))", true, true},
		{"sh -c 'echo $1' sh ${inputs.i}", true, true},
		{"while read -r l; do echo \"$l\"; done < ${inputs.x}", true, true},
		{"ls ${inputs.x", false, false},
		{"ls 'a", false, false},
	} {
		for gate, want := range map[bool]bool{false: c.ok, true: c.gate} {
			parse, err := n.parseText(c.src, true)
			if err == nil {
				err = checkShell(parse, gate)
			}
			if (err == nil) != want {
				t.Errorf("%s (gate %v): %v", c.src, gate, err)
			}
		}
	}
}

func TestValuesNeverEnterCodeOrKeys(t *testing.T) {
	for _, args := range []string{
		"{language: python, code: 'print(\"${inputs.dir}\")'}", "{keys: ['${inputs.dir}']}", "{literal_text: 'ls ${inputs.dir}'}",
		"{command: [sh, -c, 'ls ${inputs.dir}']}", "{command: {line: 'ls \"${inputs.dir}\"'}}", "{nested: [{code: ['${inputs.n}']}]}",
	} {
		if _, err := Parse("t.yaml", []byte(book("- id: a\n  call: {tool: x, arguments: "+args+"}"))); err == nil {
			t.Errorf("%s was read", args)
		}
	}
	if _, err := Parse("t.yaml", []byte(book("- id: a\n  call: {tool: x, arguments: {code: 'echo ${HOME}', keys: [Enter]}}"))); err == nil {
		t.Error("text that looks like a template is refused outside of shell text")
	}
}

// Real shells are asked whether a value is still the value, wherever Parse lets it be.
func TestRealShellsTakeEveryValueAsData(t *testing.T) {
	n := names{inputs: []Input{{Name: "x", Type: String}}}
	var forms []text
	for _, src := range []string{
		"printf '%s' ${inputs.x}", `printf '%s' "$(printf '%s.' ${inputs.x} | sed '$ s/.$//')"`, "A=${inputs.x}; printf '%s' \"$A\"",
		"for i in ${inputs.x}; do printf '%s' \"$i\"; done", "case ${inputs.x} in *) printf '%s' ''${inputs.x}'';; esac", "sh -c 'printf %s \"$1\"' sh ${inputs.x}",
	} {
		f, err := n.parseText(src, true)
		if err == nil {
			err = checkShell(f, true)
		}
		if err != nil {
			t.Fatal(err)
		}
		forms = append(forms, f)
	}
	shells := []string{"sh"}
	if _, err := exec.LookPath("bash"); err == nil {
		shells = append(shells, "bash")
	}
	char := rapid.SampledFrom([]rune("a'\"`$(){}[]\\;&|<>*?!#~-= \n\té漢"))
	rapid.Check(t, func(rt *rapid.T) {
		v := strings.TrimRight(string(rapid.SliceOfN(char, 0, 12).Draw(rt, "value")), "\n")
		w := &Workflow{Params: []Input{{Name: "x"}}}
		var script strings.Builder
		for _, f := range forms {
			c, err := f.render(&scope{w: w, inputs: map[string]string{"x": v}}, true)
			if err != nil {
				rt.Fatal(err)
			}
			script.WriteString("(" + c + "\n); printf '\\001'\n")
		}
		for _, sh := range shells {
			cmd := exec.CommandContext(t.Context(), sh, "-c", script.String())
			cmd.Dir, cmd.Env = t.TempDir(), []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C.UTF-8"}
			out, err := cmd.CombinedOutput()
			want := strings.Repeat(v+"\x01", len(forms))
			if err != nil || string(out) != want {
				rt.Fatalf("%s: %v\n%s\ngot  %q\nwant %q", sh, err, script.String(), out, want)
			}
		}
	})
}

func TestOutputsAreCutAndTidied(t *testing.T) {
	for in, want := range map[string]string{
		"a\r\nb\x1b[1m\x00\t\n \n": "a\nb[1m",
		strings.Repeat("é", 2500):  strings.Repeat("é", MaxOutput),
		"\xff":                     "\uFFFD",
	} {
		if got := tidy(in); got != want {
			t.Errorf("%.20q: %.40q", in, got)
		}
	}
}
