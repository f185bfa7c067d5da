package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"countersign/agent/llm"
)

// repaired takes away what servers leave around a reply: names and arguments of calls, and thoughts in its text. What
// isn't surely meant otherwise stays as the model wrote it.
func repaired(r llm.Reply, offered []llm.ToolSpec) llm.Reply {
	r.Calls = offeredNames(offered, r.Calls)
	for i := range r.Calls {
		r.Calls[i].Args = repairedArgs(r.Calls[i].Args)
	}
	r.Text = withoutThoughts(r.Text)
	return r
}

// repairedArgs is the one object that arguments are meant to be: some servers send {} before it, send it twice, encode
// it as a string, or leave a model's own tokens behind it.
func repairedArgs(args string) string {
	if s := strings.TrimSpace(args); s == "" || json.Valid([]byte(s)) && s[0] == '{' {
		return args
	}
	var inner string
	if json.Unmarshal([]byte(args), &inner) == nil {
		if s := strings.TrimSpace(inner); json.Valid([]byte(s)) && strings.HasPrefix(s, "{") {
			return s
		}
		return args
	}
	var one []byte
	dec := json.NewDecoder(strings.NewReader(args))
	for {
		var raw json.RawMessage
		before := dec.InputOffset()
		err := dec.Decode(&raw)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil { // what is behind it
			if rest := strings.TrimSpace(args[before:]); one == nil || !strings.HasPrefix(rest, "<|") && !strings.HasPrefix(rest, "</") {
				return args
			}
			break
		}
		var compact bytes.Buffer
		if json.Compact(&compact, raw) != nil || compact.Len() == 0 || compact.Bytes()[0] != '{' {
			return args
		}
		switch {
		case one == nil || string(one) == "{}":
			one = compact.Bytes()
		case compact.String() != "{}" && !bytes.Equal(one, compact.Bytes()):
			return args // two different ones: who knows which is meant
		}
	}
	if one == nil {
		return args
	}
	return string(one)
}

// withoutThoughts is a text without the thoughts that it begins with, which a server without a parser for them leaves
// there. Their beginning may be missing, where a template has it.
func withoutThoughts(text string) string {
	const begin, end = "<think>", "</think>"
	head, rest, ended := strings.Cut(text, end)
	if !ended {
		return text
	}
	head = strings.TrimSpace(head)
	if strings.Contains(head, "`") || strings.Contains(strings.TrimPrefix(head, begin), begin) {
		return text // it may speak of them
	}
	return strings.TrimLeft(rest, " \t\r\n")
}
