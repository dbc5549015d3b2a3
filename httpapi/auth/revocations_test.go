package auth

import (
	"bytes"
	stdcmp "cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/httpapi"
)

func TestARevokedKeyEndsItsTokensAlone(t *testing.T) {
	w := newFixture(t)
	exchanged, login := w.exchanged(t), w.login(t)
	if w.refusal(t, exchanged) != "" || w.refusal(t, login) != "" {
		t.Fatal("a fresh token is refused")
	}
	w.source.all = append(w.source.all, noted{string(w.record.Key), w.Now()})
	w.poll(t)
	if code := w.refusal(t, exchanged); code != "invalid_token" {
		t.Errorf("%q for a token of the key; want invalid_token", code)
	}
	if code := w.refusal(t, login); code != "" {
		t.Errorf("the login of its maker is refused with %s", code)
	}
}

func TestARemovedMemberLosesLoginsButNotKeys(t *testing.T) {
	w := newFixture(t)
	exchanged, login := w.exchanged(t), w.login(t)
	w.source.all = append(w.source.all, noted{string(w.account.Member), w.Now()})
	w.poll(t)
	if code := w.refusal(t, login); code != "invalid_token" {
		t.Errorf("%q for the login; want invalid_token", code)
	}
	if code := w.refusal(t, exchanged); code != "" {
		t.Errorf("a token of a key that the member made is refused with %s", code)
	}
}

func TestWhatCannotBeKnownIsNotA401(t *testing.T) {
	w := newFixture(t)
	token := w.exchanged(t)
	w.Advance(time.Second)
	if code := w.refusal(t, token); code != "" {
		t.Errorf("refused with %s while revocations are a second old", code)
	}
	w.Advance(1)
	w.source.err = errors.New("away")
	_, err := w.verifier.Authenticate(t.Context(), token)
	if f := fault.As(err); f == nil || f.Kind != fault.Unavailable || f.RetryAfter <= 0 {
		t.Errorf("got %v; want a fault of kind Unavailable that says when to try again", err)
	}
	if w.revocations.Current(t.Context()) == nil {
		t.Error("revocations pass for current")
	}
	w.source.err, w.source.lag = nil, 2*time.Second // answers, but is behind
	w.poll(t)
	if code := w.refusal(t, token); code != "unverifiable" {
		t.Errorf("%q while the source is behind; want unverifiable", code)
	}
	w.source.lag = 0
	w.poll(t)
	if code := w.refusal(t, token); code != "" || w.revocations.Current(t.Context()) != nil {
		t.Errorf("refused with %q after the source came back", code)
	}
}

func TestBeforeTheFirstPollNothingIsKnown(t *testing.T) {
	w := newFixture(t)
	w.verifier.revocations = &Revocations{Source: w.source, TokenTTL: ttl, Now: w.Now}
	w.source.err = errors.New("away")
	if code := w.refusal(t, w.login(t)); code != "unverifiable" {
		t.Errorf("%q; want unverifiable", code)
	}
}

func TestWhoAsksAfterAStallWaitsForOnePoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &moody{}
		r := &Revocations{Source: source, TokenTTL: ttl, Now: time.Now}
		ask := func(callers int) (first error) {
			errs := make(chan error)
			for range callers {
				go func() {
					_, err := r.ended(t.Context(), httpapi.Principal{Key: "key"})
					errs <- err
				}()
			}
			for range callers {
				first = stdcmp.Or(first, <-errs)
			}
			return first
		}
		stall := func() { time.Sleep(revokedBites + 1) }

		if err := ask(8); err != nil || source.polls.Load() != 1 {
			t.Errorf("at the start: %d polls, %v", source.polls.Load(), err)
		}
		stall()
		if err := ask(8); err != nil || source.polls.Load() != 2 {
			t.Errorf("after a stall: %d polls, %v", source.polls.Load()-1, err)
		}
		stall()
		source.hangs.Store(true)
		for _, want := range []time.Duration{pollTimeout, 0} { // the next ones know that nobody answers
			began := time.Now()
			if err := ask(1); err == nil || time.Since(began) != want || source.polls.Load() != 3 {
				t.Errorf("without an answer: %d polls, %v after %s; want %s", source.polls.Load()-2, err, time.Since(began), want)
			}
		}
		source.hangs.Store(false)
		if err := r.poll(t.Context()); err != nil || ask(8) != nil {
			t.Errorf("after it came back: %v", err)
		}
		stall()
		if err := r.Current(t.Context()); err != nil {
			t.Errorf("not ready after a stall: %v", err)
		}
	})
}

func TestWhatWasRevokedDuringAStallIsKnownAfterIt(t *testing.T) {
	w := newFixture(t)
	token := w.exchanged(t)
	w.Advance(revokedBites + 1)
	w.source.all = append(w.source.all, noted{string(w.record.Key), w.Now()})
	if code := w.refusal(t, token); code != "invalid_token" {
		t.Errorf("%q; want invalid_token", code)
	}
}

