package tools

import (
	"encoding/json"
	"path"
	"slices"
)

// pathArg is the argument with which every tool names a file or directory.
const pathArg = "path"

// PathAliases returns the argument names that models bring from other programs for "path". A tool
// that has "path" and not the alias itself accepts the alias. The schemas do not mention them.
func PathAliases() []string {
	return []string{"dir", "directory", "cwd", "file", "file_path", "filename"}
}

// normalizePathArg renames a path alias in args to "path".
func (c *checker) normalizePath(args map[string]any) error {
	props, _ := c.doc["properties"].(map[string]any)
	if props[pathArg] == nil || c.doc["additionalProperties"] != false {
		return nil
	}
	was, joined := "", false
	for _, word := range PathAliases() {
		value, given := args[word]
		if _, own := props[word]; own || !given || props["files"] != nil && !slices.Contains([]string{"dir", "directory", "cwd"}, word) {
			continue
		}
		delete(args, word)
		root, both := args[pathArg]
		switch {
		case !both:
			args[pathArg], was = value, word
			continue
		case !joined && slices.Contains(c.below, word):
			dir, ok := root.(string)
			name, isText := value.(string)
			if ok && isText && dir != "" && name != "" && !path.IsAbs(name) {
				args[pathArg], joined = path.Join(dir, name), true
				continue
			}
		}
		if was == "" {
			was = pathArg
		}
		return Invalid(`%q and %q are two words for the same argument; give "path" alone`, was, word)
	}
	return nil
}

// NormalizePathArg returns args with a path alias renamed to "path". Arguments that are not an
// object, or that give the path twice, are returned unchanged.
func NormalizePathArg(s Spec, args json.RawMessage) json.RawMessage {
	c, err := newChecker(s.Schema)
	if err != nil {
		return args
	}
	c.below = s.Below
	v, err := parse(args)
	obj, ok := v.(map[string]any)
	if err != nil || !ok || c.normalizePath(obj) != nil {
		return args
	}
	out, err := encode(obj)
	if err != nil {
		return args
	}
	return out
}
