package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// sparePercent is GOGC while the heap is small: collecting it less often leaves the processor to
	// those who wait in a burst.
	sparePercent = 400
	// spareHeap is how many bytes that costs at most. A heap that is as large grows to twice its size,
	// as with Go's own setting.
	spareHeap = 48 << 20
)

// collectSparingly sets the garbage collector, now and after each collection.
func collectSparingly() {
	debug.SetGCPercent(sparePercent)
	afterCollection(sparePercent)
}

// afterCollection adjusts the collector, whose percentage is now, once the next collection has ended.
func afterCollection(now int) {
	runtime.AddCleanup(new([64]byte), func(now int) {
		sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(sample)
		if next := percentFor(sample[0].Value.Uint64()); next < now*9/10 || next > now*11/10 {
			debug.SetGCPercent(next)
			now = next
		}
		afterCollection(now)
	}, now)
}

// percentFor is GOGC for a heap with so many live bytes.
func percentFor(live uint64) int {
	return int(min(sparePercent, max(100, 100*spareHeap/max(live, 1))))
}
