package esdbstore_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/esdbstore"
	"kindred/eventstore/esdbstore/esdbtest"
)

// hasty gives up soon, so that a test of silence is short.
func hasty() esdbstore.Options { return esdbstore.Options{Patience: 600 * time.Millisecond} }

func events(t testing.TB, n int) []eventstore.Proposed {
	t.Helper()
	ids, made := id.Random(rand.Reader), make([]eventstore.Proposed, n)
	for i := range made {
		e := eventstore.Proposed{
			ID: id.Next[id.Event](ids), Type: "user.created", Version: 1, Client: id.Next[id.Client](ids),
			RecordedAt: time.Date(2026, 3, 1, 0, 0, 0, 1000, time.UTC), Data: fmt.Appendf(nil, `{"n":%d}`, i),
		}
		var err error
		if e.Meta, err = json.Marshal(eventstore.Meta{Client: e.Client, Version: 1, RecordedAt: e.RecordedAt}); err != nil {
			t.Fatal(err)
		}
		made[i] = e
	}
	return made
}

func appended(t testing.TB, s *esdbstore.Store, stream eventstore.Stream, expected eventstore.Revision, e []eventstore.Proposed) eventstore.Appended {
	t.Helper()
	a, err := s.Append(t.Context(), stream, expected, e)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// wantLog compares the whole log with what should stand in it.
func wantLog(t testing.TB, s *esdbstore.Store, want ...eventstore.Proposed) []eventstore.Record {
	t.Helper()
	log, err := s.ReadAll(t.Context(), eventstore.Start, 100)
	if err != nil {
		t.Fatal(err)
	}
	var got []eventstore.Proposed
	for _, r := range log {
		got = append(got, r.Proposed)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("the log (-want +got):\n%s", diff)
	}
	return log
}

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(10 * time.Second); !holds(); {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("%s: it did not come to it", what)
		}
	}
}

func TestAnAppendInTroubleLandsOnceAsTheFirst(t *testing.T) {
	for name, troubles := range map[string][]esdbtest.Trouble{
		"its answer is lost":                      {esdbtest.Lost},
		"its answer is lost again and again":      {esdbtest.Lost, esdbtest.Lost, esdbtest.Lost},
		"the node is not ready":                   {esdbtest.Refused, esdbtest.Refused},
		"the node is silent":                      {esdbtest.Mute},
		"the node is silent, though it took it":   {esdbtest.Deaf},
		"the node is not ready, then loses it":    {esdbtest.Refused, esdbtest.Lost},
		"its answer is lost, then nobody answers": {esdbtest.Lost, esdbtest.Mute},
	} {
		t.Run(name, func(t *testing.T) {
			server := esdbtest.Start(t)
			s := open(t, server.URL(), esdbstore.Options{Patience: 3 * time.Second})
			for _, n := range []int{1, 3} {
				e, stream := events(t, n), eventstore.Stream(fmt.Sprint("user-", n))
				server.Play(troubles...)
				got := appended(t, s, stream, eventstore.NoStream, e)
				last, err := s.ReadBack(t.Context(), stream, eventstore.End, 1)
				if err != nil {
					t.Fatal(err)
				}
				want := eventstore.Appended{Position: last[0].Position, Revision: eventstore.Revision(n - 1)}
				if got != want {
					t.Errorf("got %+v, want %+v", got, want)
				}
			}
			log, err := s.ReadAll(t.Context(), eventstore.Start, 10)
			if err != nil || len(log) != 4 {
				t.Errorf("the log has %d events, want 4; %v", len(log), err)
			}
		})
	}
}

func TestAnAppendThatNobodyAnswersIsUnavailableAndCanBeRepeated(t *testing.T) {
	server := esdbtest.Start(t)
	s := open(t, server.URL(), hasty())
	e := events(t, 2)
	server.Play(esdbtest.Deaf, esdbtest.Mute, esdbtest.Mute, esdbtest.Mute)
	_, err := s.Append(t.Context(), "user-1", eventstore.NoStream, e)
	if !errors.Is(err, eventstore.ErrUnavailable) {
		t.Fatalf("got %v, want ErrUnavailable", err)
	}
	eventually(t, "repeating it", func() bool { // the last silent answers may still be due
		a, err := s.Append(t.Context(), "user-1", eventstore.NoStream, e)
		return err == nil && a.Already && a.Revision == 1
	})
	wantLog(t, s, e...)
}

func TestACallerThatGivesUpDoesNotWait(t *testing.T) {
	server := esdbtest.Start(t)
	s := open(t, server.URL(), esdbstore.Options{Patience: time.Hour})
	server.Play(esdbtest.Mute)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := s.Append(ctx, "user-1", eventstore.NoStream, events(t, 1))
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable for the context's deadline", err)
	}
}

