package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/user"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	"golang.org/x/term"

	"countersign/adapters/chat"
	"countersign/approvals/policy"
	"countersign/bot"
	"countersign/cli/toolsdoc"
	"countersign/cli/words"
	"countersign/config"
	"countersign/internal/redact"
	"countersign/tools/hostkey"
)

// masked is a secret as config print shows it.
func masked(s redact.Secret) string {
	if s == "" {
		return ""
	}
	return "***"
}

func configCommand() *cobra.Command {
	c := &cobra.Command{Use: "config", Short: "Look at the configuration", Args: cobra.NoArgs}
	c.AddCommand(&cobra.Command{
		Use: "print", Short: "Print the effective configuration, secrets masked", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, f, err := config.Read()
			if err == nil {
				err = bot.Validate(e, f)
			}
			if err == nil {
				err = bot.ValidateServing(e, f)
			}
			if err != nil {
				return err
			}
			if err := bot.ValidateHere(e, f); err != nil {
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "Note: on this machine `%s` refuses to start: %v.\n", words.Named("bot run"), err)
			}
			headers := map[string]string{}
			for k := range e.ModelHeaders {
				headers[k] = "***"
			}
			// approve is printed with the defaults that apply where the file is silent.
			f.Policy = f.Policy.Effective()
			view := struct {
				Environment map[string]any `yaml:"environment"`
				File        config.File    `yaml:"file"`
			}{map[string]any{
				"OPENAI_API_KEY": masked(e.OpenAIKey), "OPENAI_BASE_URL": e.OpenAIBaseURL, "OPENAI_MODEL": e.OpenAIModel,
				"TAVILY_API_KEY": masked(e.TavilyKey), "TAVILY_BASE_URL": e.TavilyURL, "COUNTERSIGN_MODEL_API": e.ModelAPI, "COUNTERSIGN_MODEL_HEADERS": headers, "COUNTERSIGN_CONFIG": e.Config,
				"COUNTERSIGN_DATA_DIR": e.DataDir, "COUNTERSIGN_LISTEN": e.Listen, "COUNTERSIGN_INSTANCE": e.Instance,
				"COUNTERSIGN_LOG_LEVEL": e.LogLevel, "COUNTERSIGN_LOG_FORMAT": e.LogFormat,
			}, f}
			for _, n := range f.Networks() {
				for _, name := range n.Secrets() {
					view.Environment[name] = masked(redact.Secret(e.Value(name)))
				}
				if n.API != "" {
					view.Environment[n.API] = e.Value(n.API)
				}
			}
			enc := yaml.NewEncoder(cmd.OutOrStdout())
			enc.SetIndent(2)
			return errors.Join(enc.Encode(view), enc.Close())
		},
	})
	return c
}

// scratch builds a bot over a throw-away data directory.
func scratch(cmd *cobra.Command, o bot.Options, change func(*config.Env, *config.File) error) (*bot.Bot, func(), error) {
	return bot.Scratch(cmd.Context(), cmd.ErrOrStderr(), options(config.File{}, o), change)
}

