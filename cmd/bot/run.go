package main

import (
	"cmp"
	"fmt"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"countersign/adapters/chat"
	"countersign/approvals/passkey"
	"countersign/bot"
	consoles "countersign/bot/console"
	"countersign/cli/admin"
	"countersign/cli/manual"
	"countersign/cli/remote"
	"countersign/cli/words"
	"countersign/config"
	"countersign/config/address"
	"countersign/config/rules"
	"countersign/console"
	"countersign/targets/local"
	"countersign/targets/lock/helper"
	"countersign/tools/code"
)

func runCommand() *cobra.Command {
	insecure := false
	c := &cobra.Command{
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
			if !insecure {
				if err := consoles.CheckClearText(cmp.Or(e.Listen, address.Default), f.Web); err != nil {
					return err
				}
			}
			o, err := withDocs(cmd, options(f, bot.Options{Networks: true}))
			if err != nil {
				return err
			}
			b, err := bot.New(cmd.Context(), e, f, log, o)
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
			for _, s := range config.Strays(f, os.Environ()) {
				if s.Near != "" {
					log.Warn("nothing reads this variable of the environment", "name", s.Name, "meant", s.Near)
				}
			}
			hup := make(chan os.Signal, 1)
			signal.Notify(hup, syscall.SIGHUP)
			defer signal.Stop(hup)
			return b.Run(cmd.Context(), bot.Serving{Reload: hup, Ready: func(base string) {
				log.Info("the web console listens", "url", base)
				if out, ok := cmd.ErrOrStderr().(*os.File); ok && term.IsTerminal(int(out.Fd())) {
					_, _ = fmt.Fprintln(out, words.Named(signInHint(e, f, base)))
				}
			}})
		},
	}
	c.Flags().BoolVar(&insecure, "insecure-http", false, "serve the console to other machines without TLS: who can read the network can sign in and approve")
	return c
}

// withDocs has the bot serve the documents.
func withDocs(cmd *cobra.Command, o bot.Options) (bot.Options, error) {
	pages, err := manual.Of(cmd.Root())
	if err != nil {
		return o, err
	}
	chores := o.Chores
	o.Chores = func(s bot.Site) bot.Chores {
		c := chores(s)
		c.Handlers[manual.Root], c.Handlers[manual.Root+"/"] = pages.Handler(version), pages.Handler(version)
		return c
	}
	return o, nil
}

// signInHint says how to get into the console: by a link for who starts the bot.
func signInHint(e config.Env, f config.File, base string) string {
	var accounts []string
	if u, err := user.Current(); err == nil {
		accounts = []string{u.Username, os.Getenv("SUDO_USER")}
	}
	name := whoStarts(f, accounts)
	if name == "" {
		return "Nobody can sign in to the console: add a name under groups.GROUP.web in the configuration, then run bot login NAME."
	}
	link, err := signInLink(e, f, base, name, console.LoginCode)
	if err != nil {
		return "To sign in to the console: bot login " + name
	}
	return "Sign in as " + name + " (works once, for ten minutes; for somebody else: bot login NAME): " + link
}

// whoStarts is the member of the console who is called as one of the accounts, or else the first member, where those
// who may break the glass come last; "" is nobody.
func whoStarts(f config.File, accounts []string) string {
	r, err := rules.New(f)
	if err != nil {
		return ""
	}
	name, last := "", ""
	for _, n := range f.WebNames() {
		local, _, _ := strings.Cut(n, "@")
		switch {
		case consoles.Role(r, n, nil) != console.Member:
		case slices.Contains(accounts, n) || slices.Contains(accounts, local):
			return n
		case r.Policy.Eligible(f.Policy.BreakGlass, chat.User{ID: chat.UserID("web:" + n)}, nil):
			last = cmp.Or(last, n)
		default:
			name = cmp.Or(name, n)
		}
	}
	return cmp.Or(name, last)
}

