package setup

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/term"

	"countersign/internal/config"
	"countersign/internal/redact"
	"countersign/internal/words"
)

// Check looks at one thing that was answered, as the doctor does: what it found, and what to do
// where it is not well.
type Check func(ctx context.Context, e config.Env, f config.File) (found, fix string, ok bool)

// Checks are those that the questions need.
type Checks struct {
	Model  Check
	Target func(name string) Check
	// Usable says why no bot starts with an environment and a configuration; nil: one does.
	Usable func(e config.Env, f config.File) error
	// Aliases are the hosts of an ssh_config file.
	Aliases func(path string) ([]string, error)
}

// wizard asks on a terminal.
type wizard struct {
	in     *bufio.Reader
	out    io.Writer
	hidden func() (string, error) // reads a line that isn't shown
	checks Checks
	// replace: settings that are there may be replaced.
	replace bool
}

// newWizard asks on a terminal.
func newWizard(in *os.File, out io.Writer, c Checks) *wizard {
	w := &wizard{in: bufio.NewReader(in), out: out, checks: c}
	w.hidden = func() (string, error) {
		raw, err := term.ReadPassword(int(in.Fd()))
		_, _ = fmt.Fprintln(out)
		return string(raw), err
	}
	return w
}

func (w *wizard) say(format string, a ...any) { _, _ = fmt.Fprintf(w.out, format+"\n", a...) }

// ask reads an answer; "" is the default.
func (w *wizard) ask(question, def string) (string, error) {
	if def != "" {
		question += " [" + def + "]"
	}
	_, _ = fmt.Fprint(w.out, question+": ")
	line, err := w.in.ReadString('\n')
	if err != nil && (line == "" || !errors.Is(err, io.EOF)) {
		return "", errors.New("the questions were broken off, and nothing was written")
	}
	if line = strings.TrimSpace(line); line == "" {
		return def, nil
	}
	return line, nil
}

func (w *wizard) secret(question string) (string, error) {
	_, _ = fmt.Fprint(w.out, question+" (it isn't shown): ")
	s, err := w.hidden()
	if err != nil {
		return "", errors.New("the questions were broken off, and nothing was written")
	}
	return strings.TrimSpace(s), nil
}

