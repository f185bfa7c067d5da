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
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/term"

	"countersign/cli/words"
	"countersign/config"
	"countersign/internal/redact"
)

// Checks are those that the questions need. They look as the doctor does, and say what they found,
// and what to do where it is not well.
type Checks struct {
	Model func(ctx context.Context, e config.Env, f config.File) (found, fix string, ok bool)
	// Models lists what a model server offers, where it says so. Without a key only the address counts.
	Models func(ctx context.Context, e config.Env) (names []string, found, fix string, ok bool)
	// Target returns the line for known_hosts where a host's key isn't known yet.
	Target func(ctx context.Context, e config.Env, f config.File, name string) (found, fix, unknown string, ok bool)
	// Trust adds such a line to a file.
	Trust func(file, line string) error
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
	w.say("Up to eight questions. Return takes what is in brackets, Ctrl+C leaves without settings.\n")
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
	if st, err := os.Stat("/run/systemd/system"); err == nil && st.IsDir() && os.Geteuid() == 0 { // as sd_booted(3) looks
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

// openAI is the model server of who names none.
const openAI = "https://api.openai.com/v1"

// model asks until one answers, or somebody goes on without. Return takes what was answered before.
func (w *wizard) model(ctx context.Context, a *Answers) error {
	if a.Model != "" {
		a.Key = cmp.Or(a.Key, os.Getenv("OPENAI_API_KEY"))
		return w.checkModel(ctx, a)
	}
	a.Model = os.Getenv("OPENAI_MODEL")
	for {
		if err := w.address(ctx, a); err != nil {
			return err
		}
		err := w.key(ctx, a)
		if err != nil {
			return err
		}
		if a.Model, err = w.ask("4. Name of the model", a.Model); err != nil {
			return err
		}
		if w.checkModel(ctx, a) == nil {
			return nil
		}
		if again, err := w.again(); err != nil || !again {
			return err
		}
	}
}

// again reports whether somebody wants to answer again.
func (w *wizard) again() (bool, error) {
	said, err := w.ask("   Try another answer, or keep this one (try, keep)", "try")
	return said != "keep", err
}

// address asks where the model server is until one answers, or somebody keeps the address.
func (w *wizard) address(ctx context.Context, a *Answers) error {
	for {
		said, err := w.ask("2. Address of the model server, such as http://127.0.0.1:11434/v1", cmp.Or(a.ModelURL, openAI))
		if err != nil {
			return err
		}
		if a.ModelURL = said; said == openAI {
			a.ModelURL = ""
		}
		_, _ = fmt.Fprint(w.out, "   Asking it ... ")
		e := a.env()
		e.OpenAIKey = ""
		_, found, fix, ok := w.checks.Models(ctx, e)
		if w.found(found, fix, ok); ok {
			return nil
		}
		if again, err := w.again(); err != nil || !again {
			return err
		}
	}
}

// key asks for the server's key until it takes one, or somebody keeps it, and shows the models. The key of the
// environment isn't asked for where the address is the environment's, too.
func (w *wizard) key(ctx context.Context, a *Answers) (err error) {
	own := os.Getenv("OPENAI_API_KEY")
	for ask := own == "" || a.Key != "" || a.ModelURL != os.Getenv("OPENAI_BASE_URL"); ; ask = true {
		question, said := "3. Its API key, empty for a server that needs none", own
		if a.Key != "" {
			question = "3. Its API key, empty for the same as before, none for a server that needs none"
		}
		if ask {
			if said, err = w.secret(question); err != nil {
				return err
			}
		}
		if a.Key = cmp.Or(said, a.Key); said == "none" {
			a.Key = ""
		}
		_, _ = fmt.Fprint(w.out, "   Asking for its models ... ")
		names, found, fix, ok := w.checks.Models(ctx, a.env())
		if w.found(found, fix, ok); ok {
			if n := len(names) - maxModels; n > 0 {
				names = append(names[:maxModels:maxModels], fmt.Sprintf("and %d more", n))
			}
			if len(names) > 0 {
				w.say("   %s", strings.Join(names, ", "))
			}
			return nil
		}
		if again, err := w.again(); err != nil || !again {
			return err
		}
	}
}

// maxModels are as many as people read.
const maxModels = 30

func (w *wizard) checkModel(ctx context.Context, a *Answers) error {
	_, _ = fmt.Fprint(w.out, "   Asking the model ... ")
	found, fix, ok := w.checks.Model(ctx, a.env(), config.Defaults())
	w.found(found, fix, ok)
	if !ok {
		return config.Errorf("the model can't be used: %s; %s", answers.Replace(found), answers.Replace(fix))
	}
	return nil
}

// answers call by their names what is only written into variables later.
var answers = strings.NewReplacer("OPENAI_BASE_URL", "the address", "OPENAI_API_KEY", "the key", "OPENAI_MODEL", "the name of the model")

func (w *wizard) found(found, fix string, ok bool) {
	if ok {
		w.say("ok: %s", answers.Replace(found))
		return
	}
	w.say("failed: %s.\n   What to do: %s.", answers.Replace(found), answers.Replace(fix))
}

// env is the environment that a bot with these answers would have.
func (a *Answers) env() config.Env {
	e := a.around
	e.OpenAIKey, e.OpenAIBaseURL, e.OpenAIModel = redact.Secret(a.Key), a.ModelURL, a.Model
	if a.System {
		e.DataDir = systemData
	}
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
		a.Hosts = picked
		return w.reached(ctx, a, picked, true)
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

// reached tells of each host whether it can be reached. Those that can't be are only written as comments. asks: the
// key of a host that isn't known yet can be accepted, which is told apart by its fingerprint. Else its card does that.
func (w *wizard) reached(ctx context.Context, a *Answers, hosts []string, asks bool) error {
	a.Unusable = map[string]string{}
	for _, h := range hosts {
		f, e, name := config.Defaults(), a.env(), targetName(h)
		f.Targets = map[string]config.TargetConfig{name: {Kind: "ssh", Host: h, SSHConfig: a.SSHConfig, HostKey: "ask"}}
		f.Agent.Target = name
		for {
			_, _ = fmt.Fprintf(w.out, "   Reaching %s ... ", h)
			found, fix, unknown, ok := w.checks.Target(ctx, e, f, name)
			if unknown == "" || !asks {
				w.found(found, fix, ok)
			} else {
				w.say("%s.\n   Compare: for k in /etc/ssh/ssh_host_*_key.pub; do ssh-keygen -lf $k; done # on the host's own console", found)
				said, err := w.ask("   Is this the host's key (yes, no)", "no")
				if err != nil {
					return err
				}
				if said == "yes" {
					if err := w.checks.Trust(e.KnownHosts(), unknown); err != nil {
						return fmt.Errorf("the key can't be kept (%w); make the data directory writable, or leave the host out", err)
					}
					continue
				}
			}
			if !ok && (unknown == "" || asks) {
				a.Unusable[h] = found + "; " + fix
				w.say("   It is written as a comment. Uncomment it under targets once that is well.")
			}
			break
		}
	}
	return nil
}
