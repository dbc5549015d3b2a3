package commands_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kindred/commands"
	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/testkit"
)

// campaignsInLog finds campaigns by reading the log.
type campaignsInLog struct{ w *fixture }

func (c campaignsInLog) Naming(ctx context.Context, client id.Client, segment id.Segment) (id.Campaign, error) {
	records, err := c.w.store.ReadAll(ctx, eventstore.Start, 1_000_000)
	if err != nil {
		return "", err
	}
	campaigns := map[id.Campaign]*domain.Campaign{}
	for _, r := range records {
		if r.Client != client {
			continue
		}
		recorded, err := c.w.log.Decode(r)
		if err != nil {
			return "", err
		}
		switch e := recorded.Event.(type) {
		case event.CampaignDrafted:
			campaigns[e.Campaign] = &domain.Campaign{}
			campaigns[e.Campaign].Apply(e, r.RecordedAt)
		case event.CampaignChanged:
			campaigns[e.Campaign].Apply(e, r.RecordedAt)
		case event.CampaignCancelled:
			campaigns[e.Campaign].Apply(e, r.RecordedAt)
		}
	}
	for _, one := range campaigns {
		if s := one.Segments; s != nil && !one.Over() {
			if slices.Contains(slices.Concat(s.AnyOf, s.NoneOf), segment) {
				return one.ID, nil
			}
		}
	}
	return "", nil
}

// pointers are where a fault says that something is wrong.
func pointers(err error) (at []string) {
	if f := fault.As(err); f != nil {
		for _, field := range f.Fields {
			at = append(at, field.Pointer)
		}
	}
	return at
}

func TestAnAudienceNamesSegmentsThatAreThere(t *testing.T) {
	w := newFixture(t)
	w.Audiences = campaignsInLog{w}
	_, acme := w.client(t, "acme@example.com")
	_, bolt := w.client(t, "bolt@example.com")
	layer, err1 := w.DefineConsentLayer(t.Context(), acme, "Ads", []string{"age"}, "")
	other, err2 := w.DefineConsentLayer(t.Context(), acme, "Mail", []string{"age"}, "")
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	segment := func(call commands.Call, layer id.ConsentLayer) id.Segment {
		t.Helper()
		made := testkit.Must(w.DefineSegment(t.Context(), call, "S", "traits.age > 30", layer))(t)
		return made.ID
	}
	free, second, layered, theirs := segment(acme, ""), segment(acme, ""), segment(acme, layer.ID), segment(bolt, "")
	draft := func(of event.SegmentAudience) (commands.Campaign, error) {
		terms := euros
		terms.Audience, terms.Segments = "segments", &of
		return w.DraftCampaign(t.Context(), acme, terms)
	}
	type ids = []id.Segment
	for what, c := range map[string]struct {
		of   event.SegmentAudience
		code string
		at   []string
	}{
		"another client's":          {event.SegmentAudience{AnyOf: ids{free, theirs}}, "invalid", []string{"/segments/any_of/1"}},
		"one that never was":        {event.SegmentAudience{NoneOf: ids{id.Next[id.Segment](id.Derived("no"))}}, "invalid", []string{"/segments/none_of/0"}},
		"no id":                     {event.SegmentAudience{AnyOf: ids{"x"}}, "invalid", []string{"/segments/any_of/0"}},
		"nothing":                   {event.SegmentAudience{}, "invalid", []string{"/segments"}},
		"one twice":                 {event.SegmentAudience{AnyOf: ids{free}, NoneOf: ids{free}}, "invalid", []string{"/segments/none_of/0"}},
		"too many":                  {event.SegmentAudience{AnyOf: make(ids, 21)}, "invalid", []string{"/segments/any_of"}},
		"too many others":           {event.SegmentAudience{NoneOf: make(ids, 21)}, "invalid", []string{"/segments/none_of"}},
		"a layered one of no layer": {event.SegmentAudience{AnyOf: ids{free}, NoneOf: ids{layered}}, "invalid", []string{"/segments/none_of/0"}},
		"one of no layer":           {event.SegmentAudience{Layer: layer.ID, AnyOf: ids{layered, free}}, "invalid", []string{"/segments/any_of/1"}},
		"one of another layer":      {event.SegmentAudience{Layer: other.ID, AnyOf: ids{layered}}, "invalid", []string{"/segments/any_of/0"}},
		"no layer":                  {event.SegmentAudience{Layer: "lay_x", AnyOf: ids{layered}}, "consent_layer_unknown", nil},
	} {
		_, err := draft(c.of)
		if diff := cmp.Diff(c.at, pointers(err)); !fault.Is(err, c.code) || diff != "" {
			t.Errorf("%s: %v %s", what, err, diff)
		}
	}
	campaign := testkit.Must(draft(event.SegmentAudience{AnyOf: ids{free}, NoneOf: ids{second}}))(t)
	if _, err := draft(event.SegmentAudience{Layer: layer.ID, AnyOf: ids{layered}}); err != nil {
		t.Error(err)
	}
	// Changed, it names what is there, too; what it named before may go.
	change := func(to event.SegmentAudience) error {
		_, err := w.ChangeCampaign(t.Context(), acme, campaign.ID, commands.ChangeCampaign{Segments: &to, Terms: func(t event.CampaignTerms) event.CampaignTerms {
			t.Segments = &to
			return t
		}})
		return err
	}
	retire := func(segment id.Segment) error {
		_, err := w.RetireSegment(t.Context(), acme, segment)
		return err
	}
	if err := change(event.SegmentAudience{AnyOf: ids{theirs}}); !fault.Is(err, "invalid") {
		t.Errorf("another client's: %v", err)
	}
	for _, named := range []id.Segment{free, second, layered} {
		if err := retire(named); !fault.Is(err, "segment_in_use") {
			t.Errorf("a segment that a campaign names is retired: %v", err)
		}
	}
	if err := change(event.SegmentAudience{AnyOf: ids{second}}); err != nil {
		t.Fatal(err)
	}
	if err := retire(free); err != nil {
		t.Errorf("a segment that no campaign names any more: %v", err)
	}
	if err := change(event.SegmentAudience{AnyOf: ids{free}}); !fault.Is(err, "invalid") {
		t.Errorf("a segment that was retired: %v", err)
	}
	if _, err := w.ChangeCampaign(t.Context(), acme, campaign.ID, commands.ChangeCampaign{
		Terms: func(t event.CampaignTerms) event.CampaignTerms { return t }, Status: "cancelled",
	}); err != nil {
		t.Fatal(err)
	}
	if err := retire(second); err != nil {
		t.Errorf("a segment of a campaign that has ended: %v", err)
	}
	if _, err := w.RetireSegment(t.Context(), bolt, theirs); err != nil {
		t.Error(err)
	}
}

