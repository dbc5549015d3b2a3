package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// confirm is a commit that waits for the standbys, if there are any to wait for, and
// with it for all that stands before it in the write-ahead log.
const confirm = `
SELECT CASE WHEN current_setting('synchronous_standby_names') <> '' THEN pg_logical_emit_message(true, 'kindred', '') END`

// Confirm returns once all that was committed before stands where commits have to
// be: on the standbys of synchronous_standby_names as well.
//
// A commit whose wait for those was broken off, by a time-out, a lost connection or an
// operator, stands on the primary alone, for everybody to read. Who answers from what
// stands there already, not from a commit of its own, confirms it first.
func Confirm(ctx context.Context, pool *pgxpool.Pool) error {
	if _, err := Exec(ctx, pool, confirm); err != nil {
		return fmt.Errorf("wait for the standby: %w", err)
	}
	return nil
}

// Exec changes something that is durable when it returns, also on the standbys.
func Exec(ctx context.Context, pool *pgxpool.Pool, sql string, args ...any) (done pgconn.CommandTag, err error) {
	err = pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		delete(conn.Conn().PgConn().CustomData(), brokenOff) // that was another's
		if done, err = conn.Exec(ctx, sql, args...); err != nil {
			return err
		}
		return Replicated(conn.Conn())
	})
	return done, err
}

// ErrNotReplicated: a commit was acknowledged although its wait for the standbys
// was broken off.
var ErrNotReplicated = errors.New("the commit may not have reached the standby")

const brokenOff = "kindred: wait broken off"

// Replicated fails with ErrNotReplicated where the server warned, since it was last
// called, that a commit on the connection did not wait for the standbys.
func Replicated(conn *pgx.Conn) error {
	data := conn.PgConn().CustomData()
	if data[brokenOff] == nil {
		return nil
	}
	delete(data, brokenOff)
	return ErrNotReplicated
}

// noteWarning keeps the warning of a commit that was not replicated. Its text is in
// the server's language; the name of the function is not.
func noteWarning(conn *pgconn.PgConn, notice *pgconn.Notice) {
	if notice.Routine == "SyncRepWaitForLSN" {
		conn.CustomData()[brokenOff] = true
	}
}
