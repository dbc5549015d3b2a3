package app

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"kindred/coalesce"
	"kindred/domain/fault"
	"kindred/eventstore"
	"kindred/eventstore/pgstore"
	"kindred/eventstore/seal"
	"kindred/httpapi"
)

// classify makes a refusal of what is not the caller's fault, but will pass.
func classify(ctx context.Context, err error) *fault.Fault {
	switch {
	case timedOut(err):
		return fault.New(fault.Unavailable, "read_too_slow", "Reading this took longer than %s.%s", readWithin, httpapi.Narrower(ctx)).After(time.Second)
	case isUnavailable(err):
		return fault.New(fault.Unavailable, "unavailable", "The service cannot answer just now. Please try again.").After(time.Second)
	case errors.Is(err, eventstore.ErrDeleted), errors.Is(err, seal.ErrDeleted):
		return fault.New(fault.Unauthenticated, "invalid_token", "The access token is not valid any more: its client was deleted.")
	case errors.Is(err, eventstore.ErrTooLarge):
		return fault.New(fault.TooLarge, "too_large", "This is too large to be recorded.")
	}
	return nil
}

// timedOut says that the server has ended a statement at its time-out.
func timedOut(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "57014" // cancelled: where a caller goes away, that is seen first
}

// pgUnavailable: the database cannot be reached, has gone away in the middle,
// or has trouble of its own.
func pgUnavailable(err error) bool {
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true // whatever the server said of it, such as that a role may not log in
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pgstore.Passing(pg)
	}
	_, ok := errors.AsType[net.Error](err)
	return ok || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || pgconn.SafeToRetry(err)
}

// isUnavailable says whether an error means that something the service stands
// on cannot be reached just now.
func isUnavailable(err error) bool {
	return errors.Is(err, eventstore.ErrUnavailable) || errors.Is(err, coalesce.ErrBusy) || errors.Is(err, seal.ErrLost) || errors.Is(err, seal.ErrEpoch) ||
		errors.Is(err, seal.ErrMaster) || errors.Is(err, context.DeadlineExceeded) || pgUnavailable(err)
}