func TestEachPollReachesBackFarEnough(t *testing.T) {
	w := newFixture(t)
	start := w.Now()
	w.Advance(time.Second)
	w.poll(t)
	w.source.err = errors.New("away")
	w.Advance(time.Hour)
	if err := w.revocations.poll(t.Context()); err == nil {
		t.Error("a failed poll passes for a good one")
	}
	back := ttl + 2*Skew // all that can matter
	want := []time.Time{
		start.Add(-back),   // at the start
		start.Add(-Skew),   // then what is new, by clocks that may be behind
		w.Now().Add(-back), // after a long absence
	}
	if diff := cmp.Diff(want, w.source.afters); diff != "" {
		t.Error(diff)
	}
}

func TestAClockThatRunsAheadHidesNoRevocation(t *testing.T) {
	w := newFixture(t)
	w.source.behind = time.Hour
	exchanged := w.exchanged(t)
	w.poll(t)
	w.source.all = append(w.source.all, noted{string(w.record.Key), w.Now().Add(-w.source.behind)})
	for range 2 {
		w.Advance(61 * time.Second)
		w.poll(t)
		if code := w.refusal(t, exchanged); code != "invalid_token" {
			t.Errorf("%q; want invalid_token", code)
		}
	}
}

func TestARevocationIsForgottenWithTheLastToken(t *testing.T) {
	w := newFixture(t)
	revoked := httpapi.Principal{Key: w.record.Key}
	w.source.all = []noted{{string(w.record.Key), w.Now()}}
	w.poll(t)
	w.source.all = nil
	w.Advance(ttl + 2*Skew)
	w.poll(t)
	if ended, err := w.revocations.ended(t.Context(), revoked); !ended || err != nil {
		t.Errorf("ended: %v, %v while a token may live", ended, err)
	}
	w.Advance(time.Minute)
	w.poll(t)
	if n := len(w.revocations.revoked); n != 0 {
		t.Errorf("%d revocations are kept", n)
	}
}

func TestWhileMoreIsRevokedThanFitsEachTokenIsLookedUp(t *testing.T) {
	w := newFixture(t)
	token, login := w.exchanged(t), w.login(t)
	ids := id.Derived("many")
	for range maxRevocations + 1 {
		w.source.all = append(w.source.all, noted{string(id.Next[id.Key](ids)), w.Now()})
	}
	w.source.unnoted = map[id.Client][]string{w.record.Client: {string(w.record.Key)}}
	w.Advance(revokedBites + 1)
	w.poll(t)
	if err := w.revocations.Current(t.Context()); err != nil {
		t.Errorf("not ready: %v", err)
	}
	if code := w.refusal(t, token); code != "invalid_token" {
		t.Errorf("%q for a token of a revoked key; want invalid_token", code)
	}
	if code := w.refusal(t, login); code != "" {
		t.Errorf("another token is refused with %s", code)
	}
	for range 2 { // until what was noted is told no more
		w.Advance(Skew + time.Second)
		w.poll(t)
	}
	if code := w.refusal(t, token); code != "invalid_token" {
		t.Errorf("%q for it minutes later; want invalid_token", code)
	}
	w.source.all = nil
	w.Advance(ttl + 2*Skew + time.Minute)
	w.poll(t)
	before := w.source.lookups
	w.refusal(t, w.login(t))
	if w.source.lookups != before || len(w.revocations.revoked) != 0 {
		t.Errorf("%d lookups and %d revocations after all is over", w.source.lookups-before, len(w.revocations.revoked))
	}
}

func TestAClientThatRevokesWithoutEndIsLookedUpAlone(t *testing.T) {
	w := newFixture(t)
	revoked, login := w.exchanged(t), w.login(t)
	w.source.all = []noted{{string(w.account.Client), w.Now()}}
	w.source.unnoted = map[id.Client][]string{w.record.Client: {string(w.record.Key)}}
	w.poll(t)
	if code := w.refusal(t, revoked); code != "invalid_token" {
		t.Errorf("%q for a token of a revoked key; want invalid_token", code)
	}
	if code := w.refusal(t, login); code != "" || w.source.lookups != 2 {
		t.Errorf("another token of the client: %q after %d lookups", code, w.source.lookups)
	}
	w.source.unsure = errors.New("away")
	if code := w.refusal(t, login); code != "unverifiable" {
		t.Errorf("%q where that cannot be known; want unverifiable", code)
	}
	before := w.source.lookups
	w.account.Client, w.account.Member = id.Next[id.Client](id.Derived("other")), id.Next[id.Member](id.Derived("other"))
	w.account.Home = w.account.Client
	if code := w.refusal(t, w.login(t)); code != "" || w.source.lookups != before {
		t.Errorf("another client's token: %q after %d lookups", code, w.source.lookups-before)
	}
}

