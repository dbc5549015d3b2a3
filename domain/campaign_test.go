package domain_test

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
)

const spring id.Campaign = "cam_00000000000000000000000001"

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(after time.Duration) *time.Time {
	t := noon.Add(after)
	return &t
}

// terms are those of a campaign of 10 euros, with changes.
func terms(changes ...func(*event.CampaignTerms)) event.CampaignTerms {
	t := event.CampaignTerms{Name: "Spring", BudgetMinor: 1_000, Currency: "EUR", Audience: "all"}
	for _, change := range changes {
		change(&t)
	}
	return t
}

func TestCampaign(t *testing.T) {
	soon := terms(func(t *event.CampaignTerms) { t.StartsAt = at(time.Hour) })
	short := terms(func(t *event.CampaignTerms) { t.EndsAt = at(-time.Second) })
	ancient := terms(func(t *event.CampaignTerms) { t.StartsAt = new(time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)) })
	renamed := ancient
	renamed.Name = "Autumn"
	drafted := event.CampaignDrafted{Campaign: spring, CampaignTerms: terms()}
	started := event.CampaignStarted{Campaign: spring, StartedAt: noon}
	paused := event.CampaignPaused{Campaign: spring}
	spent := func(amount, total int64) event.CampaignSpendRecorded {
		return event.CampaignSpendRecorded{Campaign: spring, SpendID: "s", AmountMinor: amount, Currency: "EUR", SpentMinor: total, BudgetMinor: 1_000}
	}
	become := func(status string, change ...func(*event.CampaignTerms)) func(*domain.Campaign) ([]event.Event, error) {
		return func(c *domain.Campaign) ([]event.Event, error) {
			wanted := c.CampaignTerms
			for _, f := range change {
				f(&wanted)
			}
			return c.Change(wanted, status, noon)
		}
	}
	spend := func(amount int64) func(*domain.Campaign) ([]event.Event, error) {
		return func(c *domain.Campaign) ([]event.Event, error) { return c.Spend("s", amount, nil, noon) }
	}
	repeat := func(amount int64, recorded event.CampaignSpendRecorded) func(*domain.Campaign) ([]event.Event, error) {
		return func(c *domain.Campaign) ([]event.Event, error) { return c.Spend("s", amount, &recorded, noon) }
	}
	advance := func(c *domain.Campaign) ([]event.Event, error) { return c.Advance(noon), nil }
	segments := func(layer, in, out string) event.CampaignTerms { // by the last sign of each id
		return terms(func(t *event.CampaignTerms) {
			t.Audience = domain.AudienceSegments
			t.Segments = &event.SegmentAudience{
				Layer: id.ConsentLayer("lay_0000000000000000000000000" + layer),
				AnyOf: []id.Segment{id.Segment("seg_0000000000000000000000000" + in)}, NoneOf: []id.Segment{id.Segment("seg_0000000000000000000000000" + out)},
			}
		})
	}
	segmented := event.CampaignDrafted{Campaign: spring, CampaignTerms: segments("0", "0", "4")}
	changed := func(t event.CampaignTerms) []event.Event {
		return []event.Event{event.CampaignChanged{Campaign: spring, CampaignTerms: t}}
	}
	change := func(t event.CampaignTerms) func(*domain.Campaign) ([]event.Event, error) {
		return func(c *domain.Campaign) ([]event.Event, error) { return c.Change(t, "", noon) }
	}
	takeBack := func(of event.CampaignTerms, before *event.CampaignTerms) func(*domain.Campaign) ([]event.Event, error) {
		return func(c *domain.Campaign) ([]event.Event, error) { return c.TakeBack(of.Segments, before), nil }
	}

	for sentence, s := range map[string]struct {
		given []event.Event
		when  func(*domain.Campaign) ([]event.Event, error)
		then  []event.Event
		fault string
		at    string
	}{
		"a draft that is told to run starts": {
			given: []event.Event{drafted}, when: become("running"), then: []event.Event{started},
		},
		"a draft whose time is to come is scheduled": {
			given: []event.Event{event.CampaignDrafted{Campaign: spring, CampaignTerms: soon}}, when: become("running"),
			then: []event.Event{event.CampaignScheduled{Campaign: spring}},
		},
		"a draft whose time has come starts": {
			given: []event.Event{event.CampaignDrafted{Campaign: spring, CampaignTerms: terms(func(t *event.CampaignTerms) { t.StartsAt = at(0) })}},
			when:  become("running"), then: []event.Event{started},
		},
		"scheduling twice adds nothing": {
			given: []event.Event{event.CampaignDrafted{Campaign: spring, CampaignTerms: soon}, event.CampaignScheduled{Campaign: spring}},
			when:  become("running"),
		},
		"a scheduled campaign whose start is taken away runs at once": {
			given: []event.Event{event.CampaignDrafted{Campaign: spring, CampaignTerms: soon}, event.CampaignScheduled{Campaign: spring}},
			when:  become("running", func(t *event.CampaignTerms) { t.StartsAt = nil }),
			then:  []event.Event{event.CampaignChanged{Campaign: spring, CampaignTerms: terms()}, started},
		},
		"a scheduled campaign does not start before its time": {
			given: []event.Event{event.CampaignDrafted{Campaign: spring, CampaignTerms: soon}, event.CampaignScheduled{Campaign: spring}},
			when:  advance,
		},
		"a scheduled campaign starts when its time comes": {
			given: []event.Event{
				event.CampaignDrafted{Campaign: spring, CampaignTerms: terms(func(t *event.CampaignTerms) { t.StartsAt = at(0) })},
				event.CampaignScheduled{Campaign: spring},
			},
			when: advance, then: []event.Event{started},
		},
		"a campaign whose end has passed is completed": {
			given: []event.Event{event.CampaignDrafted{Campaign: spring, CampaignTerms: short}, started}, when: advance,
			then: []event.Event{event.CampaignCompleted{Campaign: spring, Reason: "time"}},
		},
		"a paused campaign whose end has passed is completed": {
			given: []event.Event{event.CampaignDrafted{Campaign: spring, CampaignTerms: short}, started, paused}, when: advance,
			then: []event.Event{event.CampaignCompleted{Campaign: spring, Reason: "time"}},
		},
		"a draft whose end has passed stays a draft": {
			given: []event.Event{event.CampaignDrafted{Campaign: spring, CampaignTerms: short}}, when: advance,
		},
		"a draft whose end has passed cannot run": {
			given: []event.Event{event.CampaignDrafted{Campaign: spring, CampaignTerms: short}}, when: become("running"),
			fault: "invalid", at: "/ends_at",
		},
		"a draft whose end has passed can be given another": {
			given: []event.Event{event.CampaignDrafted{Campaign: spring, CampaignTerms: short}},
			when:  become("", func(t *event.CampaignTerms) { t.EndsAt = nil }),
			then:  []event.Event{event.CampaignChanged{Campaign: spring, CampaignTerms: terms()}},
		},
		"a campaign whose end has passed is given no other": {
			given: []event.Event{event.CampaignDrafted{Campaign: spring, CampaignTerms: short}, started},
			when:  become("", func(t *event.CampaignTerms) { t.EndsAt = at(time.Hour) }), fault: "campaign_over",
		},
		"a paused campaign whose end has passed is given no other": {
			given: []event.Event{event.CampaignDrafted{Campaign: spring, CampaignTerms: short}, started, paused},
			when:  become("running", func(t *event.CampaignTerms) { t.EndsAt = nil }), fault: "campaign_over",
		},
		"a scheduled campaign whose end has passed is given no other": {
			given: []event.Event{event.CampaignDrafted{Campaign: spring, CampaignTerms: short}, event.CampaignScheduled{Campaign: spring}},
			when:  become("", func(t *event.CampaignTerms) { t.EndsAt = at(time.Hour) }), fault: "campaign_over",
		},
		"a campaign that started in the year 0 can be renamed": {
			given: []event.Event{event.CampaignDrafted{Campaign: spring, CampaignTerms: ancient}, started},
			when:  become("", func(t *event.CampaignTerms) { t.Name = "Autumn" }),
			then:  []event.Event{event.CampaignChanged{Campaign: spring, CampaignTerms: renamed}},
		},
		"a running campaign pauses":  {given: []event.Event{drafted, started}, when: become("paused"), then: []event.Event{paused}},
		"pausing twice adds nothing": {given: []event.Event{drafted, started, paused}, when: become("paused")},
		"a paused campaign resumes": {
			given: []event.Event{drafted, started, paused}, when: become("running"), then: []event.Event{event.CampaignResumed{Campaign: spring}},
		},
		"a draft cannot pause": {given: []event.Event{drafted}, when: become("paused"), fault: "campaign_not_running"},
		"a draft can be cancelled": {
			given: []event.Event{drafted}, when: become("cancelled"), then: []event.Event{event.CampaignCancelled{Campaign: spring}},
		},
		"cancelling twice adds nothing":   {given: []event.Event{drafted, event.CampaignCancelled{Campaign: spring}}, when: become("cancelled")},
		"a cancelled campaign stays so":   {given: []event.Event{drafted, event.CampaignCancelled{Campaign: spring}}, when: become("running"), fault: "campaign_over"},
		"a cancelled campaign is not due": {given: []event.Event{event.CampaignDrafted{Campaign: spring, CampaignTerms: short}, event.CampaignCancelled{Campaign: spring}}, when: advance},
		"a campaign cannot be told to be completed": {
			given: []event.Event{drafted, started}, when: become("completed"), fault: "invalid", at: "/status",
		},
		"what is not there cannot change": {when: become("running"), fault: "campaign_unknown"},

		"a spend below the budget is counted": {
			given: []event.Event{drafted, started}, when: spend(999), then: []event.Event{spent(999, 999)},
		},
		"the spend that reaches the budget completes the campaign": {
			given: []event.Event{drafted, started, spent(999, 999)}, when: spend(1),
			then: []event.Event{
				spent(1, 1_000),
				event.CampaignBudgetExhausted{Campaign: spring, BudgetMinor: 1_000, SpentMinor: 1_000},
				event.CampaignCompleted{Campaign: spring, Reason: "budget"},
			},
		},
		"the spend that crosses the budget is taken in full": {
			given: []event.Event{drafted, started, spent(999, 999)}, when: spend(500),
			then: []event.Event{
				spent(500, 1_499),
				event.CampaignBudgetExhausted{Campaign: spring, BudgetMinor: 1_000, SpentMinor: 1_499},
				event.CampaignCompleted{Campaign: spring, Reason: "budget"},
			},
		},
		"a spend is counted up to the largest amount": {
			given: []event.Event{drafted, started, spent(999, 999)}, when: spend(1<<53 - 1_000),
			then: []event.Event{
				spent(1<<53-1_000, 1<<53-1),
				event.CampaignBudgetExhausted{Campaign: spring, BudgetMinor: 1_000, SpentMinor: 1<<53 - 1},
				event.CampaignCompleted{Campaign: spring, Reason: "budget"},
			},
		},
		"a spend beyond the largest amount is refused": {
			given: []event.Event{drafted, started, spent(999, 999)}, when: spend(1<<53 - 999), fault: "invalid", at: "/amount_minor",
		},
		"a draft spends nothing":              {given: []event.Event{drafted}, when: spend(1), fault: "campaign_not_running"},
		"a paused campaign spends nothing":    {given: []event.Event{drafted, started, paused}, when: spend(1), fault: "campaign_not_running"},
		"a completed campaign spends nothing": {given: []event.Event{drafted, started, event.CampaignCompleted{Campaign: spring}}, when: spend(1), fault: "campaign_not_running"},
		"nothing is spent after the end, recorded or not": {
			given: []event.Event{event.CampaignDrafted{Campaign: spring, CampaignTerms: short}, started}, when: spend(1), fault: "campaign_not_running",
		},
		"a spend of nothing is refused": {given: []event.Event{drafted, started}, when: spend(0), fault: "invalid", at: "/amount_minor"},
		"a repeated spend adds nothing": {given: []event.Event{drafted, started, spent(5, 5)}, when: repeat(5, spent(5, 5))},
		"a repeated spend adds nothing to a completed campaign either": {
			given: []event.Event{drafted, started, event.CampaignCompleted{Campaign: spring}}, when: repeat(5, spent(5, 5)),
		},
		"a spend id stands for one amount": {given: []event.Event{drafted, started, spent(5, 5)}, when: repeat(6, spent(5, 5)), fault: "spend_id_reused"},

		"the budget of a running campaign may grow": {
			given: []event.Event{drafted, started, spent(900, 900)},
			when:  become("", func(t *event.CampaignTerms) { t.BudgetMinor = 2_000 }),
			then:  []event.Event{event.CampaignChanged{Campaign: spring, CampaignTerms: terms(func(t *event.CampaignTerms) { t.BudgetMinor = 2_000 })}},
		},
		"the budget cannot shrink to what was spent": {
			given: []event.Event{drafted, started, spent(900, 900)},
			when:  become("", func(t *event.CampaignTerms) { t.BudgetMinor = 900 }), fault: "invalid", at: "/budget_minor",
		},
		"the currency stays after the start": {
			given: []event.Event{drafted, started}, when: become("", func(t *event.CampaignTerms) { t.Currency = "USD" }), fault: "invalid", at: "/currency",
		},
		"the start stays after the start": {
			given: []event.Event{drafted, started}, when: become("", func(t *event.CampaignTerms) { t.StartsAt = at(time.Hour) }), fault: "invalid", at: "/starts_at",
		},
		"a start after the end that stands is refused": {
			given: []event.Event{event.CampaignDrafted{Campaign: spring, CampaignTerms: terms(func(t *event.CampaignTerms) { t.EndsAt = at(time.Hour) })}},
			when:  become("", func(t *event.CampaignTerms) { t.StartsAt, t.EndsAt = at(2*time.Hour), at(time.Hour) }), fault: "invalid", at: "/starts_at",
		},
		"an end in the past is refused": {
			given: []event.Event{drafted, started}, when: become("", func(t *event.CampaignTerms) { t.EndsAt = at(0) }), fault: "invalid", at: "/ends_at",
		},
		"a completed campaign cannot change": {
			given: []event.Event{drafted, started, event.CampaignCompleted{Campaign: spring}},
			when:  become("", func(t *event.CampaignTerms) { t.Name = "x" }), fault: "campaign_over",
		},
		"a change to the same adds nothing": {given: []event.Event{drafted, started}, when: become("running")},

		"the same segments add nothing": {given: []event.Event{segmented}, when: change(segments("0", "0", "4"))},
		"segments of another layer are a change": {
			given: []event.Event{segmented}, when: change(segments("4", "0", "4")), then: changed(segments("4", "0", "4")),
		},
		"other segments are a change": {
			given: []event.Event{segmented}, when: change(segments("0", "8", "4")), then: changed(segments("0", "8", "4")),
		},
		"other segments that are kept out are a change": {
			given: []event.Event{segmented}, when: change(segments("0", "0", "8")), then: changed(segments("0", "0", "8")),
		},
		"an audience is taken back for the one before": {
			given: []event.Event{segmented}, when: takeBack(segmented.CampaignTerms, new(terms())), then: changed(terms()),
		},
		"a campaign that had no audience before is over": {
			given: []event.Event{segmented}, when: takeBack(segmented.CampaignTerms, nil),
			then: []event.Event{event.CampaignCancelled{Campaign: spring}},
		},
		"an audience that was changed meanwhile is not taken back": {
			given: []event.Event{segmented}, when: takeBack(segments("0", "8", "4"), nil),
		},
		"an audience that was given up meanwhile is not taken back": {
			given: append([]event.Event{segmented}, changed(terms())...), when: takeBack(segmented.CampaignTerms, nil),
		},
		"of a campaign that is over nothing is taken back": {
			given: []event.Event{segmented, started, event.CampaignCompleted{Campaign: spring}}, when: takeBack(segmented.CampaignTerms, nil),
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			var c domain.Campaign
			for _, e := range s.given {
				c.Apply(e, noon)
			}
			got, err := s.when(&c)
			if s.fault != "" {
				f := fault.As(err)
				if f == nil || f.Code != s.fault || s.at != "" && (len(f.Fields) == 0 || f.Fields[0].Pointer != s.at) {
					t.Errorf("got %v, %v; want the fault %s %s", got, err, s.fault, s.at)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(s.then, got, cmpopts.EquateEmpty(), cmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
				t.Errorf("(-want +got) %s", diff)
			}
		})
	}
}

