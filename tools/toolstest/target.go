package toolstest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"sync"
	"time"

	"countersign/targets/backend"
)

// Target is an in-memory machine: files and directories are entries of maps, and processes do what
// the test defines. It counts side effects. It is safe for concurrent use.
type Target struct {
	// Name is its ID; "" means "fake".
	Name string
	// Exec runs a process; nil means that it exits with 0.
	Exec func(ctx context.Context, s backend.Spec) (backend.Result, error)

	mu      sync.Mutex
	files   map[string][]byte
	links   map[string]string
	dirs    map[string]bool
	effects int
	specs   []backend.Spec
}

var _ backend.Target = (*Target)(nil)

// Put creates a file; it does not count as an effect.
func (t *Target) Put(name, content string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.put(name, []byte(content))
}

// Link creates a symbolic link; it does not count as an effect.
func (t *Target) Link(name, to string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.links == nil {
		t.links = map[string]string{}
	}
	t.links[name] = to
	t.mkdirs(path.Dir(name))
}

// Content returns a file's content.
func (t *Target) Content(name string) (string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b, ok := t.files[name]
	return string(b), ok
}

// Effects returns how many processes were started and files written.
func (t *Target) Effects() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.effects
}

// Reset resets the effects.
func (t *Target) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.effects = 0
}

// Specs returns the processes that were started.
func (t *Target) Specs() []backend.Spec {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]backend.Spec(nil), t.specs...)
}

func (t *Target) put(name string, content []byte) {
	if t.files == nil {
		t.files = map[string][]byte{}
	}
	t.files[name] = append([]byte(nil), content...)
	t.mkdirs(path.Dir(name))
}

func (t *Target) mkdirs(dir string) {
	if t.dirs == nil {
		t.dirs = map[string]bool{"/": true}
	}
	for ; dir != "/" && dir != "."; dir = path.Dir(dir) {
		t.dirs[dir] = true
	}
}

// ID implements backend.Target.
func (t *Target) ID() string {
	if t.Name == "" {
		return "fake"
	}
	return t.Name
}

// FS implements backend.Target.
func (t *Target) FS() backend.FileSystem { return files{t} }

// Probe implements backend.Target.
func (t *Target) Probe(context.Context) (backend.Caps, error) {
	return backend.Caps{User: "tester", Home: "/home/tester", OS: "linux", TempDir: "/tmp"}, nil
}

// Close implements backend.Target.
func (t *Target) Close() error { return nil }

// Start implements backend.Target.
func (t *Target) Start(ctx context.Context, s backend.Spec) (backend.Process, error) {
	if err := s.Permitted(); err != nil {
		return nil, err
	}
	t.mu.Lock()
	t.effects++
	t.specs = append(t.specs, s)
	t.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	return &process{ctx: ctx, cancel: cancel, t: t, spec: s}, nil
}

type process struct {
	ctx    context.Context
	cancel context.CancelFunc
	t      *Target
	spec   backend.Spec
}

func (p *process) Wait() (backend.Result, error) {
	defer p.cancel()
	if p.t.Exec == nil {
		return backend.Result{}, nil
	}
	return p.t.Exec(p.ctx, p.spec)
}

func (p *process) Kill() { p.cancel() }

type files struct{ t *Target }

// walk follows links; the caller must hold the mutex.
func (f files) walk(name string) (string, error) {
	if !path.IsAbs(name) {
		name = path.Join("/home/tester", name)
	}
	name = path.Clean(name)
	for range 10 {
		moved := false
		for link, to := range f.t.links {
			if name == link || strings.HasPrefix(name, link+"/") {
				name, moved = to+strings.TrimPrefix(name, link), true
			}
		}
		if !moved {
			return name, nil
		}
	}
	return "", errors.New("too many levels of symbolic links")
}

func (f files) ReadFile(_ context.Context, name string, limit int64) ([]byte, error) {
	f.t.mu.Lock()
	defer f.t.mu.Unlock()
	name, err := f.walk(name)
	if err != nil {
		return nil, err
	}
	b, ok := f.t.files[name]
	if !ok {
		if f.t.dirs[name] {
			return nil, fmt.Errorf("read %s: is a directory", name)
		}
		return nil, fmt.Errorf("open %s: %w", name, fs.ErrNotExist)
	}
	if limit > 0 && int64(len(b)) > limit {
		return append([]byte(nil), b[:limit]...), backend.ErrTooBig
	}
	return append([]byte(nil), b...), nil
}

func (f files) WriteFile(_ context.Context, name string, data []byte, mkdir bool) error {
	f.t.mu.Lock()
	defer f.t.mu.Unlock()
	name, err := f.walk(name)
	if err != nil {
		return err
	}
	if !mkdir && !f.t.dirs[path.Dir(name)] {
		return fmt.Errorf("open %s: %w", name, fs.ErrNotExist)
	}
	f.t.effects++
	f.t.put(name, data)
	return nil
}

func (f files) Stat(_ context.Context, name string) (backend.FileInfo, error) {
	f.t.mu.Lock()
	defer f.t.mu.Unlock()
	name, err := f.walk(name)
	if err != nil {
		return backend.FileInfo{}, err
	}
	if f.t.dirs[name] {
		return backend.FileInfo{Path: name, Mode: fs.ModeDir | 0o755}, nil
	}
	b, ok := f.t.files[name]
	if !ok {
		return backend.FileInfo{}, fmt.Errorf("stat %s: %w", name, fs.ErrNotExist)
	}
	return backend.FileInfo{Path: name, Size: int64(len(b)), Mode: 0o644, Time: time.Unix(0, 0)}, nil
}

func (f files) Resolve(_ context.Context, name string) (string, error) {
	f.t.mu.Lock()
	defer f.t.mu.Unlock()
	name, err := f.walk(name)
	if err != nil {
		return "", err
	}
	if _, ok := f.t.files[name]; !ok && !f.t.dirs[name] && !f.t.dirs[path.Dir(name)] {
		return "", fmt.Errorf("resolve %s: %w", name, fs.ErrNotExist)
	}
	return name, nil
}

// Remove implements backend.Remover; directories have no identity here.
func (f files) Remove(_ context.Context, name string, was backend.Before) error {
	f.t.mu.Lock()
	defer f.t.mu.Unlock()
	b, ok := f.t.files[name]
	sum := sha256.Sum256(b)
	if !ok || hex.EncodeToString(sum[:]) != was.Sum {
		return fmt.Errorf("%s: %w", name, backend.ErrChanged)
	}
	f.t.effects++
	delete(f.t.files, name)
	return nil
}
