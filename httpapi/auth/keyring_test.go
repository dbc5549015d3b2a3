package auth

import (
	"bytes"
	"context"
	"crypto"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/eventstore/seal"
	"kindred/postgres/pgtest"
	"kindred/testkit"
)

var _ Secrets = (*seal.Vault)(nil)

const ttl = 15 * time.Minute

// safe implements Secrets with AES-GCM under one key.
type safe struct{ cipher.AEAD }

func newSafe(t testing.TB, key byte) safe {
	t.Helper()
	block := testkit.Must(aes.NewCipher(bytes.Repeat([]byte{key}, 32)))(t)
	aead := testkit.Must(cipher.NewGCMWithRandomNonce(block))(t)
	return safe{aead}
}

func (s safe) SealSecret(_ context.Context, name string, plain []byte) ([]byte, error) {
	return s.Seal(nil, nil, plain, []byte(name)), nil
}

func (s safe) OpenSecret(_ context.Context, name string, sealed []byte) ([]byte, error) {
	return s.Open(nil, nil, sealed, []byte(name))
}

// unhurried is a safe that says whether a bound was set for what it opens.
type unhurried struct {
	safe
	bounded *bool
}

func (u unhurried) OpenSecret(ctx context.Context, name string, sealed []byte) ([]byte, error) {
	_, *u.bounded = ctx.Deadline()
	return u.safe.OpenSecret(ctx, name, sealed)
}

// A start may wait for its connections, which a pooler makes one after the other; what is asked for
// while it serves may not.
func TestAStartWaitsForItsKeysAsLongAsItTakes(t *testing.T) {
	pool, now := pgtest.New(t), newClock()
	openKeyring(t, pool, now.Now)
	k, bounded := replica(t, pool, now.Now), true
	k.Secrets = unhurried{newSafe(t, 1), &bounded}
	if err := k.Open(t.Context()); err != nil || bounded {
		t.Errorf("bounded: %t, %v", bounded, err)
	}
	k.keys.Store(nil)
	if reload(t, k); !bounded {
		t.Error("a load while it serves is not bounded")
	}
}

// replica is a keyring as another process would have it: same table, same
// master key.
func replica(t testing.TB, pool *pgxpool.Pool, now func() time.Time) *Keyring {
	t.Helper()
	return &Keyring{
		Pool: pool, Secrets: newSafe(t, 1), TokenTTL: ttl, Now: now,
		Entropy: rand.Reader, Logger: slog.New(slog.DiscardHandler),
	}
}

func openKeyring(t testing.TB, pool *pgxpool.Pool, now func() time.Time) *Keyring {
	t.Helper()
	k := replica(t, pool, now)
	if err := k.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return k
}

// states lists the keys of one algorithm, the oldest first.
func states(t testing.TB, k *Keyring, alg jose.SignatureAlgorithm) (kids []string, at []State) {
	t.Helper()
	infos := testkit.Must(k.List(t.Context()))(t)
	for _, info := range infos {
		if info.Algorithm == string(alg) {
			kids, at = append(kids, info.ID), append(at, info.State)
		}
	}
	return kids, at
}

func published(k *Keyring) []string {
	var kids []string
	for _, key := range k.JWKS().Keys {
		kids = append(kids, key.Kid)
	}
	return kids
}

func signerID(t testing.TB, k *Keyring, alg jose.SignatureAlgorithm) string {
	t.Helper()
	key := testkit.Must(k.signer(alg))(t)
	return key.kid
}