func TestAServerThatReturnsIsServedAgain(t *testing.T) {
	server := esdbtest.Start(t)
	s := open(t, server.URL(), hasty())
	follower, err := s.Subscribe(t.Context(), eventstore.Start)
	if err != nil {
		t.Fatal(err)
	}
	first, second := events(t, 1), events(t, 1)
	appended(t, s, "user-1", eventstore.NoStream, first)

	server.Kill(0)
	for range 3 { // long after any search for nodes has ended
		if _, err := s.Append(t.Context(), "user-1", 0, second); !errors.Is(err, eventstore.ErrUnavailable) {
			t.Fatalf("append to a dead server: got %v, want ErrUnavailable", err)
		}
	}
	if _, err := s.Head(t.Context()); !errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("head of a dead server: got %v, want ErrUnavailable", err)
	}
	if _, err := esdbstore.Open(t.Context(), server.URL(), hasty()); !errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("open a dead server: got %v, want ErrUnavailable", err)
	}
	server.Return(t, 0)

	appended(t, s, "user-1", 0, second)
	wantLog(t, s, first[0], second[0])
	var seen []eventstore.Proposed
	for len(seen) < 2 {
		batch, err := follower.Next(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range batch.Records {
			seen = append(seen, r.Proposed)
		}
	}
	if diff := cmp.Diff([]eventstore.Proposed{first[0], second[0]}, seen); diff != "" {
		t.Errorf("the follower (-want +got):\n%s", diff)
	}
}

func TestTheLeaderIsFoundFromAnyNode(t *testing.T) {
	server := esdbtest.StartCluster(t, 3)
	s := open(t, "esdb://"+server.Address(1)+"?tls=false", esdbstore.Options{}) // does not lead
	e := events(t, 3)
	appended(t, s, "user-1", eventstore.NoStream, e[:1])
	server.Elect(2) // the old leader lives, and says so
	appended(t, s, "user-1", 0, e[1:2])
	server.Kill(2) // the old leader is dead, and the first address is asked
	server.Elect(0)
	appended(t, s, "user-1", 1, e[2:])
	wantLog(t, s, e...)
}

func TestADroppedSubscriptionTellsNothingTwiceAndLosesNothing(t *testing.T) {
	server := esdbtest.Start(t)
	s := open(t, server.URL(), esdbstore.Options{})
	follower, err := s.Subscribe(t.Context(), eventstore.Start)
	if err != nil {
		t.Fatal(err)
	}
	next := func() []eventstore.Record {
		t.Helper()
		for {
			batch, err := follower.Next(t.Context(), 10)
			if err != nil {
				t.Fatal(err)
			}
			if len(batch.Records) > 0 {
				return batch.Records
			}
		}
	}
	other := open(t, server.URL(), esdbstore.Options{}) // so that only the server can ring
	for i, e := range events(t, 5) {
		eventually(t, "subscribe", func() bool { return server.Followers() > 0 })
		server.DropSubscriptions()
		appended(t, other, "user-1", eventstore.Revision(i-1), []eventstore.Proposed{e})
		if got := next(); len(got) != 1 || got[0].ID != e.ID {
			t.Fatalf("after %d drops: %+v", i+1, got)
		}
	}
}

