package policies

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"kindred/commands"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/domain/rule"
	"kindred/domain/traits"
	"kindred/eventstore"
	"kindred/eventstore/memstore"
	"kindred/eventstore/seal"
	"kindred/eventstore/seal/keystest"
	"kindred/projections"
	"kindred/testkit"
)

// clusteringFixture is a log with clients and users whose runs a process carries out. Two
// that were made alike are alike to the last id.
type clusteringFixture struct {
	*testing.T
	store *memstore.Store
	log   *eventstore.Log
	*commands.Commands

	mu   sync.Mutex
	read []eventstore.Recorded // of the log, so far

	reading func(ctx context.Context) error // before traits are read; may be nil
	in      map[id.Segment]map[id.User]bool // who is in the segments that are ready
}

func newClusteringFixture(t *testing.T) *clusteringFixture {
	t.Helper()
	key := strings.Repeat("A", 43) + "="
	master := testkit.Must(seal.ParseMasterKeys("k:" + key))(t)
	entropy := &steadyEntropy{from: rand.NewChaCha8([32]byte{})}
	o := &clusteringFixture{T: t, store: memstore.New("test")}
	o.log = &eventstore.Log{Store: o.store, Vault: seal.New(keystest.NewMemory(), master, entropy), Registry: event.All(), Now: time.Now}
	o.Commands = &commands.Commands{Log: o.log, Entropy: entropy, LastDecision: unknown, Filter: o}
	return o
}

// steadyEntropy is the same in every fixture.
type steadyEntropy struct {
	mu   sync.Mutex
	from io.Reader
}

func (e *steadyEntropy) Read(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.from.Read(p)
}

// populate makes a client with a layer that so many users have granted.
func (o *clusteringFixture) populate(name string, users int, traits func(i int) string) (commands.Call, id.ConsentLayer) {
	o.Helper()
	client := id.Next[id.Client](id.Derived(name))
	call := commands.Call{Client: client, Actor: "test"}
	layer, err := o.DefineConsentLayer(o.Context(), call, name, []string{"age", "plan", "visits", "x"}, "")
	if err != nil {
		o.Fatal(err)
	}
	for i := range users {
		user, err := o.CreateUser(o.Context(), call, fmt.Sprint("u", i), json.RawMessage(traits(i)))
		if err == nil {
			_, err = o.ChangeConsent(o.Context(), call, commands.ChangeConsents{
				Layer: layer.ID, Grant: true, Users: []commands.UserRef{commands.UserRef(user.ID)},
			})
		}
		if err != nil {
			o.Fatal(err)
		}
	}
	return call, layer.ID
}

func (o *clusteringFixture) request(call commands.Call, layer id.ConsentLayer, k int) commands.Run {
	o.Helper()
	run, err := o.RequestRun(o.Context(), call, commands.RequestRun{RunScope: event.RunScope{Layer: layer}, K: k})
	if err != nil {
		o.Fatal(err)
	}
	return run
}

// unknown is what was decided last, so that the log is read.
func unknown(context.Context, id.Client) (last, version int, err error) {
	return 0, 0, fault.New(fault.Unavailable, "building", "It is being built.")
}

// process is the policy in a process that appends through store.
func (o *clusteringFixture) process(store eventstore.Store, slots int) *Clustering {
	log := *o.log
	log.Store = store
	return &Clustering{
		Commands: &commands.Commands{Log: &log, Entropy: o.Entropy, LastDecision: unknown},
		Runs:     o, Inputs: o, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		Slots: slots, Memory: 1 << 30, Limit: time.Hour,
	}
}

// until has a process at work until the log says that all is done.
func (o *clusteringFixture) until(c *Clustering, done func() bool) {
	o.Helper()
	ctx, stop := context.WithCancel(o.Context())
	var working sync.WaitGroup
	working.Go(func() {
		if err := c.Drive(ctx); err != nil {
			o.Error(err)
		}
	})
	for range 100_000 {
		if done() {
			break
		}
		time.Sleep(runPause)
	}
	if !done() {
		o.Error("not done")
	}
	stop()
	working.Wait()
}

// records are the events of the log. Each is decoded once: the runs are asked for
// some thousand times.
func (o *clusteringFixture) records() []eventstore.Recorded {
	o.mu.Lock()
	defer o.mu.Unlock()
	last := eventstore.Start
	if n := len(o.read); n > 0 {
		last = o.read[n-1].Position
	}
	records, err := o.store.ReadAll(o.Context(), last, 1_000_000)
	if err != nil {
		o.Fatal(err)
	}
	for _, r := range records {
		recorded, err := o.log.Decode(r)
		if err != nil {
			o.Fatal(err)
		}
		o.read = append(o.read, recorded)
	}
	return slices.Clip(o.read)
}

