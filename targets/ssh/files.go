package ssh

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/pkg/sftp"
	xssh "golang.org/x/crypto/ssh"
	"golang.org/x/sync/errgroup"

	"countersign/targets/backend"
)

// files is the machine's file system, but reads and writes over SFTP where that is
// as good.
type files struct {
	shellFiles
	t *Target
}

// sftpSession is an SFTP channel that calls share. Its fields are guarded by
// Target.mu.
type sftpSession struct {
	c      *conn
	client *sftp.Client
	users  int
	old    bool // no new user: it ends with the last
}

// errNoSFTP means that the host has no SFTP, or none that works.
var errNoSFTP = errors.New("ssh: the host has no sftp subsystem")

// ReadFile implements backend.FileSystem. A host without SFTP is read with cat.
func (f files) ReadFile(ctx context.Context, name string, limit int64) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if name == "" || strings.ContainsRune(name, 0) {
		return f.shellFiles.ReadFile(ctx, name, limit) // it has the words for that
	}
	p := name
	if !path.IsAbs(p) && f.t.c.Dir != "" {
		p = f.t.c.Dir + "/" + p
	} else if !path.IsAbs(p) {
		caps, err := f.t.Probe(ctx)
		if err != nil {
			return nil, err
		}
		p = caps.Home + "/" + p
	}
	s, err := f.t.sftpOpen(ctx)
	if errors.Is(err, errNoSFTP) {
		return f.shellFiles.ReadFile(ctx, name, limit)
	}
	if err != nil {
		return nil, err
	}
	var data []byte
	err = f.t.sftpDo(ctx, s, func() (err error) {
		data, err = read(ctx, s.client, p, limit)
		return err
	})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return data, err
}

// sftpDo runs f, which uses a session, in the time that ctx leaves, and ends the use.
// When ctx ends before f does, f goes on alone.
func (t *Target) sftpDo(ctx context.Context, s *sftpSession, f func() error) error {
	got := make(chan error, 1)
	go func() { got <- f() }()
	select {
	case err := <-got:
		if errors.Is(err, sftp.ErrSSHFxConnectionLost) || errors.Is(err, io.ErrUnexpectedEOF) {
			t.sftpRetire(s)
			err = fmt.Errorf("%s: %w", t.c.Name, errors.Join(backend.ErrLost, err))
		}
		t.sftpDone(s)
		return err
	case <-ctx.Done():
		// The call may hang: nobody else begins on that channel, and it ends when it can.
		t.sftpRetire(s)
		go func() {
			if err := <-got; err != nil {
				t.log.Debug("a file operation that nobody waited for failed", "error", err)
			}
			t.sftpDone(s)
		}()
		return ctx.Err()
	}
}

// errByShell means that a file is not one for SFTP; nothing was changed.
var errByShell = errors.New("ssh: this file is written by the shell")

// WriteFile implements backend.FileSystem. Over SFTP it takes a fraction of the time,
// but only the plain cases are written that way: a regular file that everybody may
// read, or a new one. SFTP cannot make a file that nobody else can open from its first
// moment, and knows nothing of links that dangle. All other cases, and whatever fails
// before the new file takes its place, are the shell's.
func (f files) WriteFile(ctx context.Context, name string, data []byte, mkdir bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	base := path.Base(name)
	if !path.IsAbs(name) || strings.HasSuffix(name, "/") || base == "." || base == ".." || strings.ContainsRune(name, 0) {
		return f.shellFiles.WriteFile(ctx, name, data, mkdir)
	}
	s, err := f.t.sftpOpen(ctx)
	if errors.Is(err, errNoSFTP) {
		return f.shellFiles.WriteFile(ctx, name, data, mkdir)
	}
	if err != nil {
		return err
	}
	err = f.t.sftpDo(ctx, s, func() error { return replace(ctx, s.client, name, data) })
	if errors.Is(err, errByShell) && ctx.Err() == nil {
		return f.shellFiles.WriteFile(ctx, name, data, mkdir)
	}
	return err
}

