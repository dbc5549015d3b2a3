package projections_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/postgres/pgtest"
	"kindred/projections"
	"kindred/projections/projectionstest"
	"kindred/testkit"
)

func TestInteractionsOfAnyBatchesMakeTheSameTables(t *testing.T) {
	h := newHistory(t)
	users := make([]id.User, 4)
	for i := range users {
		users[i] = id.Next[id.User](h.ids)
	}
	campaign := string(id.Next[id.Campaign](h.ids))
	random := rand.New(rand.NewPCG(3, 4))
	kinds := []string{"impression", "impression", "impression", "click", "conversion", "dismiss"}
	for i := range 300 {
		user, item := users[random.IntN(4)], string(users[random.IntN(4)])
		if random.IntN(8) == 0 {
			item = campaign
		}
		h.record("interactions", event.InteractionRecorded{User: user, Item: item, Kind: kinds[random.IntN(6)], Position: random.IntN(9)})
		if i%90 == 89 {
			h.record("users", event.EndUserErased{User: users[i%4]})
		}
	}
	wantSplitIndependent(t, pgtest.New(t), projections.Interactions{}, h.all(), "interactions", "popularity")
}

func TestWhatInteractionsLeave(t *testing.T) {
	const (
		ada, bob = id.User("usr_04hk8ls48pkqs04hk8ls48pkqs"), id.User("usr_0000000000000000000000000g")
		cyd      = id.User("usr_0000000000000000000000001g")
		campaign = "cam_0000000000000000000000000g"
	)
	did := func(kind, item string, position int) event.Event {
		return event.InteractionRecorded{User: ada, Item: item, Kind: kind, Position: position}
	}
	for _, c := range []struct {
		what   string
		events []event.Event
		want   string // hidden, impressions kept; impressions, clicks
	}{
		{"an impression counts", []event.Event{did("impression", string(bob), 1)}, "f 1; 1 0"},
		{"a click ends the count and is weighed by its position", []event.Event{did("impression", string(bob), 3), did("click", string(bob), 3)}, "f 0; 1 2"},
		{"a conversion stays, and is an answer", []event.Event{did("impression", string(bob), 3), did("conversion", string(bob), 3)}, "t 0; 1 2"},
		{"a conversion after a click is no second answer", []event.Event{did("click", string(bob), 3), did("conversion", string(bob), 3), did("click", string(bob), 1)}, "t 0; 0 2"},
		{"who clicks again and again counts once", []event.Event{did("click", string(bob), 0), did("click", string(bob), 0), did("click", string(bob), 0)}, "f 0; 0 1"},
		{"who sees it again may click again", []event.Event{did("impression", string(bob), 1), did("impression", string(bob), 1), did("click", string(bob), 1), did("click", string(bob), 1), did("click", string(bob), 1)}, "f 0; 2 2"},
		{"who clicks after a conversion is still past it", []event.Event{did("conversion", string(bob), 0), did("impression", string(bob), 0), did("click", string(bob), 0)}, "t 0; 1 1"},
		{"two who click count twice", []event.Event{did("click", string(bob), 1), event.InteractionRecorded{User: cyd, Item: string(bob), Kind: "conversion", Position: 1}}, "f 0 t 0; 0 2"},
		{"a dismissal stays", []event.Event{did("dismiss", string(bob), 0), did("click", string(bob), 0)}, "t 0; 0 1"},
		{"a campaign has no popularity here", []event.Event{did("dismiss", campaign, 0)}, "t 0;"},
		{"who is erased leaves nothing", []event.Event{did("click", string(bob), 1), event.EndUserErased{User: bob}}, ";"},
		{"who was erased counts no more", []event.Event{event.EndUserErased{User: ada}, did("impression", string(bob), 1), did("click", string(bob), 1)}, "; 0 0"},
		{"whose feed it was leaves the popularity", []event.Event{did("click", string(bob), 1), event.EndUserErased{User: ada}}, "; 0 1"},
	} {
		h := newHistory(t)
		h.record("interactions", c.events...)
		if got := left(t, h.all()); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
	h := newHistory(t)
	for range 50 {
		h.record("interactions", did("impression", string(bob), 1))
	}
	if got := left(t, h.all()); got != "f 20; 5 0" {
		t.Errorf("after 50 impressions: %q", got)
	}
	for range 50 {
		h.record("interactions", did("click", string(bob), 1))
	}
	if got := left(t, h.all()); got != "f 0; 5 0" {
		t.Errorf("after 50 impressions and as many clicks: %q", got)
	}
	h = newHistory(t)
	for range 50 {
		h.record("interactions", did("impression", string(bob), 1), did("click", string(bob), 1))
	}
	if got := left(t, h.all()); got != "f 0; 5 5" {
		t.Errorf("after 50 impressions, each clicked: %q", got)
	}
}

func TestWhoFillsAFeedWithinALayer(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Interactions{}, projections.Users{}, projections.Consent{})
	layer, another := w.Define(w.Acme, "a layer"), w.Define(w.Acme, "another layer")
	var users []id.User
	for _, external := range []string{"ada", "bob", "eve", "kim", "lea", "ned"} {
		users = append(users, w.Create(w.Acme, external, `{}`))
	}
	ada, bob, eve, kim, lea, ned := users[0], users[1], users[2], users[3], users[4], users[5]
	for _, user := range []id.User{ada, lea, kim, bob, ned} {
		w.Grant(w.Acme, layer, user, true)
	}
	w.Grant(w.Acme, layer, lea, false)
	w.Grant(w.Acme, another, eve, true)
	for _, user := range []id.User{bob, eve, lea, ned} {
		w.Interact(w.Acme, ada, user, "click", 1)
	}
	w.Erase(w.Acme, ned)
	model, now := projections.Interactions{Reader: w.Reader}, time.Now()
	testkit.Must(projections.Consent{Reader: w.Reader}.Consenting(t.Context(), w.Acme, layer, "", whatever))(t) // it has caught up
	testkit.Must(w.Users().List(t.Context(), w.Acme, false, projections.UserQuery{Page: everything()}))(t)
	of := func(found []projections.Standing) (users []id.User) {
		for _, s := range found {
			users = append(users, s.User)
		}
		return users
	}
	newest := func(within event.Within, limit int) []id.User {
		return of(testkit.Must(model.Newest(t.Context(), w.Acme, false, ada, now, within, limit))(t))
	}
	popular := func(within event.Within) []id.User {
		found := of(testkit.Must(model.Popular(t.Context(), w.Acme, false, ada, now, within, whatever))(t))
		slices.Sort(found) // they are equally popular
		return found
	}
	within := event.Within{Layer: layer}
	for _, c := range []struct {
		what      string
		got, want []id.User
	}{
		{"the newest", newest(event.Within{}, 2), []id.User{lea, kim}},
		{"the newest within the layer", newest(within, whatever), []id.User{bob, kim}},
		{"the newest one within the layer", newest(within, 1), []id.User{bob}},
		{"the popular", popular(event.Within{}), slices.Sorted(slices.Values([]id.User{bob, eve, lea}))},
		{"the popular within the layer", popular(within), []id.User{bob}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s are %v, want %v", c.what, c.got, c.want)
		}
	}
}