// facts are the events of a type, in order.
func facts[E event.Event](o *clusteringFixture) (found []E) {
	for _, r := range o.records() {
		if e, ok := r.Event.(E); ok {
			found = append(found, e)
		}
	}
	return found
}

// ends says that so many runs have ended.
func (o *clusteringFixture) ends(n int) func() bool {
	return func() bool {
		return len(facts[event.ClusteringCompleted](o))+len(facts[event.ClusteringFailed](o))+len(facts[event.ClusteringCancelled](o)) >= n
	}
}

// Next implements [Runs] by reading the log.
func (o *clusteringFixture) Next(_ context.Context, except []id.Run) (open []projections.OpenRun, err error) {
	ended := o.endedRuns()
	seen := map[id.Client]bool{}
	for _, r := range o.records() {
		e, ok := r.Event.(event.ClusteringRequested)
		if !ok || seen[r.Client] || slices.Contains(ended, e.Run) || slices.Contains(except, e.Run) {
			continue
		}
		seen[r.Client] = true
		open = append(open, openRun(r, e))
	}
	return open, nil
}

func openRun(r eventstore.Recorded, e event.ClusteringRequested) projections.OpenRun {
	return projections.OpenRun{Client: r.Client, Run: projections.Run{
		ID: e.Run, Layer: e.Layer, Segment: e.Segment, TraitPaths: e.TraitPaths, K: e.K, Seed: e.Seed, CreatedAt: r.RecordedAt, CreatedPosition: r.Position,
	}}
}

// Unjudged implements [Runs] by reading the log.
func (o *clusteringFixture) Unjudged(_ context.Context, except []id.Run) (open []projections.OpenRun, err error) {
	last, attempts := map[event.RunScope]projections.OpenRun{}, map[id.Run]int{}
	for _, r := range o.records() {
		switch e := r.Event.(type) {
		case event.ClusteringRequested:
			last[event.RunScope{Layer: e.Layer, Segment: e.Segment}] = openRun(r, e)
		case event.ClusteringCompleted:
			attempts[e.Run] = e.Attempt
		case event.ClusteringJudged:
			delete(attempts, e.Run)
		}
	}
	for _, run := range last {
		if run.Attempt = attempts[run.ID]; run.Attempt > 0 && !slices.Contains(except, run.ID) {
			open = append(open, run)
		}
	}
	slices.SortFunc(open, func(a, b projections.OpenRun) int {
		return strings.Compare(string(a.Client)+string(a.CreatedPosition), string(b.Client)+string(b.CreatedPosition))
	})
	return slices.CompactFunc(open, func(a, b projections.OpenRun) bool { return a.Client == b.Client }), nil
}

// JudgedRuns implements [Runs].
func (o *clusteringFixture) JudgedRuns(_ context.Context, runs map[id.Run]id.Client) (judged []id.Run, err error) {
	for _, e := range facts[event.ClusteringJudged](o) {
		if _, asked := runs[e.Run]; asked {
			judged = append(judged, e.Run)
		}
	}
	return judged, nil
}

func (o *clusteringFixture) endedRuns() (ended []id.Run) {
	for _, e := range facts[event.ClusteringCompleted](o) {
		ended = append(ended, e.Run)
	}
	for _, e := range facts[event.ClusteringFailed](o) {
		ended = append(ended, e.Run)
	}
	for _, e := range facts[event.ClusteringCancelled](o) {
		ended = append(ended, e.Run)
	}
	return ended
}

// EndedRuns implements [Runs].
func (o *clusteringFixture) EndedRuns(_ context.Context, runs map[id.Run]id.Client) ([]id.Run, error) {
	ended := o.endedRuns()
	return slices.DeleteFunc(slices.Collect(maps.Keys(runs)), func(r id.Run) bool { return !slices.Contains(ended, r) }), nil
}

// ShowProgress implements [Runs].
func (o *clusteringFixture) ShowProgress(context.Context, id.Client, id.Run, string, float64, *int) error {
	return nil
}

// HideProgress implements [Runs].
func (o *clusteringFixture) HideProgress(context.Context, id.Client, id.Run) error { return nil }

