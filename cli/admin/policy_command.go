package admin

import (
	"time"

	"countersign/bot"
	"countersign/config"

	"github.com/spf13/cobra"
)

// PolicyCommand is the command of that name.
func PolicyCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "policy", Short: "Ask what the policy says, without running anything",
	}
	c.AddCommand(explainCommand(), policyTestCommand(), replayCommand())
	return c
}

func explainCommand() *cobra.Command {
	var q Question
	var asJSON bool
	var at, until string
	c := &cobra.Command{
		Use:   "explain [flags] COMMAND",
		Short: "Say what would happen to a command, and who may approve it",
		Long: `Say what would happen to a command, and who may approve it: the lane, the level,
the rules that match and the clocks. Nothing runs, and nobody is asked.

COMMAND is shell text. With --tool it is the arguments of that tool as JSON, and a
path among them is taken as it stands. What was learned earlier does not count.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return config.Errorf("policy explain takes one COMMAND, in quotes, and has %d; see bot policy explain --help", len(args))
			}
			return cobra.ExactArgs(1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if q.User == "" {
				return config.Errorf("--user is missing; write web:NAME, slack:TEAM:ID or discord:ID")
			}
			q.At = time.Now()
			for flag, s := range map[string]struct {
				text string
				to   *time.Time
			}{"at": {at, &q.At}, "until": {until, &q.Until}} {
				if s.text == "" {
					continue
				}
				v, err := time.Parse(time.RFC3339, s.text)
				if err != nil {
					return config.Errorf("--%s is %q; write a time like 2026-01-31T15:04:05Z", flag, s.text)
				}
				*s.to = v
			}
			q.Command = args[0]
			return ExplainPolicy(cmd.Context(), cmd.OutOrStdout(), scratchOf(cmd), q, asJSON)
		},
	}
	c.Flags().StringVar(&q.User, "user", "", "who asks: web:NAME, slack:TEAM:ID or discord:ID")
	c.Flags().StringArrayVar(&q.Groups, "group", nil, "a user group or role that the network vouches for; may be repeated")
	c.Flags().StringVar(&q.Channel, "channel", "", "slack:ID, discord:ID or web (default web)")
	c.Flags().StringVar(&q.Target, "target", "", "target instead of the configured one")
	c.Flags().StringVar(&q.Tool, "tool", "run_shell", "the tool that is called")
	c.Flags().StringVar(&q.Mode, "mode", "", "mode instead of the channel's")
	c.Flags().StringVar(&q.Lock, "lock", "none", "whether the target holds reads back (bot doctor says): enforced or none")
	c.Flags().StringVar(&until, "until", "", "end of the mode trusting instead of the channel's, in RFC 3339")
	c.Flags().StringVar(&at, "at", "", "the time in RFC 3339 (default now)")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func policyTestCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "test FILE...",
		Short: "Check tables of examples against the policy; exit status 1 for each table that misses",
		Long: `Check tables of examples against the policy. A table is a YAML list of

  - name: stopping the shop takes two     # needed, as is expect
    command: systemctl stop checkout      # or tool and args
    channel: slack:C0123456               # default web
    target: local                         # default the channel's, else agent.target
    user: slack:T1:U1
    groups: [S1]                          # what the network vouches for
    mode: balanced                        # default the channel's
    lock: none                            # or enforced: the target holds reads back
    at: 2024-01-01T12:00:00Z              # default that, a Monday
    expect: ask                           # allow, ask or forbid
    count: 2                              # most people that one requirement takes
    rule: prod-high                       # a rule that matches, or what decides`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return config.Errorf("policy test takes at least one FILE; see bot policy test --help")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return TestPolicy(cmd.Context(), cmd.OutOrStdout(), scratchOf(cmd), args)
		},
	}
}

// scratchOf builds the bots that a command looks up tools in.
func scratchOf(cmd *cobra.Command) Scratch {
	return func(change func(*config.Env, *config.File) error) (*bot.Bot, func(), error) {
		return bot.Scratch(cmd.Context(), cmd.ErrOrStderr(), bot.Options{}, change)
	}
}
