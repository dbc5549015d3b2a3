package projections_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/projections"
	"kindred/projections/projectionstest"
	"kindred/testkit"
)

// TestAnyBatchesMakeTheSameTables applies a long random history in one piece,
// event by event, split in two at every place, and in random pieces.
func TestAnyBatchesMakeTheSameTables(t *testing.T) {
	t.Parallel()
	random := testkit.Random(t)
	w := projectionstest.New(t)
	eventful(w, random, 120)
	for _, r := range w.History() { // some of it stands in the log twice
		if random.IntN(3) == 0 && slices.Contains(recordedTwice, r.Type) {
			w.Record(r.Client, string(r.Stream), r.Event)
		}
	}
	rest(w)
	history := w.History()
	for _, model := range projections.All() {
		t.Run(model.Name(), func(t *testing.T) {
			tables := projectionstest.EmptyTables(t, w, model)
			single := tables.After(t, ones(len(history)), history)
			empty := true
			for _, rows := range single {
				empty = empty && len(rows) == 0
			}
			if empty {
				t.Fatal("no event of the history concerns this model")
			}
			try := func(sizes ...int) {
				t.Helper()
				if diff := cmp.Diff(single, tables.After(t, sizes, history)); diff != "" {
					t.Fatalf("batches of %v events (-one by one +these):\n%s", sizes, diff)
				}
			}
			try(len(history))
			for range 20 {
				at := 1 + random.IntN(len(history)-1)
				try(at, len(history)-at)
			}
			for range 10 {
				var sizes []int
				for left := len(history); left > 0; {
					n := 1 + random.IntN(min(left, 30))
					sizes, left = append(sizes, n), left-n
				}
				try(sizes...)
			}
			if selective, ok := model.(projector.Selective); ok {
				wanted := slices.DeleteFunc(slices.Clone(history), func(r eventstore.Recorded) bool { return !selective.Wants(r.Type) })
				if diff := cmp.Diff(single, tables.After(t, ones(len(wanted)), wanted)); diff != "" {
					t.Fatalf("it does not want all that changes it (-all +what it wants):\n%s", diff)
				}
			}
		})
	}
}

// namingErased are the tables that name users who were erased, by their ids alone, beside those
// called so: of who was, for whom nothing may come later, of the log's own events, and of what
// followers are told.
var namingErased = []string{"users", "cluster_withdrawn", "history_events", "public_events", "segment_changes"}

// Everybody is erased whom a history with every type of event names: the users of samples
// before what rest records of them, which was on its way then.
func TestAnErasureLeavesNoRowOfItsUser(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	eventful(w, testkit.Random(t), 60)
	users := regexp.MustCompile(`usr_[0-9a-v]{26}`)
	erased := map[string]bool{}
	erase := func(client id.Client, text []byte) {
		for _, user := range users.FindAllString(string(text), -1) {
			if of := string(client) + user; !erased[of] {
				erased[of] = true
				w.Record(client, "erased-"+user, event.EndUserErased{User: id.User(user)})
			}
		}
	}
	for _, sample := range testkit.Must(filepath.Glob("../domain/event/testdata/*.json"))(t) {
		erase(w.Acme, testkit.Must(os.ReadFile(sample))(t))
	}
	rest(w)
	for _, r := range w.History() {
		erase(r.Client, r.Data)
	}
	history := w.History()
	for _, model := range projections.All() {
		t.Run(model.Name(), func(t *testing.T) {
			for table, rows := range projectionstest.EmptyTables(t, w, model).After(t, []int{len(history)}, history) {
				named := strings.HasSuffix(table, "_erased") || slices.Contains(namingErased, table)
				if slices.ContainsFunc(rows, users.MatchString) && !named {
					t.Errorf("%s has rows of users after end_user.erased, or of what was on its way then: matches.go keeps who was erased", table)
				}
			}
		})
	}
}