func TestTheTermsOfACampaignAreCheckedAllAtOnce(t *testing.T) {
	cluster := id.Cluster("clu_0000000000000000000000000g")
	segment := id.Segment("seg_0000000000000000000000000g")
	for name, s := range map[string]struct {
		change func(*event.CampaignTerms)
		wrong  []string
	}{
		"all is well":      {func(*event.CampaignTerms) {}, nil},
		"a cluster":        {func(t *event.CampaignTerms) { t.Audience, t.Clusters = "clusters", []id.Cluster{cluster} }, nil},
		"no clusters":      {func(t *event.CampaignTerms) { t.Audience = "clusters" }, []string{"/cluster_ids"}},
		"clusters for all": {func(t *event.CampaignTerms) { t.Clusters = []id.Cluster{cluster} }, []string{"/cluster_ids"}},
		"a cluster twice":  {func(t *event.CampaignTerms) { t.Audience, t.Clusters = "clusters", []id.Cluster{cluster, cluster} }, []string{"/cluster_ids/1"}},
		"no segments":      {func(t *event.CampaignTerms) { t.Audience = "segments" }, []string{"/segments"}},
		"segments for all": {func(t *event.CampaignTerms) { t.Segments = &event.SegmentAudience{AnyOf: []id.Segment{segment}} }, []string{"/segments"}},
		"a segment": {func(t *event.CampaignTerms) {
			t.Audience, t.Segments = "segments", &event.SegmentAudience{NoneOf: []id.Segment{segment}}
		}, nil},
		"no cluster's id":         {func(t *event.CampaignTerms) { t.Audience, t.Clusters = "clusters", []id.Cluster{"x"} }, []string{"/cluster_ids/0"}},
		"a window without a cap":  {func(t *event.CampaignTerms) { t.FrequencyWindow = 5 }, []string{"/frequency_window_seconds"}},
		"an end before the start": {func(t *event.CampaignTerms) { t.StartsAt, t.EndsAt = at(2), at(1) }, []string{"/ends_at"}},
		"the first and the last moment there are": {
			func(t *event.CampaignTerms) {
				t.StartsAt, t.EndsAt = new(time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)), new(time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC))
			},
			nil,
		},
		"moments before and after those": {
			func(t *event.CampaignTerms) {
				west, east := time.FixedZone("", -3600), time.FixedZone("", 3600)
				t.StartsAt, t.EndsAt = new(time.Date(1, 1, 1, 0, 0, 0, 0, east)), new(time.Date(9999, 12, 31, 23, 59, 59, 0, west))
			},
			[]string{"/starts_at", "/ends_at"},
		},
		"everything": {
			func(t *event.CampaignTerms) {
				*t = event.CampaignTerms{Name: "a\nb", Currency: "EURO", Audience: "some", FrequencyCap: -1}
			},
			[]string{"/name", "/budget_minor", "/currency", "/audience", "/frequency_cap"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := domain.DraftCampaign(spring, terms(s.change))
			var wrong []string
			if f := fault.As(err); f != nil {
				for _, field := range f.Fields {
					wrong = append(wrong, field.Pointer)
				}
			}
			if !slices.Equal(wrong, s.wrong) {
				t.Errorf("told %v, want %v", wrong, s.wrong)
			}
		})
	}
}

