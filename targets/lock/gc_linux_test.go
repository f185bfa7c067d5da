package lock_test

import (
	"os/exec"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"countersign/targets/backend"
	"countersign/targets/lock"
	"countersign/test/needstest"
)

// TestALockedThreadMayCollectGarbage: the thread that the lock is put on is still one of the
// runtime's, which may stop the world from there. To do that it signals the other threads,
// and the guard that would be asked about it is stopped with them.
func TestALockedThreadMayCollectGarbage(t *testing.T) {
	needstest.Long(t)
	defer debug.SetGCPercent(debug.SetGCPercent(1))
	stop := make(chan struct{})
	var busy sync.WaitGroup
	for range 4 {
		busy.Go(func() {
			var keep [][]byte
			for {
				select {
				case <-stop:
					return
				default:
				}
				if keep = append(keep, make([]byte, 64<<10)); len(keep) > 64 {
					keep = nil
				}
			}
		})
	}
	defer func() { close(stop); busy.Wait() }()
	done := make(chan error, 1)
	go func() {
		for range 150 {
			cmd := exec.Command("/bin/true")
			cmd.Env = []string{}
			g, err := lock.Start(cmd, backend.Lock{})
			if err != nil {
				done <- err
				return
			}
			err = cmd.Wait()
			g.Close()
			if err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(60 * time.Second):
		t.Fatal("the process stands still")
	}
}