// rest records a sample of each type that a history has none of: nothing that a model wants
// is missing from it, and who adds an event has no history to change. Samples agree on
// their ids.
func rest(w *projectionstest.Fixture) {
	w.Helper()
	registry, seen := event.All(), map[string]bool{}
	for _, r := range w.History() {
		seen[r.Type] = true
	}
	for _, name := range slices.Sorted(maps.Keys(registry.Types())) {
		if seen[name] || name == "client.deleted" { // with it all of a client would go
			continue
		}
		version := registry.Types()[name]
		data, err := os.ReadFile(fmt.Sprintf("../domain/event/testdata/%s.v%d.json", name, version))
		if err != nil {
			w.Fatal(err)
		}
		e := testkit.Must(registry.Decode(name, version, data))(w)
		if personal, ok := e.(event.PersonalData); ok {
			if err := w.EventLog.Vault.Prepare(w.Context(), w.Acme, personal.Subject()); err != nil {
				w.Fatal(err)
			}
			for _, field := range personal.Personal() {
				*field.Value = *event.Private([]byte(`{}`))
			}
		}
		w.Record(w.Acme, "samples-"+name, e)
	}
}

// recordedTwice are types of which a log may hold the same event twice.
var recordedTwice = []string{
	"match.computed", "feed.interaction_recorded", "campaign.engagement_recorded", "campaign.spend_recorded",
	"clustering_run.requested", "cluster.kept",
}

func ones(n int) []int {
	sizes := make([]int, n)
	for i := range sizes {
		sizes[i] = 1
	}
	return sizes
}

// accesses are how members get in.
type accesses map[id.Member]event.AccessStanding

// change opens a session, ends one, or sets a password.
func (a accesses) change(w *projectionstest.Fixture, random *rand.Rand, member id.Member) {
	standing, stream := a[member], "access-"+string(member)
	standing.Sessions = slices.Clone(standing.Sessions)
	switch n := len(standing.Sessions); {
	case n == 0 || random.IntN(2) == 0:
		one := event.SessionStanding{Session: id.Next[id.Session](w.IDs), Hash: []byte{1}, OpenedAt: time.Unix(1_700_000_000, 0)}
		opened := event.SessionOpened{Member: member, Session: one.Session}
		if standing.Sessions = append(standing.Sessions, one); n > 2 {
			opened.Ended, standing.Sessions = []id.Session{standing.Sessions[0].Session}, standing.Sessions[1:]
		}
		opened.Standing = standing
		w.Record(w.Bolt, stream, opened)
	case random.IntN(2) == 0:
		ended := standing.Sessions[0].Session
		standing.Sessions = standing.Sessions[1:]
		w.Record(w.Bolt, stream, event.SessionEnded{Member: member, Session: ended, Standing: standing})
	default:
		standing.Changes, standing.Sessions = standing.Changes+1, standing.Sessions[n-1:]
		w.Record(w.Bolt, stream, event.MemberPasswordSet{Member: member, PasswordHash: event.Private([]byte("$argon2id$")), Standing: standing})
	}
	a[member] = standing
}

