package keyring_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"countersign/store"
	"countersign/store/keyring"
	"countersign/store/mem"
)

func open(t *testing.T) store.DB {
	t.Helper()
	db := mem.Open()
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func get(t *testing.T, db store.DB, name string) []byte {
	t.Helper()
	key, err := keyring.SharedKey(t.Context(), db, name)
	if err != nil || len(key) != keyring.Size {
		t.Fatalf("%v: %x", err, key)
	}
	return key
}

func TestAKeyStaysAndOthersAreOthers(t *testing.T) {
	db := open(t)
	web := get(t, db, "web")
	if !bytes.Equal(web, get(t, db, "web")) {
		t.Error("it changed")
	}
	if bytes.Equal(web, get(t, db, "hooks")) || bytes.Equal(web, get(t, open(t), "web")) || bytes.Equal(web, make([]byte, keyring.Size)) {
		t.Error("it is not random")
	}
	web[0]++
	if bytes.Equal(web, get(t, db, "web")) {
		t.Error("the caller can change it")
	}
}

// lockstep lets all replicas see that there is no key before one of them makes it, and
// runs every function twice, as an engine may.
type lockstep struct {
	store.DB
	all *sync.WaitGroup
}

func (l lockstep) View(ctx context.Context, fn func(store.Tx) error) error {
	err := l.DB.View(ctx, fn)
	l.all.Done()
	l.all.Wait()
	return err
}

var errAgain = errors.New("a conflict")

func (l lockstep) Update(ctx context.Context, fn func(store.Tx) error) error {
	err := l.DB.Update(ctx, func(tx store.Tx) error { return errors.Join(fn(tx), errAgain) })
	if !errors.Is(err, errAgain) {
		return err
	}
	return l.DB.Update(ctx, fn)
}

func TestReplicasThatStartAtOnceHaveOneKey(t *testing.T) {
	const n = 16
	db, all := open(t), new(sync.WaitGroup)
	all.Add(n)
	keys := make([][]byte, n)
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() {
			var err error
			if keys[i], err = keyring.SharedKey(t.Context(), lockstep{db, all}, "web"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, k := range keys {
		if !bytes.Equal(k, get(t, db, "web")) {
			t.Fatalf("%x", keys)
		}
	}
}

func TestWithoutAKeyThereIsNone(t *testing.T) {
	db := open(t)
	for _, bad := range [][]byte{{}, make([]byte, 31), make([]byte, 33)} {
		if err := db.Update(t.Context(), func(tx store.Tx) error { tx.Set(store.Key("keyring", "web"), bad); return nil }); err != nil {
			t.Fatal(err)
		}
		if key, err := keyring.SharedKey(t.Context(), db, "web"); err == nil || key != nil || !strings.Contains(err.Error(), "none of ours") {
			t.Errorf("%d bytes: %x %v", len(bad), key, err)
		}
	}
	if _, err := keyring.SharedKey(t.Context(), db, ""); err == nil {
		t.Error("no name")
	}
	closed := mem.Open()
	_ = closed.Close()
	if key, err := keyring.SharedKey(t.Context(), closed, "web"); key != nil || !errors.Is(err, store.ErrClosed) {
		t.Errorf("%x %v", key, err)
	}
}
