package bolt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"countersign/store/internal/tree"
)

const (
	block      = 4096
	headerSize = 32
	magic      = "CSJ1"
)

// errRotten means that an acknowledged record of the journal is damaged.
var errRotten = errors.New("an acknowledged record is damaged")

// overlay holds the rows that the bbolt file does not have yet; a nil value
// is a deleted row.
type overlay = tree.Map[[]byte]

// disk is what the journal needs of its file; tests put faults behind it.
type disk interface {
	io.ReaderAt
	io.WriterAt
	// Datasync returns when what was written is durable.
	Datasync() error
}

type osDisk struct{ *os.File }

func (d osDisk) Datasync() error { return datasync(d.File) }

// position is where the records begin that the bbolt file does not have: at
// start with number index, and when they end there at other.
type position struct {
	session      uint64
	index        uint64
	start, other int64
}

// journal appends records, first to one half of its file and then, while a
// checkpoint frees that one, to the other. One goroutine at a time.
type journal struct {
	file disk
	half int64 // bytes of each half

	session uint64
	index   uint64 // of the next record
	begin   int64  // of the present half
	off     int64  // where the next record goes
	both    bool   // the other half holds records that are needed
	stale   bool   // a write failed: append nothing before free
	// relaxed is the length of a record at off that was not synced, or zero. The next record
	// holds what it holds and takes its place, so that record n+1 is never written before
	// record n was synced.
	relaxed int64
}

func newJournal(file disk, size int64, session uint64) *journal {
	return &journal{file: file, half: max(size/2/block, 1) * block, session: session}
}

func (j *journal) size() int64 { return 2 * j.half }

// turn is the position after a change to the other half.
func (j *journal) turn() position {
	p := position{session: j.session, index: j.index, start: j.half - j.begin, other: j.begin}
	if j.stale || j.relaxed > 0 {
		p.index++ // nobody knows whether the record that was not synced is there
	}
	return p
}

// goTo makes p the place of the next record.
func (j *journal) goTo(p position) {
	j.index, j.begin, j.off, j.stale, j.relaxed = p.index, p.start, p.start, false, 0
}

func (j *journal) fits(n int) bool {
	return !j.stale && j.off+padded(n) <= j.begin+j.half
}

// append makes one record durable. rec begins with headerSize free bytes. After
// an error the journal takes no record until goTo: nobody knows what of the
// failed one reached the disk.
func (j *journal) append(rec []byte) error {
	if err := j.write(rec); err != nil {
		return err
	}
	return j.seal()
}

// write writes one record that survives the death of the process, but perhaps no power
// failure, and that the next one replaces. rec and the error are those of append.
func (j *journal) write(rec []byte) error {
	n := len(rec)
	rec = append(rec, make([]byte, padded(n)-int64(n))...)
	copy(rec, magic)
	binary.LittleEndian.PutUint64(rec[8:], j.session)
	binary.LittleEndian.PutUint64(rec[16:], j.index)
	binary.LittleEndian.PutUint64(rec[24:], uint64(n-headerSize)) //nolint:gosec // n >= headerSize
	binary.LittleEndian.PutUint32(rec[4:], checksum(rec[8:n]))
	if _, err := j.file.WriteAt(rec, j.off); err != nil {
		j.stale = true
		return err
	}
	j.relaxed = int64(len(rec))
	return nil
}

// seal makes the record that was written last durable, if there is one that is not.
func (j *journal) seal() error {
	if j.relaxed == 0 {
		return nil
	}
	if err := j.file.Datasync(); err != nil {
		j.stale = true
		return err
	}
	j.index++
	j.off += j.relaxed
	j.relaxed = 0
	return nil
}

// replay applies the records from p on that data, a journal, holds, and counts
// them. errRotten means that an acknowledged record is damaged.
func replay(data []byte, p position) (rows overlay, count int, err error) {
	next := p.index
	for _, begin := range []int64{p.start, p.other} {
		for off := begin; off >= 0 && off < int64(len(data)); count++ {
			index, ops, ok := record(data[off:], p.session)
			if !ok || index != next {
				break
			}
			if rows, err = apply(rows, ops); err != nil {
				return rows, count, fmt.Errorf("%w: record %d: %w", errRotten, index, err)
			}
			next++
			off += padded(headerSize + len(ops))
		}
	}
	for off := 0; off < len(data); off += block {
		if index, _, ok := record(data[off:], p.session); ok && index > next {
			return rows, count, fmt.Errorf("%w: record %d is gone, record %d is there", errRotten, next, index)
		}
	}
	return rows, count, nil
}

// record reads the record of a session at the head of data.
func record(data []byte, session uint64) (index uint64, ops []byte, ok bool) {
	if len(data) < headerSize || string(data[:4]) != magic || binary.LittleEndian.Uint64(data[8:]) != session {
		return 0, nil, false
	}
	n := binary.LittleEndian.Uint64(data[24:])
	if n > uint64(len(data)-headerSize) { //nolint:gosec // not negative
		return 0, nil, false
	}
	end := headerSize + int(n) //nolint:gosec // bounded by len(data)
	if binary.LittleEndian.Uint32(data[4:]) != checksum(data[8:end]) {
		return 0, nil, false
	}
	return binary.LittleEndian.Uint64(data[16:]), data[headerSize:end], true
}

func appendSet(ops, key, val []byte) []byte {
	ops = append(binary.AppendUvarint(ops, uint64(len(key))), key...)
	return append(binary.AppendUvarint(ops, uint64(len(val))+1), val...)
}

func appendDelete(ops, key []byte) []byte {
	ops = append(binary.AppendUvarint(ops, uint64(len(key))), key...)
	return binary.AppendUvarint(ops, 0)
}

// apply puts the ops of one record into rows.
func apply(rows overlay, ops []byte) (overlay, error) {
	rows = rows.Edit()
	for len(ops) > 0 {
		n, w := binary.Uvarint(ops)
		if w <= 0 || n > uint64(len(ops)-w) { //nolint:gosec // not negative
			return rows, errors.New("a key is cut short")
		}
		key := append([]byte{}, ops[w:w+int(n)]...) //nolint:gosec // bounded by len(ops)
		ops = ops[w+int(n):]                        //nolint:gosec // bounded by len(ops)
		n, w = binary.Uvarint(ops)
		if w <= 0 || n > 0 && n-1 > uint64(len(ops)-w) { //nolint:gosec // not negative
			return rows, errors.New("a value is cut short")
		}
		ops = ops[w:]
		var val []byte
		if n > 0 {
			val = append([]byte{}, ops[:n-1]...)
			ops = ops[n-1:]
		}
		rows = rows.Set(key, val)
	}
	return rows.Freeze(), nil
}

func checksum(b []byte) uint32 {
	return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
}

func padded(n int) int64 { return int64((n + block - 1) / block * block) }
