package projector

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/id"
	"kindred/eventstore"
)

// Look tells tests what this process knows of a projection.
func (p *Progress) Look(projectionID string) (eventstore.Position, <-chan struct{}) {
	return p.look(projectionID)
}

// ForgetSome has tests delete some rows of a client.
func ForgetSome(ctx context.Context, tx pgx.Tx, client id.Client) (int64, error) {
	return forgetSome(ctx, tx, client)
}

// Known tells tests which projections this process knows of.
func (p *Progress) Known() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.projections))
}

// Patience tells tests how long what follows a batch of n may be gathered.
func Patience(prompt, applied bool, n int) time.Duration {
	return (&follower{prompt: prompt, applied: applied}).patience(n)
}

// Behind tells tests what metrics say of records that wait for a projection.
func (m *Metrics) Behind(name string, waiting []eventstore.Record, now time.Time) {
	m.behind(name, waiting, now)
}

// LastWrites is for how long a deleted client may still be written of.
const LastWrites = lastWrites