// Reached implements [Inputs].
func (o *clusteringFixture) Reached(context.Context, id.Client, eventstore.Position) error {
	return nil
}

// Granted implements [Inputs].
func (o *clusteringFixture) Granted(_ context.Context, _ id.Client, layer id.ConsentLayer, at eventstore.Position) (users []id.User, err error) {
	then, now := map[id.User]bool{}, map[id.User]bool{}
	for _, r := range o.records() {
		var user id.User
		granted := false
		switch e := r.Event.(type) {
		case event.ConsentGranted:
			if e.Layer == layer {
				user, granted = e.User, true
			}
		case event.ConsentWithdrawn:
			if e.Layer == layer {
				user = e.User
			}
		}
		if now[user] = granted; r.Position <= at {
			then[user] = granted
		}
	}
	for user := range then {
		if then[user] && now[user] {
			users = append(users, user)
		}
	}
	slices.Sort(users)
	return users, nil
}

// Among implements [Inputs].
func (o *clusteringFixture) Among(_ context.Context, _ id.Client, segment id.Segment, _ eventstore.Position, users []id.User) ([]id.User, error) {
	in, is := o.in[segment]
	if !is {
		return nil, fault.New(fault.Missing, "segment_unknown", "There is no such segment.")
	}
	return slices.DeleteFunc(slices.Clone(users), func(u id.User) bool { return !in[u] }), nil
}

// Named implements [commands.Filter].
func (o *clusteringFixture) Named(context.Context, id.Client, *rule.Filter, id.User, []id.User) (map[id.User]bool, error) {
	return nil, nil
}

// CheckNamed implements [commands.Filter].
func (o *clusteringFixture) CheckNamed(context.Context, id.Client, bool, string, *rule.Rule, id.ConsentLayer) error {
	return nil
}

// Ready implements [commands.Filter].
func (o *clusteringFixture) Ready(_ context.Context, _ id.Client, _ bool, _ string, segment id.Segment, _ event.Within) error {
	if o.in[segment] == nil {
		return fault.New(fault.Unavailable, "segment_building", "It has no members yet.")
	}
	return nil
}

// Traits implements [Inputs].
func (o *clusteringFixture) Traits(ctx context.Context, client id.Client, users []id.User) (found []projections.UserChange, err error) {
	if o.reading != nil {
		if err := o.reading(ctx); err != nil {
			return nil, err
		}
	}
	for _, u := range users {
		last, err := o.log.ReadBack(ctx, eventstore.Stream("user-"+string(client)+"-"+string(u)), eventstore.End, 1)
		if err != nil {
			return nil, err
		}
		plain, err := o.log.Open(ctx, last[0], "traits")
		if err != nil {
			return nil, err
		}
		found = append(found, projections.UserChange{ID: u, Traits: plain, At: last[0].Position})
	}
	slices.Reverse(found) // no order is promised
	return found, nil
}

// kinds are the traits of three groups.
func kinds(i int) string {
	return fmt.Sprintf(`{"age":%d,"plan":"p%d","visits":%d,"name":"n%d"}`, 20+25*(i%3)+i/3%5, i%3, 10*(i%3)+i/3%4, i)
}

// mortalStore ends at an append: before it, or after it but unheard.
type mortalStore struct {
	eventstore.Store
	left  int
	after bool
	dead  chan struct{}
}

func (s *mortalStore) Append(ctx context.Context, stream eventstore.Stream, expected eventstore.Revision, events []eventstore.Proposed) (eventstore.Appended, error) {
	select {
	case <-s.dead:
		return eventstore.Appended{}, errDied
	default:
	}
	if s.left--; s.left >= 0 {
		return s.Store.Append(ctx, stream, expected, events)
	}
	close(s.dead)
	if s.after {
		if _, err := s.Store.Append(ctx, stream, expected, events); err != nil {
			return eventstore.Appended{}, errors.Join(errDied, err)
		}
	}
	return eventstore.Appended{}, errDied
}

// published is what a run made known: its last events, and the members that
// count.
func (o *clusteringFixture) published(run id.Run) (out []any) {
	attempt := 0
	for _, c := range facts[event.ClusteringCompleted](o) {
		if c.Run == run {
			attempt, c.Attempt = c.Attempt, 0
			out = append(out, c.Clusters, c.Silhouette, c.Users)
		}
	}
	for _, a := range facts[event.ClusteringAssigned](o) {
		if a.Run == run && a.Attempt == attempt {
			out = append(out, string(a.Cluster), a.Users)
		}
	}
	return out
}