func reload(t testing.TB, k *Keyring) {
	t.Helper()
	if err := k.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestReplicasThatStartAtOnceMakeOnePair(t *testing.T) {
	pool, now := pgtest.New(t), newClock()
	// All of them find the table empty and wait for their turn before one has it.
	gate := testkit.Must(pool.Begin(t.Context()))(t)
	if _, err := gate.Exec(t.Context(), lockKeysSQL); err != nil {
		t.Fatal(err)
	}
	rings := make([]*Keyring, 8)
	var group sync.WaitGroup
	for i := range rings {
		rings[i] = replica(t, pool, now.Now)
		group.Go(func() {
			if err := rings[i].Open(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	testkit.Eventually(t, "all wait for their turn", func() bool {
		var waiting int
		err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks JOIN pg_database ON oid = database
			WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted`).Scan(&waiting)
		return err == nil && waiting == len(rings)
	})
	if err := gate.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	group.Wait()
	for _, alg := range algorithms {
		if _, got := states(t, rings[0], alg); !slices.Equal(got, []State{Active}) {
			t.Errorf("keys for %s: %v; want one that is active", alg, got)
		}
	}
	for _, ring := range rings {
		if diff := cmp.Diff(published(rings[0]), published(ring)); diff != "" {
			t.Errorf("two replicas publish different keys: %s", diff)
		}
	}
}

func TestAKeyIsPublishedBeforeItSignsAndAfter(t *testing.T) {
	pool, now := pgtest.New(t), newClock()
	k := openKeyring(t, pool, now.Now)
	first := signerID(t, k, jose.ES256)

	if _, err := k.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	rotated := now.Now()
	kids, _ := states(t, k, jose.ES256)
	second := kids[1]
	until := func(d time.Duration) { now.Advance(rotated.Add(d).Sub(now.Now())); reload(t, k) }

	signsFrom := JWKSMaxAge + Skew
	for _, step := range []struct {
		name   string
		at     time.Duration
		states []State
		signs  string
		kids   []string
	}{
		{"at once", 0, []State{Active, Next}, first, []string{first, second}},
		{"before every verifier knows", JWKSMaxAge, []State{Active, Next}, first, []string{first, second}},
		{"just before it signs", signsFrom - time.Millisecond, []State{Active, Next}, first, []string{first, second}},
		{"when it signs", signsFrom, []State{Retiring, Active}, second, []string{first, second}},
		{"while old tokens live", signsFrom + ttl + Skew - time.Millisecond, []State{Retiring, Active}, second, []string{first, second}},
		{"when they have expired", signsFrom + ttl + Skew, []State{Active}, second, []string{second}},
	} {
		until(step.at)
		if _, got := states(t, k, jose.ES256); !slices.Equal(got, step.states) {
			t.Errorf("%s: keys are %v; want %v", step.name, got, step.states)
		}
		if got := signerID(t, k, jose.ES256); got != step.signs {
			t.Errorf("%s: the wrong key signs", step.name)
		}
		for _, kid := range []string{first, second} {
			want := slices.Contains(step.kids, kid)
			if got := slices.Contains(published(k), kid); got != want {
				t.Errorf("%s: key published: %v; want %v", step.name, got, want)
			}
			if got := k.known(kid) != nil; got != want {
				t.Errorf("%s: key accepted: %v; want %v", step.name, got, want)
			}
		}
	}
	// The next rotation deletes what has been removed.
	if _, err := k.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	var rows int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM signing_keys WHERE alg = 'ES256'").Scan(&rows); err != nil || rows != 2 {
		t.Errorf("%d rows are left (%v); want 2", rows, err)
	}
}

func TestRotatingTwiceAddsNothing(t *testing.T) {
	k := openKeyring(t, pgtest.New(t), newClock().Now)
	once := testkit.Must(k.Rotate(t.Context()))(t)
	twice := testkit.Must(k.Rotate(t.Context()))(t)
	if diff := cmp.Diff(once, twice); diff != "" || len(once) != 4 {
		t.Errorf("%d keys; want 4, the same after the second rotation: %s", len(once), diff)
	}
}

func TestAnEmergencyLeavesNoOldKey(t *testing.T) {
	pool, now := pgtest.New(t), newClock()
	k := openKeyring(t, pool, now.Now)
	if _, err := k.Rotate(t.Context()); err != nil { // a next key may have leaked as well
		t.Fatal(err)
	}
	reload(t, k)
	before := published(k)
	infos := testkit.Must(k.RotateNow(t.Context()))(t)
	for _, info := range infos {
		if info.State != Active || slices.Contains(before, info.ID) {
			t.Errorf("%+v; want a new key that is active", info)
		}
	}
	other := openKeyring(t, pool, func() time.Time { return now.Now().Add(-time.Second) })
	for _, ring := range []*Keyring{k, other} {
		reload(t, ring)
		for _, kid := range before {
			if ring.known(kid) != nil {
				t.Error("an old key is still accepted")
			}
		}
		if got := published(ring); len(got) != 2 || slices.Contains(before, signerID(t, ring, jose.EdDSA)) {
			t.Errorf("%v are published; want the two new keys, one of which signs", got)
		}
	}
}

func TestAReplicaLearnsOfAKeyWhenItMeetsIt(t *testing.T) {
	pool, now := pgtest.New(t), newClock()
	stale, fresh := openKeyring(t, pool, now.Now), openKeyring(t, pool, now.Now)
	if _, err := fresh.RotateNow(t.Context()); err != nil {
		t.Fatal(err)
	}
	reload(t, fresh)
	kid := signerID(t, fresh, jose.ES256)
	if stale.known(kid) != nil {
		t.Fatal("the replica knows the key already")
	}
	if key, err := stale.find(t.Context(), kid); err != nil || key == nil {
		t.Errorf("found %v, %v; want the key", key, err)
	}
}

func TestMadeUpKeyIDsShareLoads(t *testing.T) {
	pool := pgtest.New(t)
	k := openKeyring(t, pool, newClock().Now)
	before := pool.Stat().AcquireCount()
	var group sync.WaitGroup
	start := make(chan struct{})
	for range 200 {
		group.Go(func() {
			<-start
			if key, err := k.find(t.Context(), "made-up"); err != nil && !errors.Is(err, errLoading) || key != nil {
				t.Errorf("found %v, %v", key, err)
			}
		})
	}
	close(start)
	group.Wait()
	if key, err := k.find(t.Context(), "made-up"); err != nil || key != nil {
		t.Errorf("found %v, %v", key, err)
	}
	if n := pool.Stat().AcquireCount() - before; n > 3 {
		t.Errorf("200 unknown key ids cost %d loads", n)
	}
}

func TestManyMadeUpKeyIDsCostTenLoadsASecond(t *testing.T) {
	k := openKeyring(t, pgtest.New(t), newClock().Now)
	began := time.Now()
	for _, kid := range []string{"one", "two", "three"} {
		if key, err := k.find(t.Context(), kid); err != nil || key != nil {
			t.Errorf("found %v, %v", key, err)
		}
	}
	if took := time.Since(began); took < 2*reloadPause {
		t.Errorf("three loads within %s", took)
	}
}

func TestNobodyWaitsForTheLoadOfAnother(t *testing.T) {
	pool, now := pgtest.New(t), newClock()
	stale, fresh := openKeyring(t, pool, now.Now), openKeyring(t, pool, now.Now)
	if key, err := stale.find(t.Context(), "made-up"); err != nil || key != nil {
		t.Fatalf("found %v, %v", key, err)
	}
	if _, err := fresh.RotateNow(t.Context()); err != nil {
		t.Fatal(err)
	}
	reload(t, fresh)
	kid := signerID(t, fresh, jose.ES256)

	stale.loading.Lock() // somebody loads
	found := make(chan error, 1)
	go func() {
		_, err := stale.find(t.Context(), kid)
		found <- err
	}()
	select {
	case err := <-found:
		if err == nil {
			t.Error("a key id that may be new is refused for good")
		}
	case <-time.After(10 * time.Second):
		t.Error("a request waits for another's load")
	}
	if key, err := stale.find(t.Context(), "made-up"); err != nil || key != nil {
		t.Errorf("an id that was looked for before: found %v, %v", key, err)
	}
	stale.loading.Unlock()
	if key, err := stale.find(t.Context(), kid); err != nil || key == nil {
		t.Errorf("who tries again: found %v, %v; want the key", key, err)
	}
}

func TestWithoutTheTableAnUnknownKeyIsAnError(t *testing.T) {
	pool := pgtest.New(t)
	k := openKeyring(t, pool, newClock().Now)
	if _, err := pool.Exec(t.Context(), "ALTER TABLE signing_keys RENAME TO elsewhere"); err != nil {
		t.Fatal(err)
	}
	if key, err := k.find(t.Context(), "made-up"); err == nil {
		t.Errorf("found %v without an error", key)
	}
	if k.known(signerID(t, k, jose.ES256)) == nil {
		t.Error("the keys loaded before are lost")
	}
}

func TestPrivateKeysAreSealed(t *testing.T) {
	pool, now := pgtest.New(t), newClock()
	k := openKeyring(t, pool, now.Now)
	if _, err := k.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	reload(t, k)
	rows := testkit.Must(selectKeys(t.Context(), pool))(t)
	for _, row := range rows {
		if bytes.Contains(row.sealedJWK, []byte(`"d"`)) || bytes.Contains(row.publicJWK, []byte(`"d"`)) {
			t.Errorf("the private key of %s lies open in its row", row.alg)
		}
	}
	stranger := replica(t, pool, now.Now)
	stranger.Secrets = newSafe(t, 2)
	if err := stranger.Open(t.Context()); err == nil {
		t.Error("the keys open under another master key")
	}
	// A row that was given the private half of another key does not open.
	if _, err := pool.Exec(t.Context(), `UPDATE signing_keys s SET sealed_private_jwk =
		(SELECT o.sealed_private_jwk FROM signing_keys o WHERE o.alg = s.alg AND o.kid <> s.kid)`); err != nil {
		t.Fatal(err)
	}
	if err := replica(t, pool, now.Now).Open(t.Context()); err == nil {
		t.Error("exchanged private keys open")
	}
	reload(t, k) // what is at hand serves on
}

func TestTheKeySetSaysAllThatAVerifierNeeds(t *testing.T) {
	k := openKeyring(t, pgtest.New(t), newClock().Now)
	encoded := testkit.Must(json.Marshal(k.JWKS()))(t)
	if strings.Contains(string(encoded), `"d"`) {
		t.Fatal("a private key is published")
	}
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(encoded, &set); err != nil {
		t.Fatal(err)
	}
	var algs []string
	for _, key := range set.Keys {
		algs = append(algs, key.Algorithm)
		thumbprint := testkit.Must(key.Thumbprint(crypto.SHA256))(t)
		if !key.IsPublic() || key.Use != "sig" || key.KeyID != base64.RawURLEncoding.EncodeToString(thumbprint) {
			t.Errorf("%s: public %v, use %q, kid %q", key.Algorithm, key.IsPublic(), key.Use, key.KeyID)
		}
	}
	if !slices.Equal(algs, []string{"ES256", "EdDSA"}) {
		t.Errorf("keys for %v", algs)
	}
}

func TestRunReloadsUntilItIsStopped(t *testing.T) {
	pool, now := pgtest.New(t), newClock()
	k, other := openKeyring(t, pool, now.Now), openKeyring(t, pool, now.Now)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- k.Run(ctx) }()
	if _, err := other.RotateNow(ctx); err != nil {
		t.Fatal(err)
	}
	reload(t, other)
	want := published(other)
	testkit.Eventually(t, "the new keys are known", func() bool { return slices.Equal(published(k), want) })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A database may be away for hours: the log says so now and then.
func TestADatabaseThatIsAwayDoesNotFillTheLog(t *testing.T) {
	gone := testkit.Must(pgxpool.New(t.Context(), "postgres://127.0.0.1:1/"))(t)
	gone.Close()
	synctest.Test(t, func(t *testing.T) {
		var told bytes.Buffer
		k := replica(t, gone, time.Now)
		k.Logger = slog.New(slog.NewTextHandler(&told, nil))
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if err := k.Run(ctx); err != nil {
			t.Error(err)
		}
		if n := strings.Count(told.String(), "\n"); n < 2 || n > 3 {
			t.Errorf("%d lines in a minute:\n%s", n, told.String())
		}
	})
}
