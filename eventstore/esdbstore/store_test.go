package esdbstore_test

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/esdbstore"
	"kindred/eventstore/esdbstore/esdbtest"
	"kindred/eventstore/eventstoretest"
	"kindred/testkit"
)

// realURL names a server that the suite shares with others; [esdbtest.EnvServer]
// says how to start one for each test.
const realURL = "KINDRED_TEST_ESDB_URL"

func options(patience time.Duration) esdbstore.Options {
	return esdbstore.Options{Entropy: rand.Reader, Patience: patience}
}

func open(t testing.TB, url string, o esdbstore.Options) *esdbstore.Store {
	t.Helper()
	s := testkit.Must(esdbstore.Open(t.Context(), url, o))(t)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// hasty gives up soon, so that a test of silence is short.
func hasty() esdbstore.Options { return options(600 * time.Millisecond) }

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
	return testkit.Must(s.Append(t.Context(), stream, expected, e))(t)
}

// wantLog compares the whole log with what should stand in it.
func wantLog(t testing.TB, s *esdbstore.Store, want ...eventstore.Proposed) []eventstore.Record {
	t.Helper()
	log := testkit.Must(s.ReadAll(t.Context(), eventstore.Start, 100))(t)
	var got []eventstore.Proposed
	for _, r := range log {
		got = append(got, r.Proposed)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("the log (-want +got):\n%s", diff)
	}
	return log
}

func another(url string) func(testing.TB) eventstore.Store {
	return func(t testing.TB) eventstore.Store {
		t.Helper()
		return open(t, url, options(0))
	}
}

// It runs against the real server that is named, or else against a played one.
func TestConformanceOfOneNode(t *testing.T) {
	eventstoretest.Run(t, func(t testing.TB) eventstoretest.Harness {
		t.Helper()
		if url := os.Getenv(realURL); url != "" {
			return eventstoretest.Harness{Store: open(t, url, options(0)), Another: another(url), Shared: true}
		}
		server := esdbtest.StartNode(t)
		return eventstoretest.Harness{
			Store:   open(t, server.URL(), options(0)),
			Another: another(server.URL()),
			Cut:     func(testing.TB) { server.Cut() },
			Restart: server.Restart,
		}
	})
}

// Here the leader changes whenever a connection is cut or a node dies.
func TestConformanceOfACluster(t *testing.T) {
	eventstoretest.Run(t, func(t testing.TB) eventstoretest.Harness {
		t.Helper()
		server := esdbtest.StartCluster(t, 3)
		return eventstoretest.Harness{
			Store:   open(t, server.URL(), options(0)),
			Another: another(server.URL()),
			Cut:     func(testing.TB) { server.Elect((server.Leader() + 1) % 3); server.Cut() },
			Restart: func(t testing.TB) {
				t.Helper()
				dead := server.Leader()
				server.Kill(dead)
				server.Elect((dead + 1) % 3)
				t.Cleanup(func() { server.Return(t, dead) })
			},
		}
	})
}

// Here the next append knows of one that can be read only 10 ms later, and a
// repetition before that is not answered within an attempt.
func TestConformanceOfALateServer(t *testing.T) {
	eventstoretest.Run(t, func(t testing.TB) eventstoretest.Harness {
		t.Helper()
		server := esdbtest.Start(t)
		server.Late(10*time.Millisecond, time.Minute)
		return eventstoretest.Harness{
			Store:   open(t, server.URL(), options(0)),
			Another: another(server.URL()),
			Cut:     func(testing.TB) { server.Cut() },
			Restart: server.Restart,
		}
	})
}

func TestStoresThatOpenTogetherAgreeOnTheEpoch(t *testing.T) {
	server := esdbtest.Start(t)
	epochs := make([]string, 8)
	var group sync.WaitGroup
	for i := range epochs {
		group.Go(func() {
			s, err := esdbstore.Open(t.Context(), server.URL(), options(0))
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
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
