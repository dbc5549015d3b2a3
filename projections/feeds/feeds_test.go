package feeds

import (
	gocmp "cmp"
	"context"
	cryptorand "crypto/rand"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/domain/rule"
	"kindred/postgres/pgtest"
	"kindred/projections"
	"kindred/projections/populations"
	"kindred/projections/projectionstest"
	"kindred/projections/segments"
	"kindred/testkit"
)

// agreeable are campaigns that may always be shown.
type agreeable struct{ showings []string }

func (*agreeable) Running(context.Context, id.Client, id.User) ([]Running, error) { return nil, nil }

func (a *agreeable) Impression(_ context.Context, _ id.Client, _ id.User, _ id.Campaign, showing string) (id.Impression, bool, error) {
	a.showings = append(a.showings, showing)
	return id.From[id.Impression]([16]byte{byte(len(a.showings))}), true, nil
}

// frozen is a feed with a campaign in every fifth place.
func frozen(n int) []item {
	items := make([]item, n)
	for i := range items {
		raw := [16]byte{1, byte(i >> 8), byte(i)}
		items[i] = item{kind: Match, reason: ReasonSimilar, score: float64(float32(1) / float32(i+1)), id: string(id.From[id.User](raw))}
		if i%5 == 4 {
			items[i] = item{kind: Campaign, reason: ReasonCampaign, id: string(id.From[id.Campaign](raw))}
		}
	}
	return items
}

func TestPeopleStandBetweenCampaignsWhoeverHasGone(t *testing.T) {
	for seed := range uint64(200) {
		random, campaigns := rand.New(rand.NewPCG(seed, 0)), &agreeable{}
		f, at, c := &Feeds{Campaigns: campaigns}, Place{}, check{names: map[id.User]string{}}
		items := frozen(100)
		for _, i := range items {
			if random.IntN(3) > 0 {
				c.names[id.User(i.id)] = "there"
			}
		}
		between, shown := 0, 0
		for _, i := range items {
			if random.IntN(10) == 0 { // another page
				var err error
				if at, err = ParsePlace(at.String()); err != nil {
					t.Fatal(err)
				}
			}
			got, ok, err := f.show(t.Context(), Request{}, &at, i, c)
			switch {
			case err != nil:
				t.Fatal(err)
			case !ok:
			case got.Kind == Campaign:
				if between < 4 {
					t.Fatalf("seed %d: %d people before the campaign at %d", seed, between, got.Position)
				}
				between = 0
				shown++
			default:
				between++
			}
		}
		if shown != len(campaigns.showings) {
			t.Errorf("seed %d: %d campaigns are shown, %d on record", seed, shown, len(campaigns.showings))
		}
		if shown == 0 {
			t.Errorf("seed %d: no campaign is shown", seed)
		}
	}
}

func TestAShowingIsNamedByItsPlace(t *testing.T) {
	campaigns := &agreeable{}
	f := &Feeds{Campaigns: campaigns}
	for range 2 {
		at := Place{Snapshot: Snapshot{0xab}, rank: 4, between: 4}
		if _, ok, err := f.show(t.Context(), Request{}, &at, frozen(5)[4], check{}); !ok || err != nil {
			t.Fatalf("%t, %v", ok, err)
		}
	}
	want := fmt.Sprintf("ab%026d.5", 0)
	if diff := cmp.Diff([]string{want, want}, campaigns.showings); diff != "" {
		t.Error(diff)
	}
}

func TestAPlaceIsReadAsItWasWritten(t *testing.T) {
	for _, p := range []Place{{}, {Snapshot: Snapshot{1, 2, 3, 13: 255}, rank: 999, between: 4}} {
		if got, err := ParsePlace(p.String()); err != nil || got != p {
			t.Errorf("%v became %v, %v", p, got, err)
		}
	}
	for _, s := range []string{"", "x", "00.1.1", "zz00000000000000000000000000.1.1", "0000000000000000000000000000.-1.1"} {
		if p, err := ParsePlace(s); err == nil {
			t.Errorf("%q is %v", s, p)
		}
	}
}