// Whatever is spent in whatever order: the campaign is completed with the first
// record at or over the budget, told once, and takes nothing after it.
func TestABudgetIsExhaustedOnceAndOverspentByLessThanOneRecord(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		c := domain.Campaign{}
		c.Apply(event.CampaignDrafted{Campaign: spring, CampaignTerms: terms()}, noon)
		c.Apply(event.CampaignStarted{Campaign: spring, StartedAt: noon}, noon)
		var last, sum int64
		exhausted := 0
		for range 100 {
			amount := 1 + random.Int64N(300)
			events, err := c.Spend("s", amount, nil, noon)
			if err != nil {
				if sum < c.BudgetMinor {
					t.Fatalf("seed %d: refused with %d of %d spent: %v", seed, sum, c.BudgetMinor, err)
				}
				continue
			}
			sum, last = sum+amount, amount
			for _, e := range events {
				if _, ok := e.(event.CampaignBudgetExhausted); ok {
					exhausted++
				}
				c.Apply(e, noon)
			}
		}
		if c.SpentMinor != sum || exhausted != 1 || sum < c.BudgetMinor || sum-last >= c.BudgetMinor {
			t.Fatalf("seed %d: %d spent, said %d, exhausted %d times, the last was %d", seed, sum, c.SpentMinor, exhausted, last)
		}
	}
}

