-- The tables of layout 1, made in the schema that search_path names for this
-- transaction. A file that was released stays as it is for ever.

-- The rows. Room in each page lets an update stay in its page and away from the
-- index, which spares serializable transactions conflicts that are none.
CREATE TABLE kv (
    k bytea PRIMARY KEY,
    v bytea NOT NULL
) WITH (fillfactor = 80);

-- layout: the newest file of this directory that ran. schema: the version of the
-- rows of kv. opened: how often the database was opened.
CREATE TABLE meta (
    name text PRIMARY KEY,
    n    bigint NOT NULL
);
INSERT INTO meta (name, n) VALUES ('layout', 1), ('schema', 1), ('opened', 0);

-- One row per connection that ever wrote: the number of its last transaction. It
-- is written in that transaction, so it tells whether that one was committed when
-- the answer was lost. The constraint refuses processes of an older version.
CREATE TABLE receipt (
    session bytea PRIMARY KEY,
    n       bigint NOT NULL,
    last    bigint NOT NULL DEFAULT 0,
    schema  bigint NOT NULL,
    replica text NOT NULL,
    at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT receipt_schema CHECK (schema = 1)
) WITH (fillfactor = 20);

-- Locked by transactions that failed before, so that they go one after the other.
CREATE TABLE turn ();