// run asks everything that is not answered yet.
func (w *wizard) run(ctx context.Context, a *Answers) error {
	w.say("Up to eight questions. Return takes what is in brackets, Ctrl+C writes nothing.\n")
	for _, step := range []func(context.Context, *Answers) error{w.place, w.model, w.people, w.hosts, w.network} {
		if err := step(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

func (w *wizard) place(_ context.Context, a *Answers) error {
	if a.Dir != "" {
		return nil
	}
	def := "here"
	if os.Geteuid() == 0 {
		def = "service"
	}
	for {
		said, err := w.ask("1. Where should the bot run: here, in this account, or as a service of the machine (here, service)", def)
		if err != nil {
			return err
		}
		switch said {
		case "here", "service":
			a.System = said == "service"
			if a.Dir, err = settingsDir(a.System); err != nil {
				return err
			}
			if a.System && os.Geteuid() != 0 {
				w.say("   A service of the machine needs root: run sudo %s.", words.Named("bot init"))
				continue
			}
			if w.replace {
				return nil
			}
			return untouched(a.Dir)
		}
		w.say("   Write here or service.")
	}
}

func settingsDir(system bool) (string, error) {
	if system {
		return config.SystemDir, nil
	}
	return config.UserDir()
}

// model asks until one answers, or somebody goes on without.
func (w *wizard) model(ctx context.Context, a *Answers) (err error) {
	if a.Model != "" {
		a.Key = cmp.Or(a.Key, os.Getenv("OPENAI_API_KEY"))
		return w.checkModel(ctx, a)
	}
	for {
		if a.ModelURL, err = w.ask("2. Address of the model server, such as http://127.0.0.1:11434/v1 (empty: OpenAI)", os.Getenv("OPENAI_BASE_URL")); err != nil {
			return err
		}
		if a.Key = os.Getenv("OPENAI_API_KEY"); a.Key == "" {
			if a.Key, err = w.secret("3. Its API key, empty for a server that needs none"); err != nil {
				return err
			}
		}
		if a.Model, err = w.ask("4. Name of the model", os.Getenv("OPENAI_MODEL")); err != nil {
			return err
		}
		if why := w.checkModel(ctx, a); why == nil {
			return nil
		}
		again, err := w.ask("   Try other answers, or keep these (try, keep)", "try")
		if err != nil || again == "keep" {
			return err
		}
	}
}

func (w *wizard) checkModel(ctx context.Context, a *Answers) error {
	_, _ = fmt.Fprint(w.out, "   Asking the model ... ")
	found, fix, ok := w.checks.Model(ctx, a.env(), config.Defaults())
	w.found(found, fix, ok)
	if !ok {
		return config.Errorf("the model can't be used: %s; %s", found, fix)
	}
	return nil
}

func (w *wizard) found(found, fix string, ok bool) {
	if ok {
		w.say("ok: %s", found)
		return
	}
	w.say("failed: %s.\n   What to do: %s.", found, fix)
}

// env is the environment that a bot with these answers would have.
func (a *Answers) env() config.Env {
	e := config.Env{OpenAIKey: redact.Secret(a.Key), OpenAIBaseURL: a.ModelURL, OpenAIModel: a.Model, ModelAPI: "auto", Instance: "bot", DataDir: filepath.Join(a.Dir, "data")}
	return e
}

var personName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$`)

func (w *wizard) people(_ context.Context, a *Answers) error {
	for len(a.People) == 0 {
		def := ""
		if u, err := user.Current(); err == nil && personName.MatchString(u.Username) {
			def = u.Username
		}
		said, err := w.ask("5. Who approves? Names to sign in with, one or more", def)
		if err != nil {
			return err
		}
		names := strings.FieldsFunc(said, func(r rune) bool { return r == ' ' || r == ',' })
		if wrong := wrongNames(names); wrong != "" {
			w.say("   %s", wrong)
			continue
		}
		a.People = names
	}
	if a.solo() {
		w.say("   Solo mode: %s may approve their own requests. At high and critical risk they write the target's name first.", a.People[0])
	}
	return nil
}

// wrongNames says what is wrong with names, "" for nothing.
func wrongNames(names []string) string {
	if len(names) == 0 {
		return "At least one person is needed."
	}
	for _, n := range names {
		if !personName.MatchString(n) {
			return fmt.Sprintf("%q can't be a name: use letters, digits and . _ @ -.", n)
		}
	}
	return ""
}

func (w *wizard) hosts(ctx context.Context, a *Answers) error {
	if len(a.Hosts) > 0 || a.System && a.SSHConfig == "" { // the keys of this account are not the service's
		return nil
	}
	a.SSHConfig = cmp.Or(a.SSHConfig, sshConfig())
	all, err := w.checks.Aliases(a.SSHConfig)
	if err != nil {
		w.say("   %v. Hosts can be added later under targets.", err)
		return nil
	}
	if len(all) == 0 {
		return nil
	}
	w.say("6. Which hosts of %s should it work on?", a.SSHConfig)
	for i, h := range all {
		w.say("   %2d  %s", i+1, h)
	}
	for {
		said, err := w.ask("   Numbers or names, empty for none", "")
		if err != nil {
			return err
		}
		picked, wrong := pick(all, said)
		if wrong != "" {
			w.say("   There is no host %s.", wrong)
			continue
		}
		a.Hosts = w.reached(ctx, a, picked)
		return nil
	}
}

// pick finds hosts by their numbers or names.
func pick(all []string, said string) (picked []string, wrong string) {
	for _, s := range strings.FieldsFunc(said, func(r rune) bool { return r == ' ' || r == ',' }) {
		found := ""
		for i, h := range all {
			if h == s || strconv.Itoa(i+1) == s {
				found = h
			}
		}
		if found == "" {
			return nil, s
		}
		if !slices.Contains(picked, found) {
			picked = append(picked, found)
		}
	}
	return picked, ""
}

// reached tells of each host whether it can be reached. Those that can't be stay, since the bot
// tries again when it needs them, but for those with which it doesn't start.
func (w *wizard) reached(ctx context.Context, a *Answers, hosts []string) []string {
	a.Unusable = map[string]string{}
	for _, h := range hosts {
		_, _ = fmt.Fprintf(w.out, "   Reaching %s ... ", h)
		f := config.Defaults()
		name := targetName(h)
		f.Targets = map[string]config.TargetConfig{name: {Kind: "ssh", Host: h, SSHConfig: a.SSHConfig, HostKey: "ask"}}
		f.Agent.Target = name
		found, fix, ok := w.checks.Target(name)(ctx, a.env(), f)
		w.found(found, fix, ok)
		if err := w.checks.Usable(a.env(), f); err != nil {
			a.Unusable[h] = found + "; " + fix
			w.say("   It is written as a comment, since the bot doesn't start with it.")
		}
	}
	return hosts
}

func (w *wizard) network(_ context.Context, a *Answers) error {
	if a.SlackBot != "" || a.Discord != "" {
		return nil
	}
	for {
		said, err := w.ask("7. Slack or Discord now? The web console is always there (slack, discord, later)", "later")
		if err != nil {
			return err
		}
		switch said {
		case "later":
			return nil
		case "slack":
			w.say("   Make the app from what %s prints, install it, and take its two tokens.", words.Named("bot slack manifest"))
			tokens, err := w.secret("8. Bot token (xoxb-), app token (xapp-) and your member ID (U...), with spaces between")
			if err != nil {
				return err
			}
			if wrong := a.slack(strings.Fields(tokens)); wrong != "" {
				w.say("   %s", wrong)
				continue
			}
			return nil
		case "discord":
			w.say("   Make an app at https://discord.com/developers/applications, and take its bot token.")
			tokens, err := w.secret("8. Bot token and your user ID, with a space between")
			if err != nil {
				return err
			}
			if wrong := a.discord(strings.Fields(tokens)); wrong != "" {
				w.say("   %s", wrong)
				continue
			}
			return nil
		}
		w.say("   Write slack, discord or later.")
	}
}

var (
	slackMember   = regexp.MustCompile(`^[UW][A-Z0-9]{5,}$`)
	discordMember = regexp.MustCompile(`^[0-9]{15,21}$`)
)

// slack takes what Slack gave; it returns what is wrong, "" for nothing.
func (a *Answers) slack(words []string) string {
	for _, s := range words {
		switch {
		case strings.HasPrefix(s, "xoxb-"):
			a.SlackBot = s
		case strings.HasPrefix(s, "xapp-"):
			a.SlackApp = s
		case slackMember.MatchString(s):
			a.Member = s
		default:
			a.SlackBot, a.SlackApp, a.Member = "", "", ""
			return "One of them is none of the three: a bot token begins with xoxb-, an app token with xapp-, a member ID with U or W."
		}
	}
	if a.SlackBot == "" || a.SlackApp == "" {
		a.SlackBot, a.SlackApp, a.Member = "", "", ""
		return "Both tokens are needed, xoxb-... and xapp-...."
	}
	return ""
}

// discord takes what Discord gave; it returns what is wrong, "" for nothing.
func (a *Answers) discord(words []string) string {
	for _, s := range words {
		if discordMember.MatchString(s) {
			a.Member = s
		} else {
			a.Discord = s
		}
	}
	if a.Discord == "" {
		a.Member = ""
		return "The bot token is needed."
	}
	return ""
}
