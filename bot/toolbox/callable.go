package toolbox

import (
	"countersign/bot/machines"
	"countersign/console/api"
	"countersign/tools"
	"countersign/tools/outside"
)

// callable names the tools that programs may call: those that work on targets, but for the shells,
// in whose place a program names a command and a target, and what reads a whole output.
func (t *Toolbox) callable() map[string]bool {
	names := map[string]bool{"read_output": true, outside.Name: true, outside.EditName: true}
	for _, p := range machines.Patterns(t.File.Tools) {
		names[p.Spec().Name] = true
	}
	delete(names, "run_shell")
	delete(names, "bash")
	return names
}

// Callable reports whether programs may call a tool.
func (t *Toolbox) Callable(tool string) bool { return t.callable()[tool] }

// Callables lists what programs may call of what the bot's own agent has.
func (t *Toolbox) Callables() []api.ToolInfo {
	names := t.callable()
	out := []api.ToolInfo{}
	for _, s := range t.Everyone().Specs(func(s tools.Spec) bool { return names[s.Name] }) {
		out = append(out, api.ToolInfo{Name: s.Name, Description: s.ModelText, Schema: s.ModelSchema})
	}
	return out
}
