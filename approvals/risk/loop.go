package risk

import (
	"maps"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// loopName reports whether a loop may set a variable of this name: one that neither the shell nor
// programs use.
func loopName(name string) bool {
	if name == "" || len(name) > 24 || strings.Contains(name, "proxy") || name == "histchars" || name == "auto_resume" {
		return false
	}
	return name[0] >= 'a' && name[0] <= 'z' && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

func (j *judge) forClause(c *syntax.ForClause) {
	it, ok := c.Loop.(*syntax.WordIter)
	if !ok || c.Select || c.Braces || it.Name == nil || !it.InPos.IsValid() {
		j.add(Medium, EffectUnknown, "a loop that is not over a written list")
		j.nested(c)
		return
	}
	if !loopName(it.Name.Value) {
		j.add(Medium, EffectWrite, "the loop changes the variable %s, which may mean something to the shell", it.Name.Value)
		j.nested(c)
		return
	}
	if j.isLoopVar(it.Name.Value) {
		j.nested(c)
		return
	}
	defer delete(j.vars, it.Name.Value)
	if len(it.Items) == 0 {
		j.vars[it.Name.Value] = word{kind: wordOpaque, multi: true}
		j.stmts(c.Do)
		return
	}
	for _, item := range it.Items {
		w, why := j.resolveItem(item)
		if why != "" {
			j.add(Medium, EffectUnknown, "%s", why)
		}
		w.multi = false
		j.vars[it.Name.Value] = w
		j.stmts(c.Do)
		if j.steps > maxSteps {
			return
		}
	}
}

// isLoopVar reports whether a surrounding loop has a variable of this name, and adds an issue if so: the
// value that this loop sets remains after it.
func (j *judge) isLoopVar(name string) bool {
	if _, ok := j.vars[name]; !ok {
		return false
	}
	j.add(Medium, EffectUnknown, "two loops inside one another set the variable %s", name)
	return true
}

// resolveItem is resolveWord for a list item, which may be a number sequence {1..5}: each value
// consists of digits.
func (j *judge) resolveItem(item *syntax.Word) (word, string) {
	if len(item.Parts) == 1 {
		if l, ok := item.Parts[0].(*syntax.Lit); ok && strings.HasPrefix(l.Value, "{") && strings.HasSuffix(l.Value, "}") {
			from, to, ok := strings.Cut(l.Value[1:len(l.Value)-1], "..")
			if ok && isDigits(from) && isDigits(to) && len(from) < 5 && len(to) < 5 {
				j.bashOnly("`{1..5}`")
				return word{kind: wordAtom, text: "0"}, ""
			}
		}
		if cs, ok := item.Parts[0].(*syntax.CmdSubst); ok {
			// for x in $(seq 3): each item is one opaque word.
			w, why := j.expansion(cs)
			if w.kind == wordOpaque && why == "" && seqOnly(cs) {
				return word{kind: wordAtom, text: "0"}, ""
			}
			w.mayBeEmpty = false // an empty expansion is no item
			return w, why
		}
	}
	return j.resolveWord(item)
}

func seqOnly(cs *syntax.CmdSubst) bool {
	if len(cs.Stmts) != 1 {
		return false
	}
	c, ok := cs.Stmts[0].Cmd.(*syntax.CallExpr)
	if !ok || len(c.Args) < 2 || c.Args[0].Lit() != "seq" || len(cs.Stmts[0].Redirs) > 0 {
		return false
	}
	for _, a := range c.Args[1:] {
		if !isDigits(a.Lit()) {
			return false
		}
	}
	return true
}

// whileClause proves "while read -r x; do ...; done", which ends with its input.
func (j *judge) whileClause(c *syntax.WhileClause) {
	if !c.Until && len(c.Cond) == 1 && len(c.Cond[0].Redirs) == 0 && !c.Cond[0].Negated && !c.Cond[0].Background {
		if call, ok := c.Cond[0].Cmd.(*syntax.CallExpr); ok && len(call.Assigns) == 0 && len(call.Args) >= 2 && call.Args[0].Lit() == "read" {
			args := call.Args[1:]
			if args[0].Lit() == "-r" {
				args = args[1:]
			}
			saved := j.vars
			j.vars = map[string]word{}
			maps.Copy(j.vars, saved)
			ok := len(args) > 0
			for _, a := range args {
				if j.isLoopVar(a.Lit()) {
					ok = false
				}
				ok = ok && loopName(a.Lit())
				j.vars[a.Lit()] = word{kind: wordOpaque, multi: true}
			}
			if ok {
				j.stmts(c.Do)
				j.vars = saved
				return
			}
			j.vars = saved
		}
	}
	j.add(Low, EffectUnknown, "a loop that may never end")
	j.nested(c)
}