func toolsCommand() *cobra.Command {
	var asJSON, asMarkdown bool
	var preset string
	c := &cobra.Command{
		Use: "tools", Short: "Print the catalogue as the model sees it", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asMarkdown {
				if asJSON || preset != "" {
					return config.Errorf("--markdown shows every tool, so it goes with neither --json nor --preset; leave them out")
				}
				return printCatalogue(cmd)
			}
			box, done, err := bot.Catalogue(cmd.Context(), cmd.ErrOrStderr(), options(config.File{}, bot.Options{}), func(_ *config.Env, f *config.File) error {
				if preset != "" {
					f.Agent.Preset = preset
				}
				return nil
			})
			if err != nil {
				return err
			}
			defer done()
			out := cmd.OutOrStdout()
			specs := box.Everyone().Specs(nil)
			if !asJSON {
				for _, s := range specs {
					first, _, _ := strings.Cut(strings.TrimSpace(s.Description), "\n")
					if _, err := fmt.Fprintf(out, "%-20s %-8s %s\n", s.Name, s.Level, first); err != nil {
						return err
					}
				}
				return nil
			}
			type function struct {
				Name        string          `json:"name"`
				Description string          `json:"description"`
				Parameters  json.RawMessage `json:"parameters"`
			}
			type tool struct {
				Type     string   `json:"type"`
				Function function `json:"function"`
			}
			list := []tool{}
			for _, s := range specs {
				list = append(list, tool{"function", function{s.Name, s.ModelText, s.ModelSchema}})
			}
			enc := json.NewEncoder(out)
			enc.SetIndent("", "  ")
			enc.SetEscapeHTML(false)
			return enc.Encode(list)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, as it goes into a request")
	c.Flags().StringVar(&preset, "preset", "", "preset instead of the configured one")
	c.Flags().BoolVar(&asMarkdown, "markdown", false, "print docs/tools.md: every tool that the program has, whatever is configured")
	return c
}

func toolCommand() *cobra.Command {
	var on choice
	var yes bool
	c := &cobra.Command{
		Use: "tool NAME JSON", Short: "Run one tool through the same gate; the envelope goes to standard output", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			person := "you"
			if u, err := user.Current(); err == nil {
				person = u.Username
			}
			b, done, err := scratch(cmd, bot.Options{Single: true}, func(e *config.Env, f *config.File) error {
				if err := on.apply(f); err != nil {
					return err
				}
				e.Instance = "tool-" + randomHex(4)
				return oneApprover(f, person)
			})
			if err != nil {
				return err
			}
			defer done()
			defer b.Machines().EndTerminals(context.WithoutCancel(cmd.Context()))
			if t, ok := b.Toolbox().Everyone().Lookup(args[0]); ok && t.NeedsTmux {
				_, _ = fmt.Fprintln(cmd.ErrOrStderr(), words.Named("Note: every run of `bot tool` has terminals of its own, which close when it exits."))
			}
			me := chat.User{ID: chat.UserID("web:" + person), Name: person}
			text, err := b.Caller().Call(cmd.Context(), me, args[0], args[1], func(what string) bool {
				return yes || ask(cmd, what)
			})
			if text != "" {
				if _, perr := fmt.Fprintln(cmd.OutOrStdout(), text); perr != nil {
					return perr
				}
			}
			return err
		},
	}
	on.flags(c)
	c.Flags().BoolVar(&yes, "yes", false, "approve what needs approval")
	return c
}

// oneApprover makes the person at the keyboard the approver of every target.
func oneApprover(f *config.File, person string) error {
	if _, ok := f.Targets[f.Agent.Target]; !ok {
		return config.Errorf("there is no target %q; the targets are %s", f.Agent.Target, strings.Join(slices.Sorted(maps.Keys(f.Targets)), ", "))
	}
	groups := maps.Clone(f.Groups) // the rules may name them
	if groups == nil {
		groups = map[string]policy.Group{}
	}
	groups["keyboard"] = policy.Group{People: policy.IDs{"web": {person}}}
	f.Groups, f.Policy.Approve.Count, f.Policy.Approve.Requester = groups, 1, "always"
	for name, t := range f.Targets {
		t.Approvers, t.Users, t.Channels = []string{"keyboard"}, nil, nil
		f.Targets[name] = t
	}
	return nil
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}

// ask is the one-shot prompt: only an explicit yes on a terminal approves.
func ask(cmd *cobra.Command, what string) bool {
	in, ok := cmd.InOrStdin().(*os.File)
	if !ok {
		return false
	}
	if !term.IsTerminal(int(in.Fd())) {
		return false
	}
	_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "Run: %s [y/N] ", what)
	line, _ := bufio.NewReader(in).ReadString('\n')
	line = strings.ToLower(strings.TrimSpace(line))
	return line == "y" || line == "yes"
}

//go:generate sh -c "go run . tools --markdown >../../docs/tools.md"

// printCatalogue writes docs/tools.md: the tools of a bot that is configured nowhere.
func printCatalogue(cmd *cobra.Command) error {
	box, done, err := bot.Catalogue(cmd.Context(), cmd.ErrOrStderr(), options(config.File{}, bot.Options{}), func(_ *config.Env, f *config.File) error {
		*f = config.Defaults()
		return nil
	})
	if err != nil {
		return err
	}
	defer done()
	own, err := box.Base()
	if err != nil {
		return err
	}
	all, err := own.With(hostkey.New(hostkey.Config{})) // else only where a target asks for it
	if err != nil {
		return err
	}
	text, err := toolsdoc.Markdown(all)
	if err != nil {
		return err
	}
	_, err = io.WriteString(cmd.OutOrStdout(), text)
	return err
}
