package segments_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/projections/projectionstest"
	"kindred/projections/readmodel"
	"kindred/projections/segments"
	"kindred/testkit"
)

// BenchmarkSegments applies 1,000 changes of users at a time, of two traits each, or as many new users,
// under 1,000 rules over two or three of 31 traits, every fifth with a window. A change moves its user
// into, or out of, so many segments as flips/user says.
func BenchmarkSegments(b *testing.B) {
	parsed := func(r readmodel.Reader) segments.Model { return segments.Model{Reader: r} }
	folded := func(r readmodel.Reader) segments.Model { return segments.New(r).Folding(1000) }
	for _, c := range []struct {
		name    string
		m       func(readmodel.Reader) segments.Model
		created bool
	}{{"kept", segments.New, false}, {"parsed", parsed, false}, {"new users", segments.New, true}, {"new users, folded", folded, true}} {
		b.Run(c.name, func(b *testing.B) {
			w := newSegmentFixture(b)
			w.model = c.m(w.Reader)
			random := rand.New(rand.NewPCG(1, 2))
			var segments []event.Event
			source := id.Derived("bench")
			for n := range 1000 {
				text := fmt.Sprintf(`traits.t%d > %d && traits.t%d == "v%d"`, random.IntN(15), random.IntN(100), 15+random.IntN(15), random.IntN(4))
				if n%5 == 0 {
					text += fmt.Sprintf(` && within(traits.seen, "%dd")`, 1+random.IntN(60))
				}
				segments = append(segments, event.SegmentDefined{Segment: id.Next[id.Segment](source), Name: "s", Rule: event.Private([]byte(text))})
			}
			for _, e := range segments {
				w.Segment(w.Acme, e)
			}
			w.Segment(w.Acme, event.SegmentReady{Revision: 999})
			const users = 1000
			documents := make([]map[string]any, users)
			traits := func(n int) string { return string(testkit.Must(json.Marshal(documents[n]))(b)) }
			var there []id.User
			for n := range users {
				documents[n] = map[string]any{"seen": w.clock.Add(-time.Duration(random.IntN(90*24)) * time.Hour)}
				for i := range 15 {
					documents[n][fmt.Sprint("t", i)], documents[n][fmt.Sprint("t", i+15)] = random.IntN(100), fmt.Sprint("v", random.IntN(4))
				}
				there = append(there, w.Create(w.Acme, fmt.Sprint("u", n), traits(n)))
			}
			w.catchUp(random)
			for n, user := range there {
				if c.created {
					w.Create(w.Acme, fmt.Sprint("v", n), traits(n))
					continue
				}
				documents[n][fmt.Sprint("t", random.IntN(15))], documents[n]["seen"] = random.IntN(100), w.clock
				w.Change(w.Acme, user, traits(n))
			}
			var changes []eventstore.Recorded
			for after := w.applied; ; {
				page, err := w.EventLog.Store.ReadAll(b.Context(), after, 1000)
				if err != nil {
					b.Fatal(err)
				}
				if len(page) == 0 {
					break
				}
				for _, r := range page {
					after = r.Position
					changes = append(changes, testkit.Must(w.EventLog.Decode(r))(b))
				}
			}
			flips, before := 0, 0
			if err := w.Pool.QueryRow(b.Context(), `SELECT coalesce(sum(cardinality(entered || went)), 0) FROM `+projector.ID(w.model)+`.segment_changes`).Scan(&before); err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			var spent, spentBeside time.Duration
			for b.Loop() {
				b.StopTimer()
				own, postgres := processors(b, w.Pool)
				tx := testkit.Must(w.Pool.Begin(b.Context()))(b)
				b.StartTimer()
				if err := projector.Apply(b.Context(), w.model, tx, w.EventLog, changes); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				ownAfter, postgresAfter := processors(b, w.Pool)
				spent, spentBeside = spent+ownAfter-own, spentBeside+postgresAfter-postgres
				if err := tx.QueryRow(b.Context(), `SELECT coalesce(sum(cardinality(entered || went)), 0) FROM `+projector.ID(w.model)+`.segment_changes`).Scan(&flips); err != nil {
					b.Fatal(err)
				}
				if err := tx.Rollback(b.Context()); err != nil {
					b.Fatal(err)
				}
				// What was rolled back would slow down the next one.
				for _, table := range []string{"segment_users", "segment_changes"} {
					if _, err := w.Pool.Exec(b.Context(), `VACUUM `+projector.ID(w.model)+`.`+table); err != nil {
						b.Fatal(err)
					}
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(flips-before)/users, "flips/user")
			b.ReportMetric(float64(spent.Microseconds())/users/float64(b.N), "cpu-µs/user")
			b.ReportMetric(float64(spentBeside.Microseconds())/users/float64(b.N), "postgres-µs/user")
			b.ReportMetric(users*float64(b.N)/b.Elapsed().Seconds(), "users/s")
		})
	}
}

// BenchmarkBuild judges 10,000 users of 25 traits by a new rule, in slices. It tells the processor's time
// of this process, and that of Postgres.
func BenchmarkBuild(b *testing.B) {
	w := newSegmentFixture(b)
	random := rand.New(rand.NewPCG(1, 2))
	const users = 10_000
	for n := range users {
		document := map[string]any{"age": random.IntN(80), "plan": []string{"pro", "free"}[random.IntN(2)]}
		for i := range 23 {
			document[fmt.Sprint("t", i)] = random.IntN(100)
		}
		w.Create(w.Acme, fmt.Sprint("u", n), string(testkit.Must(json.Marshal(document))(b)))
	}
	w.catchUp(random)
	var spent, spentBeside time.Duration
	for n := 0; b.Loop(); n++ {
		e := event.Event(event.SegmentChanged{Segment: projectionstest.SegmentIDs[0], Name: "pros", Rule: event.Private([]byte(`traits.plan == "pro" && traits.age > 30`))})
		if n == 0 {
			e = event.SegmentDefined{Segment: projectionstest.SegmentIDs[0], Name: "pros", Rule: event.Private([]byte(`traits.plan == "pro" && traits.age > 30`))}
		}
		w.Segment(w.Acme, e)
		w.catchUp(random)
		own, postgres := processors(b, w.Pool)
		for more := true; more; {
			var err error
			if more, _, err = w.model.Build(b.Context(), w.Acme); err != nil {
				b.Fatal(err)
			}
		}
		ownAfter, postgresAfter := processors(b, w.Pool)
		spent, spentBeside = spent+ownAfter-own, spentBeside+postgresAfter-postgres
	}
	b.ReportMetric(users*float64(b.N)/b.Elapsed().Seconds(), "users/s")
	b.ReportMetric(float64(spent.Microseconds())/users/float64(b.N), "cpu-µs/user")
	b.ReportMetric(float64(spentBeside.Microseconds())/users/float64(b.N), "postgres-µs/user")
}
