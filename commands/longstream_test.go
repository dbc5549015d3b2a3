package commands_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kindred/commands"
	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/memstore"
	"kindred/testkit"
)

// fill appends so many events to the end of a stream, under random ids.
func (w *fixture) fill(t *testing.T, call commands.Call, stream eventstore.Stream, n int, each func(i int) event.Event) {
	t.Helper()
	for done := 0; done < n; {
		end := testkit.Must(w.log.Version(t.Context(), stream))(t)
		page := make([]event.Event, min(n-done, eventstore.MaxAppend))
		for i := range page {
			page[i] = each(done + i)
		}
		if _, err := w.log.Append(t.Context(), end, eventstore.Origin{Client: call.Client, Actor: "test"}, id.Random(w.Entropy), page...); err != nil {
			t.Fatal(err)
		}
		done += len(page)
	}
}

// lags are how far the read models are behind in a test.
var lags = map[string]int{"the read model has caught up": 0, "the read model lags": 400, "the read model is empty": 1_000_000}

// overtaken is a store before whose next append to a stream of a kind, or read of
// its end, somebody else does something.
type overtaken struct {
	eventstore.Store
	kind   string
	append bool
	by     func()
}

func (s *overtaken) overtake(stream eventstore.Stream) {
	if by := s.by; by != nil && strings.HasPrefix(string(stream), s.kind) {
		s.by = nil
		by()
	}
}

func (s *overtaken) Append(ctx context.Context, stream eventstore.Stream, expected eventstore.Revision, events []eventstore.Proposed) (eventstore.Appended, error) {
	if s.append {
		s.overtake(stream)
	}
	return s.Store.Append(ctx, stream, expected, events)
}

func (s *overtaken) ReadBack(ctx context.Context, stream eventstore.Stream, from eventstore.Revision, limit int) ([]eventstore.Record, error) {
	if !s.append {
		s.overtake(stream)
	}
	return s.Store.ReadBack(ctx, stream, from, limit)
}

// A page of a feed is opened twice at once, and other pages meanwhile.
func TestAnImpressionIsRecordedOnceHoweverRequestsInterleave(t *testing.T) {
	for name, behind := range lags {
		for _, between := range []int{1, 20, 600} {
			t.Run(fmt.Sprintf("%s, %d between", name, between), func(t *testing.T) {
				w, call := fixtureWithUser(t)
				one, others := w.spender(w.store, always(behind)), w.spender(w.store, always(0))
				campaign := running(t, one, call, euros)
				show := func(c *commands.Commands, page string) eventstore.Recorded {
					t.Helper()
					call := commands.Call{Client: call.Client, Actor: "policy:feed", Seed: []string{"feed", page}}
					return testkit.Must(c.RecordEngagement(t.Context(), call, commands.Engage{Campaign: campaign, Kind: "impression", User: "ext:u1"}))(t)
				}
				show(one, "before")
				var first eventstore.Recorded
				store := &overtaken{Store: w.store, kind: "impressions", by: func() {
					first = show(one, "X")
					for i := range between {
						show(others, fmt.Sprint("Y", i))
					}
				}}
				two := w.spender(store, always(behind))
				second := show(two, "X")
				if first.Revision != second.Revision || first.Event != second.Event {
					t.Errorf("the two are told of revisions %d and %d", first.Revision, second.Revision)
				}
				shown := map[id.Impression]int{}
				for _, r := range w.records(t) {
					if e, ok := r.Event.(event.CampaignEngagementRecorded); ok {
						shown[e.Impression]++
					}
				}
				if len(shown) != between+2 {
					t.Errorf("%d impressions, not %d", len(shown), between+2)
				}
				for impression, n := range shown {
					if n > 1 {
						t.Errorf("%s is recorded %d times", impression, n)
					}
				}
			})
		}
	}
}

