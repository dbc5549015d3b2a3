package projector_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/testkit"
)

func subscribe(t *testing.T, s *projector.Subscriber) <-chan *message.Message {
	t.Helper()
	messages, err := s.Subscribe(t.Context(), "match")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return messages
}

func next(t *testing.T, messages <-chan *message.Message) *message.Message {
	t.Helper()
	select {
	case m, open := <-messages:
		if !open {
			t.Fatal("the channel is closed")
		}
		return m
	case <-time.After(20 * time.Second):
		t.Fatal("no message came")
		return nil
	}
}

func nameOf(t *testing.T, m *message.Message) (name string) {
	t.Helper()
	if err := projector.Handle(func(_ context.Context, r eventstore.Recorded) error {
		name = r.Event.(event.ClientRenamed).Name
		return nil
	})(m); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestTheNextMessageWaitsForTheAnswerToTheLast(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	want := numbered("acme", 250)
	w.rename(t, acme, want...)
	messages := subscribe(t, &projector.Subscriber{Runner: w.runner("a")})
	for i, name := range want {
		m := next(t, messages)
		if got := nameOf(t, m); got != name {
			t.Fatalf("message %d is %q", i, got)
		}
		if i%100 == 7 {
			select {
			case <-messages:
				t.Fatal("the next came before the answer")
			case <-time.After(30 * time.Millisecond): // nothing must happen
			}
		}
		if n := w.one(t, `SELECT coalesce(max(events), 0) FROM checkpoints`); n > i {
			t.Fatalf("the checkpoint stands at %d before message %d is acknowledged", n, i)
		}
		m.Ack()
	}
	testkit.Eventually(t, "the checkpoint is saved", func() bool {
		return w.one(t, `SELECT events FROM checkpoints WHERE name = 'policy_match'`) == len(want)
	})
}

func TestWhatWasHandledButNotAcknowledgedComesAgain(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.rename(t, acme, "one", "two", "three")
	first := &projector.Subscriber{Runner: w.runner("a")}
	messages := subscribe(t, first)
	next(t, messages).Ack()
	crashed := next(t, messages)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = first.Close() // it never fails
	}()
	<-crashed.Context().Done() // the handler is told
	<-closed
	again := subscribe(t, &projector.Subscriber{Runner: w.runner("b")})
	for _, want := range []string{"two", "three"} {
		m := next(t, again)
		if got := nameOf(t, m); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
		m.Ack()
	}
}

// TestAPolicyGoesBackToWhereItsCheckpointIs has a failover lose the last commits.
func TestAPolicyGoesBackToWhereItsCheckpointIs(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	kept, err := w.log.Store.At(t.Context(), w.rename(t, acme, "kept"))
	if err != nil {
		t.Fatal(err)
	}
	last := w.rename(t, acme, "lost")
	messages := subscribe(t, &projector.Subscriber{Runner: w.runner("a")})
	next(t, messages).Ack()
	for range 2 {
		m := next(t, messages)
		if got := nameOf(t, m); got != "lost" {
			t.Fatalf("got %q", got)
		}
		m.Ack()
		w.passed(t, "policy_match", last)
		if _, err := w.pool.Exec(t.Context(), `UPDATE checkpoints SET position = $1, event_id = $2, events = 1`, kept.Position, kept.ID); err != nil {
			t.Fatal(err)
		}
	}
	next(t, messages).Ack() // though nothing more is appended
}

func TestWhatKeepsFailingStopsLoudlyAndSkipsNothing(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.rename(t, acme, "bad", "after")
	var logged syncBuffer
	runner := w.runner("a")
	runner.Logger = slog.New(slog.NewJSONHandler(&logged, nil))
	messages := subscribe(t, &projector.Subscriber{Runner: runner, Attempts: 3})
	stops := func() int { return strings.Count(logged.String(), "stopped at an event that cannot be handled") }
	tries := 0
	for ; stops() < 2; tries++ { // the lease may be lost between two tries: they are counted anew then
		m := next(t, messages)
		if got := nameOf(t, m); got != "bad" || tries > 50 {
			t.Fatalf("got %q after %d tries and %d stops", got, tries, stops())
		}
		m.Nack()
	}
	if tries < 3+3 {
		t.Errorf("stopped twice after %d tries", tries)
	}
	if n := w.one(t, `SELECT events FROM checkpoints`); n != 0 {
		t.Errorf("the checkpoint moved to %d", n)
	}
	m := next(t, messages)
	m.Ack() // repaired at last
	m = next(t, messages)
	if got := nameOf(t, m); got != "after" {
		t.Errorf("got %q", got)
	}
	m.Ack()
}