func TestAnImpressionOfTheFutureTiresNobody(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Interactions{}, projections.Users{})
	ada, bob := w.Create(w.Acme, "ada", `{}`), w.Create(w.Acme, "bob", `{}`)
	for _, ahead := range []time.Duration{365 * 24 * time.Hour, 0} {
		w.EventLog.Now = func() time.Time { return time.Now().Add(ahead) }
		w.Interact(w.Acme, ada, bob, "impression", 1)
	}
	testkit.Must(w.Users().List(t.Context(), w.Acme, false, projections.UserQuery{Page: everything()}))(t)
	found := testkit.Must(projections.Interactions{Reader: w.Reader}.Standings(t.Context(), w.Acme, false, ada, time.Now(), []id.User{bob}))(t)
	if len(found) != 1 || found[0].Unanswered != 1 {
		t.Errorf("got %+v; want one impression, the one by the clock that is right", found)
	}
}

func TestAnImpressionTiresInASandboxWhoseClockIsAhead(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Interactions{}, projections.Users{})
	sandbox := id.NextSandbox(w.IDs, w.Acme)
	ahead := (40 * 24 * time.Hour).Microseconds()
	w.Record(sandbox, string(eventstore.SandboxStream(sandbox)), event.ClockMoved{Client: sandbox, MovedMicros: ahead, AheadMicros: ahead})
	ada, bob := w.Create(sandbox, "ada", `{}`), w.Create(sandbox, "bob", `{}`)
	w.Interact(sandbox, ada, bob, "impression", 1)
	testkit.Must(w.Users().List(t.Context(), sandbox, false, projections.UserQuery{Page: everything()}))(t)
	now := testkit.Must(w.EventLog.TimeOf(t.Context(), sandbox))(t)
	found := testkit.Must(projections.Interactions{Reader: w.Reader}.Standings(t.Context(), sandbox, false, ada, now, []id.User{bob}))(t)
	if len(found) != 1 || found[0].Unanswered != 1 {
		t.Errorf("got %+v; want one impression", found)
	}
}

// left says what stands in the tables.
func left(t *testing.T, events []eventstore.Recorded) string {
	t.Helper()
	dump := built(t, pgtest.New(t), projections.Interactions{}, events, func() int { return 3 },
		`(SELECT hidden, cardinality(seen) FROM interactions)`, `(SELECT impressions, clicks FROM popularity)`)
	lines := strings.Split(strings.NewReplacer("(", "", ")", "", ",", " ").Replace(dump), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "SELECT") {
			lines[i] = ";"
		}
	}
	said := strings.Join(strings.Fields(strings.Join(lines, " ")), " ")
	return strings.ReplaceAll(strings.TrimPrefix(said, "; "), " ;", ";")
}
