package e2e

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"countersign/approvals/risk"
	"countersign/approvals/secretfile"
	"countersign/client/account"
	"countersign/config"
	"countersign/proof/signer"
	signers "countersign/proof/signer/page"
	"countersign/proof/witness"
)

// TestWhatOurProgramsWriteForTheirOwnerAloneIsASecret: each file of mode 0600 that one of our programs makes is
// on the list of secret files, so that the proof and the tools for files leave it alone.
func TestWhatOurProgramsWriteForTheirOwnerAloneIsASecret(t *testing.T) {
	b := newBot(t, "", "http://127.0.0.1:1")
	home := b.dir
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]interface {
		SetArgs(a []string)
		SetOut(w io.Writer)
		Execute() error
	}{"countersign-signer": signer.Command(signers.Draw), "countersign-witness": witness.Command()} {
		dir := filepath.Join(home, name)
		args := []string{"init", dir}
		if name == "countersign-witness" {
			args = []string{"init", "witness.example.com", dir}
		}
		c.SetArgs(args)
		c.SetOut(io.Discard)
		must(c.Execute())
		// What it will write once it runs is named by the configuration that it made.
		for _, file := range []string{"signer.yaml", "witness.yaml"} {
			raw, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				continue
			}
			var names map[string]any
			must(yaml.Unmarshal(raw, &names))
			for _, key := range []string{"ca", "token", "key", "state", "tls_key"} {
				if at, ok := names[key].(string); ok {
					if !filepath.IsAbs(at) {
						at = filepath.Join(dir, at)
					}
					must(os.MkdirAll(filepath.Dir(at), 0o700))
					if f, err := os.OpenFile(at, os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
						must(f.Close())
					}
				}
			}
		}
	}
	must(account.Account{URL: "http://127.0.0.1", Token: "cst_0123456789abcdef0123456789", User: "alice"}.Save())
	if _, errs, code := b.run("", "init", "--unchecked", "--model", "m", "--model-url", "http://127.0.0.1:1", "--person", "alice"); code != 0 {
		t.Fatal(errs)
	}
	b.configure(t, "targets: {local: {kind: local, tmux: false}}\ngroups: {oncall: {web: [alice]}}\n")
	if !b.start() {
		t.Fatalf("the bot does not start:\n%s", b.log)
	}
	b.login("alice")
	data, settings := filepath.Join(home, "data"), filepath.Join(home, "bot.yaml")
	engine, err := risk.New(risk.Extension{Secrets: config.Env{DataDir: data, Config: settings}.Places(config.File{})})
	must(err)
	found := 0
	must(filepath.WalkDir(home, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		st, err := d.Info()
		if err != nil || st.Mode().Perm()&0o077 != 0 {
			return err
		}
		found++
		if secretfile.Why(path) == "" && !strings.HasPrefix(path, data+"/") && path != settings {
			t.Errorf("%s is for its owner alone, and on no list", strings.TrimPrefix(path, home))
		}
		if v := engine.Classify("cat '" + path + "'"); v.ReadOnly {
			t.Errorf("reading %s is proven", path)
		}
		return nil
	}))
	if found < 8 {
		t.Errorf("only %d files were found", found)
	}
}
