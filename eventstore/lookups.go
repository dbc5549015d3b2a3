package eventstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore/seal"
)

// Lookups is a key table whose lookups of users are made from the log.
type Lookups interface {
	// Users lists at most limit users who have a key, after one in order of
	// subject and client: those of a client, or of all where it is empty; with
	// missing those alone who have no lookup.
	Users(ctx context.Context, client id.Client, missing bool, after seal.SubjectKey, limit int) ([]seal.SubjectKey, error)
	// SetLookups sets lookups that no other subject has, and removes those of
	// subjects that are given none. It says how many it did.
	SetLookups(ctx context.Context, keys []seal.SubjectKey) (int, error)
}

const (
	lookupPage    = 500 // users whose lookups are made at once
	lookupReaders = 16  // of their streams
)

// MakeLookups makes the lookups that users of a client, or of all, lack: from the
// first event of each. anew removes those first that are not what the log says.
// It may be broken off and run again at any time, beside a service as well.
// Where two users have one name, the one that is found by it stays so.
func (l *Log) MakeLookups(ctx context.Context, table Lookups, client id.Client, anew bool) (made int, err error) {
	if anew {
		_, err := l.eachUser(ctx, table, client, false, func(user seal.SubjectKey, lookup []byte) (seal.SubjectKey, bool) {
			wrong := user.Lookup != nil && lookup != nil && !bytes.Equal(user.Lookup, lookup)
			user.Lookup = nil
			return user, wrong
		})
		if err != nil {
			return 0, err
		}
	}
	return l.eachUser(ctx, table, client, true, func(user seal.SubjectKey, lookup []byte) (seal.SubjectKey, bool) {
		user.Lookup = lookup
		return user, lookup != nil
	})
}

// eachUser sets the lookups that change says, given what the log says.
func (l *Log) eachUser(ctx context.Context, table Lookups, client id.Client, missing bool,
	change func(user seal.SubjectKey, lookup []byte) (seal.SubjectKey, bool),
) (n int, err error) {
	var after seal.SubjectKey
	for {
		page, err := table.Users(ctx, client, missing, after, lookupPage)
		if err != nil || len(page) == 0 {
			return n, err
		}
		after = page[len(page)-1]
		lookups := make([][]byte, len(page))
		group, reading := errgroup.WithContext(ctx)
		group.SetLimit(lookupReaders)
		for i, user := range page {
			group.Go(func() (err error) {
				lookups[i], err = l.lookupFromLog(reading, user.Client, id.User(user.Subject))
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return n, fmt.Errorf("make lookups: %w", err)
		}
		var set []seal.SubjectKey
		for i, user := range page {
			if changed, yes := change(user, lookups[i]); yes {
				set = append(set, changed)
			}
		}
		did, err := table.SetLookups(ctx, set)
		n += did
		if err != nil {
			return n, err
		}
	}
}

// lookupFromLog is what finds a user by what the first event calls it; nil where
// there is none, or nobody can read it any more.
func (l *Log) lookupFromLog(ctx context.Context, client id.Client, user id.User) ([]byte, error) {
	first, err := l.read(ctx, UserStream(client, user), 0, 1)
	if err != nil || len(first) == 0 {
		return nil, err
	}
	e, ok := first[0].Event.(event.Named)
	if !ok {
		return nil, fmt.Errorf("%s begins with %s", first[0].Stream, first[0].Type)
	}
	kind, _ := e.Name()
	name, err := l.Open(ctx, first[0], kind)
	if errors.Is(err, seal.ErrErased) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return l.Vault.Lookup(ctx, client, kind, string(name))
}
