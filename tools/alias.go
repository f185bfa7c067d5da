package tools

import (
	"encoding/json"
	"path"
	"slices"
)

// place is the argument of every tool that names a file or a directory.
const place = "path"

// PathWords returns the words that models use for the argument "path" of other programs.
// Wherever a tool has that argument and not the word itself, they mean the same. Models
// are not told of them.
func PathWords() []string {
	return []string{"dir", "directory", "cwd", "file", "file_path", "filename"}
}

// rename gives the place in arguments its one name.
func (c *checker) rename(args map[string]any) error {
	props, _ := c.doc["properties"].(map[string]any)
	if props[place] == nil || c.doc["additionalProperties"] != false {
		return nil
	}
	was, joined := "", false
	for _, word := range PathWords() {
		value, given := args[word]
		if _, own := props[word]; own || !given || props["files"] != nil && !slices.Contains([]string{"dir", "directory", "cwd"}, word) {
			continue
		}
		delete(args, word)
		root, both := args[place]
		switch {
		case !both:
			args[place], was = value, word
			continue
		case !joined && slices.Contains(c.below, word):
			dir, ok := root.(string)
			name, isText := value.(string)
			if ok && isText && dir != "" && name != "" && !path.IsAbs(name) {
				args[place], joined = path.Join(dir, name), true
				continue
			}
		}
		if was == "" {
			was = place
		}
		return Invalid(`%q and %q are two words for the same argument; give "path" alone`, was, word)
	}
	return nil
}

// Renamed returns arguments of a tool with the one name of their place; what is no object
// or names it twice is returned as it is.
func Renamed(s Spec, args json.RawMessage) json.RawMessage {
	c, err := newChecker(s.Schema)
	if err != nil {
		return args
	}
	c.below = s.Below
	v, err := parse(args)
	obj, ok := v.(map[string]any)
	if err != nil || !ok || c.rename(obj) != nil {
		return args
	}
	out, err := encode(obj)
	if err != nil {
		return args
	}
	return out
}
