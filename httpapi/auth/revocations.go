package auth

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"kindred/httpapi"
)

const (
	pollEvery    = 250 * time.Millisecond
	pollTimeout  = time.Second
	revokedBites = time.Second // how old what is known may be
)

// MaxRevocations is how many are kept in memory, in about 30 MiB. While more
// than that matter, nothing is vouched for.
const MaxRevocations = 1 << 18

// Revocations knows which API keys and members have lost their tokens. Run
// keeps it up to date. Whoever asks when what it knows is older than a second
// waits for a poll, so that a process that stood still refuses nobody; while
// polls fail, it vouches for nothing.
type Revocations struct {
	Source   RevocationSource
	TokenTTL time.Duration
	Now      func() time.Time
	Logger   *slog.Logger

	polling  sync.Mutex           // held for at most pollTimeout; taken before mu
	mu       sync.RWMutex         // of what follows
	failing  bool                 // the last poll left what is known too old
	revoked  map[string]time.Time // when it was last heard, by API key or member id
	upTo     time.Time
	prunedAt time.Time
}

// Run polls the source until ctx ends. Failures that last are logged once, until
// a poll succeeds again.
func (r *Revocations) Run(ctx context.Context) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	var failingSince time.Time
	told := false
	for {
		err := r.poll(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			if told {
				r.Logger.InfoContext(ctx, "revocations known again")
			}
			failingSince, told = time.Time{}, false
		case failingSince.IsZero():
			failingSince = r.Now()
		case !told && r.Now().Sub(failingSince) > revokedBites:
			r.Logger.ErrorContext(ctx, "revocations unknown, requests are refused", "error", err)
			told = true
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Current fails with a fault of kind Unavailable while revocations may be
// missing: requests are refused then.
func (r *Revocations) Current(ctx context.Context) error {
	_, err := r.ended(ctx, httpapi.Principal{})
	return err
}

// current is for who holds mu.
func (r *Revocations) current() error {
	if age := r.Now().Sub(r.upTo); age > revokedBites {
		return errUnsure(fmt.Errorf("revocations are known up to %s", r.upTo.UTC().Format(time.RFC3339Nano)))
	}
	return nil
}

// ended says whether the holder has lost this token: a token of an API key
// ends with the key, not with the member that made the key.
func (r *Revocations) ended(ctx context.Context, p httpapi.Principal) (bool, error) {
	ended, err := r.lookUp(p)
	if err == nil || !r.catchUp(ctx) {
		return ended, err
	}
	return r.lookUp(p)
}

func (r *Revocations) lookUp(p httpapi.Principal) (bool, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if _, revoked := r.revoked[p.Actor()]; revoked {
		return true, nil
	}
	return false, r.current()
}

// catchUp polls, unless another poll has just succeeded or the last one
// failed, and says whether it is worth another look.
func (r *Revocations) catchUp(ctx context.Context) bool {
	if r.behind() {
		return false
	}
	r.polling.Lock()
	defer r.polling.Unlock()
	switch {
	case r.behind():
		return false
	case r.known():
		return true
	}
	return r.read(context.WithoutCancel(ctx)) == nil // others wait for it
}

func (r *Revocations) behind() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.failing
}

func (r *Revocations) known() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.current() == nil
}

// memory is how long a revocation matters: until the last token that was
// issued before it has expired on the slowest clock.
func (r *Revocations) memory() time.Duration { return r.TokenTTL + 2*Skew }

func (r *Revocations) poll(ctx context.Context) error {
	r.polling.Lock()
	defer r.polling.Unlock()
	return r.read(ctx)
}

// read is poll for who holds the lock.
func (r *Revocations) read(ctx context.Context) (err error) {
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.failing = err != nil || r.current() != nil
	}()
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	now := r.Now()
	r.mu.RLock()
	within := min(now.Sub(r.upTo), r.memory()-Skew) + Skew // what is noted takes a moment to be seen
	r.mu.RUnlock()
	revoked, upTo, err := r.Source.Since(ctx, within)
	if err != nil {
		return fmt.Errorf("read revocations: %w", err)
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(now)
	if r.revoked == nil {
		r.revoked = make(map[string]time.Time)
	}
	for _, one := range revoked {
		r.revoked[one] = now
		if len(r.revoked) > MaxRevocations {
			return fmt.Errorf("more than %d revocations within %s", MaxRevocations, r.memory())
		}
	}
	r.upTo = upTo
	return nil
}

// forget drops, once a minute, what does not matter any more.
func (r *Revocations) forget(now time.Time) {
	if now.Sub(r.prunedAt) < time.Minute {
		return
	}
	r.prunedAt = now
	for holder, heard := range r.revoked {
		if now.Sub(heard) > r.memory() {
			delete(r.revoked, holder)
		}
	}
}
