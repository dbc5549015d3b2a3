package e2e

import (
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/app"
	"kindred/commands/policies"
	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/projections"
	"kindred/testkit"
)

// openApp opens what a service stands on, beside it or after it.
func openApp(t testing.TB, config app.Config) *app.App {
	t.Helper()
	f, err := app.Open(t.Context(), config, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

// callersGone lets the keys of requests that died with their process go to
// their repetitions at once, as a minute does.
func callersGone(t testing.TB, f *app.App) {
	t.Helper()
	if _, err := f.Pool.Exec(t.Context(), `UPDATE idempotency SET lease_until = now() WHERE NOT done`); err != nil {
		t.Fatal(err)
	}
}

// history is the whole log.
func history(t testing.TB, f *app.App) []eventstore.Recorded {
	t.Helper()
	var all []eventstore.Recorded
	for after := eventstore.Start; ; {
		page, err := f.Log.Store.ReadAll(t.Context(), after, 500)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			return all
		}
		for _, r := range page {
			if r.Position <= after {
				t.Fatalf("position %s comes after %s", r.Position, after)
			}
			after = r.Position
			recorded, err := f.Log.Decode(r)
			if err != nil {
				t.Fatal(err)
			}
			recorded.Record = r
			all = append(all, recorded)
		}
	}
}

// checkLog checks that the streams are whole: no gap, no event twice, no clock
// that goes back, each event chained to the one before by its hash.
func checkLog(t testing.TB, all []eventstore.Recorded) {
	t.Helper()
	last := map[eventstore.Stream]eventstore.Record{}
	ids := map[id.Event]bool{}
	for _, r := range all {
		if ids[r.ID] {
			t.Errorf("event %s stands in the log twice", r.ID)
		}
		ids[r.ID] = true
		previous, want := last[r.Stream], ""
		if next := previous.Revision + 1; previous.ID == "" && r.Revision != 0 || previous.ID != "" && r.Revision != next {
			t.Errorf("%s: revision %d follows %d", r.Stream, r.Revision, previous.Revision)
		}
		if previous.ID != "" {
			hash, err := eventstore.Hash(previous)
			if err != nil {
				t.Fatal(err)
			}
			want = hex.EncodeToString(hash[:])
		}
		meta, err := eventstore.DecodeMeta(r.Meta)
		if err != nil {
			t.Fatal(err)
		}
		if meta.Previous != want {
			t.Errorf("%s revision %d is chained to %q, not to %q", r.Stream, r.Revision, meta.Previous, want)
		}
		if r.RecordedAt.Before(previous.RecordedAt) {
			t.Errorf("%s revision %d was recorded before revision %d", r.Stream, r.Revision, previous.Revision)
		}
		last[r.Stream] = r.Record
	}
}

// checkHeads checks that readers wait for each client's last event, no more
// and no less: at once for what a client was told, before long for what a
// policy is recording. Claims are read by nobody, so a crash may leave the head
// before the end of one.
func (s *storm) checkHeads(f *app.App, all []eventstore.Recorded) {
	s.Helper()
	heads := func() map[id.Client]eventstore.Position {
		rows, err := f.Pool.Query(s.Context(), `SELECT client, position FROM heads`)
		if err != nil {
			s.Fatal(err)
		}
		heads := map[id.Client]eventstore.Position{}
		var client id.Client
		var at eventstore.Position
		if _, err := pgx.ForEachRow(rows, []any{&client, &at}, func() error { heads[client] = at; return nil }); err != nil {
			s.Fatal(err)
		}
		return heads
	}
	now := heads()
	for _, c := range s.clients {
		for at, client := range c.positions {
			if now[client] < eventstore.Position(at) {
				s.Errorf("%s is at %s, behind its event at %s", client, now[client], at)
			}
		}
	}
	for _, r := range all {
		if r.Client == "" || strings.HasPrefix(r.Type, "claim.") || now[r.Client] >= r.Position {
			continue
		}
		testkit.Eventually(s, fmt.Sprintf("%s is no more behind its %s at %s", r.Client, r.Type, r.Position), func() bool {
			now = heads()
			return now[r.Client] >= r.Position
		})
	}
}

// checkAcknowledged checks that every position a client was told is in the log.
func (s *storm) checkAcknowledged(all []eventstore.Recorded) {
	s.Helper()
	clients := map[string]id.Client{}
	for _, r := range all {
		clients[string(r.Position)] = r.Client
	}
	for _, c := range s.clients {
		for at, client := range c.positions {
			if clients[at] != client {
				s.Errorf("%s was told of its event at %s, where %q has one", client, at, clients[at])
			}
		}
	}
}

// checkErased checks that the keys of erased users are destroyed, before long,
// and no others are missing.
func checkErased(t testing.TB, f *app.App, all []eventstore.Recorded) {
	t.Helper()
	subjects, erased := map[string]bool{}, map[string]bool{}
	for _, r := range all {
		if bearer, ok := r.Event.(event.PersonalData); ok && slices.ContainsFunc(bearer.Personal(), isSet) {
			subjects[bearer.Subject()] = true
		}
		if e, ok := r.Event.(event.EndUserErased); ok {
			erased[string(e.User)] = true
		}
	}
	testkit.Eventually(t, "the keys of erased users, and of nobody else, are destroyed", func() bool {
		rows, err := f.Pool.Query(t.Context(), `SELECT subject FROM subject_keys WHERE wrapped IS NOT NULL`)
		if err != nil {
			t.Fatal(err)
		}
		readable, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		left := map[string]bool{}
		for _, subject := range readable {
			left[subject] = true
		}
		for subject := range subjects {
			if !erased[subject] && !left[subject] {
				t.Fatalf("the key of %s is gone", subject)
			}
			if erased[subject] && left[subject] {
				return false
			}
		}
		return true
	})
}

// checkDeliveries waits for every delivery that is owed, and finds none of an
// event that occurred while its subscription was paused.
func (s *storm) checkDeliveries(all []eventstore.Recorded) {
	s.Helper()
	type subscription struct {
		path    string
		active  bool
		pending []payload // cancelled by a pause unless they were sent before
	}
	subscriptions := map[id.Webhook]*subscription{}
	for _, c := range s.clients {
		subscriptions[c.steady] = &subscription{path: "/steady"}
		subscriptions[c.fickle] = &subscription{path: "/fickle"}
	}
	possible := map[payload]bool{}
	for _, r := range all {
		switch e := r.Event.(type) {
		case event.WebhookSubscribed:
			subscriptions[e.Webhook].active = true
		case event.WebhookPaused:
			*subscriptions[e.Webhook] = subscription{path: subscriptions[e.Webhook].path}
		case event.WebhookResumed:
			subscriptions[e.Webhook].active = true
		case event.MatchComputed:
			for _, c := range s.clients {
				for _, webhook := range []id.Webhook{c.steady, c.fickle} {
					sub := subscriptions[webhook]
					if c.Client.ID != r.Client || !sub.active {
						continue
					}
					d := payload{
						sub.path, string(r.Client), string(e.User), string(e.MatchedUser),
						r.RecordedAt.UTC().Format("2006-01-02T15:04:05.000000Z"),
					}
					possible[d] = true
					sub.pending = append(sub.pending, d)
				}
			}
		}
	}
	owed := 0
	for _, sub := range subscriptions {
		owed += len(sub.pending)
		for _, d := range sub.pending {
			testkit.Eventually(s, "delivered: "+d.timestamp+" "+d.path, func() bool { return s.inbox.all()[d] > 0 })
		}
	}
	taken, duplicates := s.inbox.all(), 0
	for d, times := range taken {
		duplicates += times - 1
		if !possible[d] {
			s.Errorf("delivered though it was paused, or never happened: %+v", d)
		}
	}
	if owed == 0 {
		s.Error("nothing was owed: the storm computed no match")
	}
	s.Logf("%d deliveries owed, %d made, %d of them again", owed, len(taken), duplicates)
}

// checkSignUps checks that each sign-up, once what a crash left open is
// settled, either took place or can.
func (s *storm) checkSignUps(f *app.App, at *service) {
	s.Helper()
	c, err := f.Commands(nil, nil)
	if err != nil {
		s.Fatal(err)
	}
	sweep := &policies.Policies{
		Commands: c, Claims: projections.Claims{Reader: f.Reader()}, Logger: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return time.Now().Add(2 * time.Minute) },
	}
	if err := sweep.ResolveClaims(s.Context()); err != nil {
		s.Fatal(err)
	}
	for _, client := range s.clients {
		for _, body := range client.signedUp {
			login := map[string]any{"email": body["email"], "password": body["password"]}
			if a := at.send("POST", "/auth/token", login); a.Status == http.StatusOK {
				continue
			}
			if a := at.send("POST", "/auth/signup", body); a.Status != http.StatusCreated {
				s.Errorf("%s can neither log in nor sign up: %d %s", body["email"], a.Status, a.Body)
			}
		}
	}
}

