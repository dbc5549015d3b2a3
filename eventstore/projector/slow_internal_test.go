package projector

import (
	"crypto/rand"
	"testing"

	"kindred/domain/id"
	"kindred/eventstore"
)

// Of a client and its sandboxes one has a slice in each round, in turn; who has nothing to
// apply costs none.
func TestAClientAndItsSandboxesHaveOneSlice(t *testing.T) {
	source := id.Random(rand.Reader)
	owner, other := id.Next[id.Client](source), id.Next[id.Client](source)
	s := &slowClients{all: map[id.Client]*slowClient{}}
	slow := func(client id.Client, passed int) {
		s.all[client] = &slowClient{part: &leader{}, passed: []eventstore.Position{"", "1"}[passed]}
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
