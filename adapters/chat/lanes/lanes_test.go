package lanes

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestLanesKeepOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New()
		var mu sync.Mutex
		got := map[string][]int{}
		for i := range 50 {
			for _, key := range []string{"a", "b"} {
				l.Add(key, func() {
					time.Sleep(time.Millisecond)
					mu.Lock()
					defer mu.Unlock()
					got[key] = append(got[key], i)
				})
			}
		}
		l.Close()
		if l.Add("a", func() { t.Error("work was taken after the end") }) {
			t.Error("closed lanes take work")
		}
		for _, key := range []string{"a", "b"} {
			if len(got[key]) != 50 || !slices.IsSorted(got[key]) {
				t.Errorf("%s ran as %v", key, got[key])
			}
		}
		if len(l.work) != 0 {
			t.Error("lanes stay behind")
		}
	})
}