// replace writes a file by a temporary one beside it. Where the answers do not depend
// on each other it asks for them at once: each is a round trip.
func replace(ctx context.Context, c *sftp.Client, p string, data []byte) error {
	_, canRename := c.HasExtension("posix-rename@openssh.com")
	_, canSync := c.HasExtension("fsync@openssh.com")
	if !canRename || !canSync {
		return errByShell
	}
	byShell := func(err error) error {
		if errors.Is(err, sftp.ErrSSHFxConnectionLost) || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		return fmt.Errorf("%w: %w", errByShell, err)
	}
	tmp := path.Dir(p) + "/.countersign-" + strings.ToLower(rand.Text())
	var old, made fs.FileInfo
	var oldErr error
	var file *sftp.File
	var g errgroup.Group
	g.Go(func() error {
		old, oldErr = c.Lstat(p)
		return nil
	})
	g.Go(func() (err error) {
		file, err = c.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
		return err
	})
	if err := g.Wait(); err != nil {
		return byShell(err)
	}
	renamed := false
	defer func() {
		if !renamed {
			_ = c.Remove(tmp)
		}
		go func() { _ = file.Close() }() // nobody needs to wait for the answer
	}()
	mode := fs.FileMode(0o644)
	switch {
	case oldErr == nil && plain(old.Mode()):
		mode = old.Mode().Perm()
	case oldErr == nil || !errors.Is(oldErr, fs.ErrNotExist):
		return byShell(oldErr)
	}
	g = errgroup.Group{}
	if oldErr == nil {
		g.Go(func() error { // a file that may not be written is not replaced, either
			existing, err := c.OpenFile(p, os.O_WRONLY)
			if err == nil {
				go func() { _ = existing.Close() }()
			}
			return err
		})
	}
	g.Go(func() (err error) {
		made, err = file.Stat()
		return err
	})
	if err := g.Wait(); err != nil {
		return byShell(err)
	}
	// With another umask than usual somebody else may already have it open to write.
	if made.Mode().Perm()&0o022 != 0 || (oldErr == nil && owner(made) != owner(old)) {
		return errByShell
	}
	g = errgroup.Group{}
	g.Go(func() error { return file.Chmod(mode) })
	g.Go(func() error {
		_, err := file.ReadFromWithConcurrency(bytes.NewReader(data), 0)
		return err
	})
	if err := g.Wait(); err != nil {
		return byShell(err)
	}
	if err := file.Sync(); err != nil {
		return byShell(err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := c.PosixRename(tmp, p); err != nil {
		return &fs.PathError{Op: "write", Path: p, Err: err}
	}
	renamed = true
	return nil
}

// plain reports whether a file of that mode holds no secret from anybody and is
// nothing but a file.
func plain(m fs.FileMode) bool {
	return m.IsRegular() && m&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) == 0 && m.Perm()&0o444 == 0o444
}

// owner is the user and group of a file.
func owner(st fs.FileInfo) [2]uint32 {
	if sys, ok := st.Sys().(*sftp.FileStat); ok {
		return [2]uint32{sys.UID, sys.GID}
	}
	return [2]uint32{}
}

// probe is how much is asked for beyond the end that a file claims to have: a file
// of /proc mostly fits.
const probe = 16 << 10

// read reads a regular file. It looks before it opens: opening a FIFO would hold up
// everybody on the channel.
func read(ctx context.Context, c *sftp.Client, p string, limit int64) ([]byte, error) {
	st, err := c.Stat(p)
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: p, Err: err}
	}
	if !st.Mode().IsRegular() {
		if st.IsDir() {
			return nil, fmt.Errorf("%s is a directory: %w", p, syscall.EISDIR)
		}
		return nil, fmt.Errorf("%s is not a regular file: %w", p, fs.ErrInvalid)
	}
	file, err := c.Open(p)
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: p, Err: err}
	}
	// Nobody needs to wait for the answer to a close.
	defer func() { go func() { _ = file.Close() }() }()
	size := st.Size()
	if limit > 0 {
		size = min(size, limit+1) // one byte more tells that there is more
	}
	var buf bytes.Buffer
	buf.Grow(int(size) + bytes.MinRead)
	// What is behind the end is asked for in the same moment: mostly nothing, but files
	// grow, and those of /proc say that they are empty.
	type result struct {
		data []byte
		err  error
	}
	ask := func(at, n int64) result {
		piece := make([]byte, n)
		got, err := file.ReadAt(piece, at)
		return result{piece[:got], err}
	}
	beyond := make(chan result, 1)
	go func() { beyond <- ask(size, probe) }()
	for int64(buf.Len()) < size {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		r := ask(int64(buf.Len()), min(size-int64(buf.Len()), 4<<20))
		buf.Write(r.data)
		if errors.Is(r.err, io.EOF) { // it has become shorter
			size = -1
			break
		}
		if r.err != nil {
			return nil, &fs.PathError{Op: "read", Path: p, Err: r.err}
		}
	}
	for r := <-beyond; size >= 0; r = ask(int64(buf.Len()), 1<<20) {
		buf.Write(r.data)
		if errors.Is(r.err, io.EOF) || (limit > 0 && int64(buf.Len()) > limit) {
			break
		}
		if r.err == nil {
			r.err = ctx.Err()
		}
		if r.err != nil {
			return nil, &fs.PathError{Op: "read", Path: p, Err: r.err}
		}
	}
	if data := buf.Bytes(); limit > 0 && int64(len(data)) > limit {
		return data[:limit], fmt.Errorf("%s: %w", p, backend.ErrTooBig)
	}
	return buf.Bytes(), nil
}

// helloTime is how long an sftp subsystem may take to say hello, counted from when its
// channel is there. One that says nothing is none: the shell reads and writes, too.
const helloTime = 2 * time.Second

// sftpOpen returns the shared SFTP session, opened anew if it was lost.
func (t *Target) sftpOpen(ctx context.Context) (*sftpSession, error) {
	t.mu.Lock()
	if s := t.sftp; s != nil && !s.old && !s.c.wire.broken.Load() {
		s.users++
		t.mu.Unlock()
		return s, nil
	}
	for _, c := range t.conns {
		if c.noSFTP && !c.wire.broken.Load() {
			t.mu.Unlock()
			return nil, errNoSFTP
		}
	}
	t.mu.Unlock()

	c, ch, reqs, err := t.session(ctx)
	if err != nil {
		return nil, err
	}
	go func() {
		xssh.DiscardRequests(reqs)
		t.release(c)
	}()
	go func() { _, _ = io.Copy(io.Discard, ch.Stderr()) }()
	type result struct {
		client *sftp.Client
		err    error
	}
	got := make(chan result, 1)
	go func() {
		ok, err := ch.SendRequest("subsystem", true, xssh.Marshal(struct{ Name string }{"sftp"}))
		if err == nil && !ok {
			err = errNoSFTP
		}
		if err != nil {
			got <- result{nil, err}
			return
		}
		client, err := sftp.NewClientPipe(ch, ch)
		got <- result{client, err}
	}()
	hello := time.NewTimer(t.helloTime)
	defer hello.Stop()
	var r result
	select {
	case r = <-got:
	case <-hello.C:
		r.err = fmt.Errorf("it says nothing for %v", t.helloTime)
	case <-ctx.Done():
		go func() { _ = ch.Close() }()
		return nil, ctx.Err()
	}
	if r.err != nil {
		go func() { _ = ch.Close() }()
		if c.wire.broken.Load() {
			return nil, fmt.Errorf("%s: %w", t.c.Name, errors.Join(backend.ErrLost, r.err))
		}
		t.mu.Lock()
		c.noSFTP = true
		t.mu.Unlock()
		t.log.Info("the host has no working sftp subsystem; files are read by the shell", "error", r.err)
		return nil, errNoSFTP
	}
	s := &sftpSession{c: c, client: r.client, users: 1}
	t.mu.Lock()
	defer t.mu.Unlock()
	if have := t.sftp; have == nil || have.old || have.c.wire.broken.Load() {
		t.sftp = s
	} else {
		s.old = true // another caller was faster: this one is for a single use
	}
	return s, nil
}

// sftpRetire keeps others from using a session.
func (t *Target) sftpRetire(s *sftpSession) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.old = true
	if t.sftp == s {
		t.sftp = nil
	}
}

// sftpDone ends one use of a session.
func (t *Target) sftpDone(s *sftpSession) {
	t.mu.Lock()
	s.users--
	end := s.old && s.users == 0
	t.mu.Unlock()
	if end {
		go func() { _ = s.client.Close() }()
	}
}