func TestARunThatDiesAnywhereIsBegunAgainWithTheSameResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tell := func(appends int, after bool) (published []any, died bool) {
			o := newClusteringFixture(t)
			call, layer := o.populate("acme", 63, kinds)
			run := o.request(call, layer, 3)
			// What is written after the request is not looked at, also by those who begin later.
			if _, err := o.ChangeTraits(t.Context(), call, "ext:u0", json.RawMessage(`{"age":70,"plan":"p2"}`)); err != nil {
				t.Fatal(err)
			}
			if _, err := o.CreateUser(t.Context(), call, "late", json.RawMessage(kinds(0))); err != nil {
				t.Fatal(err)
			}
			store := &mortalStore{Store: o.store, left: appends, after: after, dead: make(chan struct{})}
			o.until(o.process(store, 2), func() bool {
				select {
				case <-store.dead:
					return true
				default:
					return o.ends(1)()
				}
			})
			select {
			case <-store.dead:
				died = true
				o.until(o.process(o.store, 2), o.ends(1))
			default:
			}
			if n := len(facts[event.ClusteringCompleted](o)); n != 1 || len(facts[event.ClusteringFailed](o)) != 0 {
				t.Errorf("after %d appends: %d completed", appends, n)
			}
			return o.published(run.Run), died
		}
		undisturbed, _ := tell(1_000_000, false)
		for _, after := range []bool{false, true} {
			for appends := 0; ; appends++ {
				published, died := tell(appends, after)
				if diff := cmp.Diff(undisturbed, published); diff != "" {
					t.Errorf("after %d appends (-undisturbed +disturbed):\n%s", appends, diff)
				}
				if !died {
					if appends < 5 {
						t.Errorf("a run has only %d appends", appends)
					}
					break
				}
			}
		}
	})
}

func TestARunWhoseReadingFailsIsBegunAgainWithTheSameResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tell := func(failing int) (published []any, failed bool) {
			o := newClusteringFixture(t)
			call, layer := o.populate("acme", 150, kinds) // who are read in two statements
			run := o.request(call, layer, 3)
			reads := 0
			o.reading = func(context.Context) error {
				if reads++; reads == failing {
					failed = true
					return errDied
				}
				return nil
			}
			o.until(o.process(o.store, 1), o.ends(1))
			return o.published(run.Run), failed
		}
		undisturbed, _ := tell(0)
		for failing := 1; ; failing++ {
			published, failed := tell(failing)
			if diff := cmp.Diff(undisturbed, published); diff != "" {
				t.Errorf("where read %d fails (-undisturbed +disturbed):\n%s", failing, diff)
			}
			if !failed {
				if failing < 6 {
					t.Errorf("a run reads only %d times", failing-1)
				}
				break
			}
		}
	})
}

func TestARunThatIsInterruptedTooOftenIsToldOfAsFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newClusteringFixture(t)
		call, layer := o.populate("acme", 63, kinds)
		run := o.request(call, layer, 3)
		o.reading = func(context.Context) error { return errDied }
		var logged bytes.Buffer
		registry, c := prometheus.NewRegistry(), o.process(o.store, 1)
		c.Logger, c.Metrics = slog.New(slog.NewTextHandler(&logged, nil)), NewMetrics(prometheus.NewRegistry())
		registry.MustRegister(c.Metrics.ended)
		o.until(c, o.ends(1))
		metrics, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		ended := map[string]float64{}
		for _, m := range metrics[0].GetMetric() {
			ended[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
		}
		if diff := cmp.Diff(map[string]float64{runCompleted: 0, runFailed: 1, runInterrupted: 5, runWaiting: 0}, ended); diff != "" {
			t.Error(diff)
		}
		if lines := strings.Split(strings.TrimSpace(logged.String()), "\n"); len(lines) != 6 || !strings.Contains(lines[5], "level=ERROR") || !strings.Contains(lines[5], string(run.Run)) {
			t.Errorf("logged:\n%s", &logged)
		}
	})
}

