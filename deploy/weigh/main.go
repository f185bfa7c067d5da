// Command weigh says what each direct dependency costs that a program would be without: the
// processor seconds of a build and the bytes of its packages and of those that nothing else
// imports. deploy/weigh.sh calls it with the files that it reads.
//
//	weigh ACTIONS PACKAGES SYMBOLS
//
// ACTIONS is of go build -debug-actiongraph, PACKAGES of go list -deps -json and SYMBOLS of go
// tool nm -size. It builds nothing itself. Bytes are of code and data that the linker can name;
// tables that it makes for all together are nobody's.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "weigh:", err)
		os.Exit(1)
	}
}

// pkg is one package of the program.
type pkg struct {
	ImportPath string
	Imports    []string
	Module     *struct {
		Path     string
		Main     bool
		Indirect bool
	}
	seconds float64
	bytes   int64
}

func run(args []string, out io.Writer) error {
	if len(args) != 3 {
		return errors.New("usage: weigh ACTIONS PACKAGES SYMBOLS")
	}
	pkgs, root, err := packages(args[1])
	if err != nil {
		return err
	}
	total, link, err := seconds(args[0], pkgs)
	if err != nil {
		return err
	}
	if err := sizes(args[2], pkgs); err != nil {
		return err
	}
	type row struct {
		name    string
		seconds float64
		bytes   int64
	}
	std := row{name: "the standard library"}
	own := row{name: "our own packages"}
	direct := map[string]bool{}
	for _, p := range pkgs {
		switch {
		case p.Module == nil:
			std.seconds, std.bytes = std.seconds+p.seconds, std.bytes+p.bytes
		case p.Module.Main:
			own.seconds, own.bytes = own.seconds+p.seconds, own.bytes+p.bytes
		case !p.Module.Indirect:
			direct[p.Module.Path] = true
		}
	}
	rows := []row{std, own}
	all := reached(pkgs, root, "") // not what the compiler brings in by itself
	for module := range direct {
		r := row{name: module}
		kept := reached(pkgs, root, module)
		for path, p := range pkgs {
			if all[path] && !kept[path] {
				r.seconds, r.bytes = r.seconds+p.seconds, r.bytes+p.bytes
			}
		}
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(b.seconds, a.seconds), cmp.Compare(a.name, b.name))
	})
	_, _ = fmt.Fprintf(out, "%.1f s in all, %.1f s of them for linking\n\n| by it alone | s | KB |\n|---|---|---|\n", total, link)
	for _, r := range rows {
		_, _ = fmt.Fprintf(out, "| %s | %.1f | %d |\n", r.name, r.seconds, r.bytes/1000)
	}
	return nil
}

// reached is what the program would still import without a module.
func reached(pkgs map[string]*pkg, root, module string) map[string]bool {
	seen := map[string]bool{}
	for todo := []string{root}; len(todo) > 0; {
		path := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		p := pkgs[path]
		if p == nil || seen[path] || p.Module != nil && p.Module.Path == module {
			continue
		}
		seen[path] = true
		todo = append(todo, p.Imports...)
	}
	return seen
}

// packages reads PACKAGES; the last one is the program.
func packages(name string) (pkgs map[string]*pkg, root string, err error) {
	f, err := os.Open(name) //nolint:gosec // what the caller names
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = f.Close() }()
	pkgs = map[string]*pkg{}
	for d := json.NewDecoder(f); ; {
		p := &pkg{}
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			return pkgs, root, nil
		} else if err != nil {
			return nil, "", err
		}
		pkgs[p.ImportPath], root = p, p.ImportPath
	}
}

func seconds(name string, pkgs map[string]*pkg) (total, link float64, err error) {
	text, err := os.ReadFile(name) //nolint:gosec // what the caller names
	if err != nil {
		return 0, 0, err
	}
	var actions []struct {
		Mode, Package   string
		CmdUser, CmdSys int64 // nanoseconds
	}
	if err := json.Unmarshal(text, &actions); err != nil {
		return 0, 0, err
	}
	for _, a := range actions {
		s := float64(a.CmdUser+a.CmdSys) / 1e9
		total += s
		if p := pkgs[a.Package]; a.Mode == "link" {
			link += s
		} else if p != nil {
			p.seconds += s
		}
	}
	return total, link, nil
}

func sizes(name string, pkgs map[string]*pkg) error {
	f, err := os.Open(name) //nolint:gosec // what the caller names
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		w := strings.Fields(lines.Text())
		if len(w) < 4 || strings.EqualFold(w[2], "b") { // address, bytes, kind, name; b takes no room in the file
			continue
		}
		n, err := strconv.ParseInt(w[1], 10, 64)
		if err != nil || n > 16<<20 { // zeroed memory of the runtime
			continue
		}
		// The package's path ends at the first dot after the last slash.
		symbol, _, _ := strings.Cut(w[3], "[")
		slash := strings.LastIndex(symbol, "/") + 1
		dot := strings.Index(symbol[slash:], ".")
		if dot < 0 {
			continue
		}
		if p := pkgs[symbol[:slash+dot]]; p != nil {
			p.bytes += n
		}
	}
	return lines.Err()
}
