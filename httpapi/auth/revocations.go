package auth

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"kindred/domain/fault"
	"kindred/httpapi"
)

const (
	pollEvery    = 250 * time.Millisecond
	pollTimeout  = time.Second
	revokedBites = time.Second // how old what is known may be
)

// maxRevocations is how many are kept in memory, in about 30 MiB. While more
// than that matter, each token is looked up for itself.
// limit: edge | revocations in memory | {maxRevocations}
const maxRevocations = 1 << 18

// Revocations knows which API keys, members and sessions have lost their tokens. Run
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
	revoked  map[string]time.Time // when it was last heard, by what was revoked, or the id of a client that has more
	beyond   time.Time            // when more was last heard than is kept; zero: never
	upTo     time.Time
	prunedAt time.Time
}

// elapsed is how long ago then was, by the clock that has gone further: the
// monotonic one stands still while the machine is suspended, and the other one may
// be set back.
func elapsed(now, then time.Time) time.Duration {
	return max(now.Sub(then), now.Round(0).Sub(then.Round(0)))
}

// Run polls the source until ctx ends. Failures that last are logged once, until
// a poll succeeds again.
// Faults: unverifiable.
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
// Faults: unverifiable.
func (r *Revocations) Current(ctx context.Context) error {
	_, _, err := r.known(ctx, httpapi.Principal{})
	return err
}

// current is for who holds mu.
func (r *Revocations) current() error {
	if age := elapsed(r.Now(), r.upTo); age > revokedBites {
		return errUnsure(fmt.Errorf("revocations are known up to %s", r.upTo.UTC().Format(time.RFC3339Nano)))
	}
	return nil
}

// ended says whether the holder has lost this token.
func (r *Revocations) ended(ctx context.Context, p httpapi.Principal) (bool, error) {
	ended, unsure, err := r.known(ctx, p)
	if err != nil || !unsure {
		return ended, err
	}
	ended, err = r.Source.Revoked(ctx, p.Client, p.Subjects()...)
	if err == nil && !ended && p.Parent != "" {
		ended, err = r.Source.Revoked(ctx, p.Parent, p.Subjects()...) // what is the member's stands there
	}
	if err != nil {
		return false, errUnsure(fmt.Errorf("look up a revocation: %w", err))
	}
	return ended, nil
}

// known says whether the holder is known to have lost its tokens, or whether
// only the source can tell.
func (r *Revocations) known(ctx context.Context, p httpapi.Principal) (ended, unsure bool, err error) {
	ended, unsure, err = r.lookUp(p)
	if err == nil || !r.catchUp(ctx) {
		return ended, unsure, err
	}
	return r.lookUp(p)
}

func (r *Revocations) lookUp(p httpapi.Principal) (ended, unsure bool, err error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, subject := range p.Subjects() {
		if _, revoked := r.revoked[subject]; revoked {
			return true, false, nil
		}
	}
	_, more := r.revoked[string(p.Client)]
	if _, there := r.revoked[string(p.Parent)]; there {
		more = true
	}
	return false, more || !r.beyond.IsZero(), r.current()
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
	case r.upToDate():
		return true
	}
	return r.read(context.WithoutCancel(ctx)) == nil // others wait for it
}

func (r *Revocations) behind() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.failing
}

func (r *Revocations) upToDate() bool {
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
	within := min(elapsed(now, r.upTo), r.memory()-Skew) + Skew // what is noted takes a moment to be seen
	r.mu.RUnlock()
	revoked, upTo, err := r.Source.Since(ctx, within, maxRevocations+1)
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
		if _, kept := r.revoked[one]; !kept && len(r.revoked) >= maxRevocations {
			r.omit(ctx, now)
			continue
		}
		r.revoked[one] = now
	}
	r.upTo = upTo
	return nil
}

// omit notes that a revocation is not kept.
func (r *Revocations) omit(ctx context.Context, now time.Time) {
	if r.beyond.IsZero() {
		r.Logger.WarnContext(ctx, "more revocations than are kept in memory, each token is looked up", "kept", maxRevocations)
	}
	r.beyond = now
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
	if now.Sub(r.beyond) > r.memory() {
		r.beyond = time.Time{}
	}
}

// errUnsure is for a replica that cannot know: a 401 would make every caller
// exchange again. The cause is for the log.
func errUnsure(cause error) error {
	return fmt.Errorf("%w: %w", fault.New(fault.Unavailable, "unverifiable",
		"Access tokens cannot be verified just now. Try again in a moment.").After(time.Second), cause)
}
