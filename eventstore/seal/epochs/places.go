package epochs

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"kindred/eventstore/seal"
)

// Take takes a place for one new key. Whoever finds none waits until some are
// reserved; a process that makes many keys has the next ones reserved before.
func (e *Epochs) Take(ctx context.Context) (seal.Epoch, error) {
	if epoch, ok := e.taken(ctx); ok {
		return epoch, nil
	}
	if err := e.lock(ctx); err != nil {
		return seal.Epoch{}, err
	}
	defer func() { <-e.locked }()
	for {
		if epoch, ok := e.taken(ctx); ok {
			return epoch, nil
		}
		if err := e.refill(ctx); err != nil {
			return seal.Epoch{}, fmt.Errorf("find a place for a new key: %w", err)
		}
	}
}

// taken takes one of the places that are reserved and known to be good.
func (e *Epochs) taken(ctx context.Context) (seal.Epoch, bool) {
	now := e.now()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.filling.left == 0 {
		e.filling, e.ahead = e.ahead, places{}
	}
	if e.filling.left == 0 || !now.Before(e.filling.until) {
		return seal.Epoch{}, false
	}
	e.filling.left--
	if e.more == maxKeys && e.ahead.left == 0 && !e.busy {
		e.busy = true
		go e.reserveAhead(context.WithoutCancel(ctx))
	}
	return e.filling.epoch, true
}

// GiveBack gives back places that were taken and are not used.
func (e *Epochs) GiveBack(epoch string, n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range []*places{&e.filling, &e.ahead} {
		if p.epoch.ID == epoch {
			p.left += n
			return
		}
	}
}

const selectOpen = `SELECT EXISTS (SELECT FROM public.epochs WHERE id = $1 AND closing_at IS NULL AND retired_at IS NULL)`

// refill confirms the places that are left, or reserves others.
func (e *Epochs) refill(ctx context.Context) error {
	e.mu.Lock()
	now, left := e.now(), e.filling
	e.mu.Unlock()
	if left.left > 0 {
		var open bool
		if err := e.pool.QueryRow(ctx, selectOpen, left.epoch.ID).Scan(&open); err != nil {
			return err
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		switch {
		case e.filling.epoch.ID != left.epoch.ID:
		case open:
			e.filling.until = now.Add(confirmEvery)
		default:
			e.filling = places{}
		}
		return nil
	}
	e.mu.Lock()
	want := e.more
	e.more = min(4*e.more, maxKeys)
	e.mu.Unlock()
	fresh, err := e.reserve(ctx, want)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.filling = fresh
	return nil
}

// reserveAhead reserves the next places while the last ones are taken. Where it
// fails, whoever finds none tries again, and is told why not.
func (e *Epochs) reserveAhead(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, reserveTime)
	defer cancel()
	fresh, err := e.reserve(ctx, maxKeys)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.busy = false
	if err == nil {
		e.ahead = fresh
	}
}

// Two processes that reserve at once reserve under two epochs. Few places are
// left alone: they are not worth the statement.
const reservePlaces = `
WITH room AS (
	SELECT id, least($1, $2 - keys) AS places FROM public.epochs
	WHERE keys <= $2 - $3 AND closing_at IS NULL AND retired_at IS NULL
	ORDER BY keys DESC LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE public.epochs e SET keys = e.keys + room.places FROM room WHERE e.id = room.id
RETURNING e.id, room.places`

// reserve reserves places under an epoch that has room, or under a new one.
func (e *Epochs) reserve(ctx context.Context, want int) (places, error) {
	at, err := e.makeDirectory(ctx)
	if err != nil {
		return places{}, err
	}
	var name string
	p := places{until: e.now().Add(confirmEvery)}
	err = e.pool.QueryRow(ctx, reservePlaces, want, maxKeys, firstPlaces).Scan(&name, &p.left)
	if errors.Is(err, pgx.ErrNoRows) {
		p.left = want
		p.epoch, err = e.begin(ctx, e.pool, at, want)
		return p, err
	}
	if err != nil {
		return places{}, err
	}
	p.epoch, err = e.Find(ctx, name)
	return p, err
}

const insertEpoch = `INSERT INTO public.epochs (id, fingerprint, keys) VALUES ($1, $2, $3)`

// execer is a pool or a transaction.
type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// begin makes an epoch, some of whose places are taken.
func (e *Epochs) begin(ctx context.Context, db execer, at dir, taken int) (seal.Epoch, error) {
	began := e.now()
	name, key, err := seal.NewEpochKey(e.entropy)
	if err != nil {
		return seal.Epoch{}, err
	}
	if err := at.putKey(name, key); err != nil {
		return seal.Epoch{}, err
	}
	of := fingerprint(name, key)
	if _, err := db.Exec(ctx, insertEpoch, name, of[:], taken); err != nil {
		return seal.Epoch{}, fmt.Errorf("record an epoch: %w", err)
	}
	if e.now().Sub(began) > nameWithin {
		return seal.Epoch{}, fmt.Errorf("%w: making one took too long", seal.ErrEpoch)
	}
	return seal.NewEpoch(name, key)
}

const returnPlaces = `UPDATE public.epochs SET keys = keys - $2 WHERE id = $1 AND keys >= $2`

// Close gives the places that are left to other processes.
func (e *Epochs) Close(ctx context.Context) error {
	e.mu.Lock()
	left := []places{e.filling, e.ahead}
	e.filling, e.ahead = places{}, places{}
	e.mu.Unlock()
	for _, p := range left {
		if p.left == 0 {
			continue
		}
		if _, err := e.pool.Exec(ctx, returnPlaces, p.epoch.ID, p.left); err != nil {
			return fmt.Errorf("give back places for keys: %w", err)
		}
	}
	return nil
}