func TestAnInteractionIsRecordedOnceHoweverManyFollow(t *testing.T) {
	for name, behind := range lags {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			call, in := w.shown(t)
			c := w.spender(w.store, always(behind))
			keyed := in
			keyed.Impression = ""
			dismissed := in
			dismissed.Kind, dismissed.Impression = "dismiss", ""
			record := func(call commands.Call, in commands.Interact) commands.Interaction {
				t.Helper()
				return testkit.Must(c.Interact(t.Context(), call, in))(t)
			}
			first := []commands.Interaction{record(seeded(call, "k1", "b1"), keyed), record(call, in), record(call, dismissed)}
			stream := eventstore.InteractionStream(call.Client, first[0].User, first[0].Item)
			w.fill(t, call, stream, 1_000, func(int) event.Event {
				return event.InteractionRecorded{User: first[0].User, Item: first[0].Item, Kind: "click"}
			})
			before := w.length(t)
			again := []commands.Interaction{record(seeded(call, "k1", "b1"), keyed), record(call, in), record(call, dismissed)}
			first[1].Position, first[2].Position = "", "" // what was known is told without
			if diff := cmp.Diff(first, again, exportEvents); diff != "" {
				t.Errorf("the repetitions differ (-first +again):\n%s", diff)
			}
			if n := w.length(t) - before; n != 0 {
				t.Errorf("the repetitions recorded %d events", n)
			}
			_, err := c.Interact(t.Context(), seeded(call, "k1", "b2"), keyed)
			wantFault(t, err, "idempotency_key_reused")
		})
	}
}

func TestMatchesAreFoundAgainHoweverManyFollow(t *testing.T) {
	for name, behind := range lags {
		t.Run(name, func(t *testing.T) {
			w, call := fixtureWithUser(t)
			c := w.spender(w.store, always(behind))
			in := commands.ComputeMatches{User: "ext:u1", Limit: 5, Record: true}
			first := testkit.Must(c.ComputeMatches(t.Context(), seeded(call, "k1", "b1"), in))(t)
			w.fill(t, call, eventstore.MatchStream(call.Client, first.User), 10_001, func(int) event.Event {
				return event.MatchComputed{User: first.User, MatchedUser: "usr_0000000000000000000000000g", Score: 0.5}
			})
			before := w.length(t)
			again, err := c.ComputeMatches(t.Context(), seeded(call, "k1", "b1"), in)
			if diff := cmp.Diff(shown(first), shown(again)); err != nil || diff != "" {
				t.Errorf("the repetition: %v %s", err, diff)
			}
			if n := w.length(t) - before; n != 0 {
				t.Errorf("the repetition recorded %d events", n)
			}
			_, err = c.ComputeMatches(t.Context(), seeded(call, "k1", "b2"), in)
			wantFault(t, err, "idempotency_key_reused")
		})
	}
}

func TestARunIsFoundAgainHoweverManyFollow(t *testing.T) {
	w, call := fixtureWithUser(t)
	layer := testkit.Must(w.DefineConsentLayer(t.Context(), call, "Research", []string{"a"}, ""))(t)
	in := commands.RequestRun{RunScope: event.RunScope{Layer: layer.ID}}
	first := testkit.Must(w.RequestRun(t.Context(), seeded(call, "k1", "b1"), in))(t)
	if _, err := w.CancelRun(t.Context(), call, in.RunScope, first.Run); err != nil {
		t.Fatal(err)
	}
	w.fill(t, call, eventstore.RunsStream(call.Client, in.RunScope), 10_002, func(i int) event.Event {
		run := id.Next[id.Run](id.Derived(fmt.Sprint(i / 2)))
		if i%2 == 0 {
			return event.ClusteringRequested{Run: run, Layer: layer.ID}
		}
		return event.ClusteringCancelled{Run: run, Layer: layer.ID}
	})
	again, err := w.RequestRun(t.Context(), seeded(call, "k1", "b1"), in)
	if diff := cmp.Diff(first, again, exportEvents); err != nil || diff != "" {
		t.Errorf("the repetition: %v %s", err, diff)
	}
	_, err = w.RequestRun(t.Context(), seeded(call, "k1", "b2"), in)
	wantFault(t, err, "idempotency_key_reused")
}