// What a company has decided about its traits by the time of the request counts, and nothing later.
func TestAnIgnoredTraitDividesNobody(t *testing.T) {
	for decided, code := range map[string]string{
		`{"plan":{"ignore":true}}`:                   "no_usable_traits",
		`{"plan":{"sensitive":true}}`:                "no_usable_traits",
		`{"plan":{"weight":0}}`:                      "no_usable_traits",
		`{"plan":{"type":"excluded"}}`:               "no_usable_traits",
		`{"plan":{"weight":2},"age":{"type":"set"}}`: "",
	} {
		synctest.Test(t, func(t *testing.T) {
			o := newClusteringFixture(t)
			call, layer := o.populate("acme", 60, func(i int) string { return fmt.Sprintf(`{"plan":"p%d"}`, i%3) })
			if _, err := o.OverrideTraits(t.Context(), call, json.RawMessage(decided)); err != nil {
				t.Fatal(err)
			}
			o.request(call, layer, 3)
			if _, err := o.OverrideTraits(t.Context(), call, json.RawMessage(`{"plan":{"ignore":false,"sensitive":false,"weight":1,"type":null}}`)); err != nil {
				t.Fatal(err)
			}
			o.until(o.process(o.store, 1), o.ends(1))
			failed := facts[event.ClusteringFailed](o)
			if code == "" && len(failed) > 0 || code != "" && (len(failed) != 1 || failed[0].Code != code) {
				t.Errorf("%s: %v, not %q", decided, failed, code)
			}
		})
	}
}

// crowd has two clients request runs of which only one fits into memory at a
// time, and takes its time over turning the users into vectors.
func crowd(t *testing.T, encoding time.Duration) (*clusteringFixture, *Clustering) {
	t.Helper()
	const dims = 8 // of kinds, or somewhat more
	o := newClusteringFixture(t)
	for _, name := range []string{"acme", "bolt"} {
		call, layer := o.populate(name, 63, kinds)
		o.request(call, layer, 3)
	}
	c := o.process(o.store, 2)
	c.Memory, c.Limit = 63*4*dims, 10*time.Second
	c.Inputs = &slowInputs{clusteringFixture: o, encoding: encoding, reads: map[id.Client]int{}}
	return o, c
}

// slowInputs are read again, after the schema was learnt, in a time that no limit ends.
type slowInputs struct {
	*clusteringFixture
	encoding time.Duration

	mu    sync.Mutex
	reads map[id.Client]int
}

func (s *slowInputs) Traits(ctx context.Context, client id.Client, users []id.User) ([]projections.UserChange, error) {
	s.mu.Lock()
	s.reads[client]++
	second := s.reads[client] == 2
	s.mu.Unlock()
	if second {
		time.Sleep(s.encoding)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return s.clusteringFixture.Traits(ctx, client, users)
}

// large are inputs of users who say much. They note how many were read at once.
type large struct {
	Inputs
	traits json.RawMessage
	read   []int
}

func (l *large) Traits(_ context.Context, _ id.Client, users []id.User) (found []projections.UserChange, err error) {
	l.read = append(l.read, len(users))
	for _, u := range users {
		found = append(found, projections.UserChange{ID: u, Traits: l.traits})
	}
	return found, nil
}

func TestFewLargeUsersAreReadAtOnce(t *testing.T) {
	const size = 100 << 10 // bytes of traits
	inputs := &large{traits: fmt.Appendf(nil, `{"about":"%s"}`, strings.Repeat("x", size))}
	a := &attempt{Clustering: &Clustering{Inputs: inputs}}
	var (
		failed error
		places []int
	)
	users := make([]id.User, firstRead+2*bytesRead/size)
	for i := range users {
		users[i] = id.User(strconv.Itoa(i))
	}
	for place := range a.flats(t.Context(), users, &failed) {
		places = append(places, place)
	}
	if failed != nil || len(places) != len(users) || !slices.IsSorted(places) || places[len(places)-1] != len(users)-1 {
		t.Errorf("%d of %d users are told: %v", len(places), len(users), failed)
	}
	for i, n := range inputs.read {
		if most := bytesRead / size; i > 0 && n > most || n > firstRead {
			t.Errorf("reads of %v users, %d at most beyond the first", inputs.read, most)
		}
	}
	if len(inputs.read) < 3 {
		t.Errorf("reads of %v users", inputs.read)
	}
}

func TestARunsTimeCountsFromItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, c := crowd(t, 8*time.Second)
		began := time.Now()
		o.until(c, o.ends(2))
		if failed := facts[event.ClusteringFailed](o); len(failed) > 0 {
			t.Errorf("failed: %+v", failed)
		}
		if took := time.Since(began); took < 16*time.Second {
			t.Errorf("both took %s: none has waited", took)
		}
	})
}

func TestARunThatWaitsWithoutEndFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, c := crowd(t, 30*time.Second)
		o.until(c, o.ends(2))
		failed := facts[event.ClusteringFailed](o)
		if len(failed) != 2 || len(facts[event.ClusteringCompleted](o)) != 0 {
			t.Fatalf("failed: %+v", failed)
		}
		for i, want := range []string{"It waited longer than 20s for the memory", "It took longer than 10s."} {
			if f := failed[i]; f.Code != "time_or_memory_limit" || !strings.Contains(f.Details, want) {
				t.Errorf("%s: %s; want %q", f.Code, f.Details, want)
			}
		}
	})
}

func TestClientsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newClusteringFixture(t)
		var requested []commands.Run
		for n := range 3 {
			call, _ := o.populate("greedy", 0, kinds)
			layer := testkit.Must(o.DefineConsentLayer(t.Context(), call, fmt.Sprint(n), []string{"age"}, ""))(t)
			requested = append(requested, o.request(call, layer.ID, 0))
		}
		call, layer := o.populate("modest", 0, kinds)
		requested = append(requested, o.request(call, layer, 0))
		o.until(o.process(o.store, 1), o.ends(4))
		var order []id.Run
		for _, e := range facts[event.ClusteringStarted](o) {
			order = append(order, e.Run)
		}
		want := []id.Run{requested[0].Run, requested[3].Run, requested[1].Run, requested[2].Run}
		if !slices.Equal(order, want) {
			t.Errorf("the turns were %v, want %v", order, want)
		}
	})
}

func TestAClientAndItsSandboxesHaveOneTurn(t *testing.T) {
	source := id.Random(rand.NewChaCha8([32]byte{}))
	owner, other := id.Next[id.Client](source), id.Next[id.Client](source)
	var waiting []projections.OpenRun
	for _, client := range []id.Client{owner, id.NextSandbox(source, owner), id.NextSandbox(source, owner), other} {
		waiting = append(waiting, projections.OpenRun{Client: client, Run: projections.Run{ID: id.Next[id.Run](source)}})
	}
	turns := turns{active: map[id.Run]turn{waiting[0].ID: {client: owner}}, served: map[string]int{owner.Owner(): 1}}
	if next, ok := turns.choose(waiting[1:], 2); !ok || next.Client != other {
		t.Errorf("the next turn is that of %s", next.Client)
	}
	if next, ok := turns.choose(waiting[1:3], 1); ok {
		t.Errorf("%s has a place beside the one of its owner", next.Client)
	}
}

func TestACancelledRunStopsAndLeavesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newClusteringFixture(t)
		call, layer := o.populate("acme", 60, kinds)
		run := o.request(call, layer, 0)
		_, err := o.RequestRun(t.Context(), call, commands.RequestRun{RunScope: event.RunScope{Layer: layer}})
		if !fault.Is(err, "run_in_progress") {
			t.Fatalf("a second run: %v", err)
		}
		reading := make(chan struct{}, 1)
		var stopped atomic.Int64 // how long the run went on after it began to read
		o.reading = func(ctx context.Context) error {
			reading <- struct{}{}
			began := time.Now()
			<-ctx.Done()
			stopped.Store(int64(time.Since(began)))
			return ctx.Err()
		}
		o.until(o.process(o.store, 1), func() bool {
			select {
			case <-reading:
				if _, err := o.CancelRun(t.Context(), call, event.RunScope{Layer: layer}, run.Run); err != nil {
					t.Fatal(err)
				}
			default:
			}
			return stopped.Load() > 0
		})
		if took := time.Duration(stopped.Load()); took > time.Second {
			t.Errorf("it went on for %s", took)
		}
		if _, err := o.CancelRun(t.Context(), call, event.RunScope{Layer: layer}, run.Run); err != nil {
			t.Errorf("cancelled twice: %v", err)
		}
		o.reading = nil
		next := o.request(call, layer, 0)
		o.until(o.process(o.store, 1), o.ends(2))
		if done := facts[event.ClusteringCompleted](o); len(done) != 1 || done[0].Run != next.Run || len(facts[event.ClusteringFailed](o)) != 0 {
			t.Errorf("completed %v", done)
		}
		_, err = o.CancelRun(t.Context(), call, event.RunScope{Layer: layer}, next.Run)
		if !fault.Is(err, "run_ended") {
			t.Errorf("cancelled after its end: %v", err)
		}
	})
}