// A policy that fails or panics says why at each try, and where it stops.
func TestWhyAPolicyFailsIsToldBesideItsEvent(t *testing.T) {
	t.Parallel()
	for why, handle := range map[string]func(context.Context, eventstore.Recorded) error{
		"the keys are away":     func(context.Context, eventstore.Recorded) error { return errors.New("the keys are away") },
		"panic: no such member": func(context.Context, eventstore.Recorded) error { panic("no such member") },
	} {
		t.Run(why, func(t *testing.T) {
			w := newFixture(t)
			w.rename(t, acme, "bad")
			var logged syncBuffer
			runner := w.runner("a")
			runner.Logger = slog.New(slog.NewJSONHandler(&logged, nil))
			router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 5 * time.Second}, watermill.NewSlogLogger(runner.Logger))
			if err != nil {
				t.Fatal(err)
			}
			router.AddConsumerHandler("match", "match", &projector.Subscriber{Runner: runner, Attempts: 2}, projector.Handle(handle))
			background(t, func(ctx context.Context) error { return router.Run(ctx) })
			testkit.Eventually(t, "it stops", func() bool { return strings.Contains(logged.String(), "leadership given up") })
			for line := range strings.Lines(logged.String()) {
				tells := strings.Contains(line, why)
				if of := strings.Contains(line, "event not handled") || strings.Contains(line, "leadership given up"); tells != of {
					t.Errorf("this line is to tell why: %t, and does: %t: %s", of, tells, line)
				}
			}
		})
	}
}

func TestAnUnreadableEventIsNotSkippedByAPolicy(t *testing.T) {
	t.Parallel()
	for eventType, data := range map[string]string{"client.renamed": `{"name": 7`, panicType: panicData} {
		t.Run(eventType, func(t *testing.T) {
			w := newFixture(t)
			before := w.rename(t, acme, "one")
			w.append(t, acme, eventType, 1, []byte(data))
			w.rename(t, bolt, "after")
			var logged syncBuffer
			runner := w.runner("a")
			runner.Logger = slog.New(slog.NewJSONHandler(&logged, nil))
			messages := subscribe(t, &projector.Subscriber{Runner: runner})
			next(t, messages).Ack()
			w.passed(t, "policy_match", before)
			testkit.Eventually(t, "it is told", func() bool { return strings.Contains(logged.String(), "decode "+eventType) })
			select {
			case m := <-messages:
				t.Errorf("got %q", nameOf(t, m))
			default:
			}
		})
	}
}

func TestOnlyWhatAPolicyWantsIsSent(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.rename(t, acme, "one", "two")
	w.rename(t, bolt, "three")
	last := w.rename(t, acme, "four")
	messages := subscribe(t, &projector.Subscriber{Runner: w.runner("a"), Wants: func(r eventstore.Record) bool { return r.Client == bolt }})
	m := next(t, messages)
	if got := nameOf(t, m); got != "three" {
		t.Errorf("got %q", got)
	}
	m.Ack()
	w.passed(t, "policy_match", last)
}

func TestWhatAPolicyPassesOverIsSavedTogether(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	last := w.rename(t, acme, numbered("acme", 250)...)
	if _, err := w.pool.Exec(t.Context(), `
		CREATE TABLE saves ();
		CREATE FUNCTION saved() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO saves DEFAULT VALUES; RETURN NULL; END';
		CREATE TRIGGER saved AFTER UPDATE ON checkpoints FOR EACH ROW EXECUTE FUNCTION saved()`); err != nil {
		t.Fatal(err)
	}
	subscribe(t, &projector.Subscriber{Runner: w.runner("a"), Wants: func(eventstore.Record) bool { return false }})
	w.passed(t, "policy_match", last)
	if n := w.one(t, `SELECT count(*) FROM saves`); n != 1 {
		t.Errorf("250 events that it does not want were saved in %d steps", n)
	}
}

func TestARouterOfTwoProcessesHandlesEachEventOnce(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	var mu sync.Mutex
	var handled []eventstore.Position
	for _, name := range []string{"a", "b"} {
		router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 5 * time.Second}, watermill.NopLogger{})
		if err != nil {
			t.Fatal(err)
		}
		router.AddConsumerHandler("match", "match", &projector.Subscriber{Runner: w.runner(name)},
			projector.Handle(func(_ context.Context, r eventstore.Recorded) error {
				mu.Lock()
				defer mu.Unlock()
				handled = append(handled, r.Position)
				return nil
			}))
		background(t, func(ctx context.Context) error { return router.Run(ctx) })
	}
	for c := range 3 {
		w.rename(t, id.Client("cli_"+string(rune('a'+c))), numbered("x", 50)...)
	}
	w.passed(t, "policy_match", w.rename(t, acme, "last"))
	mu.Lock()
	defer mu.Unlock()
	if len(handled) != 151 || !slices.IsSorted(handled) {
		t.Errorf("%d events were handled, in order %t", len(handled), slices.IsSorted(handled))
	}
}