// audit checks all that must hold once a storm is over and the service runs.
func (s *storm) audit(f *app.App, at *service) {
	s.Helper()
	s.checkSignUps(f, at)
	all := history(s, f)
	checkLog(s, all)
	s.checkHeads(f, all)
	s.checkAcknowledged(all)
	checkErased(s, f, all)
	s.checkDeliveries(all)
	if !s.Failed() {
		s.Logf("%d events", len(all))
	}
}

// caughtUp waits until every read model has applied the whole log.
func caughtUp(t testing.TB, f *app.App) {
	t.Helper()
	head, err := f.Log.Store.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, model := range projections.All() {
		var err error
		end := time.Now().Add(patience)
		for err = f.Progress.Wait(t.Context(), model, "", head); err != nil && time.Now().Before(end); {
			err = f.Progress.Wait(t.Context(), model, "", head)
		}
		if err != nil {
			t.Fatalf("%s has not reached %s: %v\n%s", model.Name(), head, err, standing(t, f))
		}
	}
}

// standing tells how far each follower is, who leads it, and what the database
// does meanwhile.
func standing(t testing.TB, f *app.App) string {
	t.Helper()
	var text string
	for _, query := range []string{
		`SELECT coalesce(json_agg(c), '[]')::text FROM (SELECT * FROM checkpoints) c`,
		`SELECT coalesce(json_agg(l), '[]')::text FROM (SELECT *, clock_timestamp() AS now FROM leases) l`,
		`SELECT coalesce(json_agg(a), '[]')::text FROM (SELECT pid, state, wait_event, now() - xact_start AS age, left(query, 80) AS query
			FROM pg_stat_activity WHERE datname = current_database()) a`,
	} {
		var rows string
		if err := f.Pool.QueryRow(t.Context(), query).Scan(&rows); err != nil {
			rows = err.Error()
		}
		text += rows + "\n"
	}
	return text
}

// isSet says whether an event carries a personal field.
func isSet(f event.Field) bool { return f.Value != nil }