func TestATokenOfASandboxEndsWithTheMemberBesideItAndWithTheSandbox(t *testing.T) {
	sandbox := id.NextSandbox(id.Derived("sandbox"), id.Next[id.Client](id.Derived("client")))
	for name, revoke := range map[string]func(w *fixture){
		"the member was removed": func(w *fixture) {
			w.source.all = []noted{{string(w.account.Member), w.Now()}}
		},
		"the member was removed, and the client has revoked without end": func(w *fixture) {
			w.source.all = []noted{{string(w.account.Home), w.Now()}}
			w.source.unnoted = map[id.Client][]string{w.account.Home: {string(w.account.Member)}}
		},
		"the sandbox was deleted": func(w *fixture) {
			w.source.all = []noted{{id.Everyone(sandbox), w.Now()}}
		},
		"the sandbox was deleted, and has revoked without end": func(w *fixture) {
			w.source.all = []noted{{string(sandbox), w.Now()}}
			w.source.unnoted = map[id.Client][]string{sandbox: {id.Everyone(sandbox)}}
		},
	} {
		w := newFixture(t)
		w.account.Client, w.record.Client = sandbox, sandbox
		login, exchanged := w.login(t), w.exchanged(t)
		if w.refusal(t, login) != "" || w.refusal(t, exchanged) != "" {
			t.Fatalf("%s: refused before", name)
		}
		revoke(w)
		w.poll(t)
		if code := w.refusal(t, login); code != "invalid_token" {
			t.Errorf("%s: %q for a login", name, code)
		}
		if code := w.refusal(t, exchanged); (code == "invalid_token") != strings.HasPrefix(name, "the sandbox was deleted") {
			t.Errorf("%s: %q for the token of a key", name, code)
		}
	}
}

// asleep sets the monotonic clock of a reading back, as a machine does that was
// suspended for as long.
func asleep(reading time.Time, d time.Duration) time.Time {
	(*struct {
		wall uint64
		ext  int64 // the monotonic reading
		loc  *time.Location
	})(unsafe.Pointer(&reading)).ext -= int64(d)
	return reading
}

func TestAMachineThatWasSuspendedAsksBeforeItVouches(t *testing.T) {
	w := newFixture(t)
	began := time.Now()
	now := began
	w.revocations.Now, w.source.now = func() time.Time { return now }, func() time.Time { return now }
	w.poll(t)
	now = asleep(began.Add(time.Hour), time.Hour) // on the wall; the monotonic clock stood still
	if now.Sub(began) != 0 || now.Round(0).Sub(began.Round(0)) != time.Hour {
		t.Fatalf("%s passed, %s on the wall", now.Sub(began), now.Round(0).Sub(began.Round(0)))
	}
	w.source.err = errors.New("away")
	if w.revocations.Current(t.Context()) == nil {
		t.Error("revocations of an hour ago pass for current")
	}
	w.source.err = nil
	w.poll(t)
	if last := w.source.afters[len(w.source.afters)-1]; now.Round(0).Sub(last.Round(0)) < w.revocations.memory() {
		t.Errorf("it looked back to %s; want all that matters", last)
	}
}

// moody counts polls and can be made to hang or to fail.
type moody struct {
	polls atomic.Int64
	fails atomic.Bool
	hangs atomic.Bool
}

func (m *moody) Revoked(context.Context, id.Client, ...string) (bool, error) { return false, nil }

func (m *moody) Since(ctx context.Context, _ time.Duration, _ int) ([]string, time.Time, error) {
	m.polls.Add(1)
	now := time.Now()
	switch {
	case m.hangs.Load():
		<-ctx.Done()
		return nil, now, ctx.Err()
	case m.fails.Load():
		return nil, now, errors.New("away")
	}
	return nil, now, nil
}

func TestRunPollsOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		source := &moody{}
		r := &Revocations{Source: source, TokenTTL: ttl, Now: time.Now, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()

		synctest.Wait()
		if n := source.polls.Load(); n != 1 || r.Current(t.Context()) != nil {
			t.Errorf("%d polls at the start; want 1, and to be current", n)
		}
		time.Sleep(pollEvery)
		synctest.Wait()
		if n := source.polls.Load(); n != 2 {
			t.Errorf("%d polls after %s; want 2", n, pollEvery)
		}

		source.fails.Store(true)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if n := strings.Count(log.String(), "revocations unknown"); n != 1 {
			t.Errorf("the failure was logged %d times", n)
		}
		if r.Current(t.Context()) == nil {
			t.Error("revocations pass for current")
		}
		source.fails.Store(false)
		source.hangs.Store(true)
		time.Sleep(5 * time.Second) // a source that hangs is asked again
		source.hangs.Store(false)
		time.Sleep(pollTimeout + pollEvery)
		synctest.Wait()
		if r.Current(t.Context()) != nil {
			t.Error("revocations are not current again")
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
