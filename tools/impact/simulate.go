package impact

import (
	"context"
	"strings"
)

// Simulator is a Runner that also runs what a program itself offers to show what it would do.
type Simulator interface {
	Runner
	// Simulate runs text of this package's, which asks a program for a simulation, as Read runs a proven
	// read. It is held by the strictest lock, and refused where the target has none: a program that does
	// not keep its word changes nothing. server opens the network: then it asks a server for the simulation,
	// and that must keep its word.
	Simulate(ctx context.Context, command string, server bool) (stdout string, exit int, err error)
}

// simulate asks a program for a simulation, or its server. done is false where none was made.
func (p *probe) simulate(ctx context.Context, command string, server bool) (out string, exit int, done bool) {
	s, can := p.runner.(Simulator)
	if !can || ctx.Err() != nil {
		return "", 0, false
	}
	out, exit, err := s.Simulate(ctx, command, server)
	return out, exit, err == nil
}

// simulateApt says what apt-get(8) would do, by its option -s: "Inst NAME [OLD] (NEW ...)", "Remv NAME
// [OLD]" and "Purg NAME [OLD]" are its rows.
func simulateApt(ctx context.Context, p *probe, c call) bool {
	verb, names := c.Operand(0), c.Texts(1)
	out, exit, done := p.simulate(ctx, "apt-get -s -q -y"+repeatOptions(c.Args, "--purge", "--no-install-recommends", "--allow-downgrades", "--reinstall", "--only-upgrade",
		"--autoremove", "--auto-remove", "--no-install-suggests")+" "+quoted(verb)+" -- "+join(names), false)
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

// simulateManifests says what a cluster would do with the objects of files, by a dry run of its API server
// (kubernetes.io/docs/reference/using-api/api-concepts/#dry-run): it admits and validates what it is sent, and
// stores nothing. A kubectl that does not know that option refuses it.
func (p *probe) simulateManifests(ctx context.Context, c call, scope, verb string) bool {
	for _, f := range append(c.Values("-f", "--filename"), c.Values("-k", "--kustomize")...) {
		if f == "" || f == "-" || strings.Contains(f, "://") {
			return false
		}
	}
	if c.Has("-k", "--kustomize", "--prune", "--force") { // what these do besides is not simulated
		return false
	}
	out, exit, done := p.simulate(ctx, p.in()+"kubectl "+verb+" --dry-run=server"+scope+
		repeatOptions(c.Args, "-f", "--filename", "-R", "--recursive", "--server-side", "--force-conflicts", "--field-manager", "--validate")+" 2>&1", true)
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
