package code

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"countersign/targets/backend"
	"countersign/targets/backend/door"
)

// parserName is the parser's program (cmd/countersign-parser).
const parserName = "countersign-parser"

var errNoParser = errors.New("symbols need the program " + parserName + ", which is not here: install it beside the bot, or search with indexer_search_code")

// buildTime bounds the build of the parser in a checkout: C code, a cold cache, a slow machine.
const buildTime = 5 * time.Minute

// Parser returns a Starter of the program countersign-parser on the bot's own machine, t. It looks
// beside the running program and in PATH. A bot that runs from a source checkout builds it on the
// first request for symbols, into the account's cache directory. If there is no parser, the
// Starter's error explains how to get it.
func Parser(t backend.Target) Starter {
	p := &program{target: t}
	return func(ctx context.Context, stdin io.Reader, stdout io.Writer) (backend.Process, error) {
		exe, err := p.find(ctx)
		if err != nil {
			return nil, err
		}
		return start(ctx, t, stdin, stdout, exe)
	}
}

func start(ctx context.Context, t backend.Target, stdin io.Reader, stdout io.Writer, argv ...string) (backend.Process, error) {
	return door.Start(ctx, t, door.Plumbing, nil, backend.Spec{Argv: argv, Dir: "/", Stdin: stdin, Stdout: stdout, Grace: time.Millisecond})
}

// program is the parser's program, found or built once.
type program struct {
	target backend.Target

	mu    sync.Mutex // held during the build, so that others wait for it
	built string     // path of the built program
	err   error      // why the build failed
}

func (p *program) find(ctx context.Context) (string, error) {
	// Look again on each call: it may have been installed in the meantime.
	if exe := installed(); exe != "" {
		return exe, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.built == "" && p.err == nil {
		p.built, p.err = p.build(ctx)
		if ctx.Err() != nil { // the next caller tries again
			p.err = nil
			return "", ctx.Err()
		}
	}
	return p.built, p.err
}

// installed returns the path of an installed parser, or "".
func installed() string {
	dirs := filepath.SplitList(os.Getenv("PATH"))
	if exe, err := os.Executable(); err == nil {
		dirs = append([]string{filepath.Dir(exe)}, dirs...)
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, parserName)
		info, err := os.Stat(path) //nolint:gosec // PATH is the operator's
		if filepath.IsAbs(path) && err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

// build builds the parser in the checkout that this program was built from.
func (p *program) build(ctx context.Context) (string, error) {
	_, self, _, _ := runtime.Caller(0)
	root := filepath.Dir(filepath.Dir(filepath.Dir(self)))
	if _, err := os.Stat(filepath.Join(root, "cmd", parserName, "main.go")); err != nil || !filepath.IsAbs(self) {
		return "", errNoParser
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("%w (it can't be built here: %w)", errNoParser, err)
	}
	to := filepath.Join(cache, "countersign", parserName)
	var out bytes.Buffer
	ctx, cancel := context.WithTimeout(ctx, buildTime)
	defer cancel()
	process, err := door.Start(ctx, p.target, door.Plumbing, nil, backend.Spec{
		Argv: []string{"go", "build", "-o", to, "./cmd/" + parserName}, Dir: root,
		Env: append(buildEnviron(os.Environ()), "CGO_ENABLED=1"), Stdout: &out, Stderr: &out,
	})
	if err == nil {
		var res backend.Result
		if res, err = process.Wait(); err == nil && res.Code != 0 {
			err = errors.New(lastLine(out.String()))
		}
	}
	if err != nil {
		return "", fmt.Errorf("%w (building it needs Go and a C compiler: %w)", errNoParser, err)
	}
	return to, nil
}

var buildVariables = []string{
	"HOME", "PATH", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "LANG", "CC", "CXX", "CGO_CFLAGS", "CGO_CXXFLAGS", "CGO_LDFLAGS",
	"GOROOT", "GOPATH", "GOCACHE", "GOMODCACHE", "GOENV", "GOFLAGS", "GOPROXY", "GOSUMDB", "GONOSUMDB", "GONOPROXY", "GOPRIVATE", "GOTOOLCHAIN",
}

// buildEnviron is what of the bot's environment a build needs: where Go, its caches and the compiler are.
// The rest may be secrets.
func buildEnviron(all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return !slices.Contains(buildVariables, name)
	})
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}
