package main

import (
	"cmp"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"countersign/adapters/web"
	"countersign/bot"
	"countersign/bot/console"
	"countersign/internal/address"
	"countersign/internal/admin"
	"countersign/internal/config"
	"countersign/internal/rules"
	"countersign/targets/local"
	"countersign/tools/code"
)

func runCommand() *cobra.Command {
	return &cobra.Command{
		Use: "run", Short: "Run the bot, with every adapter that has its tokens", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, f, err := config.Read()
			if err != nil {
				return err
			}
			log, err := e.Logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if err := cmp.Or(bot.Validate(e, f), bot.ValidateServing(e, f), bot.ValidateHere(e, f)); err != nil {
				return err
			}
			b, err := bot.New(cmd.Context(), e, f, log, options(f, bot.Options{Networks: true}))
			if err != nil {
				return err
			}
			defer b.Close()
			if o := b.Machines()[f.Agent.Target].State(); o != nil && o.Notice != "" {
				log.Warn("no terminals", "reason", o.Notice)
			}
			for name, t := range f.Targets {
				if len(t.Approvers) == 0 {
					log.Warn("nobody can approve on this target: it has no approvers", "target", name)
				}
			}
			hup := make(chan os.Signal, 1)
			signal.Notify(hup, syscall.SIGHUP)
			defer signal.Stop(hup)
			return b.Run(cmd.Context(), bot.Serving{Reload: hup, Ready: func(base string) {
				log.Info("the web console listens", "url", base)
			}})
		},
	}
}

// options fills in what this program is and does beside a bot.
func options(f config.File, o bot.Options) bot.Options {
	o.Version, o.Revision, o.Parser, o.Chores = version, revision(), code.Parser(local.New(local.Options{})), admin.Chores(f)
	return o
}

func webCommand() *cobra.Command {
	c := &cobra.Command{Use: "web", Short: "Who may use the web console of the running bot", Args: cobra.ArbitraryArgs}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return config.Errorf("there is no command %q under bot web; see bot web --help", args[0])
		}
		return cmd.Help()
	}
	c.AddCommand(loginCommand())
	return c
}

func loginCommand() *cobra.Command {
	var base string
	c := &cobra.Command{
		Use: "login NAME", Short: "Print a one-time link that logs NAME in to the web console of the running bot", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			e, f, err := config.Read()
			if err != nil {
				return err
			}
			name := strings.TrimPrefix(args[0], "web:")
			r, err := rules.New(f)
			if err != nil {
				return err
			}
			if console.Role(r, name, nil) == web.None {
				return config.Errorf("%q is in no group's web list; add it under groups in the file that COUNTERSIGN_CONFIG names", name)
			}
			key, err := os.ReadFile(e.DataDir + "/web.key")
			if err != nil || len(key) != 32 {
				return fmt.Errorf("the console's key is not in %s; start the bot once, and use the same COUNTERSIGN_DATA_DIR", e.DataDir)
			}
			if base == "" {
				base = f.Web.Origin
			}
			if base == "" {
				base = address.URL(e)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s/#code=%s\n", strings.TrimRight(base, "/"), web.LoginCode(key, name, time.Now()))
			return err
		},
	}
	c.Flags().StringVar(&base, "url", "", "address at which people reach the console; default: web.origin, or that of the running bot")
	return c
}