func TestEventsOfOthersAreNoneOfOurs(t *testing.T) {
	server := esdbtest.Start(t)
	var logged bytes.Buffer
	s := open(t, server.URL(), esdbstore.Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	e, secret := events(t, 2), []byte(`{"password":"hunter2"}`)
	appended(t, s, "user-1", eventstore.NoStream, e[:1])
	blanks := strings.Repeat(" ", 32)
	for i, odd := range []struct {
		system map[string]string
		custom string
	}{
		{nil, ""},                               // nothing at all
		{map[string]string{"type": "shop"}, ""}, // no creation time, no metadata
		{map[string]string{"type": "shop", "created": "soon"}, `{"version":1}` + blanks[1:]},
		{map[string]string{"type": "shop", "created": "1"}, `{"version":0}` + blanks},
		{map[string]string{"type": "shop", "created": "1"}, `{"version":` + blanks},
		{map[string]string{"type": "shop", "created": "1"}, blanks},
	} {
		server.Write("shop-1", uint64(i), odd.system, secret, []byte(odd.custom))
	}
	server.Write("$shop", 7, map[string]string{"type": "shop"}, secret, e[0].Meta)
	appended(t, s, "user-1", 0, e[1:])
	server.Write("shop-1", 8, nil, secret, nil)

	log := wantLog(t, s, e...)
	for _, limit := range []int{1, 2} {
		page, err := s.ReadAll(t.Context(), log[0].Position, limit)
		if err != nil || len(page) != 1 || page[0].ID != e[1].ID {
			t.Errorf("pages of %d: got %+v, %v", limit, page, err)
		}
	}
	if head, err := s.Head(t.Context()); err != nil || head != log[1].Position {
		t.Errorf("head is %q, %v, want %q", head, err, log[1].Position)
	}
	if _, err := s.ReadStream(t.Context(), "shop-1", 0, 10); err == nil {
		t.Error("a stream of others was read as one of ours")
	}
	if text := logged.String(); !strings.Contains(text, "shop-1") || strings.Contains(text, "hunter2") {
		t.Errorf("logged: %s", text)
	}
}

func TestAnEventWithoutACreationTimeIsRead(t *testing.T) {
	server := esdbtest.Start(t)
	s := open(t, server.URL(), esdbstore.Options{})
	meta := `{"version":1,"recorded_at":"2026-03-01T00:00:00Z","actor":"policy:x"}`
	server.Write("user-1", 1, map[string]string{"type": "user.created"}, []byte(`{}`), []byte(meta+strings.Repeat("\n", 32)))
	got, err := s.ReadStream(t.Context(), "user-1", 0, 10)
	if err != nil || len(got) != 1 || string(got[0].Meta) != meta {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestAServerThatTellsNoPositionsIsRefused(t *testing.T) {
	server := esdbtest.Start(t)
	s := open(t, server.URL(), hasty())
	server.HidePositions()
	_, err := s.Append(t.Context(), "user-1", eventstore.NoStream, events(t, 2))
	if err == nil || errors.Is(err, eventstore.ErrUnavailable) || !strings.Contains(err.Error(), "KurrentDB") {
		t.Errorf("got %v, want a sentence about the version", err)
	}
}

func TestWhatCouldNotBeReadBackIsNotAppended(t *testing.T) {
	server := esdbtest.Start(t)
	s := open(t, server.URL(), hasty())
	for name, spoil := range map[string]func(*eventstore.Proposed){
		"another version":   func(e *eventstore.Proposed) { e.Version++ },
		"another client":    func(e *eventstore.Proposed) { e.Client = "" },
		"another time":      func(e *eventstore.Proposed) { e.RecordedAt = e.RecordedAt.Add(time.Microsecond) },
		"no metadata":       func(e *eventstore.Proposed) { e.Meta = nil },
		"a system's type":   func(e *eventstore.Proposed) { e.Type = "$user" },
		"no identification": func(e *eventstore.Proposed) { e.ID = "evt_" },
	} {
		e := events(t, 1)
		spoil(&e[0])
		if _, err := s.Append(t.Context(), "user-1", eventstore.NoStream, e); err == nil {
			t.Errorf("%s was appended", name)
		}
	}
	for _, stream := range []eventstore.Stream{"", "$user", "log-epoch"} {
		if _, err := s.Append(t.Context(), stream, eventstore.NoStream, events(t, 1)); err == nil {
			t.Errorf("an append to %q was taken", stream)
		}
	}
	wantLog(t, s)
}

func TestStoresThatOpenTogetherAgreeOnTheEpoch(t *testing.T) {
	server := esdbtest.Start(t)
	epochs := make([]string, 8)
	var group sync.WaitGroup
	for i := range epochs {
		group.Go(func() {
			s, err := esdbstore.Open(t.Context(), server.URL(), esdbstore.Options{})
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close() //nolint:errcheck // Close is tested elsewhere
			if epochs[i], err = s.Epoch(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	for _, e := range epochs {
		if e == "" || e != epochs[0] {
			t.Fatalf("epochs differ: %q", epochs)
		}
	}
}

func TestCloseEndsWhoeverWaits(t *testing.T) {
	server := esdbtest.Start(t)
	s, err := esdbstore.Open(t.Context(), server.URL(), esdbstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	follower, err := s.Subscribe(t.Context(), eventstore.Start)
	if err != nil {
		t.Fatal(err)
	}
	if batch, err := follower.Next(t.Context(), 1); err != nil || !batch.CaughtUp {
		t.Fatalf("next: %+v, %v", batch, err)
	}
	server.Play(esdbtest.Mute)
	ended := make(chan error, 2)
	go func() { _, err := follower.Next(t.Context(), 1); ended <- err }()
	go func() { _, err := s.Append(t.Context(), "user-1", eventstore.NoStream, events(t, 1)); ended <- err }()
	for range 2 {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := <-ended; err == nil || errors.Is(err, eventstore.ErrUnavailable) {
			t.Errorf("got %v, want that the store was closed", err)
		}
	}
	eventually(t, "leave", func() bool { return server.Followers() == 0 })
}

func TestCredentialsGoOverTLSAndNowhereElse(t *testing.T) {
	const password = "p/4:?%@#ss"
	server := esdbtest.StartSecure(t, "kindred", password)
	e := events(t, 1)
	s := open(t, server.URL(), hasty())
	appended(t, s, "user-1", eventstore.NoStream, e)
	wantLog(t, s, e...)

	stranger := strings.Replace(server.URL(), "kindred:", "stranger:", 1)
	_, err := esdbstore.Open(t.Context(), stranger, hasty())
	if err == nil || errors.Is(err, eventstore.ErrUnavailable) || strings.Contains(err.Error(), password) {
		t.Errorf("a stranger: got %v, want a refusal", err)
	}
	untrusting, _, _ := strings.Cut(server.URL(), "?")
	if _, err := esdbstore.Open(t.Context(), untrusting, hasty()); !errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("an unknown authority: got %v, want ErrUnavailable", err)
	}
}
