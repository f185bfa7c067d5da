package risk

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// assign judges NAME=value before a command.
func (j *judge) assign(a *syntax.Assign, before bool) {
	name := ""
	if a.Name != nil {
		name = a.Name.Value
	}
	var w word
	why := ""
	if a.Value != nil {
		w, why = j.resolveWord(a.Value)
	}
	if a.Index != nil || a.Array != nil {
		j.nested(a)
		why = "an array"
	}
	if !before && j.locked && j.shell == Bash && why == "" && !a.Append && !a.Naked && loopName(name) && j.isFreeName(name) && j.usesVar(name) {
		// The variable ends with the process, so only the text's own use of it matters. Its value is
		// not tracked, because the text may branch.
		j.vars[name] = word{kind: wordOpaque, multi: true}
		j.prove("an assignment")
		return
	}
	if !before {
		j.add(Medium, EffectWrite, "it changes the variable %s of the shell", name)
		return
	}
	if (name == "AWS_PROFILE" || name == "CLOUDSDK_CORE_PROJECT") && w.kind == wordLit {
		j.addHop("profile", w.text)
	}
	if a.Append || a.Naked || why != "" || w.kind != wordLit || !harmlessVar(name, w.text) {
		j.add(Medium, EffectExec, "the variable %s can change what the command does", name)
	}
}

// usesVar reports whether the text contains $name or ${name. A text that does not sets the variable for a
// program or a later command.
func (j *judge) usesVar(name string) bool {
	for _, mark := range []string{"$", "${"} {
		for rest := j.src; ; {
			_, after, found := strings.Cut(rest, mark+name)
			if !found {
				break
			}
			if rest = after; rest == "" || !isNameByte(rest[0]) {
				return true
			}
		}
	}
	return false
}

func isNameByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// isFreeName reports whether no surrounding loop has a variable of this name.
func (j *judge) isFreeName(name string) bool {
	v, ok := j.vars[name]
	return !ok || v.kind == wordOpaque
}

// harmlessVar reports whether a variable with this value only changes the wording of a program's
// output.
func harmlessVar(name, value string) bool {
	plain := strings.Trim(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.@:+-") == ""
	switch name {
	case "LANG", "LANGUAGE":
		return plain
	case "TZ":
		region := strings.ReplaceAll(value, "/", "")
		return strings.Trim(region, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+-") == "" && !strings.HasPrefix(value, "/")
	case "NO_COLOR", "COLUMNS", "LINES", "SYSTEMD_COLORS", "HISTTIMEFORMAT":
		return plain
	case "PAGER", "SYSTEMD_PAGER", "AWS_PAGER":
		return value == "" || value == "cat"
	case "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_DEFAULT_OUTPUT", "CLOUDSDK_CORE_PROJECT", "NOMAD_NAMESPACE", "HELM_NAMESPACE":
		return plain && !strings.HasPrefix(value, "-")
	case "ETCDCTL_API":
		return value == "2" || value == "3"
	case "VAULT_FORMAT":
		return value == "json" || value == "table" || value == "yaml"
	}
	return strings.HasPrefix(name, "LC_") && plain
}