func TestARepeatedConversionFindsItsImpressionBehindHundreds(t *testing.T) {
	for name, behind := range map[string]int{"caught up": 0, "a little behind": 60} {
		t.Run(name, func(t *testing.T) {
			w, call := fixtureWithUser(t)
			c := w.spender(w.store, always(behind))
			campaign := running(t, c, call, euros)
			see := func() {
				t.Helper()
				if _, err := c.RecordEngagement(t.Context(), call, commands.Engage{Campaign: campaign, Kind: "impression", User: "ext:u1"}); err != nil {
					t.Fatal(err)
				}
			}
			convert := func() (any, error) {
				done, err := c.RecordEngagement(t.Context(), seeded(call, "k1", "b1"), commands.Engage{Campaign: campaign, Kind: "conversion", User: "ext:u1"})
				return done.Event, err
			}
			see()
			see()
			first := testkit.Must(convert())(t)
			for range 700 {
				see()
			}
			before := w.length(t)
			again, err := convert()
			if err != nil || again != first {
				t.Errorf("repeated %+v, %v; first %+v", again, err, first)
			}
			if n := w.length(t) - before; n != 0 {
				t.Errorf("the repetition recorded %d events", n)
			}
		})
	}
}

func TestOneSpendIDWithTwoAmountsInTwoProcessesIsRefusedToTheSecond(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "a@example.com")
	one := w.spender(w.store, always(0))
	campaign := running(t, one, call, euros)
	store := &overtaken{Store: w.store, append: true}
	two := w.spender(store, always(0))
	spend := func(c *commands.Commands, spendID string, amount int64) (commands.SpendRecorded, error) {
		return c.RecordSpend(t.Context(), call, commands.Spend{Campaign: campaign, ID: spendID, AmountMinor: amount})
	}
	for _, c := range []*commands.Commands{one, two} {
		if _, err := spend(c, "before", 1); err != nil {
			t.Fatal(err)
		}
	}
	store.by = func() {
		if _, err := spend(one, "same", 2); err != nil {
			t.Error(err)
		}
	}
	done, err := spend(two, "same", 3)
	if err == nil {
		t.Errorf("the second is told that %d were recorded", done.AmountMinor)
	}
	wantFault(t, err, "spend_id_reused")
	store.by = func() {
		if _, err := spend(one, "equal", 4); err != nil {
			t.Error(err)
		}
	}
	if done, err := spend(two, "equal", 4); err != nil || done.SpentMinor != 7 {
		t.Errorf("the same amount: %+v, %v", done, err)
	}
	if _, total := w.spends(t, campaign); total != 7 {
		t.Errorf("%d were spent, not 7", total)
	}
}

// switching is a store that another takes the place of, as a standby does.
type switching struct{ eventstore.Store }

// setBack makes a log that holds only what stood up to a position.
func (w *fixture) setBack(t *testing.T, to eventstore.Position) *memstore.Store {
	t.Helper()
	records := testkit.Must(w.store.ReadAll(t.Context(), eventstore.Start, 1_000_000))(t)
	older := memstore.New("test")
	for _, r := range records {
		if r.Position > to {
			break
		}
		if _, err := older.Append(t.Context(), r.Stream, r.Revision-1, []eventstore.Proposed{r.Proposed}); err != nil {
			t.Fatal(err)
		}
	}
	w.store = older
	w.mu.Lock()
	w.model.positions = nil
	*w.model = *newModel(w)
	w.mu.Unlock()
	return older
}

// A failover has lost what was acknowledged: a repetition is how a client heals.
func TestASpendThatTheLogHasLostIsRecordedAgain(t *testing.T) {
	for _, told := range []bool{false, true} {
		for _, regrown := range []bool{false, true} {
			if regrown && !told {
				continue // another's events in place of the lost ones: only the server tells
			}
			t.Run(fmt.Sprintf("the server is known to be another: %t, others have spent since: %t", told, regrown), func(t *testing.T) {
				w := newFixture(t)
				_, call := w.client(t, "a@example.com")
				store := &switching{w.store}
				server := int64(1)
				c := w.spender(store, always(0))
				c.Server = func() int64 { return server }
				campaign := running(t, c, call, euros)
				spend := func(c *commands.Commands, spendID string) commands.SpendRecorded {
					t.Helper()
					return testkit.Must(c.RecordSpend(t.Context(), call, commands.Spend{Campaign: campaign, ID: spendID, AmountMinor: 5}))(t)
				}
				kept := spend(c, "kept")
				spend(c, "lost")
				store.Store = w.setBack(t, kept.Position)
				w.log.Store = store
				if told {
					server++
				}
				if regrown {
					spend(w.spender(store, always(0)), "other")
				}
				for range 2 {
					spend(c, "lost")
				}
				ids, total := w.spends(t, campaign)
				if _, there := ids["lost"]; !there || total != int64(5*len(ids)) || len(ids) < 2 {
					t.Errorf("the log holds %v, %d in all", ids, total)
				}
			})
		}
	}
}

