package projections_test

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/projections"
	"kindred/projections/projectionstest"
	"kindred/testkit"
)

func TestStatisticsCountWhatHappenedInEachInterval(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Statistics{})
	model := projections.Statistics{Reader: w.Reader}
	day := func(d, hour, minute int) time.Time { return time.Date(2026, 3, d, hour, minute, 0, 0, time.UTC) }
	var ada, bob id.User
	w.At(day(1, 10, 0), func() { ada = w.Create(w.Acme, "ada", `{}`) })
	w.At(day(3, 22, 59), func() { bob = w.Create(w.Acme, "bob", `{}`) }) // 23:59 in Berlin
	w.At(day(3, 23, 0), func() { w.Create(w.Acme, "eve", `{}`) })
	w.At(day(3, 23, 1), func() {
		w.Erase(w.Acme, bob)
		w.Create(w.Bolt, "another client's", `{}`)
		w.Match(w.Acme, ada, bob, 0.5)
		w.Record(w.Acme, "ended", event.DeliveriesEnded{Webhook: "whk_1", Deliveries: []event.Ending{
			{State: "delivered", Attempts: 1},
			{State: "delivered", Attempts: 1},
			{State: "delivered", Attempts: 3},
			{State: "dropped", Attempts: 6},
			{State: "cancelled"},
		}})
		w.Record(w.Acme, "spends", event.CampaignSpendRecorded{SpendID: "1", AmountMinor: 700, Currency: "EUR"},
			event.CampaignSpendRecorded{SpendID: "2", AmountMinor: 5, Currency: "JPY"},
			event.CampaignSpendRecorded{SpendID: "3", AmountMinor: 300, Currency: "EUR"})
	})
	berlin := testkit.Must(time.LoadLocation("Europe/Berlin"))(t)
	at := func(d, hour int, zone *time.Location) time.Time { return time.Date(2026, 3, d, hour, 0, 0, 0, zone) }
	for _, tt := range []struct {
		metric, unit string
		zone         *time.Location
		from, to     time.Time
		want         []projections.Counted
	}{
		{"users", "day", berlin, at(1, 0, berlin), at(8, 0, berlin), []projections.Counted{
			{at(1, 0, berlin), map[string]int64{"created": 1}},
			{at(3, 0, berlin), map[string]int64{"created": 1}},
			{at(4, 0, berlin), map[string]int64{"created": 1, "erased": 1}},
		}},
		{"users", "day", time.UTC, at(2, 0, time.UTC), at(8, 0, time.UTC), []projections.Counted{
			{time.Time{}, map[string]int64{"created": 1}},
			{at(3, 0, time.UTC), map[string]int64{"created": 2, "erased": 1}},
		}},
		{"users", "hour", time.UTC, at(3, 22, time.UTC), at(3, 23, time.UTC), []projections.Counted{
			{time.Time{}, map[string]int64{"created": 1}},
			{at(3, 22, time.UTC), map[string]int64{"created": 1}},
		}},
		{"matches", "day", time.UTC, at(3, 0, time.UTC), at(4, 0, time.UTC), []projections.Counted{
			{at(3, 0, time.UTC), map[string]int64{"recorded": 1}},
		}},
		{"deliveries", "day", time.UTC, at(3, 0, time.UTC), at(4, 0, time.UTC), []projections.Counted{
			{at(3, 0, time.UTC), map[string]int64{"first_try": 2, "retried": 1, "dropped": 1, "cancelled": 1}},
		}},
		{"spend", "hour", time.UTC, at(3, 0, time.UTC), at(4, 0, time.UTC), []projections.Counted{
			{at(3, 23, time.UTC), map[string]int64{"EUR": 1000, "JPY": 5}},
		}},
		{"spend", "hour", time.UTC, at(4, 0, time.UTC), at(5, 0, time.UTC), nil},
	} {
		found, err := model.Series(t.Context(), w.Acme, false, tt.metric, tt.unit, tt.zone, tt.from, tt.to)
		if diff := cmp.Diff(tt.want, found); diff != "" || err != nil {
			t.Errorf("%s by %s: %v (-want +got):\n%s", tt.metric, tt.unit, err, diff)
		}
	}
	if found, err := model.Series(t.Context(), id.Next[id.Client](w.IDs), false, "users", "day", time.UTC, at(1, 0, time.UTC), at(8, 0, time.UTC)); err != nil || found != nil {
		t.Errorf("another client sees %+v, %v", found, err)
	}
	unknown := time.FixedZone("No/Where", 0)
	if _, err := model.Series(t.Context(), w.Acme, false, "users", "day", unknown, at(1, 0, time.UTC), at(8, 0, time.UTC)); !errors.Is(err, projections.ErrZoneUnknown) {
		t.Errorf("of an unknown zone: %v", err)
	}
}

