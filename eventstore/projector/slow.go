package projector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/backoff"
	"kindred/domain/id"
	"kindred/eventstore"
)

// A client whose events take longer than others may wait is slow: its leader pauses it,
// which is to pass its events over, and applies them in slices, beside. It is slow until
// it has kept up for a while. All that is in the database, so the next leader goes on
// with it.

const (
	// BatchSteps is what a client may take of a batch that all are in, some 20 ms.
	// limit: models | steps of 10 ns that one client's events take in a batch, before they are applied in slices | {BatchSteps}
	BatchSteps = 2_000_000
	// limit: models | time for which a client that was slow has to keep up | {slowTime}
	slowTime   = 10 * time.Second
	longSlice  = 3 * BatchSteps // of a slow client: the next one is to hold half as many events, and after half of it twice as many
	firstSlice = 16             // events
)

// Spend notes what a projection does for a client, in steps of some 10 ns. Where that is
// too much for one batch it fails, and Apply with it.
type Spend func(steps int) error

// slowError says whose events take longer than others may wait.
type slowError struct {
	client id.Client
	among  *slowClients // those of its leader; nil: it is slow already, and its slice is to be shorter
}

func (e slowError) Error() string { return fmt.Sprintf("the events of %s take long", e.client) }

// unbounded is for as many steps as it takes.
func unbounded(id.Client) Spend { return func(int) error { return nil } }

// slowClients are those of a projection that its leader applies in slices.
type slowClients struct {
	leader *leader
	mu     sync.Mutex // held while the leader applies a batch, and while a client returns to it
	all    map[id.Client]*slowClient
	more   chan struct{} // of capacity 1: there may be something to apply
	rounds int
	rests  map[string]int // by owner: the rounds that others have before its next slice
}

type slowClient struct {
	part    *part
	passed  eventstore.Position // the leader has passed the client's events over, up to here at least
	limit   int                 // events of its next slice
	spent   int                 // steps of its last one
	several bool                // events are in it
	late    time.Time           // when a slice last was not short
	sliced  int                 // the round of its last slice
}

const (
	selectSlow = `SELECT client, position FROM quarantine WHERE projection = $1 AND paused AND slow`
	slowPlace  = selectSlow + ` AND client = $2`
	pauseSlow  = `
INSERT INTO quarantine (projection, client, position, event_id, reason, paused, slow)
VALUES ($1, $2, $3, '', 'its events take long; they are applied in slices', true, true) ON CONFLICT DO NOTHING`
	returnSlow = `DELETE FROM quarantine WHERE projection = $1 AND client = $2 AND paused AND slow AND position = $3`
)

