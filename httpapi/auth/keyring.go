package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/backoff"
	"kindred/httpapi"
)

// The two algorithms of tokens, each with keys of its own.
const (
	exchangeAlgorithm = jose.ES256
	loginAlgorithm    = jose.EdDSA
)

var algorithms = []jose.SignatureAlgorithm{exchangeAlgorithm, loginAlgorithm}

// JWKSMaxAge is how long verifiers may keep the published key set
// (docs/contract.md#jwks: at least five minutes).
const JWKSMaxAge = 5 * time.Minute

const (
	reloadEvery = 2 * time.Second
	reloadPause = 100 * time.Millisecond // between two loads on demand
	loadTimeout = 2 * time.Second
	// limit: edge | key ids that are known to be none | {maxAbsent}
	maxAbsent = 128 // key ids in memory
)

// Keyring holds the keys that sign and verify tokens, the same on every
// replica: the table is the truth, each replica reloads it every two seconds,
// and at once when it meets a key id that it does not know. Start it with
// Open; its fields are set before that and not changed.
type Keyring struct {
	Pool     *pgxpool.Pool
	Secrets  Secrets // keeps the private keys
	TokenTTL time.Duration
	Now      func() time.Time
	Entropy  io.Reader
	Logger   *slog.Logger

	keys atomic.Pointer[map[string]*signingKey] // by key id

	absent *lru.Cache[string, struct{}] // key ids that the table was found not to have, nor will

	loading sync.Mutex
	begunAt time.Time // the last load; guarded by loading
}

// Open makes the first key of each algorithm where there is none, and loads
// all keys. Of several replicas that start at once, one makes the keys.
func (k *Keyring) Open(ctx context.Context) (err error) {
	if k.absent, err = lru.New[string, struct{}](maxAbsent); err != nil {
		panic(err) // only for a size below one
	}
	if err := k.makeMissing(ctx); err != nil {
		return fmt.Errorf("make the first signing keys: %w", err)
	}
	return k.load(ctx) // as long as the start may take: behind a pooler, connections are made one after the other
}

// Run reloads the keys until ctx ends. A failed load is tried again, and logged
// now and then; the keys loaded before serve on.
func (k *Keyring) Run(ctx context.Context) error {
	tick := time.NewTicker(reloadEvery)
	defer tick.Stop()
	var seldom backoff.Seldom
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := k.refresh(ctx); err != nil && ctx.Err() == nil {
			seldom.Do(func() { k.Logger.WarnContext(ctx, "signing keys not reloaded", "error", err) })
		}
	}
}

// Rotate publishes a new key for each algorithm. It begins to sign when every
// verifier has had the time to fetch it, JWKSMaxAge and Skew from now; the key
// before it stays published until the tokens that it signed have expired.
// Rotating again before the new key signs changes nothing. It returns all keys.
func (k *Keyring) Rotate(ctx context.Context) ([]KeyInfo, error) {
	return k.rotate(ctx, false)
}

// RotateNow replaces keys that have leaked: the new ones sign at once, and
// every token signed with an older key is refused from now on (on other
// replicas within seconds). Callers have to exchange or log in again.
func (k *Keyring) RotateNow(ctx context.Context) ([]KeyInfo, error) {
	return k.rotate(ctx, true)
}

// List returns the keys that are not removed, by algorithm and age.
func (k *Keyring) List(ctx context.Context) ([]KeyInfo, error) {
	rows, err := selectKeys(ctx, k.Pool)
	if err != nil {
		return nil, err
	}
	now := k.Now()
	infos := make([]KeyInfo, 0, len(rows))
	for _, row := range rows {
		if row.publishedAt(now) {
			infos = append(infos, row.info(now))
		}
	}
	return infos, nil
}

// JWKS returns the public keys that verify tokens at this moment, in a stable
// order.
func (k *Keyring) JWKS() httpapi.JWKS {
	set := httpapi.JWKS{Keys: []httpapi.JWK{}}
	now := k.Now()
	for _, key := range k.loaded() {
		if key.publishedAt(now) {
			set.Keys = append(set.Keys, key.jwk)
		}
	}
	slices.SortFunc(set.Keys, func(a, b httpapi.JWK) int {
		return cmp.Or(strings.Compare(a.Alg, b.Alg), strings.Compare(a.Kid, b.Kid))
	})
	return set
}

// signer returns the key that signs now: the one activated last. Where a fresh
// pair's clock is ahead of ours, the first that will be.
func (k *Keyring) signer(alg jose.SignatureAlgorithm) (*signingKey, error) {
	now := k.Now()
	var active, next *signingKey
	for _, key := range k.loaded() {
		switch {
		case key.alg != alg:
		case key.activatesAt.After(now):
			if next == nil || key.activatesAt.Before(next.activatesAt) {
				next = key
			}
		case active == nil || key.activatesAt.After(active.activatesAt):
			active = key
		}
	}
	if key := cmp.Or(active, next); key != nil {
		return key, nil
	}
	return nil, fmt.Errorf("there is no key to sign with %s", alg)
}

// known returns the published key with this id from memory, or nil.
func (k *Keyring) known(kid string) *signingKey {
	if key := k.loaded()[kid]; key != nil && key.publishedAt(k.Now()) {
		return key
	}
	return nil
}

// find is known, but asks the table before it answers nil, unless it has done so
// for this id: a key is in the table before it signs. One caller at a time asks,
// so that made-up ids keep nobody waiting; it fails for the others.
func (k *Keyring) find(ctx context.Context, kid string) (*signingKey, error) {
	if key := k.known(kid); key != nil {
		return key, nil
	}
	if _, absent := k.absent.Get(kid); absent {
		return nil, nil
	}
	if !k.loading.TryLock() {
		return nil, errLoading
	}
	defer k.loading.Unlock()
	if err := k.reload(ctx); err != nil {
		return nil, err
	}
	key := k.known(kid)
	if key == nil {
		k.absent.Add(kid, struct{}{})
	}
	return key, nil
}

var errLoading = errors.New("the keys are being loaded")

func (k *Keyring) loaded() map[string]*signingKey {
	if keys := k.keys.Load(); keys != nil {
		return *keys
	}
	return nil
}

// refresh returns after a load that began later than the call.
func (k *Keyring) refresh(ctx context.Context) error {
	k.loading.Lock()
	defer k.loading.Unlock()
	return k.reload(ctx)
}

// reload is refresh for a caller that holds the lock. Loads keep a pause, so that made-up
// key ids cost ten small queries a second at most.
func (k *Keyring) reload(ctx context.Context) error {
	if pause := reloadPause - k.Now().Sub(k.begunAt); pause > 0 {
		if err := backoff.Sleep(ctx, min(pause, reloadPause)); err != nil {
			return err
		}
	}
	k.begunAt = k.Now()
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	return k.load(ctx)
}

// load reads the table. Keys that are at hand already are not opened again.
func (k *Keyring) load(ctx context.Context) error {
	rows, err := selectKeys(ctx, k.Pool)
	if err != nil {
		return err
	}
	old := k.loaded()
	keys := make(map[string]*signingKey, len(rows))
	for _, row := range rows {
		key := &signingKey{}
		if have := old[row.kid]; have != nil {
			*key = *have
			key.keyRow = row
		} else if key, err = row.open(ctx, k.Secrets); err != nil {
			return fmt.Errorf("open signing key %s: %w", row.kid, err)
		}
		keys[row.kid] = key
	}
	k.keys.Store(&keys)
	return nil
}
