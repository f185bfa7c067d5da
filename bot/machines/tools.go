package machines

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/approvals/secretfile"
	"countersign/config"
	"countersign/targets/backend"
	"countersign/targets/local"
	"countersign/tools"
	"countersign/tools/code"
	"countersign/tools/files"
	"countersign/tools/gitcmd"
	"countersign/tools/process"
	"countersign/tools/search"
	"countersign/tools/shell"
	"countersign/tools/terminal"
)

// tools are those that work on the machine.
func (m *Machine) tools(o *Opened) (map[string]tools.Tool, error) {
	target, private, roots, err := m.confine(m.off())
	if err != nil {
		return nil, err
	}
	all := files.New(files.Config{Target: target, Name: m.Name, Images: files.NewImages(m.opts.DB, time.Now), User: o.Caps.User, Private: private, Roots: roots})
	cfg := shell.Config{
		Target: m.Target, User: o.Caps.User, Dir: m.Config.Dir, Classify: m.opts.Classify, Notice: o.Notice, Journal: plainJournal{m},
		Reads: func(lock bool) approvals.Reads { return m.opts.Reads(m.Name, lock) }, Once: m.opts.Single,
		RunAs: m.Config.RunAs, Ways: ways{m}, Receipts: receipts{m},
	}
	if o.Book != nil {
		cfg.Sessions = o.Book // a nil book would not be a nil interface
		all = append(all, terminal.New(terminal.Config{Target: m.Target.ID(), User: o.Caps.User, Book: o.Book})...)
	}
	all = append(all, shell.New(cfg), shell.NewUndo(cfg), shell.NewBash(cfg), shell.NewCode(cfg, m.opts.File.Tools.Languages()))
	all = append(all, search.New(search.Config{Target: target, User: o.Caps.User, Dir: m.Config.Dir, Private: private, Roots: roots})...)
	all = append(all, gitcmd.New(gitcmd.Config{Target: m.Target, User: o.Caps.User, Dir: m.Config.Dir, Private: private, Roots: roots, Journal: plainJournal{m}})...)
	all = append(all, code.New(code.Config{Target: target, User: o.Caps.User, Dir: m.Config.Dir, Private: private, Roots: roots, Cache: m.opts.Indexes, Worker: m.opts.Parser})...)
	all = append(all, process.New(m.background(o.Caps.User, private, roots...))...)
	byName := map[string]tools.Tool{}
	for _, t := range all {
		if m.Config.Credential == config.PerApproval && !withCertificate(t.Spec()) {
			continue
		}
		byName[t.Spec().Name] = t
	}
	return byName, nil
}

// withCertificate reports whether a tool works where each change takes a certificate: one that only
// reads, a command, or keys for the terminal, whose account can change nothing.
func withCertificate(s tools.Spec) bool {
	return s.Level == risk.Read && s.Name != "bash" || s.NeedsTmux
}

// background says how processes in the background are kept.
func (m *Machine) background(user string, private func(string) bool, roots ...string) process.Config {
	return process.Config{Target: m.Target, Name: m.place(), User: user, Dir: m.Config.Dir, Private: private, Roots: roots, DB: m.opts.DB, Log: m.opts.Log, Once: m.opts.Single}
}

// Patterns are the tools that some machine may have, for their specs.
func Patterns(c config.ToolsConfig) []tools.Tool {
	t := local.New(local.Options{})
	all := append(files.New(files.Config{Target: t}), shell.New(shell.Config{Target: t}), shell.NewUndo(shell.Config{Target: t}), shell.NewBash(shell.Config{Target: t}), shell.NewCode(shell.Config{Target: t}, c.Languages()))
	all = append(all, search.New(search.Config{Target: t})...)
	all = append(all, gitcmd.New(gitcmd.Config{Target: t})...)
	all = append(all, process.New(process.Config{Target: t})...)
	all = append(all, code.New(code.Config{Target: t})...)
	return append(all, terminal.New(terminal.Config{Target: t.ID()})...)
}

// own tells which files on the machine the bot itself writes.
func (m *Machine) own() (func(path string) bool, error) {
	if m.Config.Kind != "local" {
		return nil, nil //nolint:nilnil // none are
	}
	data, err := filepath.Abs(m.opts.Env.DataDir)
	if err != nil {
		return nil, err
	}
	return func(path string) bool { return below(data, path) }, nil
}

// off tells which files no tool may touch: the product's own secrets, and on this machine what its
// configuration says is secret.
func (m *Machine) off() func(path string) bool {
	var places []string
	if m.Config.Kind == "local" {
		places = m.opts.Env.Places(m.opts.File)
	}
	return func(path string) bool {
		// The account that only reads has its own directory in that of the runner.
		return secretfile.Ours(path) && (m.Config.Kind == "local" || !below("/var/lib/countersign", path)) ||
			slices.ContainsFunc(places, func(p string) bool { return below(p, path) }) || (strings.HasPrefix(path, "/proc/") && strings.HasSuffix(path, "/environ"))
	}
}

func below(dir, path string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// confine keeps the tools for files within the roots of the machine, where it has any.
func (m *Machine) confine(private func(string) bool) (_ backend.Target, _ func(path string) bool, roots []string, _ error) {
	if len(m.Config.Roots) == 0 {
		return m.Target, private, nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for _, root := range m.Config.Roots {
		resolved, err := m.Target.FS().Resolve(ctx, root)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("its root %s cannot be used: %w", root, err)
		}
		roots = append(roots, resolved)
	}
	target := m.Target
	if l, ok := target.(*local.Target); ok {
		target = l.Within(roots)
	}
	return target, func(path string) bool {
		_, _, ok := local.Inside(roots, path)
		return !ok || private != nil && private(path)
	}, roots, nil
}