// A draft that is repeated answers as the first did, whatever became of its segments.
func TestARepeatedDraftAsksNothingOfItsSegments(t *testing.T) {
	w := newFixture(t)
	w.Audiences = nobodyNames{}
	_, call := w.client(t, "acme@example.com")
	made := testkit.Must(w.DefineSegment(t.Context(), call, "S", "traits.age > 30", ""))(t)
	terms := euros
	terms.Audience, terms.Segments = "segments", &event.SegmentAudience{AnyOf: []id.Segment{made.ID}}
	first := testkit.Must(w.DraftCampaign(t.Context(), seeded(call, "k", "b"), terms))(t)
	if _, err := w.RetireSegment(t.Context(), call, made.ID); err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(time.Second)
	again, err := w.DraftCampaign(t.Context(), seeded(call, "k", "b"), terms)
	if err != nil || again.ID != first.ID {
		t.Errorf("%v %v, not %v", err, again.ID, first.ID)
	}
}

type nobodyNames struct{}

func (nobodyNames) Naming(context.Context, id.Client, id.Segment) (id.Campaign, error) {
	return "", nil
}

// The segments of a campaign are retired after it was recorded and before it names them, and so are
// those that it had before: it is over, since nobody can say any more whom it is for.
func TestACampaignWhoseSegmentsAreRetiredMeanwhileIsOver(t *testing.T) {
	for _, changes := range []bool{false, true} {
		w := newFixture(t)
		w.Audiences = nobodyNames{}
		_, call := w.client(t, "acme@example.com")
		var named []event.CampaignTerms
		var segments []id.Segment
		for range 2 {
			made := testkit.Must(w.DefineSegment(t.Context(), call, "S", "traits.age > 30", ""))(t)
			terms := euros
			terms.Audience, terms.Segments = "segments", &event.SegmentAudience{AnyOf: []id.Segment{made.ID}}
			named, segments = append(named, terms), append(segments, made.ID)
		}
		before, err := w.DraftCampaign(t.Context(), call, named[0])
		if err != nil {
			t.Fatal(err)
		}
		store := &overtaken{Store: w.store, kind: string(eventstore.SegmentsStream(call.Client)), append: true, by: func() {
			for _, segment := range segments {
				if _, err := w.RetireSegment(t.Context(), call, segment); err != nil {
					t.Fatal(err)
				}
			}
		}}
		c := w.process(store, w.keys)
		campaign := before.ID
		if changes {
			_, err = c.ChangeCampaign(t.Context(), call, campaign, commands.ChangeCampaign{
				Segments: named[1].Segments, Terms: func(event.CampaignTerms) event.CampaignTerms { return named[1] },
			})
		} else {
			var drafted commands.Campaign
			drafted, err = c.DraftCampaign(t.Context(), seeded(call, "k", "b"), named[1])
			campaign = drafted.ID
		}
		if !fault.Is(err, "invalid") {
			t.Errorf("changes %t: %v", changes, err)
		}
		if last, err := w.process(w.store, w.keys).AdvanceCampaign(t.Context(), call, campaign); err != nil || last.Status != "cancelled" {
			t.Errorf("changes %t: the campaign is %q, %v", changes, last.Status, err)
		}
	}
}

