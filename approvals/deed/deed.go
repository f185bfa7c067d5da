// Package deed says in a few words for people what an action does: "Delete 3 files",
// "Restart nginx". It derives them from the action and from the effects that the risk
// engine found, never from the model's words. A table of programs (deeds.txt) and one of
// tools hold all sentences; where an action has anything that they do not list, it is
// "Run a command".
//
// It is pure. It does not judge an action (approvals/risk) and does not name the place
// where it runs (approvals/card).
package deed

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"countersign/approvals"
	"countersign/approvals/argv"
	"countersign/approvals/risk"
)

// Unknown is the deed of a command that nothing better is known of.
const Unknown = "Run a command"

// maxText is the longest shell text, in bytes, that is read.
const maxText = 8 << 10

// Headline returns what an action does, as one line of plain text with neither a period nor
// invisible characters. effects are those that the risk engine found in it.
func Headline(a approvals.Action, effects []string) string {
	switch {
	case len(a.Steps) == 1:
		return "Run 1 step"
	case len(a.Steps) > 1:
		return fmt.Sprintf("Run %d steps", len(a.Steps))
	case a.Kind == approvals.KindShell:
		return shell(string(a.Bytes), effects)
	}
	if s := tool(a); s != "" {
		return s
	}
	if plainName.MatchString(a.Tool) {
		return "Use the tool " + a.Tool
	}
	return "Use a tool"
}

// shell returns the deed of shell text.
func shell(text string, effects []string) string {
	if len(text) > maxText {
		return Unknown
	}
	if s := pipe(text, effects); s != "" {
		return s
	}
	cmds, ok := argv.ParseList(text)
	if !ok {
		return Unknown
	}
	var deeds []string
	var explained []risk.Effect
	for i, c := range cmds {
		if !c.Literal || !c.Alone || len(c.Argv) == 0 {
			if s := written(c, effects); s != "" && len(cmds) == 1 {
				return s
			}
			return Unknown
		}
		if i < len(cmds)-1 && c.Argv[0].Text == "cd" && len(c.Argv) == 2 {
			continue
		}
		v := risk.Classify(source(c.Argv))
		found := effects
		if len(cmds) > 1 { // each answers for its own
			explained = append(explained, v.Effects...)
			found = nil
			for _, e := range v.Effects {
				found = append(found, string(e))
			}
		}
		s, ok := one(c.Argv, found)
		switch {
		case ok:
			deeds = append(deeds, s)
		case !v.ReadOnly:
			return Unknown
		}
	}
	if len(cmds) > 1 && !within(effects, explained...) {
		return Unknown
	}
	switch len(deeds) {
	case 0:
		return Unknown
	case 1:
		return deeds[0]
	case 2:
		return deeds[0] + ", then " + lowerFirst(deeds[1])
	}
	return fmt.Sprintf("%s, then %d more changes", deeds[0], len(deeds)-1)
}

// one returns the deed of one simple command.
func one(words []argv.Word, effects []string) (string, bool) {
	words, as, ok := argv.Unwrap(words)
	if !ok {
		return "", false
	}
	if words[0].Glob || words[0].Home {
		return "", false
	}
	name := argv.Program(words[0].Text)
	if as != "" {
		effects = slices.DeleteFunc(slices.Clone(effects), func(e string) bool { return e == string(risk.EffectPrivesc) })
	}
	s, ok := "", false
	switch name {
	case "":
		s, ok = shown(words[0], false)
		s = "Run " + s
	case "kill":
		s, ok = kill(words[1:])
	case "find":
		s, ok = find(words[1:], effects)
	case "sed":
		s, ok = edit(words[1:], effects)
	default:
		for _, r := range rows()[name] {
			if s, ok = r.match(words, effects); ok {
				break
			}
		}
	}
	if !ok && as != "" && risk.Classify(source(words)).ReadOnly {
		s, ok = "Run a read-only command", true
	}
	switch {
	case !ok, as != "" && !plainName.MatchString(as):
		return "", false
	case as != "":
		s += " as " + as
	}
	return s, true
}

// written returns the deed of a command whose output goes to a file, "> file" included, or
// "".
func written(c argv.Command, effects []string) string {
	if !c.Literal || c.Redirections != 1 || len(c.Truncates)+len(c.Appends) != 1 || !within(effects, risk.EffectWrite, risk.EffectDelete) {
		return ""
	}
	file := slices.Concat(c.Truncates, c.Appends)[0]
	name, ok := shown(file, true)
	if !ok {
		name = "a file"
	}
	switch nothing := len(c.Argv) == 0 || len(c.Argv) == 1 && c.Argv[0].Text == ":"; {
	case nothing && len(c.Truncates) == 1:
		return "Empty " + name
	case nothing, !risk.Classify(source(c.Argv)).ReadOnly:
		return ""
	case len(c.Appends) == 1:
		return "Add to " + name
	}
	return "Write to " + name
}

// within reports whether no effect is any other than those.
func within(effects []string, those ...risk.Effect) bool {
	return !slices.ContainsFunc(effects, func(e string) bool { return !slices.Contains(those, risk.Effect(e)) })
}

