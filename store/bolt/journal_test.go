package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// memDisk is a file in memory, in which the last write can be torn.
type memDisk struct {
	data    []byte
	last    []byte // what the last write replaced
	lastOff int64
	fail    func() error // of Datasync, if set
}

func (d *memDisk) ReadAt(p []byte, off int64) (int, error) {
	return bytes.NewReader(d.data).ReadAt(p, off)
}

func (d *memDisk) WriteAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > int64(len(d.data)) {
		return 0, io.ErrShortWrite
	}
	d.last, d.lastOff = bytes.Clone(d.data[off:off+int64(len(p))]), off
	return copy(d.data[off:], p), nil
}

func (d *memDisk) Datasync() error {
	if d.fail != nil {
		return d.fail()
	}
	return nil
}

// tear puts back some of the sectors that the last write replaced.
func (d *memDisk) tear(t *rapid.T) {
	const sector = 512
	n := len(d.last) / sector
	for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(0, n-1), 1, n, rapid.ID[int]).Draw(t, "sectors lost") {
		copy(d.data[d.lastOff+int64(i*sector):], d.last[i*sector:(i+1)*sector])
	}
}

func content(rows overlay) map[string]string {
	got := map[string]string{}
	for c := rows.Ascend(nil); ; {
		key, val, ok := c.Next()
		if !ok {
			return got
		}
		if val != nil {
			got[string(key)] = string(val)
		}
	}
}

// drawRecord is a record with up to three blocks of writes, which it also makes
// in model.
func drawRecord(t *rapid.T, model map[string]string) []byte {
	rec := make([]byte, headerSize)
	for range rapid.IntRange(1, 4).Draw(t, "ops") {
		key := rapid.StringMatching(`[a-e]{1,2}`).Draw(t, "key")
		if rapid.IntRange(0, 3).Draw(t, "op") == 0 {
			rec = appendDelete(rec, []byte(key))
			delete(model, key)
			continue
		}
		val := string(bytes.Repeat([]byte(key), rapid.IntRange(0, 1000).Draw(t, "len")))
		rec = appendSet(rec, []byte(key), []byte(val))
		model[key] = val
	}
	return rec
}

// fill appends records to both halves of a journal, as between two checkpoints,
// over the leftovers of others. It returns where they begin, what they say and
// what they said before the last one.
func fill(t *rapid.T, disk *memDisk, session uint64) (p position, model, before map[string]string, offsets []int64) {
	j := newJournal(disk, int64(len(disk.data)), session)
	p = j.turn()
	j.goTo(p)
	model, before = map[string]string{}, map[string]string{}
	turned := false
	for range rapid.IntRange(0, 30).Draw(t, "records") {
		next := maps.Clone(model)
		rec := drawRecord(t, next)
		if padded(len(rec)) > j.half {
			continue
		}
		if !j.fits(len(rec)) {
			switch rapid.IntRange(0, 2).Draw(t, "full") {
			case 0: // a checkpoint was finished
				p = j.turn()
				j.goTo(p)
				model, before, turned, offsets = map[string]string{}, map[string]string{}, false, nil
				continue
			case 1: // a checkpoint is under way
				if turned {
					return p, model, before, offsets
				}
				j.goTo(j.turn())
				turned = true
			case 2:
				return p, model, before, offsets
			}
		}
		offsets = append(offsets, j.off)
		if err := j.append(rec); err != nil {
			t.Fatalf("append: %v", err)
		}
		before, model = model, next
	}
	return p, model, before, offsets
}

func newMemDisk(t *rapid.T) *memDisk {
	return &memDisk{data: make([]byte, 2*block*rapid.IntRange(1, 8).Draw(t, "blocks"))}
}

func TestReplayGivesWhatWasAppended(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		disk := newMemDisk(t)
		for session := range rapid.Uint64Range(1, 4).Draw(t, "sessions") {
			p, model, _, offsets := fill(t, disk, session)
			rows, n, err := replay(disk.data, p)
			if err != nil || n != len(offsets) || !maps.Equal(content(rows), model) {
				t.Fatalf("replay of %d records = %d, %v\n%q\nwant\n%q", len(offsets), n, err, content(rows), model)
			}
		}
	})
}

func TestATornLastRecordIsDroppedOrWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		disk := newMemDisk(t)
		fill(t, disk, 1)
		p, model, before, offsets := fill(t, disk, 2)
		if len(offsets) == 0 {
			return
		}
		disk.tear(t)
		rows, _, err := replay(disk.data, p)
		if err != nil {
			t.Fatalf("replay: %v", err)
		}
		if got := content(rows); !maps.Equal(got, model) && !maps.Equal(got, before) {
			t.Fatalf("replay gives %q, want all but the last record %q or all %q", got, before, model)
		}
	})
}

// powerDisk is a file of which a power failure leaves, of each sector, what was there at the
// last Datasync or what was written since.
type powerDisk struct {
	memDisk
	synced []byte
}

func (d *powerDisk) Datasync() error {
	d.synced = bytes.Clone(d.data)
	return d.memDisk.Datasync()
}

