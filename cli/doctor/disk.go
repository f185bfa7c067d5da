package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"countersign/config"

	"countersign/store"
	"countersign/store/bolt"
)

const (
	// lowRoom is what is low for the bot's own disk, as are less than lowShare percent
	// of it; below noRoom the store may be refused its next checkpoint.
	lowRoom  = 1 << 30
	lowShare = 5
	noRoom   = 100 << 20
	// muchFree is how much of the store may lie idle before compacting it is worth a
	// word, if it is half of the file as well.
	muchFree = 256 << 20
)

// volume is the file system that a directory is on.
type volume struct {
	free, size uint64 // bytes; free is what the account may still use
	network    string // "nfs" and the like; "" is a local one, as far as is known
}

// volumeAt is the volume of a directory, or of the nearest one above it that exists.
func volumeAt(dir string) (volume, error) {
	for {
		v, err := volumeOf(dir)
		up := filepath.Dir(dir)
		if !errors.Is(err, fs.ErrNotExist) || up == dir {
			return v, err
		}
		dir = up
	}
}

// diskChecks look at where the bot keeps its data. They share what they find.
func (d *doctor) diskChecks(e config.Env) []check {
	var size uint64 // of the store's file
	place := check{name: "data directory", run: func(context.Context) result { return writable(e.DataDir) }}
	room := check{name: "disk", run: func(context.Context) result {
		v, err := volumeAt(e.DataDir)
		if err != nil {
			return unknownVolume(err)
		}
		return v.checkSpace(size)
	}}
	if e.Shared() {
		return append([]check{place, room}, d.databaseChecks(e)...)
	}
	return []check{
		place,
		{name: "store", run: func(context.Context) result {
			var r result
			r, size, d.running = checkOpens(e.DataDir)
			return r
		}},
		room,
		{name: "file system", run: func(context.Context) result {
			v, err := volumeAt(e.DataDir)
			if err != nil {
				return unknownVolume(err)
			}
			return v.checkFilesystem()
		}},
	}
}

func unknownVolume(err error) result {
	if errors.Is(err, errors.ErrUnsupported) {
		return skips("this system does not tell")
	}
	return skips("it cannot be looked at (%v)", err)
}

// checkSpace says whether there is enough of it; store is the size of the store, of which a
// backup or a compaction makes a copy.
func (v volume) checkSpace(store uint64) result {
	share := uint64(100)
	if v.size > 0 {
		share = uint64(float64(v.free) / float64(v.size) * 100)
	}
	found := fmt.Sprintf("%s of %s are free (%d %%)", sizeText(v.free), sizeText(v.size), share)
	switch {
	case v.free < noRoom:
		return fails("only %s", found).withFix("free some space, or set COUNTERSIGN_DATA_DIR to a directory on another disk")
	case v.free < lowRoom || share < lowShare:
		return warns("only %s", found).withFix("free some space, or shorten keep, outputs.keep and recordings.keep")
	case v.free < store:
		return warns("%s, and a backup or a compaction of the store needs %s", found, sizeText(store)).withFix("free some space, or write backups to another disk")
	}
	return fine("%s", found)
}

// checkFilesystem says whether bbolt may keep its file there: it maps the file into memory and
// trusts locks, which network file systems do not keep as a disk does
// (github.com/etcd-io/bbolt, "Caveats & Limitations").
func (v volume) checkFilesystem() result {
	if v.network != "" {
		return warns("the data directory is on a network file system (%s), where the store can be damaged", v.network).
			withFix("set COUNTERSIGN_DATA_DIR to a directory on a local disk")
	}
	return fine("the data directory is on no network file system")
}

// writable looks whether the bot may write where it keeps its data. It makes no
// directory: one made now by somebody else could lock the bot out later.
func writable(dir string) result {
	const elsewhere = "set COUNTERSIGN_DATA_DIR to a directory that the bot may write"
	at := dir
	for {
		_, err := os.Stat(at)
		if err == nil {
			break
		}
		up := filepath.Dir(at)
		if !errors.Is(err, fs.ErrNotExist) || up == at {
			return fails("%s cannot be looked at (%v)", dir, err).withFix(elsewhere)
		}
		at = up
	}
	probe, err := os.CreateTemp(at, ".doctor-")
	if err != nil {
		return fails("%s cannot be written (%v)", at, err).withFix(elsewhere)
	}
	_, werr := probe.WriteString("x")
	if err := errors.Join(werr, probe.Sync(), probe.Close(), os.Remove(probe.Name())); err != nil {
		return fails("%s cannot be written (%v)", at, err).withFix("free some space, or set COUNTERSIGN_DATA_DIR to another directory")
	}
	if at != dir {
		return fine("%s is made at the first start", dir)
	}
	if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o077 != 0 {
		return warns("%s is open to other users of this machine (%s)", dir, info.Mode().Perm()).withFix("close it: chmod 700 %s", dir)
	}
	return fine("%s", dir)
}

// checkOpens looks whether the store opens, how big it is, and whether a running bot
// holds it.
func checkOpens(dir string) (r result, size uint64, running bool) {
	path := filepath.Join(dir, "countersign.db")
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fine("there is none yet; the first start makes it"), 0, false
	case err != nil:
		return fails("%s cannot be looked at (%v)", path, err).withFix("run the doctor as the bot's own account"), 0, false
	}
	size = uint64(max(info.Size(), 0))
	db, err := bolt.Open(path, bolt.Options{Timeout: time.Second})
	switch {
	case errors.Is(err, store.ErrLocked):
		return checkPermissions(path, info, fine("a running bot has it open (%s)", sizeText(size))), size, true
	case err != nil:
		return fromSentence("FAIL", err.Error(), "keep a copy of the file as it is, and restore a backup"), size, false
	}
	stats := db.Stats()
	if err := db.Close(); err != nil {
		return fails("the store could not be closed cleanly (%v)", err).withFix("look at the disk"), size, false
	}
	return checkPermissions(path, info, judgeStore(path, stats)), size, false
}

// judgeStore looks at the numbers of a store.
func judgeStore(path string, s bolt.Stats) result {
	file, free := uint64(max(s.FileBytes, 0)), uint64(max(s.FreeBytes, 0))
	if free > muchFree && free > file/2 {
		return warns("%s has %s, of which %s are idle", path, sizeText(file), sizeText(free)).withFix("stop the bot and run bot store compact")
	}
	return fine("%s (%s, of which %s are free for new rows)", path, sizeText(file), sizeText(free))
}

// checkPermissions is r, unless others may read the file.
func checkPermissions(path string, info fs.FileInfo, r result) result {
	if info.Mode().Perm()&0o077 == 0 {
		return r
	}
	return warns("%s is open to other users of this machine (%s)", path, info.Mode().Perm()).withFix("close it: chmod 600 %s", path)
}
