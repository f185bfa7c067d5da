package signer

import (
	"cmp"
	"crypto/ed25519"
	"crypto/rand"
	_ "embed"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"

	"countersign/approvals/passkey"
	"countersign/proof/signer/enroll"
)

//go:embed example.yaml
var example []byte

// ConfigFile is where the configuration is unless a command says otherwise.
const ConfigFile = "/etc/countersign-signer/signer.yaml"

// Command is the signer's command line.
func Command(draw Draw) *cobra.Command {
	root := &cobra.Command{
		Use: "signer", Short: "Sign certificates for what people's passkeys approved, independently of the bot",
		SilenceUsage: true, SilenceErrors: true,
	}
	file := root.PersistentFlags().String("config", ConfigFile, "the signer's configuration")
	with := func(do func(cmd *cobra.Command, c *Config, args []string) error) func(*cobra.Command, []string) error {
		return func(cmd *cobra.Command, args []string) error {
			c, err := Load(*file)
			if err != nil {
				return err
			}
			return do(cmd, c, args)
		}
	}
	var program string
	var keep bool
	enrolling := &cobra.Command{
		Use: "enroll TARGET", Short: "Print the script that lets a host take certificates of the signer", Args: cobra.ExactArgs(1),
		RunE: with(func(cmd *cobra.Command, c *Config, args []string) error {
			return enrollment(cmd, c, args[0], program, keep)
		}),
	}
	enrolling.Flags().StringVar(&program, "program", "", "the file of countersign-runner for the host's processor; without it, the one beside this program")
	enrolling.Flags().BoolVar(&keep, "keep-keys", false, "leave the keys that open the accounts for approved commands; whoever has one needs no approval")
	root.AddCommand(
		enrolling,
		&cobra.Command{Use: "init DIRECTORY", Short: "Make an authority's key, a token and an example of the configuration", Args: cobra.ExactArgs(1), RunE: initialize},
		&cobra.Command{Use: "check", Short: "Check the configuration and the authority's key", Args: cobra.NoArgs, RunE: with(check)},
		&cobra.Command{Use: "run", Short: "Answer the bot until it is stopped", Args: cobra.NoArgs, RunE: with(func(cmd *cobra.Command, c *Config, _ []string) error { return run(cmd, c, draw) })},
		&cobra.Command{Use: "rotate", Short: "Make the next authority's key; once all hosts trust it, change to it", Args: cobra.NoArgs, RunE: with(rotate)},
	)
	return root
}

// run is the command run.
func run(cmd *cobra.Command, c *Config, draw Draw) error {
	token, err := ReadToken(c.Token)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	s, err := Open(c, draw, time.Now, func(format string, a ...any) {
		_, _ = fmt.Fprintf(out, time.Now().UTC().Format(time.RFC3339)+" "+format+"\n", a...)
	})
	if err != nil {
		return err
	}
	l, err := Listen(cmd.Context(), c)
	if err != nil {
		return fmt.Errorf("the signer can't listen: %w", err)
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	_, _ = fmt.Fprintf(out, "The signer listens at %s.\n", l.Addr())
	return s.Serve(ctx, l, token)
}

// check is the command check.
func check(cmd *cobra.Command, c *Config, _ []string) error {
	if _, err := ReadToken(c.Token); err != nil {
		return err
	}
	k, closer, err := c.authority()
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	where := "the bot's console, " + c.Console + ": a bot that was taken over can show one command there and have another one signed. Set origin"
	if c.Origin != "" {
		where = "the signer's own page, and make their passkeys at " + c.site.Origin + "/register"
	}
	_, _ = fmt.Fprintf(out, "%d people with %d passkeys, %d targets; the authority is %s.\nPeople sign at %s.\nCompare each passkey's digits with its owner, who saw them when it was made:\n", len(c.People), len(c.keys), len(c.Targets), ssh.FingerprintSHA256(k.PublicKey()), where)
	for _, id := range slices.SortedFunc(maps.Keys(c.keys), func(a, b string) int { return cmp.Or(cmp.Compare(c.keys[a].owner, c.keys[b].owner), cmp.Compare(a, b)) }) {
		owner := c.keys[id].owner
		_, _ = fmt.Fprintf(out, "  %s  %s\n", passkey.Digest(id, consoleUser+owner, c.keys[id].public)[:passkey.Digits], owner)
	}
	return closer.Close()
}

// initialize is the command init.
func initialize(cmd *cobra.Command, args []string) error {
	dir := args[0]
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	public, err := newKey(filepath.Join(dir, "ca"))
	if err == nil {
		err = create(filepath.Join(dir, "token"), []byte(rand.Text()+"\n"))
	}
	if err == nil {
		err = create(filepath.Join(dir, "signer.yaml"), example)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "Made %s with a key (%s), a token for the bot, and signer.yaml. Write your people and hosts into that, then run `countersign-signer check --config %s`.\n",
		dir, ssh.FingerprintSHA256(public), filepath.Join(dir, "signer.yaml"))
	return err
}

// rotate is the command rotate.
func rotate(cmd *cobra.Command, c *Config, _ []string) error {
	if c.Agent != "" {
		return fmt.Errorf("the agent has the key: put the public part of the next one into %s%s, enroll all hosts again, then put it into %s", c.CA, nextSuffix, c.CA)
	}
	next := c.CA + nextSuffix
	_, err := os.Stat(next)
	if errors.Is(err, fs.ErrNotExist) {
		public, err := newKey(next)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "The next authority is %s. Run `countersign-signer enroll` for every host, and then `countersign-signer rotate` once more.\n", ssh.FingerprintSHA256(public))
		return err
	}
	if err == nil {
		err = os.Rename(next, c.CA)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), "The next authority signs now, and the old one is gone. Enroll every host once more, so that none trusts that.")
	return err
}

// enrollment is the command enroll. Who runs it trusts this machine, and not the bot's.
func enrollment(cmd *cobra.Command, c *Config, target, program string, keep bool) error {
	t, ok := c.Targets[target]
	if !ok {
		return fmt.Errorf("the configuration has no target %q; add it first", target)
	}
	keys, err := c.Authorities()
	exe, bad := os.Executable()
	if err != nil || bad != nil {
		return errors.Join(err, bad)
	}
	raw, err := os.ReadFile(cmp.Or(program, filepath.Join(filepath.Dir(exe), "countersign-runner")))
	if err != nil {
		return fmt.Errorf("take countersign-runner from the release, and name it with --program: %w", err)
	}
	text, err := enroll.Script(enroll.Host{Target: target, HostKey: t.HostKey, Watch: t.Watch, RunAs: t.Users, KeepKeys: keep, Authorities: keys, Program: raw})
	if err == nil {
		_, err = io.WriteString(cmd.OutOrStdout(), text)
	}
	return err
}

// newKey makes a private key in a file that must not exist.
func newKey(file string) (ssh.PublicKey, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	block, err := ssh.MarshalPrivateKey(private, "countersign signer")
	if err != nil {
		return nil, err
	}
	if err := create(file, pem.EncodeToMemory(block)); err != nil {
		return nil, err
	}
	return ssh.NewPublicKey(public)
}

// create writes a file that must not exist, durably, for its owner alone. If it fails, it removes its own file only.
func create(file string, content []byte) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("%w; nothing is overwritten", err)
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Sync(), f.Close())
	dir, bad := os.Open(filepath.Dir(file))
	if bad == nil {
		bad = errors.Join(dir.Sync(), dir.Close())
	}
	if err = errors.Join(err, bad); err != nil {
		_ = os.Remove(file)
	}
	return err
}