func (d *powerDisk) afterFailure(t *rapid.T) []byte {
	const sector = 512
	left := bytes.Clone(d.synced)
	for off := 0; off < len(left); off += sector {
		if !bytes.Equal(left[off:off+sector], d.data[off:off+sector]) && rapid.Bool().Draw(t, "written") {
			copy(left[off:], d.data[off:off+sector])
		}
	}
	return left
}

func TestAPowerFailureTakesNothingButWhatIsRelaxed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		disk := &powerDisk{memDisk: *newMemDisk(t)}
		disk.synced = bytes.Clone(disk.data)
		j := newJournal(disk, int64(len(disk.data)), 7)
		p := j.turn()
		j.goTo(p)
		var open []byte // the record that is not synced yet
		model := map[string]string{}
		possible := []map[string]string{model} // since the last sync
		turned := false
		for range rapid.IntRange(0, 20).Draw(t, "records") {
			next := maps.Clone(model)
			rec := append(bytes.Clone(open), drawRecord(t, next)[min(len(open), headerSize):]...)
			if !j.fits(len(rec)) { // as makeRoom goes on in the other half
				if turned || padded(len(rec)) > j.half {
					break
				}
				if err := j.seal(); err != nil {
					t.Fatal(err)
				}
				possible = []map[string]string{model}
				j.goTo(j.turn())
				turned = true
			}
			model = next
			if rapid.Bool().Draw(t, "relaxed") {
				if err := j.write(bytes.Clone(rec)); err != nil {
					t.Fatal(err)
				}
				open, possible = rec, append(possible, model)
				continue
			}
			if err := j.append(rec); err != nil {
				t.Fatal(err)
			}
			open, possible = nil, []map[string]string{model}
		}
		rows, _, err := replay(disk.afterFailure(t), p)
		if err != nil {
			t.Fatalf("replay: %v", err)
		}
		if rows, _, err := replay(disk.data, p); err != nil || !maps.Equal(content(rows), model) {
			t.Fatalf("after the death of the process: %v, %q, want %q", err, content(rows), model)
		}
		if got := content(rows); !slices.ContainsFunc(possible, func(m map[string]string) bool { return maps.Equal(got, m) }) {
			t.Fatalf("replay gives %q, want one of %q", got, possible)
		}
	})
}

func TestADamagedAcknowledgedRecordIsFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		disk := newMemDisk(t)
		p, model, _, offsets := fill(t, disk, 1)
		if len(offsets) < 2 {
			return
		}
		// Not the last one: that looks like a write that was cut short.
		off := rapid.SampledFrom(offsets[:len(offsets)-1]).Draw(t, "record") + rapid.Int64Range(0, headerSize).Draw(t, "byte")
		disk.data[off] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if _, _, err := replay(disk.data, p); !errors.Is(err, errRotten) {
			t.Fatalf("replay = %v with %q, want %v", err, model, errRotten)
		}
	})
}

func TestAJournalThatFailedTakesNothing(t *testing.T) {
	boom := errors.New("boom")
	disk := &memDisk{data: make([]byte, 8*block)}
	j := newJournal(disk, 8*block, 1)
	p := j.turn()
	j.goTo(p)
	rec := func() []byte { return appendSet(make([]byte, headerSize), []byte("k"), []byte("v")) }
	disk.fail = func() error { return boom }
	if err := j.append(rec()); !errors.Is(err, boom) {
		t.Fatalf("append = %v, want %v", err, boom)
	}
	disk.fail = nil
	if j.fits(1) {
		t.Error("a journal that failed takes records")
	}
	next := j.turn()
	j.goTo(next)
	if !j.fits(1) {
		t.Error("after a checkpoint it does not")
	}
	if _, n, err := replay(disk.data, next); n != 0 || err != nil {
		t.Errorf("replay after the checkpoint = %d, %v: the record that failed came back", n, err)
	}
	if err := j.append(rec()); err != nil {
		t.Fatal(err)
	}
	if _, n, err := replay(disk.data, next); n != 1 || err != nil {
		t.Errorf("replay = %d, %v, want 1 record", n, err)
	}
}

func FuzzReplay(f *testing.F) {
	disk := &memDisk{data: make([]byte, 4*block)}
	j := newJournal(disk, 4*block, 7)
	j.goTo(position{session: 7})
	for i := range 2 {
		if err := j.append(appendSet(make([]byte, headerSize), fmt.Append(nil, i), []byte("v"))); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(disk.data, uint64(7), uint64(0), int64(0), int64(2*block))
	f.Add(disk.data[:100], uint64(7), uint64(1), int64(block), int64(-1))
	f.Fuzz(func(t *testing.T, data []byte, session, index uint64, start, other int64) {
		_, n, err := replay(data, position{session, index, start, other})
		if n < 0 || err != nil && !errors.Is(err, errRotten) {
			t.Errorf("replay = %d, %v", n, err)
		}
	})
}

func FuzzApply(f *testing.F) {
	f.Add(appendDelete(appendSet(nil, []byte("key"), []byte("val")), []byte("other")))
	f.Fuzz(func(_ *testing.T, ops []byte) { _, _ = apply(overlay{}, ops) })
}
