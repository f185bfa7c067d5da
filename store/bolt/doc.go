// Package bolt is the embedded engine: one bbolt file and, beside it, a small
// journal that makes a commit cost one fdatasync instead of two.
//
// # What is durable when
//
// Update returns nil only after its writes are on the disk. The functions of
// concurrent Updates run one after the other, each on what the one before it
// left, and their writes are collected in a batch. One of the callers leads the
// batch: it waits for the batch before, appends this one to the journal with
// one write and one fdatasync, makes it visible to readers and wakes the others.
// While the disk works, the next batch collects. A lone writer leads its own
// batch without any hand-over. A function that fails or panics leaves nothing in
// the batch, so its neighbours do not notice.
//
// UpdateRelaxed opens a batch that nobody leads, or joins the open one. It writes
// the batch's record to the journal without a sync, and makes it visible. The next
// Update joins the batch, leads it, and writes its longer record in the place of the
// first one. So a power failure never takes a write and leaves a later one.
//
// Writes that are in the journal but not yet in the bbolt file live in an
// ordered map in memory, the overlay; every read merges it over the file. The
// journal has two halves. When one is full, batches go to the other while a
// checkpoint writes the overlay to the file, on a goroutine of its own and in one
// ordinary, fully synced bbolt transaction; that frees the first half. A batch
// that is too big for a half is written to the file by a checkpoint itself, and
// so is one that comes while a checkpoint could not be written. So the bbolt file
// is only ever changed by synced transactions and is intact after a power failure
// at any moment; the journal holds the rest. A clean Close checkpoints too.
//
// When the disk is full, the journal still has its room. After it is used up,
// Updates fail with store.ErrFull until there is room again.
//
// # The journal
//
// The journal has a fixed size and is written with zeros and synced once, so
// that later writes change no metadata. A batch is one record:
//
//	magic "CSJ1" | crc32c of all that follows | session u64 | index u64 | length u64 | ops
//	op = key length uvarint | key | 0 (deleted), or value length + 1 as uvarint | value
//
// Integers are little-endian. A record begins at a multiple of 4 KiB and is
// padded to one, so that writing it touches no block of an acknowledged record.
// The session is a random number of each open; the index counts up. The bbolt
// file says, in the same transaction that makes it true, which record is the
// first that it does not have and where that is. Record n+1 is written only after
// record n was synced; a record that was not synced is replaced by the next one of
// its number. Hence at open: the records from there on are replayed up to the first
// that is missing or damaged. If a later one is there, an acknowledged record has
// rotted and Open refuses; otherwise it was a write that was cut short or relaxed,
// which nobody was told was durable, and it is dropped.
//
// # Layout of the bbolt file
//
//	rows  <key> -> value                       what users of store.Tx see
//	meta  schema  -> u32                       version of this layout
//	      epoch   -> u64                       how often the file was opened
//	      journal -> generation u64, session u64, index u64, start u64, other u64, clean u8
//	                 where the journal's records begin that are not here: the index at offset
//	                 start, and when they end there at offset other; clean is 1 after Close
//	                 and in backups: there are none. The generation counts checkpoints.
//
// Both lie in the root bucket "v1". Integers are big-endian.
//
// # Limits
//
// One process at a time (a lock on the journal, and bbolt's own). Never on a
// network file system. A View pins the pages that it can see, and a checkpoint
// that has to map a bigger file waits for it: copy out what is needed and return.
// Neither View nor Update may be called from inside the function of an Update or
// View. Keys have at most
// 32 KiB; values are best kept below 256 KiB. The package does not repair damaged
// files and does not encrypt.
package bolt