// The first run stands still between its look and its append; the second is done
// meanwhile.
func TestARotationThatWasOvertakenByItselfShowsTheSecretThatSigns(t *testing.T) {
	w, call := fixtureWithUser(t)
	hook, err := w.Subscribe(t.Context(), call, commands.Subscribe{URL: "https://x.example", EventTypes: []string{"match.computed"}})
	if err != nil {
		t.Fatal(err)
	}
	store := &overtaken{Store: w.store, append: true}
	slow := w.process(store, w.keys)
	post := seeded(call, "k1", "b1")
	var second string
	store.by = func() {
		if _, second, err = w.RotateSecret(t.Context(), post, hook.ID, nil); err != nil {
			t.Error(err)
		}
	}
	_, first, err := slow.RotateSecret(t.Context(), post, hook.ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range w.records(t) {
		if _, ok := r.Event.(event.WebhookSecretRotated); !ok {
			continue
		}
		recorded, err := w.log.Open(t.Context(), r, "secret")
		if err != nil || first != string(recorded) || second != string(recorded) {
			t.Errorf("shown are %q and %q, recorded is %q, %v", first, second, recorded, err)
		}
	}
	if n := w.count(t, "webhook.secret_rotated"); n != 1 {
		t.Errorf("rotated %d times", n)
	}
}

// What a command reads does not grow with how often its object was changed.
func TestWhatIsChangedOftenCostsNoMoreThanAPage(t *testing.T) {
	const most = 130 // events of one stream, for any command
	w, call := fixtureWithUser(t)
	w.matcher.found = manyMatches(1, 10)
	reads := &countingStore{Store: w.store}
	c := w.spender(reads, always(0))
	hook, err := c.Subscribe(t.Context(), call, commands.Subscribe{URL: "https://x.example", EventTypes: []string{"match.computed"}})
	if err != nil {
		t.Fatal(err)
	}
	layer := testkit.Must(c.DefineConsentLayer(t.Context(), call, "Research", []string{"a"}, ""))(t)
	member := testkit.Must(c.AddMember(t.Context(), call, commands.AddMember{Email: "bob@example.com", Role: "admin", Password: "x"}))(t)
	campaign := running(t, c, call, euros)
	draft := testkit.Must(c.DraftCampaign(t.Context(), call, euros))(t)
	n := 0
	name := func() *string { n++; return new(fmt.Sprint("name ", n)) }
	rename := func(terms event.CampaignTerms) event.CampaignTerms { terms.Name = *name(); return terms }
	grant := func(yes bool) error {
		_, err := c.ChangeConsent(t.Context(), call, commands.ChangeConsents{Layer: layer.ID, Grant: yes, Users: []commands.UserRef{"ext:u1"}})
		return err
	}
	paused := false
	changes := map[string]func() error{
		"a client": func() error {
			_, err := c.ChangeClient(t.Context(), call, commands.ClientChange{Name: name()})
			return err
		},
		"a layer": func() error {
			_, err := c.ChangeConsentLayer(t.Context(), call, layer.ID, name(), nil, nil)
			return err
		},
		"a subscription": func() error {
			paused = !paused
			status := map[bool]string{true: "paused", false: "active"}[paused]
			_, err := c.ChangeWebhook(t.Context(), call, hook.ID, commands.ChangeWebhook{Status: &status})
			return err
		},
		"a decision": func() error {
			_, err := c.OverrideTraits(t.Context(), call, []byte(`{"a":{"weight":`+fmt.Sprint(n%9)+`}}`))
			n++
			return err
		},
		"a consent": func() error { return errorsOf(grant(true), grant(false), grant(true)) },
		"an address": func() error {
			added, err := c.AddMember(t.Context(), call, commands.AddMember{Email: "eve@example.com", Role: "viewer", Password: "x"})
			if err == nil {
				_, err = c.RemoveMember(t.Context(), call, added.Member)
			}
			return err
		},
	}
	for range 130 {
		for what, change := range changes {
			if err := change(); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
	for range 1_100 { // a stream of a campaign holds more
		for _, campaign := range []id.Campaign{campaign, draft.ID} {
			if _, err := c.ChangeCampaign(t.Context(), call, campaign, commands.ChangeCampaign{Terms: rename}); err != nil {
				t.Fatal(err)
			}
		}
	}
	uses := map[string]func() error{
		"a log-in": func() error { _, err := c.AccountByEmail(t.Context(), "bob@example.com"); return err },
		"matches": func() error {
			_, err := c.ComputeMatches(t.Context(), call, commands.ComputeMatches{User: "ext:u1", Limit: 1, Record: true})
			return err
		},
		"matches under a layer": func() error {
			_, err := c.ComputeMatches(t.Context(), call, commands.ComputeMatches{User: "ext:u1", Limit: 1, Layer: layer.ID, Record: true})
			return err
		},
		"decisions": func() error {
			_, _, err := c.TraitSchemaAt(t.Context(), call.Client, "99999999999999999999")
			return err
		},
		"a rotation": func() error {
			_, _, err := c.RotateSecret(t.Context(), seeded(call, "k1", "b1"), hook.ID, new("chosen"))
			return err
		},
		"a rotation again": func() error {
			_, _, err := c.RotateSecret(t.Context(), seeded(call, "k1", "b1"), hook.ID, new("chosen"))
			return err
		},
		"a consent again": func() error {
			_, err := c.ChangeConsent(t.Context(), seeded(call, "k2", "b1"), commands.ChangeConsents{Layer: layer.ID, Users: []commands.UserRef{"ext:u1"}})
			return err
		},
		"a removal": func() error { _, err := c.RemoveMember(t.Context(), call, member.Member); return err },
	}
	for what, change := range changes {
		uses["a change of "+what] = change
	}
	order := []string{"a log-in", "matches", "matches under a layer", "decisions", "a rotation", "a rotation again", "a consent again"}
	for what := range changes {
		order = append(order, "a change of "+what)
	}
	for _, what := range append(order, "a removal") {
		streams := &perStream{Store: w.store, read: map[eventstore.Stream]int{}}
		reads.Store = streams
		if err := uses[what](); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		for stream, n := range streams.read {
			if n > 5*most { // adding and removing a member look at the client five times
				t.Errorf("%s reads %d events of %s", what, n, stream)
			}
		}
		if streams.page > most {
			t.Errorf("%s reads %d events at once", what, streams.page)
		}
	}
	cold := &countingStore{Store: w.store}
	for _, campaign := range []id.Campaign{campaign, draft.ID} {
		before := cold.events.Load()
		if _, err := w.spender(cold, always(0)).ChangeCampaign(t.Context(), call, campaign, commands.ChangeCampaign{Terms: rename}); err != nil {
			t.Fatal(err)
		}
		if read := cold.events.Load() - before; read > 1_010 {
			t.Errorf("a campaign that was changed often costs %d events", read)
		}
	}
}

func errorsOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// perStream counts the events that are read of each stream, and the most at once.
type perStream struct {
	eventstore.Store
	mu   sync.Mutex
	read map[eventstore.Stream]int
	page int
}

func (s *perStream) count(stream eventstore.Stream, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read[stream] += n
	s.page = max(s.page, n)
}

func (s *perStream) ReadStream(ctx context.Context, stream eventstore.Stream, from eventstore.Revision, limit int) ([]eventstore.Record, error) {
	found, err := s.Store.ReadStream(ctx, stream, from, limit)
	s.count(stream, len(found))
	return found, err
}

func (s *perStream) ReadBack(ctx context.Context, stream eventstore.Stream, from eventstore.Revision, limit int) ([]eventstore.Record, error) {
	found, err := s.Store.ReadBack(ctx, stream, from, limit)
	s.count(stream, len(found))
	return found, err
}

// A stream that was long before there were snapshots is read whole until its next
// change, which takes one.
func TestAStreamFromBeforeSnapshotsIsReadWholeOnceMore(t *testing.T) {
	w, call := fixtureWithUser(t)
	reads := &countingStore{Store: w.store}
	c := w.spender(reads, always(0))
	w.fill(t, call, eventstore.ClientStream(call.Client), 3_000, func(i int) event.Event {
		return event.ClientRenamed{Client: call.Client, Name: fmt.Sprint("name ", i)}
	})
	logIn := func() int64 {
		t.Helper()
		before := reads.events.Load()
		account, err := c.AccountByEmail(t.Context(), "ada@example.com")
		if err != nil || account.Role != "owner" || account.Email != "ada@example.com" {
			t.Fatalf("%+v, %v", account, err)
		}
		return reads.events.Load() - before
	}
	if read := logIn(); read < 3_000 {
		t.Fatalf("%d events were read", read)
	}
	changed, err := c.ChangeClient(t.Context(), call, commands.ClientChange{Name: new("after")})
	if err != nil || changed.Name != "after" || changed.Slug == "" || changed.Outcome.Revision != 3_003 {
		t.Fatalf("%+v, %v", changed, err)
	}
	if read := logIn(); read > 130 {
		t.Errorf("%d events were read after a snapshot", read)
	}
	if n := w.count(t, "client.snapshot_taken"); n != 1 {
		t.Errorf("%d snapshots", n)
	}
	w.later()
	w.check(t)
}

// A client may have so many segments, of such long names, that no event holds them all.
func TestSegmentsThatNoSnapshotHoldsAreChangedAllTheSame(t *testing.T) {
	w := newFixture(t)
	w.Audiences = campaignsInLog{w}
	_, call := w.client(t, "acme@example.com")
	all := make([]id.Segment, 800)
	long := strings.Repeat("名", 200)
	w.fill(t, call, eventstore.SegmentsStream(call.Client), len(all), func(i int) event.Event {
		all[i] = id.Next[id.Segment](id.Random(w.Entropy))
		return event.SegmentDefined{Segment: all[i], Name: long, Rule: event.Private([]byte("traits.a > 1"))}
	})
	rename := func(segment id.Segment, name string) {
		t.Helper()
		if _, err := w.ChangeSegment(t.Context(), call, segment, &name, nil); err != nil {
			t.Fatal(err)
		}
	}
	rename(all[0], "short")
	if n := w.count(t, "segment.snapshot_taken"); n != 0 {
		t.Fatalf("%d snapshots: the segments are too few to show anything", n)
	}
	_, err := w.ChangeSegment(t.Context(), call, all[0], &long, new("in_segment(\""+string(all[1])+"\")"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.RetireSegment(t.Context(), call, all[1])
	wantFault(t, err, "segment_in_use")
	for _, segment := range all[750:] { // then the others fit again
		if _, err := w.RetireSegment(t.Context(), call, segment); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.count(t, "segment.snapshot_taken"); n == 0 {
		t.Error("no snapshot was taken since")
	}
	rename(all[749], "still there")
}

// Adding stands still while its member is barred, and long enough for a snapshot.
func TestAMemberThatWasBarredBeforeASnapshotIsNotAdded(t *testing.T) {
	w, call := fixtureWithUser(t)
	// The process stands still once the address is reserved, and before it looks again.
	store := &overtaken{Store: w.store, kind: "client", by: func() {}}
	store.by = func() { // its first look, before the address is reserved
		store.by = func() {
			w.later()
			if err := w.sweep(t.Context(), w.Commands); err != nil {
				t.Error(err)
			}
			for i := range 300 {
				if _, err := w.ChangeClient(t.Context(), call, commands.ClientChange{Name: new(fmt.Sprint("name ", i))}); err != nil {
					t.Error(err)
				}
			}
		}
	}
	slow := w.process(store, w.keys)
	_, err := slow.AddMember(t.Context(), call, commands.AddMember{Email: "new@example.com", Role: "viewer", Password: "x"})
	wantFault(t, err, "add_again")
	if n := w.count(t, "member.abandoned"); n == 0 {
		t.Errorf("%d members are abandoned", n)
	}
	w.driveOn(t)
	w.check(t)
}