// pipe returns the deed of a pipeline, or "": a download that a shell runs, or the output of
// reads that tee writes to a file.
func pipe(text string, effects []string) string {
	cmds, ok := argv.ParsePipe(text)
	if !ok || len(cmds) < 2 {
		return ""
	}
	for _, c := range cmds {
		if !c.Literal || !c.Alone || len(c.Argv) == 0 {
			return ""
		}
	}
	last := len(cmds) - 1
	if s, ok := one(cmds[last].Argv, effects); ok && isTee(cmds[last].Argv) {
		if slices.ContainsFunc(cmds[:last], func(c argv.Command) bool { return !risk.Classify(source(c.Argv)).ReadOnly }) {
			return ""
		}
		return s
	}
	if last == 1 && isDownload(cmds[0].Argv) && isShell(cmds[1].Argv) {
		return "Download a script and run it"
	}
	return ""
}

func isTee(words []argv.Word) bool {
	words, _, ok := argv.Unwrap(words)
	return ok && argv.Program(words[0].Text) == "tee"
}

func isDownload(words []argv.Word) bool {
	name := argv.Program(words[0].Text)
	return len(words) > 1 && (name == "curl" || name == "wget")
}

// isShell reports whether a command is a shell that runs its standard input.
func isShell(words []argv.Word) bool {
	words, _, ok := argv.Unwrap(words)
	if !ok || !slices.Contains([]string{"sh", "bash", "dash", "zsh", "ash"}, argv.Program(words[0].Text)) {
		return false
	}
	return len(words) == 1 || words[1].Text == "-s" || len(words) == 2 && words[1].Text == "-"
}

// signal finds a signal among the options of kill.
var signal = regexp.MustCompile(`^-(?:SIG)?([A-Z]{2,6}[0-9]?|[0-9]{1,2})$`)

// kill returns the deed of kill's arguments.
func kill(words []argv.Word) (string, bool) {
	sig := "TERM"
	if len(words) > 1 && words[0].Text == "-s" {
		words = slices.Concat([]argv.Word{{Text: "-" + words[1].Text}}, words[2:])
	}
	if len(words) > 0 {
		if m := signal.FindStringSubmatch(words[0].Text); m != nil {
			sig, words = m[1], words[1:]
		}
	}
	if len(words) == 0 || slices.ContainsFunc(words, func(w argv.Word) bool { n, err := strconv.Atoi(w.Text); return err != nil || n <= 1 || w.Glob }) {
		return "", false
	}
	whom := fmt.Sprintf("%d processes", len(words))
	if len(words) == 1 {
		whom = "process " + words[0].Text
	}
	switch sig {
	case "TERM", "15":
		return "End " + whom, true
	case "KILL", "9":
		return "Kill " + whom, true
	}
	return "Send the signal " + sig + " to " + whom, true
}

// find returns the deed of find's arguments if it deletes what it finds and does nothing
// else that changes anything.
func find(words []argv.Word, effects []string) (string, bool) {
	if len(words) < 2 || words[len(words)-1].Text != "-delete" || !within(effects, risk.EffectDelete, risk.EffectWrite) {
		return "", false
	}
	dir, ok := shown(words[0], false)
	if !ok || strings.HasPrefix(dir, "-") || strings.HasPrefix(words[1].Text, "/") {
		return "", false
	}
	for _, w := range words[1 : len(words)-1] {
		if strings.HasPrefix(w.Text, "-") && !slices.Contains([]string{"-name", "-iname", "-type", "-mtime", "-mmin", "-size", "-maxdepth", "-mindepth", "-empty", "-newer", "-user", "-xdev"}, w.Text) {
			return "", false
		}
	}
	return "Delete files found in " + dir, true
}

// edit returns the deed of sed's arguments if it replaces or deletes lines of files, and its
// script cannot run or write anything.
func edit(words []argv.Word, effects []string) (string, bool) {
	args, ok := argv.ParseArgs("-Ern -i? --in-place?", words)
	if !ok || !args.Has("-i", "--in-place") || len(args.Operands) < 2 || !within(effects, risk.EffectWrite) {
		return "", false
	}
	if !isEdit(args.Operands[0].Text) {
		return "", false
	}
	return "Edit " + phrase(args.Operands[1:], "file", "", false), true
}

// deletes is a script of sed that deletes lines by number or by pattern.
var deletes = regexp.MustCompile(`^(?:[0-9]+|\$)?(?:,(?:[0-9]+|\$))?d$|^/[^/]+/d$`)

// isEdit reports whether a script of sed is one substitution or one deletion.
func isEdit(script string) bool {
	if deletes.MatchString(script) {
		return true
	}
	if len(script) < 4 || script[0] != 's' || strings.IndexByte("/|,#:@!", script[1]) < 0 {
		return false
	}
	parts := strings.Split(script[2:], script[1:2])
	return len(parts) == 3 && !strings.Contains(script, "\\"+script[1:2]) && strings.Trim(parts[2], "gI0123456789") == ""
}

// source is the text of a command's words.
func source(words []argv.Word) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = w.Source
	}
	return strings.Join(out, " ")
}

// plainName is a name that can stand in a sentence: nothing in it can be taken for
// something else.
var plainName = regexp.MustCompile(`^[A-Za-z0-9_./@+][A-Za-z0-9._/@:=,%+~^-]{0,47}$`)

// shown returns a word for a sentence. ok is false if it cannot stand there.
func shown(w argv.Word, base bool) (name string, ok bool) {
	name = w.Text
	if base && !strings.HasPrefix(name, "/dev/") {
		name = path.Base(name)
	}
	if name == "." || name == ".." || w.Glob || !plainName.MatchString(strings.TrimPrefix(name, "~")) {
		return "", false
	}
	return name, true
}

func lowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }
