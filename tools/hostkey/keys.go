package hostkey

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"countersign/store"
	"countersign/targets/ssh"
)

// Keys stores the host keys that people approved or revoked. A change takes effect with the next
// connection of everyone who shares the storage. Methods are safe for concurrent use. They do not
// ask for approval: only code that has asked people may call them.
type Keys interface {
	// Known returns all keys as the text of a known_hosts file.
	Known(ctx context.Context) ([]byte, error)
	// Trust adds a line, with the checks of ssh.Admit.
	Trust(ctx context.Context, line string) error
	// Revoke marks a key as revoked for all hosts, as ssh.Revoke does.
	Revoke(ctx context.Context, line string) error
	// Forget removes a line, as ssh.Forget does.
	Forget(ctx context.Context, line string) error
}

// InFile stores keys in a known_hosts file, which targets list among their own files; people may
// edit it. Only one process may use the file: of two concurrent changes one may be lost, which
// leaves a host unknown.
func InFile(file string) Keys { return &inFile{file: file} }

type inFile struct {
	file string
	mu   sync.Mutex // held while the file is read and changed
}

func (k *inFile) Known(context.Context) ([]byte, error) {
	text, err := os.ReadFile(k.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

func (k *inFile) Trust(ctx context.Context, line string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	old, err := k.Known(ctx)
	if err != nil {
		return err
	}
	if now, err := ssh.Admit(old, line); err != nil || bytes.Equal(now, old) {
		return err
	}
	return ssh.Trust(k.file, line)
}

func (k *inFile) Revoke(ctx context.Context, line string) error {
	return k.change(ctx, func(old []byte) ([]byte, error) { return ssh.Revoke(old, line) })
}

func (k *inFile) Forget(ctx context.Context, line string) error {
	return k.change(ctx, func(old []byte) ([]byte, error) { return ssh.Forget(old, line) })
}

// change replaces the whole file, so that a reader sees the old or the new text.
func (k *inFile) change(ctx context.Context, f func(old []byte) ([]byte, error)) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	old, err := k.Known(ctx)
	if err != nil {
		return err
	}
	text, err := f(old)
	if err != nil || bytes.Equal(text, old) {
		return err
	}
	dir := filepath.Dir(k.file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, ".known_hosts-*") // with mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // no-op after the rename
	_, err = tmp.Write(text)
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), k.file); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// InStore keeps keys in a store that replicas share; targets call Known for each connection
// (ssh.Config.Approved). There is one row per line:
//
//	hostkey <SHA-256 of the line> -> the line
func InStore(db store.DB) Keys { return inStore{db} }

type inStore struct{ db store.DB }

func lineKey(line string) []byte {
	sum := sha256.Sum256([]byte(line))
	return store.Key("hostkey", sum[:])
}

func load(tx store.Tx) []byte {
	var text []byte
	for _, line := range tx.Scan(store.Prefix("hostkey")) {
		text = append(append(text, line...), '\n')
	}
	return text
}

func (k inStore) Known(ctx context.Context) (text []byte, err error) {
	err = k.db.View(ctx, func(tx store.Tx) error {
		text = load(tx)
		return nil
	})
	return text, err
}

// change applies f to all lines in one transaction, so that of two concurrent decisions about a
// host the second sees the first.
func (k inStore) change(ctx context.Context, f func(old []byte) ([]byte, error)) error {
	return k.db.Update(ctx, func(tx store.Tx) error {
		old := load(tx)
		now, err := f(old)
		if err != nil {
			return err
		}
		gone := lines(old)
		for line := range lines(now) {
			if !gone[line] {
				tx.Set(lineKey(line), []byte(line))
			}
			delete(gone, line)
		}
		for line := range gone {
			tx.Delete(lineKey(line))
		}
		return nil
	})
}

func lines(text []byte) map[string]bool {
	out := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" {
			out[line] = true
		}
	}
	return out
}

func (k inStore) Trust(ctx context.Context, line string) error {
	return k.change(ctx, func(old []byte) ([]byte, error) { return ssh.Admit(old, line) })
}

func (k inStore) Revoke(ctx context.Context, line string) error {
	return k.change(ctx, func(old []byte) ([]byte, error) { return ssh.Revoke(old, line) })
}

func (k inStore) Forget(ctx context.Context, line string) error {
	return k.change(ctx, func(old []byte) ([]byte, error) { return ssh.Forget(old, line) })
}

// Import copies the lines of a known_hosts file, such as that of the data directory when a bot
// moves to a shared store. Revocations come first. It returns the lines that cannot be imported,
// because they are not a single key of named hosts or because another key of a host is approved
// already: these belong into a known_hosts file that every replica has. It is idempotent.
func Import(ctx context.Context, to Keys, text []byte) (left []string, err error) {
	var rest []string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		marked, revoked := strings.CutPrefix(line, "@revoked")
		if !revoked {
			rest = append(rest, line)
			continue
		}
		// Losing a revocation would be worse than a failed import.
		if err := to.Revoke(ctx, marked); err != nil {
			return nil, fmt.Errorf("a revoked host key could not be taken over, so nothing else was; correct the line %q: %w", line, err)
		}
	}
	for _, line := range rest {
		switch err := to.Trust(ctx, line); {
		case err == nil || errors.Is(err, ssh.ErrRevoked):
		case errors.Is(err, ssh.ErrLine), errors.Is(err, ssh.ErrOtherKey):
			left = append(left, line)
		default:
			return left, err
		}
	}
	return left, nil
}
