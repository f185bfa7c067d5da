package witness

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"countersign/proof/witness/keys"
)

//go:embed example.yaml
var example string

// Config is the witness's configuration file.
type Config struct {
	Name   string   `yaml:"name"` // such as witness.example.com/security
	Key    string   `yaml:"key"`  // the file of its key
	State  string   `yaml:"state"`
	Listen string   `yaml:"listen"`
	Cert   string   `yaml:"cert,omitempty"`
	TLSKey string   `yaml:"tls_key,omitempty"`
	Logs   []string `yaml:"logs"` // the keys of the logs
}

// ConfigFile is where the configuration is unless a command says otherwise.
const ConfigFile = "/etc/countersign-witness/witness.yaml"

// Command is the witness's command line.
func Command() *cobra.Command {
	root := &cobra.Command{Use: "witness", Short: "Sign that the record of a bot only grows, on a machine that isn't the bot's", SilenceUsage: true, SilenceErrors: true}
	file := root.PersistentFlags().String("config", ConfigFile, "the witness's configuration")
	root.AddCommand(
		&cobra.Command{Use: "init NAME DIRECTORY", Short: "Make a key and a configuration", Args: cobra.ExactArgs(2), RunE: initialize},
		&cobra.Command{Use: "run", Short: "Answer bots until it is stopped", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := load(*file)
			if err != nil {
				return err
			}
			return run(cmd, c)
		}},
	)
	return root
}

// load reads and checks a configuration file.
func load(file string) (Config, error) {
	var c Config
	raw, err := os.ReadFile(file)
	if err != nil {
		return c, fmt.Errorf("the configuration can't be read (%w); `countersign-witness init NAME DIRECTORY` makes one", err)
	}
	d := yaml.NewDecoder(bytes.NewReader(raw))
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil {
		return c, fmt.Errorf("%s: %w", file, err)
	}
	if c.Name == "" || c.Key == "" || c.State == "" || c.Listen == "" {
		return c, fmt.Errorf("%s: name, key, state and listen are all needed", file)
	}
	for _, p := range []*string{&c.Key, &c.State, &c.Cert, &c.TLSKey} {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(filepath.Dir(file), *p)
		}
	}
	return c, nil
}

func initialize(cmd *cobra.Command, args []string) error {
	name, dir := args[0], args[1]
	if err := os.MkdirAll(filepath.Join(dir, "state"), 0o700); err != nil {
		return err
	}
	seed, err := newSeed(filepath.Join(dir, "key"))
	if err != nil {
		return err
	}
	w, err := keys.NewWitness(name, seed, time.Now)
	if err != nil {
		return err
	}
	text := strings.ReplaceAll(example, "%NAME%", name)
	if err := os.WriteFile(filepath.Join(dir, "witness.yaml"), []byte(text), 0o600); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "Made %s. The key of this witness, for the bot and for whoever verifies, is\n\n  %s\n\nWrite the bot's key into witness.yaml, then run the witness.\n", dir, w.Verifier())
	return err
}

func run(cmd *cobra.Command, c Config) error {
	seed, err := readSeed(c.Key)
	if err != nil {
		return err
	}
	key, err := keys.NewWitness(c.Name, seed, time.Now)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	w, err := New(key, c.Logs, c.State, func(format string, a ...any) {
		_, _ = fmt.Fprintf(out, time.Now().UTC().Format(time.RFC3339)+" "+format+"\n", a...)
	})
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(cmd.Context(), "tcp", c.Listen)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	web := &http.Server{Handler: w.Handler(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 20 * time.Second, WriteTimeout: 20 * time.Second}
	end := context.AfterFunc(ctx, func() { _ = web.Close() })
	defer end()
	_, _ = fmt.Fprintf(out, "%s listens at %s.\n", key.Verifier(), l.Addr())
	if c.Cert != "" {
		err = web.ServeTLS(l, c.Cert, c.TLSKey)
	} else {
		err = web.Serve(l)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
