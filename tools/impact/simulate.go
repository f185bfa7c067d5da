package impact

import (
	"context"
	"maps"
	"path"
	"slices"
	"strings"
)

// Simulator is a Runner that also runs what a program itself offers to show what it would do.
type Simulator interface {
	Runner
	// Simulate asks a program for a simulation. It is held by the strictest lock, and refused where the
	// target has none: a program that does not keep its word changes nothing.
	Simulate(ctx context.Context, s Simulation) (output string, exit int, err error)
}

// Simulation is an argument vector that asks a program what a command would do. Only this package makes one,
// word by word from a table, so that no word of the command's stands where it could mean something else.
type Simulation struct {
	argv   []string
	server bool
}

// Argv returns the program and its arguments. What makes it a simulation is the last one.
func (s Simulation) Argv() []string { return slices.Clone(s.argv) }

// Server reports whether a server is asked, over the network: then the server must keep its word, and no lock does.
func (s Simulation) Server() bool { return s.server }

// simulation is how one program is asked.
type simulation struct {
	program []string // the first words
	// options are those that the command may have, and how they are repeated: as one word, before a value where
	// it ends with "=", and not at all where it is "". With any other option there is no simulation.
	options map[string]string
	decides string // the last word
	server  bool
}

// words is the simulation of a command. ok is false if the table does not have all of it.
func (s simulation) words(verb string, c call, operands []string) (made Simulation, ok bool) {
	argv := append(slices.Clone(s.program), verb)
	for _, f := range c.Flags {
		word, known := s.options[f.Name]
		switch takes := strings.HasSuffix(word, "="); {
		case !known, word != "" && takes != f.HasValue:
			return made, false
		case takes:
			argv = append(argv, word+f.Value)
		case word != "":
			argv = append(argv, word)
		}
	}
	for _, o := range operands {
		if o == "" || o[0] == '-' {
			return made, false
		}
		argv = append(argv, o)
	}
	return Simulation{append(argv, s.decides), s.server}, true
}

// simulate asks for a simulation. done is false where none was made.
func (p *probe) simulate(ctx context.Context, s Simulation) (out string, exit int, done bool) {
	r, can := p.runner.(Simulator)
	if !can || ctx.Err() != nil {
		return "", 0, false
	}
	out, exit, err := r.Simulate(ctx, s)
	return out, exit, err == nil
}

// asIs are options that are repeated as they are.
func asIs(names ...string) map[string]string {
	m := map[string]string{}
	for _, n := range names {
		m[n] = n
	}
	return m
}

// aptSimulation is apt-get(8)'s own.
func aptSimulation() simulation {
	options := asIs("--purge", "--no-install-recommends", "--allow-downgrades", "--reinstall", "--only-upgrade", "--autoremove", "--auto-remove",
		"--no-install-suggests", "-f", "--fix-broken", "-m", "--fix-missing", "--allow-remove-essential", "--allow-change-held-packages")
	maps.Copy(options, map[string]string{"-y": "", "-q": "", "--yes": "", "--assume-yes": "", "--quiet": "", "-V": "", "-u": ""})
	return simulation{program: []string{"apt-get", "-q", "-y"}, options: options, decides: "--simulate"}
}