// eventful records a random history of at least so many events, with
// everything in it that changes a model.
func eventful(w *projectionstest.Fixture, random *rand.Rand, events int) {
	w.Helper()
	// What stays, whatever follows: each model has something to hold.
	for _, client := range []id.Client{w.Acme, w.Bolt} {
		w.SignUp(client, "company of "+string(client))
	}
	for _, r := range campaignHistory(random, events/2, w.Acme, w.Bolt) {
		w.Record(r.Client, "campaigns", r.Event)
	}
	w.Record(w.Acme, "campaigns",
		event.CampaignEngagementRecorded{Campaign: "cam_0", Impression: "ipr_erased", User: "usr_erased", Kind: "impression"},
		event.EndUserErased{User: "usr_erased"},
		event.CampaignEngagementRecorded{Campaign: "cam_0", Impression: "ipr_late", User: "usr_erased", Kind: "impression"},
		event.CampaignEngagementRecorded{Campaign: "cam_0", Impression: "ipr_late", User: "usr_erased", Kind: "click"})
	w.Record("", "slug-left-open", event.Reserved{Client: w.Acme})
	sandbox, gone := id.NextSandbox(w.IDs, w.Acme), id.NextSandbox(w.IDs, w.Acme)
	w.Record(w.Acme, "sandboxes", event.SandboxAdded{Sandbox: sandbox, Name: "ci", ExpiresAt: new(time.Unix(1_700_000_000, 0).UTC())},
		event.SandboxAdded{Sandbox: gone, Name: "gone"}, event.SandboxRemoved{Sandbox: gone})
	w.Record(sandbox, "client-"+string(sandbox), event.SandboxOpened{Client: sandbox, Parent: w.Acme, Name: "ci", Slug: "acme--ci"})
	w.Record(sandbox, "sandbox-"+string(sandbox), event.ClockMoved{Client: sandbox, MovedMicros: 5, AheadMicros: 5},
		event.ClockMoved{Client: sandbox, MovedMicros: 2, AheadMicros: 7})
	w.Revoke(w.Bolt, w.Issue(w.Bolt, "a key that is revoked"))
	stays, opened := id.Next[id.Member](w.IDs), event.SessionStanding{Session: id.Next[id.Session](w.IDs), Hash: []byte{1}, OpenedAt: time.Unix(1_700_000_000, 0)}
	w.Record(w.Bolt, "client-"+string(w.Bolt), projectionstest.AddedMember(stays, "viewer"))
	w.Record(w.Bolt, "access-"+string(stays), event.SessionOpened{
		Member: stays, Session: opened.Session, Standing: event.AccessStanding{Sessions: []event.SessionStanding{opened}},
	})
	w.Subscribe(w.Bolt, "https://example.com/bolt")
	ada, bob := w.Create(w.Bolt, "ada", `{}`), w.Create(w.Bolt, "bob", `{}`)
	w.Match(w.Bolt, ada, bob, 0.5)
	w.Match(w.Bolt, ada, bob, 0.75)
	w.Segment(w.Bolt, event.SegmentDefined{Segment: projectionstest.SegmentIDs[3], Name: "odd", Rule: event.Private([]byte(`traits.n != 2`))})
	w.Segment(w.Bolt, event.SegmentReady{})
	layer := w.Define(w.Bolt, "a layer that stays")
	w.Grant(w.Bolt, layer, ada, true)
	w.Interact(w.Bolt, ada, bob, "click", 2)
	w.Record(w.Bolt, "ended", event.DeliveriesEnded{Webhook: "whk_1", Deliveries: []event.Ending{{State: "delivered", Attempts: 1}, {State: "dropped", Attempts: 6}}})

	type user struct {
		client     id.Client
		id         id.User
		external   string
		generation int
	}
	var (
		users   []user
		erased  []user
		hooks   []id.Webhook
		keys    []id.Key
		members []id.Member
		access  = accesses{}
		claims  []string
		layers  = []id.ConsentLayer{w.Define(w.Acme, "the first layer")}
	)
	client := func() id.Client { return []id.Client{w.Acme, w.Bolt}[random.IntN(2)] }
	for n := range events {
		traits := fmt.Sprintf(`{"n":%d}`, n)
		if n%10 == 0 {
			c := client()
			w.Record(c, "traitschema-"+string(c), []event.Event{
				event.TraitSchemaInferred{Client: c, Users: n, Schema: event.Private([]byte(`{"traits":[]}`))},
				event.TraitSchemaOverridden{Overrides: map[string]event.TraitOverride{traits: {Type: "number"}}},
			}[random.IntN(2)])
		}
		if n%7 == 0 {
			projectionstest.ChangeSegments(w, random, w.Acme)
		}
		switch choice := random.IntN(24); {
		case choice < 4 || len(users) < 2:
			u := user{client: client(), external: fmt.Sprint("person ", n)}
			u.id = w.Create(u.client, u.external, traits)
			users = append(users, u)
		case choice < 6:
			u := users[random.IntN(len(users))]
			w.Change(u.client, u.id, traits)
		case choice < 8:
			i := random.IntN(len(users))
			if random.IntN(3) == 0 { // a consent is on its way when the user is erased
				w.RecordUser(users[i].client, users[i].id, event.EndUserErased{User: users[i].id})
				w.Grant(users[i].client, layers[0], users[i].id, true)
			} else {
				w.Erase(users[i].client, users[i].id)
			}
			erased = append(erased, users[i])
			users = append(users[:i], users[i+1:]...)
		case choice < 9 && len(erased) > 0:
			u := erased[len(erased)-1]
			erased = erased[:len(erased)-1]
			w.Forget(u.client, u.id)
			u.generation++
			u.id = w.CreateAgain(u.client, u.external, u.generation, traits)
			users = append(users, u)
		case choice < 13: // few users, so that pairs come again; some matches come after an erasure
			few := min(len(users), 3)
			of, with := users[random.IntN(few)], users[random.IntN(few)]
			if len(erased) > 0 && random.IntN(8) == 0 {
				with = erased[random.IntN(len(erased))]
			}
			w.Match(of.client, of.id, with.id, random.Float64())
			w.Interact(of.client, of.id, with.id, []string{"impression", "click", "dismiss", "conversion"}[random.IntN(4)], random.IntN(9))
		case choice < 14:
			hooks = append(hooks, w.Subscribe(w.Acme, "https://example.com"))
		case choice < 16 && len(hooks) > 0:
			hook := hooks[random.IntN(len(hooks))]
			w.Webhook(w.Acme, hook, []event.Event{
				event.WebhookPaused{Webhook: hook},
				event.WebhookResumed{Webhook: hook},
				event.WebhookChanged{Webhook: hook, WebhookAddress: event.At(fmt.Sprint("https://example.com/", n)), EventTypes: []string{"match.computed"}},
				event.WebhookSecretRotated{Webhook: hook, Secret: event.Private([]byte("other"))},
				event.WebhookRemoved{Webhook: hook},
			}[random.IntN(5)])
		case choice < 17 && len(keys) > 0 && random.IntN(2) == 0:
			w.Revoke(w.Acme, keys[random.IntN(len(keys))])
		case choice < 17:
			keys = append(keys, w.Issue(w.Acme, fmt.Sprint("key ", n)))
		case choice < 18 && len(members) > 0 && random.IntN(2) == 0:
			access.change(w, random, members[random.IntN(len(members))])
		case choice < 18 && len(members) > 0 && random.IntN(2) == 0:
			w.Record(w.Bolt, "client-"+string(w.Bolt), event.MemberRemoved{Member: members[0]})
			members = members[1:]
		case choice < 18:
			members = append(members, id.Next[id.Member](w.IDs))
			w.Record(w.Bolt, "client-"+string(w.Bolt), projectionstest.AddedMember(members[len(members)-1], "viewer"))
		case choice < 19:
			w.Record(w.Acme, "client-"+string(w.Acme), event.ClientRenamed{Client: w.Acme, Name: fmt.Sprint("name ", n)},
				event.ClientSettingsChanged{Client: w.Acme, Settings: event.Settings{WebhookUserIDs: "external_id"}})
		case choice < 22:
			u := users[random.IntN(min(len(users), 5))]
			w.Grant(u.client, layers[random.IntN(len(layers))], u.id, random.IntN(3) > 0)
		case choice < 23:
			i := random.IntN(len(layers))
			switch random.IntN(4) {
			case 0:
				w.Layer(w.Acme, layers[i], event.ConsentLayerRetired{Layer: layers[i]})
			case 1:
				w.Layer(w.Acme, layers[i], event.ConsentLayerChanged{Layer: layers[i], Name: traits, TraitPaths: []string{"n"}})
			default:
				layers = append(layers, w.Define(w.Acme, traits))
			}
		case len(claims) > 0 && random.IntN(2) == 0:
			w.Record("", claims[0], event.Released{Client: w.Acme})
			if random.IntN(2) == 0 {
				w.Record("", claims[0], event.Reserved{Client: w.Bolt})
				w.Record("", claims[0], event.Confirmed{Client: w.Bolt})
			}
			claims = claims[1:]
		default:
			claims = append(claims, fmt.Sprintf("slug-%d", n))
			w.Record("", claims[len(claims)-1], event.Reserved{Client: w.Acme})
		}
	}
}

