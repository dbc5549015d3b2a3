package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"kindred/eventstore"
)

// unavailable marks an error as [eventstore.ErrUnavailable] when it says that
// the server could not do its work, rather than that the work was wrong. A
// caller's own cancellation stays what it is.
func unavailable(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, eventstore.ErrUnavailable) || !passing(err) && !late(err) {
		return err
	}
	return fmt.Errorf("%w: %w", eventstore.ErrUnavailable, err)
}

// passing: the same statement may succeed at another time. Of what the server
// did not answer with an error of its own, only a result that cannot be read, and
// what the guard refuses, is not: otherwise the connection was lost, could not be made, or was too slow.
// A server that lets nobody in did nothing yet, whatever it says of that.
func passing(err error) bool {
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	var answer *pgconn.PgError
	if !errors.As(err, &answer) {
		var unreadable pgx.ScanArgError
		return !errors.As(err, &unreadable) && !errors.Is(err, pgx.ErrNoRows) && !errors.Is(err, errRefused)
	}
	return Passing(answer)
}

// Passing says whether what the server answered tells of its own trouble, so
// that the same statement may succeed at another time.
func Passing(answer *pgconn.PgError) bool {
	switch answer.Code[:min(2, len(answer.Code))] {
	case "08", // connection exception
		"40", // transaction rollback: deadlock, serialization
		"53", // insufficient resources
		"55", // object not in prerequisite state: lock timeout
		"57", // operator intervention: shutdown, crash, cancelled statement
		"58": // system error
		return true
	}
	return answer.Code == "25006" // read only: the server is no longer the primary
}

// exists says that what was to be made is there already.
func exists(err error) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) && answer.Code == "23505" // unique violation
}

// deleted marks an error as [eventstore.ErrDeleted] when it says that keys came after those of
// their client were destroyed.
func deleted(err error) error {
	if refusedBy(err, "subject_keys_client") {
		return fmt.Errorf("%w: %w", eventstore.ErrDeleted, err)
	}
	return err
}

// late says that keys came after the end of their epoch. The same statement will
// not succeed; what is sealed anew will.
func late(err error) bool { return refusedBy(err, "subject_keys_epoch") }

func refusedBy(err error, constraint string) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) && answer.ConstraintName == constraint
}
