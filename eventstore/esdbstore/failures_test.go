package esdbstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kindred/eventstore"
	"kindred/eventstore/esdbstore"
	"kindred/eventstore/esdbstore/esdbtest"
	"kindred/testkit"
)

func TestAnAppendInTroubleLandsOnceAsTheFirst(t *testing.T) {
	t.Parallel()
	for name, troubles := range map[string][]esdbtest.Trouble{
		"its answer is lost":                      {esdbtest.Lost},
		"its answer is lost again and again":      {esdbtest.Lost, esdbtest.Lost, esdbtest.Lost},
		"the node is not ready":                   {esdbtest.Refused, esdbtest.Refused},
		"the node is silent":                      {esdbtest.Mute},
		"the node is silent, though it took it":   {esdbtest.Deaf},
		"the node is not ready, then loses it":    {esdbtest.Refused, esdbtest.Lost},
		"its answer is lost, then nobody answers": {esdbtest.Lost, esdbtest.Mute},
		"it cannot be read yet":                   {esdbtest.Unseen},
		"its answer is lost before it is read":    {esdbtest.Dropped},
		"there are too many calls":                {esdbtest.Exhausted, esdbtest.Exhausted},
		"it waits for too many calls, is lost":    {esdbtest.Exhausted, esdbtest.Dropped},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := esdbtest.Start(t)
			s := open(t, server.URL(), options(6*time.Second)) // a third of it is lost by silence
			for _, n := range []int{1, 3} {
				e, stream := events(t, n), eventstore.Stream(fmt.Sprint("user-", n))
				server.Play(troubles...)
				got := appended(t, s, stream, eventstore.NoStream, e)
				last := testkit.Must(s.ReadBack(t.Context(), stream, eventstore.End, 1))(t)
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

func TestAConflictIsToldOnceItCanBeRead(t *testing.T) {
	server := esdbtest.Start(t)
	s, other := open(t, server.URL(), options(0)), open(t, server.URL(), options(0))
	first, ended := events(t, 2), make(chan error, 1)
	server.Play(esdbtest.Unseen)
	go func() {
		_, err := other.Append(t.Context(), "user-1", eventstore.NoStream, first)
		ended <- err
	}()
	testkit.Eventually(t, "it is taken", func() bool { return server.Unseen() > 0 })
	_, err := s.Append(t.Context(), "user-1", eventstore.NoStream, events(t, 3))
	if conflict, is := errors.AsType[*eventstore.ConflictError](err); !is || conflict.Actual != 1 {
		t.Errorf("got %v, want a conflict with revision 1", err)
	}
	if found, err := s.ReadStream(t.Context(), "user-1", 0, 10); err != nil || len(found) != 2 {
		t.Errorf("%d events can be read (%v), want those that it conflicts with", len(found), err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	second := events(t, 2)
	server.Play(esdbtest.Unseen)
	go func() {
		_, err := other.Append(t.Context(), "user-1", 1, second)
		ended <- err
	}()
	testkit.Eventually(t, "it is taken", func() bool { return server.Unseen() > 0 })
	_, err = s.Append(t.Context(), "user-1", 0, events(t, 1)) // what stands right there can be read
	if conflict, is := errors.AsType[*eventstore.ConflictError](err); !is || conflict.Actual != 3 {
		t.Errorf("got %v, want a conflict with revision 3", err)
	}
	if found, err := s.ReadStream(t.Context(), "user-1", 3, 10); err != nil || len(found) != 1 {
		t.Errorf("%d events can be read (%v), want the last that it conflicts with", len(found), err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	wantLog(t, s, append(first, second...)...)
}

func TestAnAppendIsLookedForBeforeItIsSentAgain(t *testing.T) {
	server := esdbtest.Start(t)
	s := open(t, server.URL(), options(0))
	for i, e := range events(t, 3) {
		server.Play(esdbtest.Dropped)
		if a := appended(t, s, "user-1", eventstore.Revision(i-1), []eventstore.Proposed{e}); a.Already {
			t.Errorf("append %d is taken for a repetition", i)
		}
	}
	if n := server.Drops(); n > 0 {
		t.Errorf("%d appends were sent again before they could be read", n)
	}
}

func TestARepetitionThatIsNotAnsweredIsFoundWhereItStands(t *testing.T) {
	server := esdbtest.Start(t)
	server.Late(40*time.Millisecond, time.Hour)
	stores := []*esdbstore.Store{open(t, server.URL(), options(time.Hour)), open(t, server.URL(), options(time.Hour))}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	e := events(t, 2)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			a, err := stores[i%2].Append(ctx, "user-1", eventstore.NoStream, e)
			if err != nil || a.Revision != 1 {
				t.Errorf("%+v, %v", a, err)
			}
		})
	}
	group.Wait()
	if server.Drops() == 0 {
		t.Error("none was left without an answer")
	}
	wantLog(t, stores[0], e...)
}

func TestAnAppendOfMoreThanTheServerTakesIsTooLarge(t *testing.T) {
	server := esdbtest.Start(t)
	s := open(t, server.URL(), options(0))
	server.Small(100)
	if _, err := s.Append(t.Context(), "user-1", eventstore.NoStream, events(t, 3)); !errors.Is(err, eventstore.ErrTooLarge) {
		t.Errorf("got %v, want ErrTooLarge", err)
	}
}

func TestAPositionOfBeforeTheLogWasRestoredIsNotFound(t *testing.T) {
	server := esdbtest.Start(t)
	s := open(t, server.URL(), hasty())
	appended(t, s, "user-1", eventstore.NoStream, events(t, 3))
	log := testkit.Must(s.ReadAll(t.Context(), eventstore.Start, 10))(t)
	at := []byte(log[1].Position)
	at[15], at[31] = at[15]^1, at[31]^1 // a byte beside the second event
	if _, err := s.At(t.Context(), eventstore.Position(at)); !errors.Is(err, eventstore.ErrNotFound) {
		t.Errorf("at: got %v, want ErrNotFound", err)
	}
	if _, err := s.ReadAll(t.Context(), eventstore.Position(at), 10); !errors.Is(err, eventstore.ErrNotFound) || errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("read all: got %v, want ErrNotFound", err)
	}
	follower := testkit.Must(s.Subscribe(t.Context(), eventstore.Position(at)))(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := follower.Next(ctx, 10); !errors.Is(err, eventstore.ErrNotFound) {
		t.Errorf("next: got %v, want ErrNotFound", err)
	}
}

func TestCallsAreNoMoreAtOnceThanAConnectionTakes(t *testing.T) {
	server := esdbtest.Start(t)
	s := open(t, server.URL(), options(0))
	server.Late(20*time.Millisecond, time.Second)
	var group sync.WaitGroup
	for i, e := range events(t, 300) {
		group.Go(func() {
			if _, err := s.Append(t.Context(), eventstore.Stream(fmt.Sprint("user-", i)), eventstore.NoStream, []eventstore.Proposed{e}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if peak, exhausted := server.Calls(); peak < 50 || exhausted > 0 {
		t.Errorf("%d calls at once, %d were too many; want some 90, and none", peak, exhausted)
	}
}

func TestAUserWhoMayNotReadTheWholeLogIsRefused(t *testing.T) {
	server := esdbtest.Start(t)
	server.Deny()
	_, err := esdbstore.Open(t.Context(), server.URL(), hasty())
	if err == nil || errors.Is(err, eventstore.ErrUnavailable) || !strings.Contains(err.Error(), "$admins") {
		t.Errorf("got %v, want what is missing", err)
	}
}

func TestAnAppendThatNobodyAnswersIsUnavailableAndCanBeRepeated(t *testing.T) {
	server := esdbtest.Start(t)
	s := open(t, server.URL(), hasty())
	e := events(t, 2)
	server.Play(esdbtest.Mute, esdbtest.Mute, esdbtest.Deaf, esdbtest.Mute) // what is there already would be found
	_, err := s.Append(t.Context(), "user-1", eventstore.NoStream, e)
	if !errors.Is(err, eventstore.ErrUnavailable) {
		t.Fatalf("got %v, want ErrUnavailable", err)
	}
	testkit.Eventually(t, "repeating it", func() bool { // the last silent answers may still be due
		a, err := s.Append(t.Context(), "user-1", eventstore.NoStream, e)
		return err == nil && a.Already && a.Revision == 1
	})
	wantLog(t, s, e...)
}

func TestACallerThatGivesUpDoesNotWait(t *testing.T) {
	server := esdbtest.Start(t)
	s := open(t, server.URL(), options(time.Hour))
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
	follower := testkit.Must(s.Subscribe(t.Context(), eventstore.Start))(t)
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
		batch := testkit.Must(follower.Next(t.Context(), 10))(t)
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
	s := open(t, "esdb://"+server.Address(1)+"?tls=false", options(0)) // does not lead
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
	s := open(t, server.URL(), options(0))
	follower := testkit.Must(s.Subscribe(t.Context(), eventstore.Start))(t)
	next := func() []eventstore.Record {
		t.Helper()
		for {
			batch := testkit.Must(follower.Next(t.Context(), 10))(t)
			if len(batch.Records) > 0 {
				return batch.Records
			}
		}
	}
	other := open(t, server.URL(), options(0)) // so that only the server can signal
	for i, e := range events(t, 5) {
		testkit.Eventually(t, "subscribe", func() bool { return server.Followers() > 0 })
		server.DropSubscriptions()
		appended(t, other, "user-1", eventstore.Revision(i-1), []eventstore.Proposed{e})
		if got := next(); len(got) != 1 || got[0].ID != e.ID {
			t.Fatalf("after %d drops: %+v", i+1, got)
		}
	}
}

func TestCloseEndsWhoeverWaits(t *testing.T) {
	server := esdbtest.Start(t)
	s := testkit.Must(esdbstore.Open(t.Context(), server.URL(), options(0)))(t)
	follower := testkit.Must(s.Subscribe(t.Context(), eventstore.Start))(t)
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
	testkit.Eventually(t, "leave", func() bool { return server.Followers() == 0 })
}

func TestAReadThatBreaksOffGoesOnWhereItWas(t *testing.T) {
	server := esdbtest.Start(t)
	s := open(t, server.URL(), hasty())
	e := events(t, 20)
	appended(t, s, "user-1", eventstore.NoStream, e)
	server.BreakReads(3)
	wantLog(t, s, e...)
	follower := testkit.Must(s.Subscribe(t.Context(), eventstore.Start))(t)
	if batch, err := follower.Next(t.Context(), 30); err != nil || len(batch.Records) != 20 || !batch.CaughtUp {
		t.Errorf("the follower: %d records, %v", len(batch.Records), err)
	}
	server.BreakReads(1) // not even a step
	if _, err := s.ReadAll(t.Context(), eventstore.Start, 100); !errors.Is(err, eventstore.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
}
