//go:build unix

package bolt_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"countersign/store"
	"countersign/store/bolt"
	"countersign/test/needstest"
)

// TestMain makes this binary the writer that TestAKilledWriterLosesNothing
// kills.
func TestMain(m *testing.M) {
	if path := os.Getenv("STORE_BOLT_VICTIM"); path != "" {
		victim(path)
		return
	}
	os.Exit(needstest.Tidy(6, m.Run)) // they wait for the disk
}

const victims = 6

// victim writes with several goroutines until it is killed, and says on its
// standard output what was acknowledged.
func victim(path string) {
	db, err := bolt.Open(path, bolt.Options{Journal: 24 << 10})
	if err != nil {
		fmt.Fprintln(os.Stdout, "open:", err)
		os.Exit(1)
	}
	var wg sync.WaitGroup
	for w := range victims {
		wg.Go(func() {
			for {
				var n int
				run := db.Update
				if w%2 == 1 {
					run = db.UpdateRelaxed
				}
				if err := run(context.Background(), func(tx store.Tx) error {
					n = count(tx, fmt.Sprint("writer", w)) + 1
					tx.Set(fmt.Append(nil, "writer", w), strconv.AppendInt(nil, int64(n), 10))
					tx.Set([]byte("total"), strconv.AppendInt(nil, int64(count(tx, "total")+1), 10))
					tx.Set(fmt.Appendf(nil, "row%d/%06d", w, n), make([]byte, n*977%9000))
					if n > 50 {
						tx.Delete(fmt.Appendf(nil, "row%d/%06d", w, n-50))
					}
					return nil
				}); err != nil {
					fmt.Fprintln(os.Stdout, "update:", err)
					os.Exit(1)
				}
				// One write, so that lines do not mix.
				_, _ = fmt.Fprintf(os.Stdout, "%d %d\n", w, n)
			}
		})
	}
	wg.Wait()
}

func count(tx store.Tx, key string) int {
	val, _ := tx.Get([]byte(key))
	n, _ := strconv.Atoi(string(val))
	return n
}

func TestAKilledWriterLosesNothing(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	rounds := 12
	if n, err := strconv.Atoi(os.Getenv("STORE_KILLS")); err == nil {
		rounds = n
	} else if testing.Short() {
		rounds = 3
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "state.db")
	acked := [victims]int{}
	acks := 0
	for round := range rounds {
		out, in, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		child, err := os.StartProcess(self, []string{self}, &os.ProcAttr{
			Env:   append(os.Environ(), "STORE_BOLT_VICTIM="+path),
			Files: []*os.File{nil, in, os.Stderr},
		})
		if err != nil {
			t.Fatal(err)
		}
		_ = in.Close()
		lines := bufio.NewScanner(out)
		killAt := 1 + rand.IntN(600)
		for n := 0; lines.Scan(); n++ {
			var w, i int
			if _, err := fmt.Sscan(lines.Text(), &w, &i); err != nil {
				t.Fatalf("round %d: the writer says %q", round, lines.Text())
			}
			acked[w] = max(acked[w], i)
			acks++
			if n == killAt {
				if err := child.Signal(syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
		}
		if _, err := child.Wait(); err != nil {
			t.Fatal(err)
		}
		_ = out.Close()

		db, err := bolt.Open(path, bolt.Options{Journal: []int64{1 << 20, 4 << 10, 40 << 10}[round%3]})
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if err := db.View(t.Context(), func(tx store.Tx) error {
			sum := 0
			for w := range victims {
				n := count(tx, fmt.Sprint("writer", w))
				sum += n
				// One more may have been committed and not told any more.
				if n < acked[w] || n > acked[w]+1 {
					t.Errorf("round %d: writer %d is at %d, %d was acknowledged", round, w, n, acked[w])
				}
				acked[w] = n
				next := max(1, n-49)
				for k, v := range tx.Scan(fmt.Appendf(nil, "row%d/", w), fmt.Appendf(nil, "row%d0", w)) {
					if _, tail, _ := strings.Cut(string(k), "/"); tail != fmt.Sprintf("%06d", next) || len(v) != next*977%9000 {
						t.Errorf("round %d: writer %d: row %s of %d bytes, want %06d", round, w, k, len(v), next)
					}
					next++
				}
				if next != n+1 {
					t.Errorf("round %d: writer %d: rows end before %d, want %d", round, w, next, n+1)
				}
			}
			if total := count(tx, "total"); total != sum {
				t.Errorf("round %d: the total is %d, the parts are %d", round, total, sum)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		closeDB(t, db)
	}
	t.Logf("%d kills, %d acknowledged, none lost", rounds, acks)
}