func TestAFeedIsKeptForHalfAnHour(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	f := &Feeds{Pool: pgtest.New(t), Now: func() time.Time { return now }}
	client, other := id.From[id.Client]([16]byte{1}), id.From[id.Client]([16]byte{2})
	snapshot, items := Snapshot{7}, frozen(200)
	if err := f.freeze(t.Context(), client, snapshot, items); err != nil {
		t.Fatal(err)
	}
	expired := func(what string, client id.Client) {
		t.Helper()
		if _, err := f.thaw(t.Context(), client, snapshot); !fault.Is(err, "feed_expired") {
			t.Errorf("%s: %v", what, err)
		}
	}
	expired("another client", other)
	now = now.Add(30*time.Minute - time.Second)
	if n, err := f.Prune(t.Context()); n != 0 || err != nil {
		t.Errorf("pruned %d too early, %v", n, err)
	}
	got := testkit.Must(f.thaw(t.Context(), client, snapshot))(t)
	if diff := cmp.Diff(items, got, cmp.AllowUnexported(item{})); diff != "" {
		t.Error(diff)
	}
	now = now.Add(time.Second)
	expired("half an hour later", client)
	now = now.Add(time.Second)
	if n, err := f.Prune(t.Context()); n != 1 || err != nil {
		t.Errorf("pruned %d, %v", n, err)
	}
}

// always are campaigns of which one always runs.
type always struct{ agreeable }

func (*always) Running(context.Context, id.Client, id.User) ([]Running, error) {
	return []Running{{Campaign: id.From[id.Campaign]([16]byte{1}), Pace: 1}}, nil
}

// Nobody is shown a feed that could not be frozen, so no campaign on it counts as shown.
func TestAFeedThatIsNotFrozenShowsNoCampaign(t *testing.T) {
	t.Parallel()
	w, campaigns := projectionstest.New(t), &always{}
	w.Follow(projections.Users{}, projections.Interactions{}, projections.Consent{})
	f := &Feeds{
		Pool: w.Pool, Users: w.Users(), Interactions: projections.Interactions{Reader: w.Reader}, Campaigns: campaigns,
		Now: time.Now, Clock: func(context.Context, id.Client) (time.Time, error) { return time.Now(), nil }, Entropy: cryptorand.Reader,
	}
	var user id.User
	for n := range 8 {
		user = w.Create(w.Acme, fmt.Sprint(n), `{}`)
	}
	r := Request{Client: w.Acme, User: user, Limit: 5}
	if page, err := f.First(t.Context(), r); err != nil || page.Next == nil || len(campaigns.showings) != 1 {
		t.Fatalf("%+v with %d campaigns, %v", page, len(campaigns.showings), err)
	}
	if _, err := w.Pool.Exec(t.Context(), `ALTER TABLE feed_snapshots RENAME TO elsewhere`); err != nil {
		t.Fatal(err)
	}
	if page, err := f.First(t.Context(), r); err == nil || len(campaigns.showings) != 1 {
		t.Errorf("%+v with %d campaigns, %v", page, len(campaigns.showings)-1, err)
	}
}

func TestAFeedShowsEachUserOnceOverItsPages(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Users{}, projections.Interactions{}, projections.Consent{})
	f := &Feeds{
		Pool: w.Pool, Users: w.Users(), Interactions: projections.Interactions{Reader: w.Reader},
		Now: time.Now, Clock: func(context.Context, id.Client) (time.Time, error) { return time.Now(), nil }, Entropy: cryptorand.Reader,
	}
	var users []id.User
	for n := range 9 {
		users = append(users, w.Create(w.Acme, fmt.Sprint(n), `{}`))
	}
	w.Create(w.Bolt, "another client's", `{}`)
	for _, popular := range users[:4] { // who are among the newest, too
		w.Interact(w.Acme, users[8], popular, "click", 1)
	}
	r := Request{Client: w.Acme, User: users[0], Limit: 3}
	var shown []id.User
	for page, err := f.First(t.Context(), r); ; page, err = f.Next(t.Context(), r, *page.Next) {
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range page.Items {
			shown = append(shown, item.User)
		}
		if page.Next == nil {
			break
		}
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(users[1:])), slices.Sorted(slices.Values(shown))); diff != "" {
		t.Errorf("shown are (-want +got):\n%s", diff)
	}
}

