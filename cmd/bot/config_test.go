package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bot.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTheExampleFileNamesEveryKeyAndLoads(t *testing.T) {
	const path = "../../docs/example.yaml"
	if _, err := readFile(path); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := map[string]bool{ // keys of targets and networks that this version does not have yet
		"host": true, "user": true, "container": true, "rules": true, "discord": true, "discord_roles": true,
	}
	for _, k := range knownKeys() {
		if !elsewhere[k] && !strings.Contains(string(raw), k+":") {
			t.Errorf("%s does not document %q", path, k)
		}
	}
}

func TestConfigurationErrorsAreOneSentence(t *testing.T) {
	for _, tc := range []struct{ rule, text, want string }{
		{"an unknown key names the nearest", "agnet: {name: x}", `line 1: unknown key "agnet"; did you mean "agent"?`},
		{"a wrong type names the line", "tmux:\n  max_panes: many", "line 2"},
		{"an unknown target", "agent: {name: x, target: db}", `agent.target is "db"`},
		{"an unknown kind", "targets: {local: {kind: vm}}", `kind "vm"`},
		{"no YAML at all", "{", "line 1"},
		{"an unknown mode", "agent: {mode: yolo}", `agent.mode: the mode "yolo"`},
		{"an unknown platform", "channels: [{platform: irc, id: x}]", `channels[0] has platform "irc"`},
		{"a channel without id", "channels: [{platform: slack}]", `channels[0] has no id`},
		{"a channel that is listed twice", "channels: [{platform: slack, id: C1}, {platform: slack, id: C1}]", "listed twice"},
		{"an unknown mode of a channel", "channels: [{platform: slack, id: C1, mode: fast}]", `the mode "fast"`},
		{"an unknown way of following up", "channels: [{platform: slack, id: C1, followups: none}]", `followups "none"`},
		{"a channel with a target that nobody listed", "channels: [{platform: slack, id: C1, target: db}]", `target "db"`},
	} {
		_, err := readFile(write(t, tc.text))
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", tc.rule, err)
		}
	}
}

func TestExitStatus(t *testing.T) {
	for _, tc := range []struct {
		rule        string
		err         error
		interrupted bool
		want        int
		prints      string
	}{
		{"well", nil, false, 0, ""},
		{"the thing failed", errors.New("no\nluck"), false, 1, "bot: no luck\n"},
		{"usage", usage("say %s", "what"), false, 2, "bot: say what\n"},
		{"wrapped usage", fmt.Errorf("start: %w", usage("say what")), false, 2, "bot: start: say what\n"},
		{"interrupted", context.Canceled, true, 130, ""},
		{"interrupted and well", nil, true, 130, ""},
	} {
		var b strings.Builder
		if got := status(tc.err, tc.interrupted, &b); got != tc.want || b.String() != tc.prints {
			t.Errorf("%s: status %d, prints %q", tc.rule, got, b.String())
		}
	}
}
