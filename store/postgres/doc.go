// Package postgres is the engine for several replicas: the rows are one table of
// a PostgreSQL database, which any number of processes use at once.
//
// # What it promises
//
// Update returns nil only after the server has acknowledged the commit, so the
// writes are on the disk of the primary and, where a standby is synchronous, on
// that of the standby. Open and every new connection refuse a server whose
// synchronous_commit or fsync is off. Updates of all replicas are serializable.
// What another replica was told is committed, a View that begins later sees.
//
// A server that is restarted, fails over or cannot be reached for a while costs
// time, up to Options.Patience; Updates that were under way are run again. When
// the connection breaks while a commit is under way, the engine asks whether it
// was made, so that the function does not run again after a commit and no success
// is told without one. When even that cannot be answered in time, Update returns
// ErrUnknown.
//
// With asynchronous replication a fail-over loses the commits that the standby
// did not have yet, acknowledged ones too: no client can prevent that. Open logs
// when synchronous_standby_names is empty. Make a standby synchronous (Patroni:
// synchronous_mode; CloudNativePG: minSyncReplicas of 1 or more; managed services:
// the variant with a synchronous standby). Read only from the primary: replicas of
// this program never use a reader endpoint, and no URL should name one.
//
// # How a transaction runs
//
// An Update is a SERIALIZABLE transaction. It begins with the first read, in the
// same exchange with the server. What it writes stays in memory, where its own
// reads see it, and goes to the server in one exchange with the COMMIT: rows are
// then locked for as long as that takes and no longer. Serialization failures and
// deadlocks are retried with a growing, random pause, until the context ends. A
// transaction that failed twice first locks the table turn, so that those that
// collide again and again go one after the other; of each collision one side
// commits, so there is always progress. An Update that wrote nothing commits as
// well, because only that tells whether what it read was serializable.
//
// A View is a REPEATABLE READ, READ ONLY transaction: one snapshot, taken at its
// first read. That is what the contract of a View asks for. It never fails for a
// conflict and makes no Update fail. SERIALIZABLE would add that a View never sees
// an order of two Updates that no serial history has; it would cost locks and
// retries, and DEFERRABLE would wait for running Updates to end. Nothing is
// decided by a View alone: what is written on the strength of one is checked again
// in an Update.
//
// A Scan reads pages: 8 rows first, then more, up to 1024 rows or about 1 MiB as
// judged by the page before. The rows that were read, and only they, can conflict
// with other transactions; that is why plans that read the whole table are turned
// off, and why keys that are all written at one end of the key space cost retries.
//
// # Whether a commit was made
//
// Each connection has a random name and counts its transactions. The last
// statement before a COMMIT writes the number into the connection's row of the
// table receipt, and fails unless the number is the next one. When the answer of
// the COMMIT is lost, another connection writes -1 into that row. This waits for
// the transaction if it is still under way, tells the number that was there, and
// makes the transaction fail if it is still on the wire. It is itself a commit, so
// with a synchronous standby its success means that the standby has the one in
// question too. A transaction ID would not do: after a fail-over that lost the
// commit, the new primary gives the same ID to another transaction.
//
// # Tables
//
//	kv       k bytea primary key, v bytea            the rows; keys of more than 1024 bytes as row.go says
//	meta     name text primary key, n bigint         layout, schema, opened
//	receipt  session bytea primary key, n, last, schema, replica, at
//	turn     no columns, no rows                     locked by transactions that failed before
//
// They lie in the schema countersign, or in the one that search_path names in the
// URL. Open creates them, and leads older ones forward, under a transaction's
// advisory lock, from whichever replica comes first. When the rows change (meta's
// schema), a constraint on receipt refuses all further commits of replicas of the
// older version; those fail with ErrOutdated. To look at rows with psql:
//
//	SELECT encode(k, 'escape'), convert_from(v, 'UTF8') FROM countersign.kv WHERE k >= '\x20' LIMIT 20;
//
// # Hints
//
// DB.Notify and DB.Wake carry names from replica to replica by NOTIFY and LISTEN,
// so that nobody has to wait for a poll. They are hints: a poll must stand behind
// them. A name is sent after the commit, by a transaction of its own that does not
// wait for the disk, because NOTIFY makes all commits of the server queue until
// its own has been written. It is lost when the process dies in between. A
// connection of its own listens; after it was replaced, and at first, readers get
// an empty name, which says: look at everything.
//
// # Permissions
//
// A role that may create a schema needs nothing else. Otherwise the owner of the
// database runs, once:
//
//	CREATE ROLE countersign LOGIN PASSWORD '...';
//	CREATE SCHEMA countersign AUTHORIZATION countersign;
//
// For a role without DDL, let another role open the database after each upgrade
// of the program, and:
//
//	GRANT USAGE ON SCHEMA countersign TO app;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA countersign TO app;
//
// Each replica uses up to Writers + Readers connections and two more.
//
// # Servers
//
// PostgreSQL 14 or newer. Managed services of real PostgreSQL work if they let a
// role set enable_seqscan, enable_bitmapscan and idle_in_transaction_session_timeout
// for itself, as all do by default; use the writer's endpoint, or a URL with all
// hosts: of several, the one that takes writes is used. Use sslmode=verify-full
// across a network: the default, prefer, falls back to no encryption. Databases
// that only speak its protocol are not supported: correctness rests on its
// serializable isolation, and on LOCK TABLE before a snapshot.
//
// Poolers: session pooling works. Transaction pooling works with
// default_query_exec_mode=exec in the URL, at the cost of planning each statement
// again; hints are off then. Every setting is made inside the transaction that
// needs it and no lock outlives one. Statement pooling does not work.
//
// # Limits
//
// Values may have some hundred MiB by the server's limits; below 256 KiB is wise.
// The functions of View and Update must not call either, and must not wait for
// anything but rows: an open transaction keeps the server from cleaning up, and
// one that pauses longer than Options.Timeout is ended. Writers do not wait for
// each other, so a function may run again after it has seen rows of a state that
// was not committed in that order; it must have no effect outside of its
// transaction. The package makes no backups: that is the server's business.
package postgres