func TestBadInputEndsInAClearFailure(t *testing.T) {
	for _, tt := range []struct {
		name, code string
		users      int
		traits     func(i int) string
	}{
		{"nobody", "not_enough_users", 0, kinds},
		{"one user", "not_enough_users", 1, kinds},
		{"too few", "not_enough_users", 39, kinds},
		{"no traits", "no_usable_traits", 50, func(int) string { return `{}` }},
		{"none that are permitted", "no_usable_traits", 50, func(i int) string { return fmt.Sprintf(`{"other":%d}`, i) }},
		{"all missing", "no_usable_traits", 50, func(int) string { return `{"age":null,"plan":null}` }},
		{"all identical", "", 50, func(int) string { return `{"age":3,"plan":"pro"}` }},
		{"mixed types", "no_usable_traits", 60, func(i int) string {
			return `{"age":` + []string{`1`, `"x"`, `true`, `[1]`, `{"a":{"b":[{}]}}`}[i%5] + `}`
		}},
		{"free text", "no_usable_traits", 60, func(i int) string { return fmt.Sprintf(`{"plan":"unlike any other %d"}`, i) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newClusteringFixture(t)
				call, layer := o.populate("acme", tt.users, tt.traits)
				run := o.request(call, layer, 0)
				o.until(o.process(o.store, 1), o.ends(1))
				failed := facts[event.ClusteringFailed](o)
				if len(failed) != 1 {
					t.Fatalf("it did not fail: %v", facts[event.ClusteringCompleted](o))
				}
				if tt.code != "" && failed[0].Code != tt.code {
					t.Errorf("failed with %s, want %s", failed[0].Code, tt.code)
				}
				if !strings.Contains(failed[0].Details, string(run.Run)) || !strings.HasSuffix(failed[0].Details, ".") {
					t.Errorf("details: %s", failed[0].Details)
				}
				t.Log(failed[0].Code, failed[0].Details)
			})
		})
	}
}

// Ten thousand keys, of which no two users share one, are one group without a label.
func TestTenThousandKeysAreOneGroup(t *testing.T) {
	keys := func(i int) string {
		var b bytes.Buffer
		b.WriteString(`{"x":{`)
		for n := range 250 {
			fmt.Fprintf(&b, `"k%d_%d":"v%d",`, i, n, i)
		}
		return strings.TrimSuffix(b.String(), ",") + `}}`
	}
	synctest.Test(t, func(t *testing.T) {
		o := newClusteringFixture(t)
		call, layer := o.populate("acme", 40, keys)
		o.request(call, layer, 0)
		o.until(o.process(o.store, 1), o.ends(1))
		done := facts[event.ClusteringCompleted](o)
		if len(done) != 1 || len(done[0].Clusters) != 1 || done[0].Clusters[0].Label != "mixed" {
			t.Errorf("completed %+v, failed %+v", done, facts[event.ClusteringFailed](o))
		}
	})
}

func TestAFailureKeepsTheLastGoodRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newClusteringFixture(t)
		call, layer := o.populate("acme", 90, kinds)
		good := o.request(call, layer, 0)
		o.until(o.process(o.store, 1), o.ends(1))
		if _, err := o.ChangeConsentLayer(t.Context(), call, layer, nil, []string{"nothing"}, nil); err != nil {
			t.Fatal(err)
		}
		o.request(call, layer, 0)
		o.until(o.process(o.store, 1), o.ends(2))
		last, err := o.LastDivision(t.Context(), call.Client, event.RunScope{Layer: layer})
		if err != nil || last.Completed.Run != good.Run || len(last.Clusters) != len(last.Completed.Clusters) {
			t.Errorf("the last division is %+v, %v", last, err)
		}
		if n := len(facts[event.ClusterRetired](o)); n != 0 {
			t.Errorf("%d clusters were retired", n)
		}
	})
}

// A database may be away for hours: the log says so now and then.
func TestRunsThatAreNotFoundDoNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told bytes.Buffer
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		c := &Clustering{Now: time.Now, Logger: slog.New(slog.NewTextHandler(&told, nil)), Slots: 1}
		c.drive(ctx, stage{slots: 1, next: func(context.Context, []id.Run) ([]projections.OpenRun, error) {
			return nil, errors.New("the database is away")
		}})
		if n := strings.Count(told.String(), "\n"); n < 2 || n > 3 {
			t.Errorf("%d lines in a minute:\n%s", n, told.String())
		}
	})
}

