package code

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"sync"

	"countersign/targets/backend"
	"countersign/targets/backend/door"
	"countersign/tools/code/wire"
)

// remoteReaders is how many files are read concurrently where each read is a round trip.
const remoteReaders = 8

// reader reads the files of one root through its target.
type reader struct {
	target backend.Target
	root   string
}

// errMoved means that the path of a listed file now leads elsewhere.
var errMoved = errors.New("the way to it goes through a link now")

// isLocal reports whether files are read at disk speed.
func (r reader) isLocal() bool {
	_, ok := r.target.FS().(backend.Opener)
	return ok
}

func (r reader) abs(rel string) string { return path.Join(r.root, rel) }

// readFile reads one file, unless a link appeared on its path.
func (r reader) readFile(ctx context.Context, rel string) ([]byte, error) {
	name := r.abs(rel)
	// A listed file can be replaced by a link at any moment. The path is checked after the read
	// too, so an attacker would have to create and remove the link within one read.
	if err := r.checkNoLinks(ctx, name); err != nil {
		return nil, err
	}
	b, err := r.target.FS().ReadFile(ctx, name, wire.MaxText)
	if err != nil {
		return nil, err
	}
	if err := r.checkNoLinks(ctx, name); err != nil {
		return nil, err
	}
	return b, nil
}

func (r reader) checkNoLinks(ctx context.Context, name string) error {
	got, err := r.target.FS().Resolve(ctx, name)
	if err == nil && got != name {
		err = fmt.Errorf("%s: %w", name, errMoved)
	}
	return err
}

// readFunc receives the content of a file, or the error that kept it from being read. worker is
// less than the number of workers, and each worker has one goroutine.
type readFunc func(worker int, f *file, content []byte, err error)

// readFiles reads files and passes them to each, in any order. On error the rest was not read.
func (r reader) readFiles(ctx context.Context, files []*file, workers int, each readFunc) error {
	if r.isLocal() {
		return r.readParallel(ctx, files, workers, each)
	}
	left, err := r.readTar(ctx, files, workers, each)
	if err != nil || len(left) == 0 {
		return err
	}
	// Read one by one what the stream did not contain.
	return r.readParallel(ctx, left, workers, each)
}

// readParallel reads each file separately.
func (r reader) readParallel(ctx context.Context, files []*file, workers int, each readFunc) error {
	readers := workers
	if !r.isLocal() {
		readers = max(workers, remoteReaders)
	}
	var (
		mu   sync.Mutex
		next int
		lost error
		wg   sync.WaitGroup
	)
	turns := make([]sync.Mutex, workers) // one per worker, if there are more readers
	for i := range readers {
		wg.Go(func() {
			for ctx.Err() == nil {
				mu.Lock()
				if next == len(files) || lost != nil {
					mu.Unlock()
					return
				}
				f := files[next]
				next++
				mu.Unlock()
				b, err := r.readFile(ctx, f.path)
				if errors.Is(err, backend.ErrLost) {
					mu.Lock()
					lost = err
					mu.Unlock()
					return
				}
				if ctx.Err() != nil {
					return
				}
				w := i % workers
				turns[w].Lock()
				each(w, f, b, err)
				turns[w].Unlock()
			}
		})
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	return lost
}

// member is a file from a stream.
type member struct {
	f *file
	b []byte
}

// readTar fetches the files with one tar and returns those that it did not contain. On a target
// without tar that is all of them.
func (r reader) readTar(ctx context.Context, files []*file, workers int, each readFunc) (left []*file, err error) {
	want := make(map[string]*file, len(files))
	var names strings.Builder
	var size int64
	for _, f := range files {
		// tar interprets backslashes in a list of names.
		if strings.ContainsAny(f.path, "\n\\") {
			left = append(left, f)
			continue
		}
		want[f.path] = f
		size += f.size + 2048
		names.WriteString("./" + f.path + "\n")
	}
	if len(want) == 0 {
		return left, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pr, pw := io.Pipe()
	p, err := door.Start(ctx, r.target, door.Look, nil, backend.Spec{
		Argv: []string{"tar", "-c", "-f", "-", "-T", "-"}, Dir: r.root, Stdin: strings.NewReader(names.String()), Stdout: pw,
	})
	if err != nil {
		if errors.Is(err, backend.ErrLost) || ctx.Err() != nil {
			return nil, err
		}
		return files, nil // without tar, files are read one by one
	}
	ended := make(chan error, 1)
	go func() {
		_, err := p.Wait() // a non-zero exit code only means that something was left out
		_ = pw.CloseWithError(io.EOF)
		ended <- err
	}()
	members := make(chan member, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for m := range members {
				each(w, m.f, m.b, nil)
			}
		})
	}
	// A directory that replaced a file would add everything below it.
	r.unpack(ctx, io.LimitReader(pr, size+size/2+1<<20), want, members)
	close(members)
	wg.Wait()
	cancel()
	_ = pr.CloseWithError(io.ErrClosedPipe)
	if err := <-ended; errors.Is(err, backend.ErrLost) {
		return nil, err
	}
	for _, f := range files {
		if want[f.path] != nil {
			left = append(left, f)
		}
	}
	return left, nil
}

// unpack sends the wanted files to the channel and removes them from want. If the stream ends
// early, the rest stays in want.
func (r reader) unpack(ctx context.Context, in io.Reader, want map[string]*file, to chan<- member) {
	for tr := tar.NewReader(in); ; {
		h, err := tr.Next()
		if err != nil {
			return
		}
		name := strings.TrimPrefix(h.Name, "./")
		f := want[name]
		if f == nil || h.Typeflag != tar.TypeReg || h.Size > wire.MaxText {
			continue // a link, or the file grew: reading it separately gives the reason
		}
		b := make([]byte, h.Size)
		if _, err := io.ReadFull(tr, b); err != nil {
			return
		}
		delete(want, name)
		select {
		case to <- member{f, b}:
		case <-ctx.Done():
			return
		}
	}
}