// crowd is a client with users, and what composes their feeds.
type crowd struct {
	*projectionstest.Fixture
	feeds *Feeds
}

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	w := projectionstest.New(t)
	w.Follow(projections.Users{}, projections.TraitSchemas{}, projections.Interactions{}, projections.Consent{}, segments.New(w.Reader))
	compared := testkit.Must(populations.New(w.Reader, 1<<30))(t)
	compared.Logger, compared.Record = slog.New(slog.DiscardHandler), w.RecordSchema
	return &crowd{w, &Feeds{
		Pool: w.Pool, Users: w.Users(), Interactions: projections.Interactions{Reader: w.Reader}, Consent: projections.Consent{Reader: w.Reader},
		Populations: compared, Segments: segments.New(w.Reader), Now: time.Now,
		Clock: func(context.Context, id.Client) (time.Time, error) { return time.Now(), nil }, Entropy: cryptorand.Reader,
	}}
}

// whole is what all pages of a feed show.
func (c *crowd) whole(r Request) (shown []Item) {
	c.Helper()
	var at *Place
	for first := true; first || at != nil; first = false {
		if err := fault.Await(c.Context(), func(ctx context.Context) error {
			var page Page
			var err error
			if first {
				page, err = c.feeds.First(ctx, r)
			} else {
				page, err = c.feeds.Next(ctx, r, *at)
			}
			if err == nil {
				shown, at = append(shown, page.Items...), page.Next
			}
			return err
		}); err != nil {
			c.Fatal(err)
		}
	}
	return shown
}