// simulateApt says what apt-get(8) would do: "Inst NAME [OLD] (NEW ...)", "Remv NAME [OLD]" and "Purg NAME
// [OLD]" are its rows.
func simulateApt(ctx context.Context, p *probe, c call) bool {
	s, ok := aptSimulation().words(c.Operand(0), c, c.Texts(1))
	if !ok {
		return false
	}
	out, exit, done := p.simulate(ctx, s)
	if !done || exit != 0 {
		return false
	}
	var installs, upgrades, removes []string
	for _, row := range rows(out) {
		f := strings.Fields(row)
		if len(f) < 2 {
			continue
		}
		old, rest := "", ""
		if len(f) > 2 && strings.HasPrefix(f[2], "[") {
			old = strings.Trim(f[2], "[]")
		}
		if _, after, found := strings.Cut(row, "("); found {
			rest, _, _ = strings.Cut(after, " ")
		}
		switch {
		case f[0] == "Inst" && old != "":
			upgrades = append(upgrades, f[1]+" "+old+" to "+rest)
		case f[0] == "Inst":
			installs = append(installs, strings.TrimSpace(f[1]+" "+rest))
		case f[0] == "Remv" || f[0] == "Purg":
			removes = append(removes, strings.TrimSpace(f[1]+" "+old))
		}
	}
	if len(removes) > 0 {
		p.add("removes %s: %s", count(len(removes), "package", "packages"), some(removes))
	}
	if len(upgrades) > 0 {
		p.add("changes %s: %s", count(len(upgrades), "package", "packages"), some(upgrades))
	}
	if len(installs) > 0 {
		p.add("installs %s: %s", count(len(installs), "package", "packages"), some(installs))
	}
	if len(removes)+len(upgrades)+len(installs) == 0 {
		p.add("changes no packages")
	}
	return true
}

// kubectlSimulation is a dry run of a cluster's API server (kubernetes.io/docs/reference/using-api/api-concepts/#dry-run):
// it admits and validates what it is sent, and stores nothing. A kubectl that does not know that option refuses it.
func kubectlSimulation() simulation {
	return simulation{
		program: []string{"kubectl"}, decides: "--dry-run=server", server: true,
		options: map[string]string{
			"-n": "--namespace=", "--namespace": "--namespace=", "--context": "--context=", "--cluster": "--cluster=",
			"-f": "--filename=", "--filename": "--filename=", "--field-manager": "--field-manager=", "--validate": "--validate=",
			"--server-side": "--server-side", "--force-conflicts": "--force-conflicts", "--wait": "", "--timeout": "",
		},
	}
}

// simulateManifests says what a cluster would do with the objects of files. It asks only a cluster that a read
// may ask, with files that a read may show, and from a directory that holds nothing.
func (p *probe) simulateManifests(ctx context.Context, c call, scope, verb string) bool {
	if len(c.Operands) != 1 || !p.rooted || !p.proves("kubectl get namespaces"+scope) {
		return false
	}
	c.Flags = slices.Clone(c.Flags)
	for i, f := range c.Flags {
		if f.Name != "-f" && f.Name != "--filename" {
			continue
		}
		if f.Value == "" || f.Value == "-" || strings.Contains(f.Value, "://") || strings.ContainsAny(f.Value, ",\"\n*?[\\") {
			return false // kubectl takes a list of files and addresses, and patterns
		}
		if !path.IsAbs(f.Value) {
			f.Value = p.dir + "/" + f.Value
		}
		// A link, a directory or a pipe would show or take something else.
		f.Value = path.Clean(f.Value)
		q := quoted(f.Value)
		if _, plain := p.output(ctx, `test -f `+q+` && test "$(realpath -e -- `+q+`)" = `+q); !plain || !p.proves("head -c 1 -- "+q) {
			return false
		}
		c.Flags[i] = f
	}
	s, ok := kubectlSimulation().words(verb, c, nil)
	if !ok {
		return false
	}
	out, exit, done := p.simulate(ctx, s)
	var would []string
	refused := ""
	for _, row := range rows(out) {
		if did, ok := strings.CutSuffix(row, " (server dry run)"); ok {
			would = append(would, did)
		} else if refused == "" && (strings.HasPrefix(row, "Error from server") || strings.Contains(row, " is invalid: ")) {
			refused = row
		}
	}
	if !done || refused == "" && (exit != 0 || len(would) == 0) {
		return false
	}
	if refused != "" {
		p.add("the cluster would refuse it: %s", refused)
	}
	if len(would) > 0 {
		p.together("the cluster tried it and stored nothing", would)
	}
	return true
}
