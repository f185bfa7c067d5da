package main

import "testing"

func TestASmallHeapIsCollectedSparinglyAndALargeOneAsUsual(t *testing.T) {
	for live, want := range map[uint64]int{0: 400, 1 << 20: 400, 12 << 20: 400, 24 << 20: 200, 48 << 20: 100, 4 << 30: 100} {
		if got := percentFor(live); got != want {
			t.Errorf("%d live bytes: %d, want %d", live, got, want)
		}
	}
}
