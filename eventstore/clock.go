package eventstore

import (
	"context"
	"errors"
	"time"

	"kindred/domain/event"
	"kindred/domain/id"
)

// ErrDeleted: the client was deleted. Nothing is recorded of it any more.
var ErrDeleted = errors.New("the client was deleted")

// TimeOf is what a client's clock says, to the microsecond, in UTC: the machine's time,
// and for a sandbox as far ahead of that as its clock was moved. The log itself is asked,
// so that no process is behind. It fails with ErrDeleted for a sandbox that is over.
func (l *Log) TimeOf(ctx context.Context, client id.Client) (time.Time, error) {
	now, _, err := l.ClockOf(ctx, client)
	return now, err
}

// ClockOf is TimeOf, and how far that is ahead of the machine's time.
func (l *Log) ClockOf(ctx context.Context, client id.Client) (now time.Time, ahead time.Duration, err error) {
	ahead, err = l.AheadOf(ctx, client)
	return l.Now().Add(ahead).UTC().Truncate(time.Microsecond), ahead, err
}

// IsDeleted says whether a client was deleted. The log itself is asked, as by TimeOf.
func (l *Log) IsDeleted(ctx context.Context, client id.Client) (bool, error) {
	stream := ClientStream(client)
	if client.Sandbox() {
		stream = SandboxStream(client)
	}
	last, err := l.ReadBack(ctx, stream, End, 1)
	if err != nil || len(last) == 0 {
		return false, err
	}
	_, deleted := last[0].Event.(event.ClientDeleted)
	return deleted, nil
}

// AheadOf is how far a client's clock is ahead of the machine's. It fails with ErrDeleted as
// TimeOf does.
func (l *Log) AheadOf(ctx context.Context, client id.Client) (time.Duration, error) {
	if !client.Sandbox() {
		return 0, nil
	}
	last, err := l.ReadBack(ctx, SandboxStream(client), End, 1)
	if err != nil || len(last) == 0 {
		return 0, err
	}
	switch e := last[0].Event.(type) {
	case event.ClockMoved:
		return e.Ahead(), nil
	case event.ClientDeleted:
		return 0, ErrDeleted
	}
	return 0, nil
}