// Where clocks change at midnight a day begins with its first moment, for whoever asks from when and for
// what is answered.
func TestADayBeginsWithItsFirstMoment(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Statistics{})
	for name, tt := range map[string]struct {
		year, day int
		month     time.Month
		begins    string
	}{
		"Atlantic/Azores":  {2027, 31, time.October, "2027-10-31T00:00:00Z"},  // midnight comes twice
		"America/Havana":   {2026, 1, time.November, "2026-11-01T04:00:00Z"},  // twice, on the first of a month
		"America/Santiago": {2026, 6, time.September, "2026-09-06T04:00:00Z"}, // never
		"Europe/Berlin":    {2026, 29, time.March, "2026-03-28T23:00:00Z"},
		"Pacific/Apia":     {2011, 31, time.December, "2011-12-30T10:00:00Z"}, // behind a day that never was
		"UTC":              {2026, 31, time.December, "2026-12-31T00:00:00Z"},
	} {
		zone := testkit.Must(time.LoadLocation(name))(t)
		begins := testkit.Must(time.Parse(time.RFC3339, tt.begins))(t)
		if got := projections.DayBegins(tt.year, tt.month, tt.day, zone); !got.Equal(begins) || got.Day() != tt.day || begins.Add(-1).In(zone).Day() == tt.day {
			t.Errorf("in %s it begins at %s, not %s", name, got.UTC(), tt.begins)
		}
		client := id.Next[id.Client](w.IDs)
		for later := range time.Duration(3) { // before midnight comes again, and after
			w.At(begins.Add(later*time.Hour), func() { w.Create(client, "ada "+later.String(), `{}`) })
		}
		found, err := projections.Statistics{Reader: w.Reader}.Series(t.Context(), client, false, "users", "day", zone, begins, begins.AddDate(0, 0, 1))
		want := []projections.Counted{{Start: begins, Parts: map[string]int64{"created": 3}}}
		if diff := cmp.Diff(want, found); diff != "" || err != nil {
			t.Errorf("in %s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

// Both read some events as they are stored, and decode them themselves.
func TestAnEventThatCannotBeReadStopsItsClientAlone(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Statistics{}, projections.EventIDs{})
	for eventType, version := range map[string]int{"campaign.spend_recorded": 1, "feed.interaction_recorded": 1} {
		_, err := w.EventLog.Store.Append(t.Context(), eventstore.Stream("broken-"+eventType), eventstore.NoStream, []eventstore.Proposed{{
			ID: id.Next[id.Event](w.IDs), Type: eventType, Version: version, Client: w.Acme, RecordedAt: time.Now(),
			Data: []byte(`{"currency":1,"item_id":2}`), Meta: []byte(`{}`),
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	w.Create(w.Bolt, "bob", `{}`)
	now := time.Now()
	found, err := projections.Statistics{Reader: w.Reader}.Series(t.Context(), w.Bolt, false, "users", "day", time.UTC, now.AddDate(0, 0, -1), now.AddDate(0, 0, 1))
	if err != nil || len(found) != 1 {
		t.Errorf("statistics of the other client: %v, %v", found, err)
	}
	head := testkit.Must(w.EventLog.Store.Head(t.Context()))(t)
	testkit.Eventually(t, "the ids of the other client's events are known", func() bool {
		_, reached, err := projections.EventIDs{Reader: w.Reader}.Revisions(t.Context(), w.Bolt, nil)
		return err == nil && reached >= head
	})
	if _, _, err = (projections.EventIDs{Reader: w.Reader}).Revisions(t.Context(), w.Acme, nil); !fault.Is(err, "quarantined") {
		t.Errorf("ids of the client itself: %v", err)
	}
}

// What campaigns may spend is bounded, and how many there are is not.
func TestWhatIsBeyondAllNumbersCountsAsTheLargest(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Statistics{})
	model := projections.Statistics{Reader: w.Reader}
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for batch := range 3 {
		w.At(now.Add(time.Duration(batch/2)*time.Hour), func() {
			for range 3 {
				w.Record(w.Acme, "spends", slices.Repeat([]event.Event{event.CampaignSpendRecorded{SpendID: "x", AmountMinor: 1<<53 - 1, Currency: "EUR"}}, 400)...)
			}
		})
		found, err := model.Series(t.Context(), w.Acme, false, "spend", "day", time.UTC, now, now.AddDate(0, 0, 1))
		want := []projections.Counted{{now, map[string]int64{"EUR": math.MaxInt64}}}
		if diff := cmp.Diff(want, found); diff != "" || err != nil {
			t.Errorf("after %d: %v (-want +got):\n%s", batch+1, err, diff)
		}
	}
}