// Whatever a feed is filtered by, it shows each whom the filter names once, and nobody who was dismissed or converted on.
func TestAFeedShowsWhomItsFilterNames(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	ages := map[id.User]int{}
	var ada id.User
	for n := range 130 {
		ada = c.Create(c.Acme, fmt.Sprint(n), fmt.Sprintf(`{"age":%d,"town":"town %d"}`, n, n%4))
		ages[ada] = n
	}
	hidden, tired := map[id.User]bool{}, c.whole(Request{Client: c.Acme, User: ada, Limit: 200})[85].User
	for user, age := range ages {
		switch {
		case user == ada || user == tired:
		case age%10 == 0:
			hidden[user] = true
			c.Interact(c.Acme, ada, user, []string{"dismiss", "conversion"}[age/10%2], 1)
		case age%10 == 1:
			c.Interact(c.Acme, tired, user, "click", 1)
		}
	}
	for range 6 {
		c.Interact(c.Acme, ada, tired, "impression", 1)
	}
	for text, named := range map[string]func(age int) bool{
		"":                                 func(int) bool { return true },
		`traits.age < 60`:                  func(age int) bool { return age < 60 },
		`traits.age < viewer.traits.age-9`: func(age int) bool { return age < 120 },
		`traits.town == viewer.traits.town && traits.age > 4`: func(age int) bool { return age%4 == 1 && age > 4 },
		`traits.age > 1000`: func(int) bool { return false },
	} {
		r := Request{Client: c.Acme, User: ada, Limit: 7}
		if text != "" {
			r.Filter = &rule.Filter{Rule: testkit.Must(rule.Parse(text, rule.Pairs))(t)}
		}
		var want, got []id.User
		for user, age := range ages {
			if named(age) && user != ada && !hidden[user] {
				want = append(want, user)
			}
		}
		for _, item := range c.whole(r) {
			if got = append(got, item.User); item.Kind != Match || item.ExternalID != fmt.Sprint(ages[item.User]) || item.Position < len(got) {
				t.Errorf("%q: %+v", text, item)
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q shows (-want +got):\n%s", text, diff)
		}
	}
	// The best is the first. Behind the best 100, whom diversity orders too, stand all by their scores: there is who
	// was seen too often.
	all := slices.DeleteFunc(c.whole(Request{Client: c.Acme, User: ada, Limit: 20}), func(i Item) bool { return i.Reason == ReasonExplore })
	best := slices.MaxFunc(all, func(a, b Item) int { return gocmp.Compare(a.Score, b.Score) })
	at := slices.IndexFunc(all, func(i Item) bool { return i.User == tired })
	if all[0].Score < best.Score || at >= 0 && slices.ContainsFunc(all[at:], func(i Item) bool { return i.Score > all[at].Score }) {
		t.Errorf("the first is %+v, not %+v, or somebody better stands behind %d of %d", all[0], best, at, len(all))
	}
}

// Of those who are as good, the next is one who is less like those before.
func TestTheBestOfAFeedAreNotAllAlike(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	ada := c.Create(c.Acme, "ada", `{"a":"x","b":"x","n":50}`)
	kind := map[id.User]string{}
	for n := range 12 {
		kind[c.Create(c.Acme, fmt.Sprint("one ", n), `{"a":"x","b":"y","n":50}`)] = "one"
		kind[c.Create(c.Acme, fmt.Sprint("other ", n), `{"a":"y","b":"x","n":51}`)] = "other"
		c.Create(c.Acme, fmt.Sprint("far ", n), fmt.Sprintf(`{"a":"z","b":"z","n":%d}`, n*100))
	}
	all := slices.DeleteFunc(c.whole(Request{Client: c.Acme, User: ada, Limit: 200}), func(i Item) bool { return i.Reason == ReasonExplore })
	if first, second := all[0], all[1]; kind[first.User] != "one" || kind[second.User] != "other" || second.Score >= all[2].Score {
		t.Errorf("it begins with %s, %s: %+v", kind[first.User], kind[second.User], all[:3])
	}
}

// Of whom nothing is known is shown the popular and then the newest, as deep as a feed is; a filter looks behind these.
func TestAStrangerIsShownThePopularThenTheNewest(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	c.feeds.Populations = nil // nobody is alike
	var users []id.User
	for n := range 230 {
		users = append(users, c.Create(c.Acme, fmt.Sprint(n), fmt.Sprintf(`{"age":%d}`, n)))
	}
	stranger := c.Create(c.Acme, "stranger", `{}`)
	for _, popular := range users[:15] {
		c.Interact(c.Acme, users[0], popular, "click", 1)
	}
	shown := func(text string) (shown []id.User) {
		r := Request{Client: c.Acme, User: stranger, Limit: 20}
		if text != "" {
			r.Filter = &rule.Filter{Rule: testkit.Must(rule.Parse(text, rule.Pairs))(t)}
		}
		for _, item := range c.whole(r) {
			if want := map[bool]Kind{true: Popular, false: Newest}[slices.Contains(users[:15], item.User)]; item.Reason != ReasonNewUser || item.Kind != want {
				t.Errorf("%+v", item)
			}
			shown = append(shown, item.User)
		}
		return shown
	}
	// others are who are neither popular nor among the newest: they have seldom been shown.
	others := func(once []id.User) (n int) {
		for _, user := range users[15:45] {
			if slices.Contains(once, user) {
				n++
			}
		}
		return n
	}
	once := shown("")
	if len(once) != 200 || !slices.Contains(once, users[0]) || !slices.Contains(once, users[229]) || others(once) == 0 || others(once) > 10 {
		t.Errorf("%d are shown", len(once))
	}
	if slices.Equal(once, shown("")) {
		t.Error("what is explored is the same each time")
	}
	if few := shown(`traits.age < 30`); len(few) != 30 {
		t.Errorf("%d of 30 whom the filter names are shown", len(few))
	}
}

// Who says nothing is nobody's match, and is shown all the same.
func TestWhoHasSeldomBeenShownIsShown(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	silent := map[id.User]bool{}
	for n := range 10 {
		silent[c.Create(c.Acme, fmt.Sprint("silent ", n), `{}`)] = true
	}
	var users []id.User
	for n := range 205 {
		users = append(users, c.Create(c.Acme, fmt.Sprint(n), fmt.Sprintf(`{"age":%d,"town":"town %d"}`, n, n%4)))
	}
	seen, often := map[id.User]bool{}, id.User("")
	for user := range silent {
		often = user
	}
	for _, viewer := range users[:50] {
		c.Interact(c.Acme, viewer, often, "impression", 1)
	}
	for _, viewer := range users[:150] {
		var page Page
		if err := fault.Await(c.Context(), func(ctx context.Context) (err error) {
			page, err = c.feeds.First(ctx, Request{Client: c.Acme, User: viewer, Limit: 20})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		of := 0
		for _, shown := range page.Items {
			if silent[shown.User] {
				of, seen[shown.User] = of+1, true
				if shown.Reason != ReasonExplore {
					t.Errorf("%+v", shown)
				}
			}
		}
		if of > 1 {
			t.Errorf("%d of %d places go to them", of, len(page.Items))
		}
	}
	if all := c.whole(Request{Client: c.Acme, User: users[0], Limit: 20}); len(all) > 200 {
		t.Errorf("a feed has %d places", len(all))
	}
	if len(seen) != 9 || seen[often] {
		t.Errorf("%d of 9 who have seldom been shown are shown, who has often been shown: %t", len(seen), seen[often])
	}
}
