package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"countersign/cli/words"
	"countersign/config"
)

// Command is the command init.
func Command(c Checks) *cobra.Command {
	var a Answers
	var force, unchecked bool
	cmd := &cobra.Command{
		Use: "init", Short: "Write the first settings: up to eight questions, each answer checked when it is given", Args: cobra.NoArgs,
		Long: `Write the first settings: a configuration with what each part means, the variables
beside it, and a service file. On a terminal it asks up to eight questions and checks
each answer when it is given. What flags say isn't asked.

Without a terminal everything comes from flags and from the environment: OPENAI_API_KEY,
OPENAI_BASE_URL and OPENAI_MODEL, SLACK_BOT_TOKEN and SLACK_APP_TOKEN, DISCORD_BOT_TOKEN.
Secrets are never flags, which other people of the machine could read.

With one person the bot is in solo mode: they may approve what they asked for. At high
and critical risk they write the target's name first.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			in, ok := cmd.InOrStdin().(*os.File)
			asks := ok && term.IsTerminal(int(in.Fd()))
			if unchecked {
				c.Model = func(_ context.Context, _ config.Env, _ config.File) (string, string, bool) {
					return "not asked", "", true
				}
				c.Models = func(_ context.Context, _ config.Env) ([]string, string, string, bool) {
					return nil, "not asked", "", true
				}
			}
			var err error
			if a.around, err = config.ReadEnv(); err != nil {
				return err
			}
			a.ModelURL = cmp.Or(a.ModelURL, os.Getenv("OPENAI_BASE_URL"))
			if wrong := wrongNames(a.People); len(a.People) > 0 && wrong != "" {
				return config.Errorf("--person: %s", wrong)
			}
			if !asks {
				if err := a.fill(); err != nil {
					return err
				}
			}
			if a.Dir != "" { // the service file names it
				abs, err := filepath.Abs(a.Dir)
				if err != nil {
					return config.Errorf("--dir is %q, which can't be found (%v)", a.Dir, err)
				}
				a.Dir = abs
			}
			if dir := a.Dir; dir != "" && !force {
				if err := untouched(dir); err != nil {
					return err
				}
			}
			w := newWizard(in, cmd.OutOrStdout(), c)
			w.replace = force
			if asks {
				err = w.run(cmd.Context(), &a)
			} else {
				err = w.checked(cmd.Context(), &a)
			}
			if err != nil {
				return err
			}
			return a.write(cmd.OutOrStdout(), force)
		},
	}
	f := cmd.Flags()
	f.StringVar(&a.Dir, "dir", "", "directory of the settings; default: countersign below the account's configuration, or "+config.SystemDir+" with --system")
	f.BoolVar(&a.System, "system", false, "for a service of the machine, which needs root")
	f.StringVar(&a.ModelURL, "model-url", "", "address of the model server; default: OPENAI_BASE_URL, or OpenAI's")
	f.StringVar(&a.Model, "model", "", "name of the model; default: OPENAI_MODEL")
	f.StringSliceVar(&a.People, "person", nil, "who signs in and approves; one person alone is in solo mode")
	f.StringSliceVar(&a.Hosts, "host", nil, "host of the SSH configuration to work on")
	f.StringVar(&a.SSHConfig, "ssh-config", "", "OpenSSH configuration of the hosts; default: ~/.ssh/config")
	f.BoolVar(&force, "force", false, "replace settings that are there")
	f.BoolVar(&unchecked, "unchecked", false, "don't ask the model whether it answers")
	return cmd
}

// fill takes what nobody can be asked for from the environment, and says what is missing.
func (a *Answers) fill() error {
	var err error
	if a.Dir == "" {
		if a.Dir, err = settingsDir(a.System); err != nil {
			return err
		}
	}
	a.Key, a.Model = os.Getenv("OPENAI_API_KEY"), cmp.Or(a.Model, os.Getenv("OPENAI_MODEL"))
	a.Tokens = map[string]string{}
	for _, c := range connections() {
		for _, t := range c.tokens {
			a.Tokens[t.variable] = os.Getenv(t.variable)
		}
	}
	var missing []string
	if a.Model == "" {
		missing = append(missing, "--model NAME")
	}
	if a.Key == "" && a.ModelURL == "" {
		missing = append(missing, "OPENAI_API_KEY or --model-url URL")
	}
	if len(a.People) == 0 {
		missing = append(missing, "--person NAME")
	}
	if len(missing) > 0 {
		return config.Errorf("there is no terminal to ask on; add %s", strings.Join(missing, ", "))
	}
	return nil
}

// checked checks what flags said.
func (w *wizard) checked(ctx context.Context, a *Answers) error {
	if err := w.checkModel(ctx, a); err != nil {
		return err
	}
	if len(a.Hosts) == 0 {
		return nil
	}
	a.SSHConfig = cmp.Or(a.SSHConfig, sshConfig())
	all, err := w.checks.Aliases(a.SSHConfig)
	if err != nil {
		return err
	}
	if _, wrong := pick(all, strings.Join(a.Hosts, " ")); wrong != "" {
		return config.Errorf("--host: %s names no host %s", a.SSHConfig, wrong)
	}
	return w.reached(ctx, a, a.Hosts, false)
}

// untouched reports whether a directory has no settings yet.
func untouched(dir string) error {
	file := filepath.Join(dir, config.FileName)
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		return config.Errorf("%s is there already; edit it, or replace it with --force", file)
	}
	return nil
}

// write writes the files and says what to do next.
func (a *Answers) write(out io.Writer, force bool) error {
	if !force {
		if err := untouched(a.Dir); err != nil {
			return err
		}
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("the program's own path is not known (%w); start it by its path", err)
	}
	if words.Passing() { // its file is gone when the service starts
		program = installed
	}
	unit := filepath.Join(a.Dir, "countersign.service")
	dirMode, fileMode := fs.FileMode(0o700), fs.FileMode(0o600)
	if a.System { // the service has an account of its own, and systemd reads the variables
		dirMode, fileMode = 0o755, 0o644
	}
	if err := os.MkdirAll(a.Dir, dirMode); err != nil {
		return fmt.Errorf("the directory of the settings can't be made (%w); name another one with --dir", err)
	}
	settings, variables := filepath.Join(a.Dir, config.FileName), filepath.Join(a.Dir, config.EnvironmentName)
	for _, f := range []struct {
		path, text string
		mode       fs.FileMode
	}{{variables, a.environment(), 0o600}, {unit, a.service(program), fileMode}, {settings, a.configuration(), fileMode}} {
		if err := replace(f.path, f.text, f.mode); err != nil {
			return fmt.Errorf("the settings can't be written (%w); name another directory with --dir", err)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\nWritten:\n  %s  what the bot may do, where, and who decides\n  %s  keys and tokens\n  %s  for systemd\n\nNext:\n", settings, variables, unit)
	step := func(command, why string) { fmt.Fprintf(&b, "  %-42s %s\n", command, why) }
	name := words.Program()
	if here, err := settingsDir(a.System); err != nil || here != a.Dir {
		fmt.Fprintf(&b, "  set -a; . %s; set +a; export COUNTERSIGN_CONFIG=%s\n", variables, settings)
	}
	if a.System {
		step("useradd --system --home-dir /var/lib/countersign countersign", "")
		step("cp "+unit+" /etc/systemd/system/", "")
		step("systemctl enable --now countersign", "start it, now and at each boot")
	} else {
		step(name+" run", "start it here; it prints a link to sign in")
	}
	step(name+" doctor", "check everything")
	step(name+" login "+a.People[0], "another link to sign in")
	if !a.System {
		fmt.Fprintf(&b, "  systemctl --user enable --now %s\n  %-42s %s\n", unit, "", "or keep it running as a service")
	}
	if words.Passing() {
		fmt.Fprintf(&b, "\nThe service expects the program at %s: go build -o %[1]s ./cmd/bot\n", installed)
	}
	if slices.ContainsFunc(connections(), a.used) && a.Member == "" {
		b.WriteString("\nNobody can approve from there yet: add ids of people to groups.oncall in " + settings + ".\n")
	}
	_, err = out.Write([]byte(b.String()))
	return err
}

// installed is where a service expects a program that Go has built for one run.
const installed = "/usr/local/bin/countersign"

// replace writes a file, whole or not at all.
func replace(path, text string, mode fs.FileMode) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".init-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	_, err = tmp.WriteString(text)
	if err = errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// sshConfig is the OpenSSH configuration of this account.
func sshConfig() string {
	home, err := os.UserHomeDir()
	if u, uerr := user.Current(); err != nil && uerr == nil {
		home = u.HomeDir
	}
	return filepath.Join(home, ".ssh", "config")
}
