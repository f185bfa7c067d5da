package tools

import "strings"

// OffLimits is the refusal of a place that no tool may use: it is outside of the roots of
// the target, where there are some, or else private to the bot. name is the place as the
// call names it, and resolved where that leads.
func OffLimits(name, resolved string, roots []string) error {
	for _, root := range roots {
		if root = strings.TrimSuffix(root, "/"); resolved == root || strings.HasPrefix(resolved, root+"/") {
			roots = nil
			break
		}
	}
	if len(roots) > 0 {
		return Failed("%s is outside of the directories that tools may use on this target: %s", name, strings.Join(roots, ", "))
	}
	return Failed("%s is private to the bot or another process and cannot be used by a tool", name)
}
