package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"countersign/cli/words"
	"countersign/config"
	"countersign/config/address"
	"countersign/config/storage"

	"countersign/store"
	"countersign/store/bolt"
	"countersign/store/migrate"
	"countersign/store/postgres"
)

// slowCommit is how long a commit may take before people feel it: a step of a
// conversation is a few of them, one after the other.
const slowCommit = 50 * time.Millisecond

// databaseChecks look at the database that replicas share. The first one asks it, and
// the others judge what it said.
func (d *doctor) databaseChecks(e config.Env) []check {
	var f *postgres.Facts
	after := func(name string, judge func(postgres.Facts) result) check {
		return check{name: name, run: func(context.Context) result {
			if f == nil {
				return skips("this needs the store")
			}
			return judge(*f)
		}}
	}
	return []check{
		{name: "store", run: func(ctx context.Context) result {
			d.running = botRuns(ctx, e)
			facts, err := postgres.Inspect(ctx, postgres.Options{URL: string(e.Store), Replica: "command"}) // as many connections as a replica
			if err != nil {
				return fromSentence("FAIL", databaseError(err), "correct "+config.StoreName)
			}
			f = &facts
			d.clocks.add(reading{who: "the database", at: facts.Clock, before: facts.Before, after: facts.After})
			return judgeDatabase(ctx, e, facts)
		}},
		after("store standby", judgeStandby),
		after("store commits", judgeCommits),
		after("store connections", judgeConnections),
		{name: "old store", run: func(context.Context) result {
			if _, err := os.Lstat(storage.Path(e)); err != nil {
				return fine("the data directory has no store of its own")
			}
			return warns("%s is not used, as %s is set", storage.Path(e), config.StoreName).
				withFix("bring its rows over with bot store migrate --from bolt --to postgres, or move it away")
		}},
	}
}

// databaseError has the form of other sentences: what is wrong; what to do.
func databaseError(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("the database does not answer within %s; see that it runs, and that %s names its host and port", checkLimit, config.StoreName)
	}
	return strings.Replace(strings.TrimPrefix(err.Error(), "store: "), ": ", "; ", 1)
}

// add notes what another clock showed.
func (c *clocks) add(r reading) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readings = append(c.readings, r)
}

// judgeDatabase looks at what is in the database.
func judgeDatabase(ctx context.Context, e config.Env, f postgres.Facts) result {
	found := "PostgreSQL " + f.Server
	switch {
	case f.Layout == 0 && !f.May:
		return fails("%s has no tables of the bot, and this role may not make them", found).
			withFix("have the owner of the database run CREATE SCHEMA countersign AUTHORIZATION, with the name of the role")
	case f.Layout == 0:
		return fine("%s; the first start makes the tables", found)
	case f.Layout < f.NewestLayout || f.Schema < f.NewestSchema:
		return warns("%s; its rows are of schema %d, and the first start of this version leads them to schema %d, from when on replicas of "+
			"the older version write no more",
			found, f.Schema, f.NewestSchema)
	}
	db, err := storage.Attach(ctx, e)
	if err != nil {
		return fromSentence("FAIL", err.Error(), "correct "+config.StoreName)
	}
	defer func() { _ = db.Close() }()
	if err := migrate.Unfinished(ctx, db); err != nil {
		return fails("the database has a part of a store that was copied there").withFix("run bot store migrate again, it goes on where it was")
	}
	found = fmt.Sprintf("%s, schema %d, %s, opened %s", found, f.Schema, sizeText(uint64(max(f.Bytes, 0))), words.Plural(int(f.Opened), "time")) //nolint:gosec // a small count
	if f.Plain {
		return warns("%s; the connection to it crosses a network without encryption", found).withFix("add sslmode=verify-full to the URL")
	}
	return fine("%s", found)
}

// judgeStandby says what a fail-over may lose.
func judgeStandby(f postgres.Facts) result {
	switch {
	case f.Standbys == "":
		return warns("no standby is synchronous, so a fail-over may lose what was acknowledged").
			withFix("name one in synchronous_standby_names (Patroni: synchronous_mode; CloudNativePG: minSyncReplicas), or take your provider's variant with one")
	case f.Commit == "local":
		return warns("synchronous_commit is local, so no commit waits for the standby").withFix("set it to on for the role of %s", config.StoreName)
	}
	return fine("synchronous_standby_names is %s, synchronous_commit is %s", f.Standbys, f.Commit)
}

func judgeCommits(f postgres.Facts) result {
	middle, worst := f.Commits[len(f.Commits)/2], f.Commits[len(f.Commits)-1]
	found := fmt.Sprintf("of %d commits the middle one took %s, the longest %s", len(f.Commits), durationText(middle), durationText(worst))
	if middle > slowCommit {
		return warns("%s, and each step of a conversation waits for some", found).withFix("run the bots near the database, and look at its disk and its standby")
	}
	return fine("%s", found)
}

// durationText is a short time for people.
func durationText(d time.Duration) string {
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}

func judgeConnections(f postgres.Facts) result {
	found := fmt.Sprintf("%d of %d connections are left, and a replica uses up to %d", f.Left, f.Connections, f.PerReplica)
	const more = "raise max_connections of the server, or the limit of the role or the database"
	switch room := f.Left / f.PerReplica; {
	case f.Left <= 1:
		return fails("%s", found).withFix(more)
	case room == 0:
		return warns("%s, so there is no room for one more, which an update needs for a while", found).withFix(more)
	default:
		return fine("%s: room for %d more", found, room)
	}
}

// botRuns reports whether a bot of this data directory runs on this machine.
func botRuns(ctx context.Context, e config.Env) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address.URL(e)+"/healthz", http.NoBody)
	if err != nil {
		return false
	}
	client := address.Client()
	defer client.CloseIdleConnections()
	res, err := client.Do(req)
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// pinRows is the first part of the keys under which tools/mcp keeps what people
// acknowledged of servers.
const pinRows = "mcp-pin"

// copyPins copies what the database knows of servers into the new file to.
func copyPins(ctx context.Context, e config.Env, to string) error {
	from, err := storage.Attach(ctx, e)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	db, err := bolt.Open(filepath.Clean(to), bolt.Options{Journal: 1 << 20})
	if err != nil {
		return err
	}
	err = from.View(ctx, func(tx store.Tx) error {
		return db.Update(ctx, func(copied store.Tx) error {
			for k, v := range tx.Scan(store.Prefix(pinRows)) {
				copied.Set(k, v)
			}
			return nil
		})
	})
	return errors.Join(err, db.Close())
}