// A read model that takes nothing in says that runs are open that have ended.
func TestARunThatIsNotSeenToHaveEndedIsLookedAtNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newClusteringFixture(t)
		call, layer := o.populate("acme", 63, kinds)
		o.request(call, layer, 3)
		c := o.process(o.store, 2)
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		behind := &quarantined{clusteringFixture: o, stop: stop}
		behind.open, _ = o.Next(ctx, nil)
		c.Runs = behind
		if err := c.Drive(ctx); err != nil || len(facts[event.ClusteringCompleted](o)) != 1 {
			t.Errorf("not completed, %v", err)
		}
		if behind.looks > 100 {
			t.Error("looked for runs all the time")
		}
	})
}

// quarantined shows the runs that were open, and stops who looks all the time.
type quarantined struct {
	*clusteringFixture
	open  []projections.OpenRun
	looks int
	stop  func()
}

func (q *quarantined) Next(_ context.Context, except []id.Run) ([]projections.OpenRun, error) {
	if q.looks++; q.looks > 100 {
		q.stop()
	}
	return slices.DeleteFunc(slices.Clone(q.open), func(r projections.OpenRun) bool { return slices.Contains(except, r.ID) }), nil
}

func (q *quarantined) EndedRuns(context.Context, map[id.Run]id.Client) ([]id.Run, error) {
	return nil, nil
}

// Folding what a run has recorded is outside of its attempts, whose panics fail it.
func TestARunThatPanicsKeepsNoOtherFromItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := []projections.OpenRun{{Client: "cli_bad", Run: projections.Run{ID: "run_bad"}}, {Client: "cli_good", Run: projections.Run{ID: "run_good"}}}
		turns := map[id.Run]int{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c := &Clustering{Now: time.Now, Logger: slog.New(slog.DiscardHandler), Slots: 1}
		c.drive(ctx, stage{
			slots: 1,
			next: func(_ context.Context, except []id.Run) ([]projections.OpenRun, error) {
				return slices.DeleteFunc(slices.Clone(runs), func(r projections.OpenRun) bool { return slices.Contains(except, r.ID) }), nil
			},
			ended: func(context.Context, map[id.Run]id.Client) ([]id.Run, error) { return nil, nil },
			carryOut: func(_ context.Context, run projections.OpenRun, _ *memory) {
				if turns[run.ID]++; run.ID == "run_bad" {
					panic("it cannot be folded")
				}
			},
		})
		if turns["run_bad"] < 3 || turns["run_good"] != turns["run_bad"] {
			t.Errorf("in a minute the runs had turns: %v", turns)
		}
	})
}

func TestTheShapeOfARunTellsNoLevelThatFewHold(t *testing.T) {
	of := func(holders int, town string) string {
		s := traits.Infer(func(yield func(string, traits.Flat) bool) {
			for i := range 40 {
				said := "Lyon"
				if i < holders {
					said = town
				}
				if !yield(fmt.Sprint(i), traits.Flat{Values: []traits.Value{{Path: "town", Kind: traits.Text, Text: said}}}) {
					return
				}
			}
		}, nil)
		return testkit.Must(shape(s, time.Unix(0, 0)))(t)
	}
	if of(9, "Graz") != of(9, "Turin") {
		t.Error("the town of nine users can be tried")
	}
	if of(10, "Graz") == of(10, "Turin") {
		t.Error("two shapes have one hash")
	}
}

// retiring retires the layer of a run once the run has kept what it found of a first cluster.
type retiring struct {
	eventstore.Store
	retire func() error
}

func (s *retiring) Append(ctx context.Context, stream eventstore.Stream, expected eventstore.Revision, events []eventstore.Proposed) (eventstore.Appended, error) {
	appended, err := s.Store.Append(ctx, stream, expected, events)
	if err == nil && s.retire != nil && events[0].Type == "clustering_run.profiled" {
		err, s.retire = s.retire(), nil
	}
	return appended, err
}

func TestARunWhoseLayerIsRetiredWhileItPublishesFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newClusteringFixture(t)
		call, layer := o.populate("acme", 63, kinds)
		o.request(call, layer, 3)
		store := &retiring{Store: o.store, retire: func() error {
			_, err := o.RetireConsentLayer(t.Context(), call, layer)
			return err
		}}
		var log bytes.Buffer
		runs := o.process(store, 2)
		runs.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		o.until(runs, o.ends(1))
		if failed := facts[event.ClusteringFailed](o); len(failed) != 1 || failed[0].Code != "consent_layer_gone" || log.Len() > 0 {
			t.Errorf("it failed %+v; the log says %q", failed, log.String())
		}
	})
}
