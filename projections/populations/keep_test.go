package populations

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/projections/readmodel"
	"kindred/testkit"
)

// The clients that were asked about longest ago are forgotten until what is kept
// fits; the one that is built stays.
func TestPopulationsAreKeptWhileTheyFit(t *testing.T) {
	const whole = 100
	for _, c := range []struct {
		sizes []int64 // of each client, in the order of their last use
		built int64
		kept  []id.Client
		fault string
	}{
		{sizes: []int64{10, 20, 30}, built: 40, kept: []id.Client{"0", "1", "2", "built"}},
		{sizes: []int64{10, 20, 30}, built: 41, kept: []id.Client{"1", "2", "built"}},
		{sizes: []int64{50, 20, 30}, built: 50, kept: []id.Client{"1", "2", "built"}},
		{sizes: []int64{10, 50, 40}, built: 50, kept: []id.Client{"2", "built"}},
		{sizes: []int64{10, 20, 30}, built: 51, kept: []id.Client{"0", "1", "2", "built"}, fault: "population_too_large"},
	} {
		p, err := New(readmodel.Reader{}, whole)
		if err != nil {
			t.Fatal(err)
		}
		for i, size := range c.sizes {
			pop := &population{}
			p.clients.Add(id.Client(fmt.Sprint(i)), pop)
			if err := p.memory.resize(&pop.held, size); err != nil {
				t.Fatal(err)
			}
		}
		built, taken := &population{}, int64(0)
		p.clients.Add("built", built)
		err = p.memory.grow(&taken, c.built, &built.held)
		if c.fault == "" && err != nil || c.fault != "" && !fault.Is(err, c.fault) {
			t.Errorf("%+v: %v", c, err)
		}
		p.memory.assign(&built.held, taken)
		if got := p.clients.Keys(); !slices.Equal(got, c.kept) {
			t.Errorf("of %v are kept %v, not %v", c.sizes, got, c.kept)
		}
		used := int64(0)
		for _, pop := range p.clients.Values() {
			used += pop.held.bytes.Load()
		}
		if got := p.memory.used.Load(); got != used || got > whole {
			t.Errorf("%d bytes are used, not %d", got, used)
		}
		p.clients.Purge()
		p.memory.assign(&built.held, 7)             // it was forgotten while it was built anew
		if got := p.memory.used.Load(); got != -7 { // what was never taken is given back
			t.Errorf("%d bytes are used of nothing", got)
		}
	}
}

func TestWhatIsBeingMadeIsNotForgottenForOthers(t *testing.T) {
	p := testkit.Must(New(readmodel.Reader{}, 100))(t)
	var holdings [3]holding
	var taken [3]int64
	for i := range 2 {
		if err := p.memory.grow(&taken[i], 50, &holdings[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.memory.grow(&taken[2], 1, &holdings[2]); !fault.Is(err, "busy") {
		t.Errorf("got %v", err)
	}
	p.memory.used.Add(-taken[0])
	if err := p.memory.grow(&taken[2], 1, &holdings[2]); err != nil {
		t.Error(err)
	}
}

// While there is something else to forget, nobody is told to come again because another has just
// forgotten it.
func TestSeveralForgetAtOnce(t *testing.T) {
	const whole, makers, each = 1_000, 8, 200
	p := testkit.Must(New(readmodel.Reader{}, whole))(t)
	for i := range whole {
		pop := &population{}
		p.clients.Add(id.Client(fmt.Sprint(i)), pop)
		if err := p.memory.resize(&pop.held, 1); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	for maker := range makers {
		all.Go(func() {
			for i := range each {
				pop := &population{}
				if err := p.memory.resize(&pop.held, 1); err != nil {
					t.Error(err)
				}
				p.clients.Add(id.Client(fmt.Sprint("of ", maker, ", ", i)), pop)
			}
		})
	}
	all.Wait()
}

// What a client and its sandboxes take together gives way first, once it is more than one
// client's part.
func TestSandboxesKeepNoMoreInMemoryThanTheirClient(t *testing.T) {
	const whole = 100
	source := id.Random(rand.Reader)
	owner, other := id.Next[id.Client](source), id.Next[id.Client](source)
	p := testkit.Must(New(readmodel.Reader{}, whole))(t)
	take := func(client id.Client, size int64) {
		t.Helper()
		pop := getOrAdd(p.clients, client, &population{})
		if err := p.memory.resize(&pop.held, size); err != nil {
			t.Fatal(err)
		}
	}
	take(other, 40)
	for range 10 {
		take(id.NextSandbox(source, owner), 20)
	}
	if pop, found := p.clients.Peek(other); !found || pop.held.bytes.Load() != 40 {
		t.Error("the population of another gave way to sandboxes")
	}
	take(other, 50)
	third := id.Next[id.Client](source)
	take(third, 30)
	for _, client := range []id.Client{other, third} {
		if _, found := p.clients.Peek(client); !found {
			t.Errorf("%s gave way", client)
		}
	}
}

// One client that asks for another rule each time has the others wait for one of these.
func TestRulesToBeKeptAreOneOfEachClient(t *testing.T) {
	source, w := id.Random(rand.Reader), newWantedQueue(maxPopulations)
	owner, other := id.Next[id.Client](source), id.Next[id.Client](source)
	for i := range 100 {
		w.put(wanted{owner, fmt.Sprint("traits.a == ", i)})
		w.put(wanted{id.NextSandbox(source, owner), fmt.Sprint("traits.b == ", i)})
	}
	w.put(wanted{other, "traits.c == 1"})
	for _, want := range []wanted{{owner, "traits.a == 0"}, {other, "traits.c == 1"}} {
		if got := w.take(<-w.owners); got != want {
			t.Errorf("%v comes, not %v", got, want)
		}
	}
	if len(w.owners) > 0 || len(w.of) > 0 {
		t.Errorf("%d wait", len(w.owners))
	}
	w.put(wanted{owner, "traits.a == 100"})
	if got := w.take(<-w.owners); got.client != owner {
		t.Errorf("%v comes", got)
	}
}

func TestAPopulationThatPanicsAsItIsBuiltAnewIsAskedForAgain(t *testing.T) {
	p, err := New(readmodel.Reader{}, 100) // there is no database: what reads it panics
	if err != nil {
		t.Fatal(err)
	}
	pop := &population{lock: newCtxLock()}
	p.clients.Add("cli_a", pop)
	p.ask("cli_a", pop)
	if err := p.replace(t.Context(), <-p.behind); err == nil || !strings.HasPrefix(err.Error(), "panic") {
		t.Fatalf("it was built of nothing: %v", err)
	}
	if p.ask("cli_a", pop); len(p.behind) != 1 {
		t.Error("it is never built anew")
	}
	if used := p.memory.used.Load(); used != 0 {
		t.Errorf("%d bytes are used of nothing", used)
	}
}