// TestNoTableNamesWhoWasErased has all that can be said of a user said before
// the erasure, and again after it, as by commands that had found the user. What is said of
// others is kept as if nobody had been erased.
func TestNoTableNamesWhoWasErased(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	ada, bob, layer := w.Create(w.Acme, "ada", `{}`), w.Create(w.Acme, "bob", `{}`), w.Define(w.Acme, "a layer")
	one, other := w.Create(w.Acme, "one", `{}`), w.Create(w.Acme, "other", `{}`)
	campaign := id.Next[id.Campaign](w.IDs)
	w.Record(w.Acme, "campaign", event.CampaignDrafted{Campaign: campaign})
	sayOf := func(ada, bob id.User) {
		w.Match(w.Acme, ada, bob, 0.5)
		w.Match(w.Acme, bob, ada, 0.5)
		w.Interact(w.Acme, ada, bob, "dismiss", 0)
		w.Interact(w.Acme, bob, ada, "click", 1)
		w.Grant(w.Acme, layer, ada, true)
		shown := event.CampaignEngagementRecorded{Campaign: campaign, User: ada, Impression: id.Next[id.Impression](w.IDs), Kind: "impression"}
		answer := shown
		answer.Kind = "click"
		w.Record(w.Acme, "campaign", shown, answer)
	}
	say := func() {
		sayOf(ada, bob)
		sayOf(one, other)
	}
	say()
	w.RecordUser(w.Acme, ada, event.EndUserErased{User: ada})
	say()
	history := w.History()
	unerased := slices.DeleteFunc(slices.Clone(history), func(r eventstore.Recorded) bool { return r.Type == "end_user.erased" })
	ofOthers := func(rows []string) []string {
		return slices.DeleteFunc(slices.Clone(rows), func(row string) bool {
			return !strings.Contains(row, string(one)) && !strings.Contains(row, string(other))
		})
	}
	for _, model := range projections.All() {
		t.Run(model.Name(), func(t *testing.T) {
			tables := projectionstest.EmptyTables(t, w, model)
			kept := tables.After(t, ones(len(unerased)), unerased)
			for _, sizes := range [][]int{ones(len(history)), {len(history)}} {
				for table, rows := range tables.After(t, sizes, history) {
					if strings.HasSuffix(table, "_erased") || table == "users" || table == "history_events" || table == "public_events" {
						continue // they say that the user was erased, and what is in the log; ids of users stay in that
					}
					for _, row := range rows {
						if strings.Contains(row, string(ada)) {
							t.Errorf("batches of %v leave in %s: %s", sizes, table, row)
						}
					}
					if diff := cmp.Diff(ofOthers(kept[table]), ofOthers(rows)); diff != "" {
						t.Errorf("batches of %v change what %s has of others (-as if nobody was erased +as it is):\n%s", sizes, table, diff)
					}
				}
			}
		})
	}
}

func TestAFieldThatWasNotSealedIsTheEventsFault(t *testing.T) {
	w := projectionstest.New(t)
	tables := projectionstest.EmptyTables(t, w, projections.Users{})
	err := tables.Model.Apply(t.Context(), tables.TX, []eventstore.Recorded{{Event: event.EndUserCreated{User: "usr_1", Traits: &event.Personal{}}}})
	if _, server := errors.AsType[*pgconn.PgError](err); err == nil || server {
		t.Errorf("got %v, want what is wrong with the event", err)
	}
}
