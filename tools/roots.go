package tools

import "strings"

// OffLimits is the refusal of a path that no tool may use: it is outside the target's roots, if
// there are any, or private to the bot. name is the path as given in the call, resolved is what it
// resolves to.
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
