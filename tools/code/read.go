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
	"countersign/tools/code/wire"
)

// remoteReaders is how many files are read at once where each is a round trip.
const remoteReaders = 8

// reader reads the files of one root through its target.
type reader struct {
	target backend.Target
	root   string
}

// errMoved means that the way to a listed file leads somewhere else now.
var errMoved = errors.New("the way to it goes through a link now")

// near reports whether files can be read at the speed of a disk.
func (r reader) near() bool {
	_, ok := r.target.FS().(backend.Opener)
	return ok
}

func (r reader) abs(rel string) string { return path.Join(r.root, rel) }

// one reads one file, and only if no link has come into its way.
func (r reader) one(ctx context.Context, rel string) ([]byte, error) {
	name := r.abs(rel)
	// A file that was listed below the root can be replaced by a link at any moment. The
	// way is looked at after the read too: a link that stands before and not after would
	// have to be made and removed within one read.
	if err := r.straight(ctx, name); err != nil {
		return nil, err
	}
	b, err := r.target.FS().ReadFile(ctx, name, wire.MaxText)
	if err != nil {
		return nil, err
	}
	if err := r.straight(ctx, name); err != nil {
		return nil, err
	}
	return b, nil
}

func (r reader) straight(ctx context.Context, name string) error {
	got, err := r.target.FS().Resolve(ctx, name)
	if err == nil && got != name {
		err = fmt.Errorf("%s: %w", name, errMoved)
	}
	return err
}

// fetched takes what was read of a file; err says why it could not be. worker is less
// than the number of workers, and each has one goroutine.
type fetched func(worker int, f *file, content []byte, err error)

// all reads files and hands them to each, in any order. An error means that the rest
// was not read.
func (r reader) all(ctx context.Context, files []*file, workers int, each fetched) error {
	if r.near() {
		return r.parallel(ctx, files, workers, each)
	}
	left, err := r.stream(ctx, files, workers, each)
	if err != nil || len(left) == 0 {
		return err
	}
	// What the stream did not bring is read one by one.
	return r.parallel(ctx, left, workers, each)
}

// parallel reads each file for itself.
func (r reader) parallel(ctx context.Context, files []*file, workers int, each fetched) error {
	readers := workers
	if !r.near() {
		readers = max(workers, remoteReaders)
	}
	var (
		mu   sync.Mutex
		next int
		lost error
		wg   sync.WaitGroup
	)
	turns := make([]sync.Mutex, workers) // of each worker, where there are more readers
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
				b, err := r.one(ctx, f.path)
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

// member is a file that a stream brought.
type member struct {
	f *file
	b []byte
}

// stream lets tar send the files in one go, and returns those that it did not bring. A
// target without tar brings none.
func (r reader) stream(ctx context.Context, files []*file, workers int, each fetched) (left []*file, err error) {
	want := make(map[string]*file, len(files))
	var names strings.Builder
	var size int64
	for _, f := range files {
		// tar unquotes backslashes in a list of names.
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
	p, err := r.target.Start(ctx, backend.Spec{
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
		_, err := p.Wait() // an exit code says only that something was left out
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
	// A directory that took the place of a file would bring all that is below it.
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

// unpack hands on what was wanted, and takes it out of want. A stream that breaks off
// leaves the rest there.
func (r reader) unpack(ctx context.Context, in io.Reader, want map[string]*file, to chan<- member) {
	for tr := tar.NewReader(in); ; {
		h, err := tr.Next()
		if err != nil {
			return
		}
		name := strings.TrimPrefix(h.Name, "./")
		f := want[name]
		if f == nil || h.Typeflag != tar.TypeReg || h.Size > wire.MaxText {
			continue // a link, or grown: reading it says why it is left out
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
