package signer

import (
	"cmp"
	"crypto/ed25519"
	"crypto/rand"
	_ "embed"
	"encoding/pem"
	"errors"
	"fmt"
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
)

//go:embed example.yaml
var example []byte

// ConfigFile is where the configuration is unless a command says otherwise.
const ConfigFile = "/etc/countersign-signer/signer.yaml"

// Command is the signer's command line.
func Command() *cobra.Command {
	root := &cobra.Command{
		Use: "signer", Short: "Sign certificates for what people's passkeys approved, independently of the bot",
		SilenceUsage: true, SilenceErrors: true,
	}
	file := root.PersistentFlags().String("config", ConfigFile, "the signer's configuration")
	with := func(do func(cmd *cobra.Command, c *Config) error) func(*cobra.Command, []string) error {
		return func(cmd *cobra.Command, _ []string) error {
			c, err := Load(*file)
			if err != nil {
				return err
			}
			return do(cmd, c)
		}
	}
	root.AddCommand(
		&cobra.Command{Use: "init DIRECTORY", Short: "Make an authority's key, a token and an example of the configuration", Args: cobra.ExactArgs(1), RunE: initialize},
		&cobra.Command{Use: "check", Short: "Check the configuration and the authority's key", Args: cobra.NoArgs, RunE: with(check)},
		&cobra.Command{Use: "run", Short: "Answer the bot until it is stopped", Args: cobra.NoArgs, RunE: with(run)},
		&cobra.Command{Use: "rotate", Short: "Make the next authority's key; once all hosts trust it, change to it", Args: cobra.NoArgs, RunE: with(rotate)},
	)
	return root
}

// run is the command run.
func run(cmd *cobra.Command, c *Config) error {
	token, err := ReadToken(c.Token)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	s, err := Open(c, time.Now, func(format string, a ...any) {
		_, _ = fmt.Fprintf(out, time.Now().UTC().Format(time.RFC3339)+" "+format+"\n", a...)
	})
	if err != nil {
		return err
	}
	l, err := Listen(cmd.Context(), c)
	if err != nil {
		return errors.Join(fmt.Errorf("the signer can't listen: %w", err), s.Close())
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	_, _ = fmt.Fprintf(out, "The signer listens at %s.\n", l.Addr())
	return errors.Join(s.Serve(ctx, l, token), s.Close())
}

// check is the command check.
func check(cmd *cobra.Command, c *Config) error {
	if _, err := ReadToken(c.Token); err != nil {
		return err
	}
	k, closer, err := c.authority()
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	_, _ = fmt.Fprintf(out, "%d people with %d passkeys, %d targets; the authority is %s.\nCompare each passkey's digits with its owner, who sees them in the console under Settings:\n", len(c.People), len(c.keys), len(c.Targets), ssh.FingerprintSHA256(k.PublicKey()))
	for _, id := range slices.SortedFunc(maps.Keys(c.keys), func(a, b string) int { return cmp.Or(cmp.Compare(c.keys[a].owner, c.keys[b].owner), cmp.Compare(a, b)) }) {
		key := passkey.Key{ID: id, Owner: consoleUser + c.keys[id].owner, Public: c.keys[id].public}
		_, _ = fmt.Fprintf(out, "  %s  %s\n", key.Digest()[:passkey.Digits], key.Owner[len(consoleUser):])
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
	if err != nil {
		return err
	}
	if err := create(filepath.Join(dir, "token"), []byte(rand.Text()+"\n")); err != nil {
		return err
	}
	if err := create(filepath.Join(dir, "signer.yaml"), example); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "Made %s with a key (%s), a token for the bot, and signer.yaml. Write your people and hosts into that, then run `countersign-signer check --config %s`.\n",
		dir, ssh.FingerprintSHA256(public), filepath.Join(dir, "signer.yaml"))
	return err
}

// rotate is the command rotate.
func rotate(cmd *cobra.Command, c *Config) error {
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
	if err != nil {
		return err
	}
	if err := os.Rename(c.CA, c.CA+".old"); err != nil {
		return err
	}
	if err := os.Rename(next, c.CA); err != nil {
		return errors.Join(err, os.Rename(c.CA+".old", c.CA))
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "The next authority signs now. Enroll every host once more, so that none trusts the old one, and delete %s.old.\n", c.CA)
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

// create writes a file that must not exist, for its owner alone.
func create(file string, content []byte) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("%w; nothing is overwritten", err)
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Sync(), f.Close())
}