// A campaign that rolled over is the same as one that did not.
func TestAnOpenedStreamSaysWhatTheOnesBeforeSay(t *testing.T) {
	var whole domain.Campaign
	for i, e := range []event.Event{
		event.CampaignDrafted{Campaign: spring, CampaignTerms: terms()},
		event.CampaignStarted{Campaign: spring, StartedAt: noon},
		event.CampaignPaused{Campaign: spring},
		event.CampaignChanged{Campaign: spring, CampaignTerms: terms(func(t *event.CampaignTerms) { t.FrequencyCap = 3 })},
		event.CampaignResumed{Campaign: spring},
		event.CampaignSpendRecorded{Campaign: spring, SpendID: "s", AmountMinor: 5, SpentMinor: 5},
	} {
		whole.Apply(e, noon.Add(time.Duration(i)))
		var rolled domain.Campaign
		opened := whole.Open()
		rolled.Apply(opened, noon.Add(time.Hour))
		want := whole
		want.Part, want.Closed, want.Length = opened.Part, false, 1
		if diff := cmp.Diff(want, rolled); diff != "" {
			t.Errorf("after %T: %s", e, diff)
		}
	}
}

// Whoever changes a campaign while it spends is not refused as one who has not seen the last change.
func TestASpendIsNoChangeOfTheCampaign(t *testing.T) {
	var c domain.Campaign
	for i, e := range []event.Event{
		event.CampaignDrafted{Campaign: spring, CampaignTerms: terms()},
		event.CampaignStarted{Campaign: spring, StartedAt: noon},
		event.CampaignSpendRecorded{Campaign: spring, SpendID: "s", AmountMinor: 5, SpentMinor: 5},
		event.CampaignSpendingClosed{Campaign: spring, SpentMinor: 5},
	} {
		c.Apply(e, noon.Add(time.Duration(i)))
		if want := min(i, 1); c.Changes != want || !c.UpdatedAt.Equal(noon.Add(time.Duration(want))) {
			t.Errorf("after %T: %d changes, the last at %s", e, c.Changes, c.UpdatedAt)
		}
	}
}

