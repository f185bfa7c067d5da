package faults

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"countersign/adapters/slack/slackfake"
	"countersign/test/faults/model"
	"countersign/test/faults/worldtest"
	"countersign/test/needstest"
)

// smallDisk mounts a file system of some MiB and returns what makes it bigger.
func smallDisk(t *testing.T, mib int) (dir string, grow func(mib int)) {
	t.Helper()
	dir = t.TempDir()
	mount := func(flags uintptr, mib int) error {
		return syscall.Mount("tmpfs", dir, "tmpfs", flags, fmt.Sprintf("size=%dm", mib))
	}
	switch err := mount(0, mib); {
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		const said = "mounting a small tmpfs needs root (CAP_SYS_ADMIN): run the tests as root"
		if os.Getenv("CI") == "true" {
			t.Fatal(said)
		}
		t.Skip(said)
	case err != nil:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir, func(mib int) {
		t.Helper()
		if err := mount(syscall.MS_REMOUNT, mib); err != nil {
			t.Fatal(err)
		}
	}
}

// fill writes until the disk is full.
func fill(t *testing.T, dir string) (ballast string) {
	t.Helper()
	ballast = filepath.Join(dir, "ballast")
	f, err := os.OpenFile(ballast, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	for err == nil {
		_, err = f.Write(make([]byte, 64<<10))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	for err = nil; err == nil; { // to the last block
		_, err = f.Write(make([]byte, 4096))
	}
	_ = f.Close()
	return ballast
}

// TestAFullDisk fills the disk of the data directory while people talk, until the
// journal's own room is used up as well and the store takes nothing any more, and
// then makes room. What was accepted is answered, and nothing is accepted that is not
// kept.
func TestAFullDisk(t *testing.T) {
	needstest.Long(t)
	each(t, func(t *testing.T, rng *rand.Rand) {
		disk, grow := smallDisk(t, 48)
		w := worldtest.New(t, worldtest.Options{
			Binary: binary, Network: newSlack(t, slackfake.Config{AckTimeout: time.Second}), Data: disk,
			More: "model: {window: 16000000}\n", // in which the replies below are kept whole
		})
		w.Start()
		before, _ := w.Open(worldtest.Alice, 0, true)
		w.Settle()
		fill(t, disk)
		w.Bot().Note("the disk is full")
		ready := func() bool {
			res, err := (&http.Client{Timeout: 5 * time.Second}).Get(w.Bot().URL() + "/readyz")
			if err != nil {
				return false
			}
			return res.Body.Close() == nil && res.StatusCode == http.StatusOK
		}
		w.Model.Always(model.Fault{Kind: model.Huge}) // 2 MB in the store each time
		talk := converse(t, w, rng, 6, 3)
		w.Until("the store takes no more", func() bool { return strings.Count(w.Bot().Log(), "could not be stored") > 3 })
		w.Until("the bot says that it is not ready", func() bool { return !ready() })
		time.Sleep(between(rng, 100*time.Millisecond, 2*time.Second))
		if rng.IntN(2) == 0 { // and a crash on top
			w.Bot().Kill()
			grow(256)
			if err := w.Bot().Start(t.Context()); err != nil {
				t.Fatalf("%v\n%s", err, w.Story())
			}
		} else {
			grow(256)
		}
		w.Bot().Note("there is room")
		w.Model.Always(model.Fault{})
		talk.Wait()
		w.Until("the bot is ready again", ready)
		w.Say(worldtest.Bob, before, true)
		seen := w.Finish()
		t.Log(len(seen.Said), " messages: ", worldtest.Outcomes(seen))
	})
}
