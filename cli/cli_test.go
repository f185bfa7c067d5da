package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"countersign/config"
)

func TestExitStatus(t *testing.T) {
	for _, tc := range []struct {
		rule   string
		err    error
		signal int
		want   int
		prints string
	}{
		{"well", nil, 0, 0, ""},
		{"the thing failed", errors.New("no\nluck"), 0, 1, "bot: no luck\n"},
		{"usage", config.Errorf("say %s", "what"), 0, 2, "bot: say what\n"},
		{"wrapped usage", fmt.Errorf("start: %w", config.Errorf("say what")), 0, 2, "bot: start: say what\n"},
		{"interrupted", context.Canceled, 2, 130, ""},
		{"interrupted and well", nil, 2, 130, ""},
		{"ended", fmt.Errorf("no answer: %w", context.Canceled), 15, 143, ""},
		{"ended and well", nil, 15, 0, ""},
		{"ended, and something failed", errors.New("no luck"), 15, 1, "bot: no luck\n"},
	} {
		var b strings.Builder
		if got := Status(tc.err, tc.signal, "", &b); got != tc.want || b.String() != tc.prints {
			t.Errorf("%s: status %d, prints %q", tc.rule, got, b.String())
		}
	}
}

// An error is one sentence on a line, which scripts look for; its document stands below.
func TestAnErrorNamesItsDocumentBelow(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{errors.New("no luck"), "bot: no luck\nRead more: bot docs backup\n"},
		{config.Errorf("policy.reads is wrong"), "bot: policy.reads is wrong\nRead more: bot docs policy-rules\n"},
		{Exit(125, "denied"), "bot: denied\n"},
	} {
		var b strings.Builder
		Status(tc.err, 0, "backup", &b)
		if b.String() != tc.want {
			t.Errorf("%v: %q", tc.err, b.String())
		}
	}
}

func TestAMistakeSaysWhatToWrite(t *testing.T) {
	run := func(args ...string) string {
		sub := &cobra.Command{Use: "wait CALL", Args: cobra.ExactArgs(1), RunE: func(*cobra.Command, []string) error { return nil }}
		calls := &cobra.Command{Use: "calls", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error { return nil }}
		calls.Flags().Bool("follow", false, "")
		calls.AddCommand(sub)
		group := &cobra.Command{Use: "group"}
		group.AddCommand(&cobra.Command{Use: "none", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error { return nil }})
		root := Root(calls, group)
		root.PersistentPreRunE = nil
		root.SetArgs(args)
		err := root.Execute()
		if err == nil {
			return ""
		}
		return err.Error()
	}
	for want, args := range map[string][]string{
		"": {"calls", "--follow"},
		"calls wait: wrong number of arguments (0); write bot calls wait CALL; see bot calls wait --help": {"calls", "wait"},
		"unknown flag: --folow; did you mean --follow?":                                                   {"calls", "--folow"},
		`there is no command "wiat" under bot calls; did you mean wait?`:                                  {"calls", "wiat"},
		`there is no command "x" under bot calls; see bot calls --help`:                                   {"calls", "x"},
		`there is no command "x" under bot group; see bot group --help`:                                   {"group", "x"},
		"group none: it takes no arguments; see bot group none --help":                                    {"group", "none", "x"},
		`there is no command "cals"; did you mean calls?`:                                                 {"cals"},
		"unknown flag: --json; see --help":                                                                {"calls", "--json"},
	} {
		if got := run(args...); got != want {
			t.Errorf("%v: %q, not %q", args, got, want)
		}
	}
}