// signInLink makes a link that works once. base is where people reach the console.
func signInLink(e config.Env, f config.File, base, name string, code func(key []byte, user string, now time.Time) string) (string, error) {
	key, err := os.ReadFile(filepath.Join(e.DataDir, "web.key"))
	if err != nil || len(key) != 32 {
		return "", fmt.Errorf("the console's key is not in %s; start the bot once, and use the same COUNTERSIGN_DATA_DIR", e.DataDir)
	}
	return strings.TrimRight(cmp.Or(f.Web.Origin, base), "/") + "/#code=" + code(key, name, time.Now()), nil
}

// operator is where the bot of this machine is, with a code of its operator's or of a person's.
func operator(user string) (at, own, code string, err error) {
	e, f, err := config.Read()
	if err != nil {
		return "", "", "", err
	}
	kind := console.LoginCode
	if user == "" {
		kind = func(key []byte, _ string, now time.Time) string { return console.OperatorCode(key, now) }
	}
	own = address.URL(e)
	link, err := signInLink(e, f, own, user, kind)
	at, code, _ = strings.Cut(link, "/#code=")
	return at, own, code, err
}

// options fills in what this program is and does beside a bot.
func options(f config.File, o bot.Options) bot.Options {
	o.Version, o.Revision, o.Parser, o.Chores, o.Pages = version, revision(), code.Parser(local.New(local.Options{})), admin.Chores(f), admin.Pages
	o.Launcher = launcher()
	return o
}

// launcher is this program as the helper that locks; nil where it cannot be found again.
func launcher() []string {
	program, err := os.Executable()
	if err != nil {
		return nil
	}
	return []string{program, helper.Name}
}

func webCommand() *cobra.Command {
	c := &cobra.Command{Use: "web", Short: "Who may use the web console of the running bot"}
	c.AddCommand(loginCommand())
	return c
}

func loginCommand() *cobra.Command {
	var base string
	var printed, invites bool
	wish := remote.Wish{Name: "command line"}
	c := &cobra.Command{
		Use: "login NAME or LINK", Short: "Print a one-time link that logs NAME in to the web console, or sign this command line in with such a LINK", Args: cobra.ExactArgs(1),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			_, f, err := config.Read()
			if err != nil || len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return f.WebNames(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if strings.Contains(args[0], "://") {
				return remote.Login(cmd.Context(), cmd.OutOrStdout(), args[0], wish, printed)
			}
			e, f, err := config.Read()
			if err != nil {
				return err
			}
			name := strings.TrimPrefix(args[0], "web:")
			r, err := rules.New(f)
			if err != nil {
				return err
			}
			if consoles.Role(r, name, nil) == console.None {
				return config.Errorf("%q is in no group's web list; add it under groups, or under people for somebody who is on call, in the file that COUNTERSIGN_CONFIG names", name)
			}
			if base != "" {
				f.Web.Origin = base
			}
			here := address.URL(e)
			code := console.LoginCode
			if invites {
				if _, err := passkey.SiteOf(f.Web.Origin); err != nil {
					return config.Errorf("%v", err)
				}
				code = console.PasskeyCode
			}
			link, err := signInLink(e, f, here, name, code)
			if err != nil {
				return err
			}
			if !address.Answers(cmd.Context(), here) {
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "No bot answers at %s: the link works once %s is up, within ten minutes.\n", here, words.Named("bot run"))
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), link)
			return err
		},
	}
	c.Flags().BoolVar(&printed, "print", false, "with a LINK: print the token for a program, and don't keep it")
	c.Flags().StringVar(&wish.Scope, "scope", "ask", "with a LINK: ask, which only asks; read, which only looks; or full, for everything but deciding")
	c.Flags().IntVar(&wish.Days, "days", 30, "with a LINK: how long the token lasts, up to 366")
	c.Flags().StringVar(&wish.Name, "name", wish.Name, "with a LINK: what the token is for")
	c.Flags().BoolVar(&invites, "passkey", false, "with a NAME: the link also lets them register a passkey, which nobody else has to confirm")
	c.Flags().StringVar(&base, "url", "", "address at which people reach the console; default: web.origin, or that of the running bot")
	return c
}