// Segments are retired while a campaign is drafted for one of them, and another one is
// changed from one to the other: whatever the order, no campaign that goes on names what is
// gone, and what was answered is so.
func TestNoCampaignNamesARetiredSegmentHoweverRequestsInterleave(t *testing.T) {
	orders := uint64(400)
	if testing.Short() {
		orders = 100
	}
	came := map[string]int{}
	for seed := range orders {
		w := newFixture(t)
		w.Audiences = campaignsInLog{w}
		_, call := w.client(t, "acme@example.com")
		var named [2]id.Segment
		for i := range named {
			made := testkit.Must(w.DefineSegment(t.Context(), call, "S", "traits.age > 30", ""))(t)
			named[i] = made.ID
		}
		terms := func(segment id.Segment) event.CampaignTerms {
			terms := euros
			terms.Audience, terms.Segments = "segments", &event.SegmentAudience{AnyOf: []id.Segment{segment}}
			return terms
		}
		older := testkit.Must(w.DraftCampaign(t.Context(), call, terms(named[0])))(t)
		var retired [2]error
		var drafted, changed error
		retire := func(i int) func(*commands.Commands) {
			return func(c *commands.Commands) { _, retired[i] = c.RetireSegment(t.Context(), call, named[i]) }
		}
		draft := func(c *commands.Commands) {
			for range 2 { // the second time it repeats what it did
				_, drafted = c.DraftCampaign(t.Context(), seeded(call, "k", "b"), terms(named[1]))
			}
		}
		change := func(c *commands.Commands) {
			_, changed = c.ChangeCampaign(t.Context(), call, older.ID, commands.ChangeCampaign{
				Segments: terms(named[1]).Segments, Terms: func(event.CampaignTerms) event.CampaignTerms { return terms(named[1]) },
			})
		}
		var run []func(*commands.Commands)
		for _, one := range []func(*commands.Commands){retire(0), retire(1), draft, change} {
			run = append(run, func(c *commands.Commands) { c.Audiences = campaignsInLog{w}; one(c) })
		}
		interleave(w, seed, run)
		for i, err := range retired {
			by, failed := campaignsInLog{w}.Naming(t.Context(), call.Client, named[i])
			if failed != nil || err != nil && !fault.Is(err, "segment_in_use") {
				t.Fatal(failed, err)
			}
			if err == nil && by != "" {
				t.Errorf("order %d: the segment %d is retired, and %s names it", seed, i, by)
			}
			came[fmt.Sprint("retired ", i, err == nil)]++
		}
		for what, err := range map[string]error{"drafted": drafted, "changed": changed} {
			if err != nil && (!fault.Is(err, "invalid") || retired[1] != nil) {
				t.Errorf("order %d: %s: %v", seed, what, err)
			}
			if err == nil && retired[1] == nil {
				t.Errorf("order %d: %s with a segment that is retired", seed, what)
			}
			came[fmt.Sprint(what, err == nil)]++
		}
	}
	if len(came) != 8 {
		t.Errorf("not everything came about: %v", came)
	}
	t.Log(came)
}