func TestAnImpressionOfTheFutureCountsInNoWindow(t *testing.T) {
	ahead := noon.Add(365 * 24 * time.Hour) // by a clock that was wrong
	for _, c := range []struct {
		what   string
		window int
		seen   []time.Time // the newest first
		capped bool
	}{
		{"one of the future", 60, []time.Time{ahead}, false},
		{"one of a clock that is a little ahead", 60, []time.Time{noon.Add(event.MaxDrift)}, true},
		{"one before it", 60, []time.Time{ahead, noon.Add(-time.Second)}, true},
		{"one after it", 60, []time.Time{noon.Add(-time.Second), ahead}, true},
		{"one of the future, for the campaign's life", 0, []time.Time{ahead}, true},
	} {
		campaign := domain.Campaign{CampaignTerms: event.CampaignTerms{FrequencyCap: 1, FrequencyWindow: c.window}}
		if got := campaign.Capped(c.seen, noon); got != c.capped {
			t.Errorf("%s: capped is %t", c.what, got)
		}
	}
}

func TestAFrequencyCapCountsWithinItsWindow(t *testing.T) {
	seen := []time.Time{noon.Add(-time.Second), noon.Add(-time.Minute), noon.Add(-time.Hour)} // the newest first
	for _, c := range []struct {
		cap, window int
		capped      bool
	}{
		{0, 0, false}, {3, 0, true}, {4, 0, false}, {1, 1, false}, {1, 2, true}, {2, 60, false}, {2, 61, true}, {3, 60, false},
	} {
		campaign := domain.Campaign{CampaignTerms: event.CampaignTerms{FrequencyCap: c.cap, FrequencyWindow: c.window}}
		if got := campaign.Capped(seen, noon); got != c.capped {
			t.Errorf("cap %d in %d s: capped is %t", c.cap, c.window, got)
		}
	}
}
