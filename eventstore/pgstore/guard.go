package pgstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"kindred/domain/id"
	"kindred/eventstore/seal"
)

// Guard knows what events were made of that was read from the same database before
// they are appended, such as keys.
type Guard interface {
	// Invalidate: the database is on another server now, which may lack the last commits.
	Invalidate()
	// Verify fails with seal.ErrLost where it lacks what a client's events may rest on.
	Verify(ctx context.Context, client id.Client) error
}

// Guard has a guard asked about each append that comes after the server was replaced
// by another. It is set before anything is appended.
func (s *Store) Guard(g Guard) { s.guard.Store(&g) }

// guarded asks a guard, if there is one. The committer alone uses it.
type guarded struct {
	guard *atomic.Pointer[Guard]

	server   string // that the last connection was to
	replaced bool   // it was another before
}

// connected notes the server that a connection is to.
func (g *guarded) connected(server string) {
	if g.server != "" && g.server != server {
		g.replaced = true
		if guard := g.guard.Load(); guard != nil {
			(*guard).Invalidate()
		}
	}
	g.server = server
}

// errRefused: the guard does not let a request pass, or what is loaded has no place in the log.
var errRefused = errors.New("not appended")

// allow asks about each client of a batch. It fails with errRefused where one of them
// may not append.
func (g *guarded) allow(ctx context.Context, batch []*request) error {
	guard := g.guard.Load()
	if !g.replaced || guard == nil {
		return nil
	}
	for _, r := range batch {
		err := (*guard).Verify(ctx, r.events[0].Client)
		if errors.Is(err, seal.ErrLost) {
			return fmt.Errorf("%w: %w", errRefused, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