// findSlow finds the clients that an earlier leader applied in slices.
func (l *leader) findSlow(ctx context.Context) (*slowClients, error) {
	s := &slowClients{leader: l, all: map[id.Client]*slowClient{}, more: make(chan struct{}, 1), rests: map[string]int{}}
	rows, _ := l.Pool.Query(ctx, selectSlow, l.projectionID) // what it fails with, its rows end with
	var client id.Client
	var at eventstore.Position
	_, err := pgx.ForEachRow(rows, []any{&client, &at}, func() error {
		s.add(client, at)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("find slow clients: %w", err)
	}
	return s, nil
}

func (s *slowClients) add(client id.Client, at eventstore.Position) {
	c := &slowClient{
		part:   s.leader.partOf(client, checkpoint{epoch: s.leader.at.epoch, position: at}),
		passed: s.leader.at.position, limit: firstSlice, late: s.leader.Now(),
	}
	c.part.spending = c.spending
	s.all[client] = c
	s.leader.skip[client], s.leader.slow = true, len(s.all)
	signal(s.more)
}

// spending counts the steps of a client in the leader's batch, which may take so many.
func (s *slowClients) spending(client id.Client) Spend {
	spent := 0
	return func(steps int) error {
		if spent += steps; spent > BatchSteps {
			return slowError{client, s}
		}
		return nil
	}
}

// spending counts the steps of a slice. One of many events that each take much, after some that took little,
// would hold up others for a minute, so it is broken off, unless it is of one event.
func (c *slowClient) spending(client id.Client) Spend {
	return func(steps int) error {
		if c.spent += steps; c.spent > 2*longSlice && c.several {
			return slowError{client: client}
		}
		return nil
	}
}

// apply is the leader's own, of what it read.
func (s *slowClients) apply(ctx context.Context, records []eventstore.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.leader.apply(ctx, records)
	for _, r := range records {
		if c := s.all[r.Client]; c != nil && r.Position <= s.leader.at.position {
			c.passed = s.leader.at.position
			signal(s.more)
		}
	}
	return err
}

// pause makes a client slow, where the leader is.
func (s *slowClients) pause(ctx context.Context, client id.Client) error {
	l := s.leader
	err := l.asLeader(ctx, l.lease, l.at, func(tx pgx.Tx) error {
		return exactlyOne(ctx, tx, pauseSlow, l.projectionID, client, l.at.position)
	})
	if err != nil {
		return fmt.Errorf("pause a slow client: %w", err)
	}
	l.Logger.InfoContext(ctx, "client applied in slices", "projection", l.projectionID, "client", client)
	s.add(client, l.at.position)
	l.tellRefused()
	return nil
}

// run applies slow clients, one after the other, until ctx ends.
func (s *slowClients) run(ctx context.Context) {
	var failed backoff.Backoff
	look := time.NewTicker(slowTime / 4) // whether one has kept up
	defer look.Stop()
	for ctx.Err() == nil {
		more, err := s.round(ctx)
		switch {
		case err != nil:
			s.leader.Logger.WarnContext(ctx, "slow clients not applied, trying again", "projection", s.leader.projectionID, "error", reason(err))
			_ = failed.Wait(ctx) // the loop looks at ctx
		case more:
			failed.Reset()
		default:
			select {
			case <-ctx.Done():
			case <-s.more:
			case <-look.C:
			}
		}
	}
}

// next are those to look at in a round: of a client and its sandboxes that have something
// to apply, the one whose slice was longest ago.
func (s *slowClients) next() map[id.Client]*slowClient {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rounds++
	next, chosen := map[id.Client]*slowClient{}, map[string]id.Client{}
	for client, c := range s.all {
		if c.part.at.position >= c.passed {
			next[client] = c // it may have kept up for long enough
			continue
		}
		owner := client.Owner()
		if before, some := chosen[owner]; some && s.all[before].sliced <= c.sliced {
			continue
		}
		chosen[owner] = client
	}
	s.rest(chosen)
	for _, client := range chosen {
		next[client] = s.all[client]
		next[client].sliced = s.rounds
	}
	return next
}

// rest takes those that rest from a round, unless all do. A slice of one event is long where a client has
// many rules, which are read for each: others then have as much time before its next one.
func (s *slowClients) rest(chosen map[string]id.Client) {
	least := math.MaxInt
	for owner := range chosen {
		least = min(least, s.rests[owner])
	}
	for owner := range chosen {
		if s.rests[owner] -= least; s.rests[owner] > 0 {
			s.rests[owner]--
			delete(chosen, owner)
		} else {
			delete(s.rests, owner)
		}
	}
}

// rests is how many rounds of others are as long as a slice that took so many steps was too long.
func rests(steps int) int { return max(0, steps-1) / longSlice }

// round gives slow clients a slice each. One that fails keeps back no other.
func (s *slowClients) round(ctx context.Context) (more bool, err error) {
	for client, c := range s.next() {
		some, failure := s.slice(ctx, client, c)
		if errors.Is(failure, ErrLost) {
			failure = s.findAgain(ctx, client, c)
		}
		more, err = more || some, cmp.Or(err, failure)
	}
	return more, err
}

// slice applies some of a client's events, up to where the leader has passed them over.
func (s *slowClients) slice(ctx context.Context, client id.Client, c *slowClient) (more bool, err error) {
	s.mu.Lock()
	upTo := c.passed
	s.mu.Unlock()
	records, err := c.part.next(ctx, c.part.at.position, upTo, c.limit)
	if err != nil {
		return false, fmt.Errorf("read the log: %w", err)
	}
	if len(records) == 0 {
		return false, s.returns(ctx, client, c, upTo)
	}
	items, unknown := c.part.decode(records)
	c.spent, c.several = 0, len(records) > 1
	err = c.part.applyItems(ctx, items)
	if errors.As(err, new(slowError)) {
		c.limit, err = len(records), nil // of which the next one holds half
	}
	switch {
	case err != nil:
		return false, err
	case c.part.skip[client]: // it has stopped at an event that cannot be applied
		s.forget(client)
	default:
		c.took(c.spent, s.leader.Now())
		s.rests[client.Owner()] = rests(c.spent)
	}
	return true, unknown
}

// took makes the next slice as long as one may be. It goes by steps: by the clock, what others
// do would make slices so small that the client never keeps up, as to begin one takes 5 ms,
// and 50 on a busy machine, however few events it holds.
func (c *slowClient) took(steps int, now time.Time) {
	if steps >= BatchSteps {
		c.late = now
	}
	switch {
	case steps < longSlice/2:
		c.limit = min(2*c.limit, MaxBatch)
	case steps > longSlice:
		c.limit = max(1, c.limit/2)
	}
}

// returns lets the leader apply a client that has kept up for long enough.
func (s *slowClients) returns(ctx context.Context, client id.Client, c *slowClient, upTo eventstore.Position) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leader
	if c.passed != upTo || l.Now().Sub(c.late) < slowTime {
		return nil
	}
	err := l.asLeader(ctx, l.lease, l.at, func(tx pgx.Tx) error {
		return exactlyOne(ctx, tx, returnSlow, l.projectionID, client, c.part.at.position)
	})
	if err != nil {
		return err
	}
	delete(s.all, client)
	delete(l.skip, client)
	l.slow = len(s.all)
	l.tellRefused()
	return nil
}

// findAgain finds where a client stands that is not where it was: its part is being
// replaced, or another leader went on with it.
func (s *slowClients) findAgain(ctx context.Context, client id.Client, c *slowClient) error {
	var at eventstore.Position
	err := s.leader.Pool.QueryRow(ctx, slowPlace, s.leader.projectionID, client).Scan(nil, &at)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		s.forget(client)
		return nil
	case err != nil:
		return fmt.Errorf("find a slow client: %w", err)
	}
	c.part.at.position = at
	return nil
}

// forget leaves a client to what has paused or stopped it.
func (s *slowClients) forget(client id.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, client)
	s.leader.slow = len(s.all)
	s.leader.tellRefused()
}
