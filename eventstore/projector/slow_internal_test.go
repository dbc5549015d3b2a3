package projector

import (
	"crypto/rand"
	"testing"
	"time"

	"kindred/domain/id"
	"kindred/eventstore"
)

// Of a client and its sandboxes one has a slice in each round, in turn; who has nothing to
// apply costs none.
func TestAClientAndItsSandboxesHaveOneSlice(t *testing.T) {
	t.Parallel()
	source := id.Random(rand.Reader)
	owner, other := id.Next[id.Client](source), id.Next[id.Client](source)
	s := &slowClients{all: map[id.Client]*slowClient{}, rests: map[string]int{}}
	slow := func(client id.Client, passed int) {
		s.all[client] = &slowClient{part: &part{}, passed: []eventstore.Position{"", "1"}[passed]}
	}
	idle := id.NextSandbox(source, owner)
	slow(owner, 1)
	slow(idle, 0)
	for range 3 {
		slow(id.NextSandbox(source, owner), 1)
	}
	slow(other, 1)
	slices := map[id.Client]int{}
	for range 8 {
		next := s.next()
		if next[other] == nil || next[idle] == nil || len(next) != 3 {
			t.Fatalf("%d are looked at", len(next))
		}
		for client := range next {
			slices[client]++
		}
	}
	for client := range s.all {
		if want := map[id.Client]int{other: 8, idle: 8}[client]; slices[client] != max(want, 2) {
			t.Errorf("%s was looked at %d times", client, slices[client])
		}
	}
}

// A client whose slices are long, however few events they hold, has as much time as another with all its
// sandboxes, and all of it where the other has nothing to apply.
func TestAClientOfLongSlicesHasNoMoreThanItsShare(t *testing.T) {
	t.Parallel()
	source := id.Random(rand.Reader)
	long, short := id.Next[id.Client](source), id.Next[id.Client](source)
	s := &slowClients{all: map[id.Client]*slowClient{}, rests: map[string]int{}}
	for _, client := range []id.Client{long, id.NextSandbox(source, long), id.NextSandbox(source, long), short} {
		s.all[client] = &slowClient{part: &part{}, passed: "1"}
	}
	took := map[string]int{}
	rounds := func(n int) {
		for range n {
			next := s.next()
			if len(next) == 0 {
				t.Fatal("nobody has a turn")
			}
			for client := range next {
				slices := map[string]int{long.Owner(): 100, short.Owner(): 1}[client.Owner()]
				s.rests[client.Owner()] = rests(slices * longSlice)
				took[client.Owner()] += slices
			}
		}
	}
	rounds(1000)
	if beside := took[short.Owner()]; took[long.Owner()] > beside*5/4 || beside < 900 {
		t.Errorf("it took %d beside %d", took[long.Owner()], beside)
	}
	delete(s.all, short)
	took = map[string]int{}
	if rounds(10); took[long.Owner()] != 1000 {
		t.Errorf("alone it took %d in ten rounds", took[long.Owner()])
	}
}

// What a slice costs is told by its steps: where an event takes 12,000, or 31,000, the next one
// holds as many as make 30 to 60 ms, and the client is slow for as long as they do.
func TestASliceIsAsLongAsItsStepsAllow(t *testing.T) {
	t.Parallel()
	for _, each := range []int{0, 12_000, 31_000, BatchSteps, 5 * BatchSteps} {
		c := &slowClient{limit: firstSlice}
		now := time.Now()
		for range 20 {
			c.took(c.limit*each, now)
		}
		switch took := c.limit * each; {
		case each == 0:
			if c.limit != MaxBatch || !c.late.IsZero() {
				t.Errorf("events that take nothing: %d in a slice, slow at %v", c.limit, c.late)
			}
		case c.limit > 1 && took > 2*longSlice || c.limit < MaxBatch && took < longSlice/2 || c.limit < 1:
			t.Errorf("events of %d steps: %d in a slice, which takes %d", each, c.limit, took)
		case c.late != now:
			t.Errorf("events of %d steps: it is not slow", each)
		}
	}
}
