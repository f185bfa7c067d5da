package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"countersign/store"
)

// SQLSTATEs that mean something here, see appendix A of PostgreSQL's manual.
const (
	codeSerialization  = "40001"
	codeDeadlock       = "40P01"
	codeLockTimeout    = "55P03"
	codeIdle           = "25P03"
	codeDiskFull       = "53100"
	codeReadOnly       = "25006"
	codeDivision       = "22012" // a receipt out of turn, see statements.receipt
	codeCheck          = "23514" // the receipt_schema constraint
	codeBadPassword    = "28P01"
	codeBadAuth        = "28000"
	codeNoDatabase     = "3D000"
	codeDenied         = "42501"
	codeNoTable        = "42P01"
	codeCanceled       = "57014"
	codeNoStatement    = "26000" // a prepared statement that a pooler lost
	codeStatementTwice = "42P05" // one that another client of the pooler made
	codePlanChanged    = "0A000" // of a prepared statement whose table was changed
)

// refusal is a server that must not be used.
type refusal struct {
	why string
	err error // or nil
}

func (r *refusal) Error() string { return "store: " + r.why }
func (r *refusal) Unwrap() error { return r.err }

// kind says what an error of the server or of a connection calls for.
type kind int

const (
	final    kind = iota // it comes back from View or Update
	conflict             // the transaction was rolled back and can be run again
	fault                // the connection is not to be used again; another may do
)

// classify says what to do about an error. What the server said of a statement
// is certain; when a connection breaks, nothing is.
func classify(err error) kind {
	if _, ok := errors.AsType[*refusal](err); ok {
		return final
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return fault
	}
	switch pg.Code {
	case codeSerialization, codeDeadlock, codeLockTimeout:
		return conflict
	case codeBadPassword, codeBadAuth, codeNoDatabase, codeDenied:
		return final
	case codeReadOnly, codeDivision, codeNoStatement, codeStatementTwice, codePlanChanged:
		return fault
	}
	if fatal(pg) {
		return fault
	}
	switch {
	case pg.Code == codeDiskFull:
		return final
	case strings.HasPrefix(pg.Code, "08"), strings.HasPrefix(pg.Code, "57P0"), strings.HasPrefix(pg.Code, "53"):
		return fault
	}
	return final
}

// fatal says that the server ended the connection.
func fatal(pg *pgconn.PgError) bool {
	severity := pg.SeverityUnlocalized
	if severity == "" {
		severity = pg.Severity
	}
	return severity == "FATAL" || severity == "PANIC"
}

// certain says that the server itself refused a statement and lives on, so the
// transaction was not committed.
func certain(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && !fatal(pg)
}

// explain turns an error into a sentence with what to do about it. It keeps the
// configuration, which holds the password, out of the chain.
func (db *DB) explain(err error) error {
	var r *refusal
	if errors.As(err, &r) || errors.Is(err, ErrOutdated) || errors.Is(err, store.ErrClosed) {
		return err
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		switch {
		case strings.Contains(err.Error(), readOnlyText):
			return fmt.Errorf("store: no server that takes writes was found (a standby only reads, and so does one with default_transaction_read_only): name the primary in the database URL, or all hosts separated by commas: %s", db.scrub(plain(err)))
		case errors.Is(err, context.Canceled):
			return fmt.Errorf("store: the wait for the database was given up: %w", context.Canceled)
		case errors.Is(err, context.DeadlineExceeded):
			return fmt.Errorf("store: the database did not answer in time: see that it runs, has no locks that wait, and that the URL names its host and port: %w", context.DeadlineExceeded)
		}
		return fmt.Errorf("store: the database cannot be reached: see that it runs and that the URL names its host and port: %s", db.scrub(plain(err)))
	}
	said := &serverError{pg}
	switch pg.Code {
	case codeDiskFull:
		return fmt.Errorf("%w of the database server: make room there: %w", store.ErrFull, said)
	case codeBadPassword, codeBadAuth:
		return fmt.Errorf("store: the database server does not let this user in: check the user and the password of the URL and pg_hba.conf: %w", said)
	case codeNoDatabase:
		return fmt.Errorf("store: the server has no such database: create it or correct the database URL: %w", said)
	case codeDenied:
		return fmt.Errorf("store: the database user lacks a permission: grant it (the package comment of store/postgres has the SQL): %w", said)
	case codeReadOnly:
		return fmt.Errorf("store: the server only reads: name the primary in the database URL, or all hosts separated by commas: %w", said)
	case codeCheck:
		return fmt.Errorf("%w: start the version that did", ErrOutdated)
	case codeNoTable:
		return fmt.Errorf("store: a table is missing: see that nobody drops the schema while this runs, and restart to create it: %w", said)
	case codeIdle:
		return fmt.Errorf("store: a transaction's function paused longer than Options.Timeout between two reads: let it do nothing but read and write rows: %w", said)
	case codeCanceled:
		return fmt.Errorf("store: the server cancelled a statement: see the statement_timeout of this role: %w", said)
	}
	return fmt.Errorf("store: the database server refused: %w", said)
}

// serverError shows a PgError without the values that its detail may quote.
type serverError struct{ pg *pgconn.PgError }

func (e *serverError) Error() string { return e.pg.Message + " (SQLSTATE " + e.pg.Code + ")" }
func (e *serverError) Unwrap() error { return e.pg }

// readOnlyText is what pgconn says of a server that target_session_attrs refuses;
// it has no value of its own.
const readOnlyText = "read only connection"

// plain is the text of an error on one line.
func plain(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// scrub takes the password out of a text, whoever put it there.
func (db *DB) scrub(text string) string {
	for _, secret := range []string{db.pool.cfg.Password, db.o.URL} {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "[secret]")
		}
	}
	return text
}
