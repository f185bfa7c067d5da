package postgres

import (
	"embed"
	"strings"
)

//go:embed migrations/*.sql
var migrations embed.FS

// statements are all that runs in a transaction or beside one, with the schema's
// name in its place, so that they mean the same through any pooler.
type statements struct {
	get, set, del                    string
	up, upTo, down, downTo           string // pages of a scan
	beginUpdate, beginView, turn     string
	settings, receipt, resolve       string
	open, forget, dropReceipt, hints string
	origin, setOrigin                string
}

func statementsOf(schema string) statements {
	in := func(sql string) string {
		return strings.ReplaceAll(strings.Join(strings.Fields(sql), " "), "{s}", schema)
	}
	return statements{
		get: in(`SELECT v FROM {s}.kv WHERE k = $1::bytea`),
		set: in(`INSERT INTO {s}.kv AS old (k, v) SELECT * FROM unnest($1::bytea[], $2::bytea[])
			ON CONFLICT (k) DO UPDATE SET v = EXCLUDED.v`),
		del: in(`DELETE FROM {s}.kv WHERE k = ANY($1::bytea[])`),

		up:     in(`SELECT k, v FROM {s}.kv WHERE k >= $1::bytea ORDER BY k LIMIT $2::bigint`),
		upTo:   in(`SELECT k, v FROM {s}.kv WHERE k >= $1::bytea AND k < $3::bytea ORDER BY k LIMIT $2::bigint`),
		down:   in(`SELECT k, v FROM {s}.kv WHERE k >= $1::bytea ORDER BY k DESC LIMIT $2::bigint`),
		downTo: in(`SELECT k, v FROM {s}.kv WHERE k >= $1::bytea AND k < $3::bytea ORDER BY k DESC LIMIT $2::bigint`),

		beginUpdate: `BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE`,
		beginView:   `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`,
		// Before anything that takes the snapshot, so that who waited sees what those
		// before it did.
		turn: in(`LOCK TABLE {s}.turn IN EXCLUSIVE MODE`),
		// A plan that reads the whole table would lock the whole table, so that each
		// serializable transaction would conflict with each other one. In the
		// transaction, because a pooler may give the next one another connection.
		settings: `SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
			set_config('idle_in_transaction_session_timeout', $1::text, true)`,
		// The number must be the next one, or this divides by zero: a resolve got in
		// between, or the transaction came twice.
		receipt: in(`INSERT INTO {s}.receipt AS old (session, n, schema, replica) VALUES ($1::bytea, $2::bigint, $3::bigint, $4::text)
			ON CONFLICT (session) DO UPDATE SET n = EXCLUDED.n / (CASE WHEN old.n = EXCLUDED.n - 1 THEN 1 ELSE 0 END),
			schema = EXCLUDED.schema, at = now()`),
		// It waits for a transaction of that session that is still under way, and shuts
		// out one that is still on the wire.
		resolve: in(`INSERT INTO {s}.receipt AS old (session, n, schema, replica)
			VALUES ($1::bytea, -1, (SELECT n FROM {s}.meta WHERE name = 'schema'), $2::text)
			ON CONFLICT (session) DO UPDATE SET n = -1, last = CASE WHEN old.n > 0 THEN old.n ELSE old.last END, at = now()
			RETURNING last`),
		open: in(`UPDATE {s}.meta SET n = n + 1 WHERE name = 'opened' RETURNING n, current_setting('synchronous_standby_names')`),
		origin: in(`SELECT d.oid, '{s}.kv'::regclass::oid, coalesce((SELECT substr(name, 8) FROM {s}.meta WHERE name LIKE 'origin %' LIMIT 1), '')
			FROM pg_database d WHERE d.datname = current_database()`),
		setOrigin: in(`WITH gone AS (DELETE FROM {s}.meta WHERE name LIKE 'origin %' AND name <> 'origin ' || $1::text)
			INSERT INTO {s}.meta (name, n) VALUES ('origin ' || $1::text, 1) ON CONFLICT (name) DO NOTHING`),
		forget:      in(`DELETE FROM {s}.receipt WHERE at < now() - interval '30 days'`),
		dropReceipt: in(`DELETE FROM {s}.receipt WHERE session = ANY($1::bytea[])`),
		hints:       `SELECT pg_notify($1::text, name) FROM unnest($2::text[]) AS name`,
	}
}
