package openaitest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Rule answers a conversation, or says false so that the next rule is asked.
type Rule func(Conversation) (Turn, bool)

// FirstOf is a script for [New]: the first rule that matches answers, one
// conversation at a time. What no rule matches is refused with status 400,
// which clients do not try again.
func FirstOf(rules ...Rule) func(Conversation) Turn {
	var mu sync.Mutex
	return func(c Conversation) Turn {
		mu.Lock()
		defer mu.Unlock()
		for _, rule := range rules {
			if t, ok := rule(c); ok {
				return t
			}
		}
		return Turn{Status: http.StatusBadRequest, Text: fmt.Sprintf("no rule answers %q with %d results", c.User, c.Results)}
	}
}

// anyResults, as the number of results in a file, matches any number.
const anyResults = -1

// fileRule is a rule in a file; see [Load].
type fileRule struct {
	User           string     `json:"user"`
	System         string     `json:"system"`
	Results        int        `json:"results"`
	ResultContains string     `json:"result_contains"`
	Text           string     `json:"text"`
	Calls          []fileCall `json:"calls"`
	Status         int        `json:"status"`
	RetryAfter     int        `json:"retry_after"`
	Cut            int        `json:"cut"`
	Finish         string     `json:"finish"`
	DelayMS        int        `json:"delay_ms"`
	Times          int        `json:"times"`
}

type fileCall struct {
	ID   string          `json:"id"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

// Load reads rules for [FirstOf] from JSON:
//
//	{"rules": [
//	  {"user": "disk", "text": "Let me look.", "calls": [{"name": "run_shell", "args": {"command": "df -h"}}]},
//	  {"user": "disk", "result_contains": "100%", "text": "It is full."},
//	  {"user": "busy", "status": 429, "retry_after": 2, "times": 1}
//	]}
//
// A rule matches when all of its conditions do. user, system and
// result_contains are substrings of the last user message, the system prompt
// and the last tool result; "" matches anything. results is the exact number
// of tool results since that user message: 0, also when it is left out, so
// that a rule with calls does not match its own results again; -1 is any
// number, and so is 0 beside result_contains.
//
// It answers with text and calls; args is any JSON value, a string is sent
// byte for byte, so that it need not be JSON. delay_ms is the time between the
// chunks, finish another reason than stop or tool_calls, cut the number of
// chunks after which the connection breaks. status (with text as its message,
// and retry_after in seconds) fails instead. times is how often the rule
// answers, 0 without limit. An unknown key is an error.
func Load(r io.Reader) ([]Rule, error) {
	raw, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("the rules cannot be read: %w", err)
	}
	var file struct {
		Rules []fileRule `json:"rules"`
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&file); err != nil {
		return nil, fmt.Errorf("the rules are wrong near byte %d: %w", d.InputOffset(), err)
	}
	if len(file.Rules) == 0 {
		return nil, errors.New(`there are no rules; write at least {"rules":[{"text":"hello"}]}`)
	}
	rules := make([]Rule, len(file.Rules))
	for i, f := range file.Rules {
		if rules[i], err = f.rule(); err != nil {
			return nil, fmt.Errorf("rule %d: %w", i+1, err)
		}
	}
	return rules, nil
}

// LoadFile reads rules from a file; see [Load].
func LoadFile(path string) ([]Rule, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the rules cannot be read: %w", err)
	}
	rules, err := Load(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return rules, nil
}

func (f fileRule) rule() (Rule, error) {
	if f.Status != 0 && (f.Status < 400 || f.Status > 599) {
		return nil, fmt.Errorf("the status %d is no error; use 400 to 599", f.Status)
	}
	t := Turn{Text: f.Text, Delay: time.Duration(f.DelayMS) * time.Millisecond, Status: f.Status, Finish: f.Finish, Cut: f.Cut}
	if f.RetryAfter > 0 {
		t.RetryAfter = strconv.Itoa(f.RetryAfter)
	}
	for _, c := range f.Calls {
		if c.Name == "" {
			return nil, errors.New("a call has no name; add one")
		}
		args := string(c.Args)
		var s *string
		switch {
		case args == "":
			args = "{}"
		case json.Unmarshal(c.Args, &s) == nil && s != nil:
			args = *s
		}
		t.Calls = append(t.Calls, Call{ID: c.ID, Name: c.Name, Args: args})
	}
	answered := 0
	return func(c Conversation) (Turn, bool) { // FirstOf asks one at a time
		if (f.Times > 0 && answered >= f.Times) || !f.matches(c) {
			return Turn{}, false
		}
		answered++
		return t, true
	}, nil
}

func (f fileRule) matches(c Conversation) bool {
	if !strings.Contains(c.User, f.User) || !strings.Contains(c.System, f.System) {
		return false
	}
	if f.ResultContains != "" {
		return c.Results > 0 && strings.Contains(c.Last, f.ResultContains) && (f.Results <= 0 || f.Results == c.Results)
	}
	return f.Results == anyResults || f.Results == c.Results
}
