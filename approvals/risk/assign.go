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
	if !before {
		j.add(Medium, EffectWrite, "it changes the variable %s of the shell", name)
		return
	}
	if a.Append || a.Naked || why != "" || w.kind != wordLit || !harmlessVar(name, w.text) {
		j.add(Medium, EffectExec, "the variable %s can change what the command does", name)
	}
}

// harmlessVar reports whether a variable with this value only changes how a
// program words its output.
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
