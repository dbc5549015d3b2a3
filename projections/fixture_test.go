package projections_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/pgstore"
	"kindred/eventstore/projector"
	"kindred/eventstore/seal"
	"kindred/eventstore/seal/pgkeys"
	"kindred/postgres"
	"kindred/postgres/pgtest"
	"kindred/projections"
)

// fixture is a database with a log, and what reads the models on top of it.
type fixture struct {
	maxLeftOut int // of a runner; -1: the first stops a client
	testing.TB
	pool   *pgxpool.Pool
	log    *eventstore.Log
	reader projections.Reader
	ids    *id.Source
	acme   id.Client
	bolt   id.Client
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	pool, err := postgres.Open(t.Context(), pgtest.URL(t), postgres.Options{
		SearchPath: append([]string{"public"}, projector.SearchPath(projections.All()...)...),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	generated, err := seal.GenerateMasterKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	master, err := seal.ParseMasterKeys(generated)
	if err != nil {
		t.Fatal(err)
	}
	store, err := pgstore.Open(t.Context(), pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	vault := seal.New(pgkeys.Keys{Pool: pool}, master, rand.Reader)
	ids := id.Random(rand.Reader)
	return &fixture{
		TB: t, pool: pool, ids: ids, acme: id.Next[id.Client](ids), bolt: id.Next[id.Client](ids),
		log: &eventstore.Log{Store: store, Vault: vault, Registry: event.All(), Now: time.Now},
		reader: projections.Reader{
			Pool: pool, Vault: vault, Progress: projector.NewProgress(pool, slog.New(slog.DiscardHandler)),
		},
	}
}

// follow makes models and keeps them up to date until the test ends, or stop
// is called.
func (w *fixture) follow(models ...projector.ReadModel) (stop func()) {
	w.Helper()
	runner := &projector.Runner{
		Pool: w.pool, Log: w.log, Name: "test", Logger: slog.New(slog.DiscardHandler), Now: time.Now,
		Progress: w.reader.Progress, MaxLeftOut: w.maxLeftOut,
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	var all sync.WaitGroup
	all.Go(func() { w.reader.Progress.Run(ctx) })
	for _, m := range models {
		all.Go(func() {
			if err := runner.Run(ctx, m); err != nil {
				w.Errorf("%s: %v", m.Name(), err)
			}
		})
	}
	stop = sync.OnceFunc(func() {
		cancel()
		all.Wait()
	})
	w.Cleanup(stop)
	for _, m := range models {
		w.await(m)
	}
	return stop
}

// await waits for the tables of a model to be made.
func (w *fixture) await(m projector.ReadModel) {
	w.Helper()
	for began := time.Now(); time.Since(began) < 30*time.Second; time.Sleep(2 * time.Millisecond) {
		var made bool
		if err := w.pool.QueryRow(w.Context(), `SELECT to_regnamespace($1) IS NOT NULL`, projector.ID(m)).Scan(&made); err != nil {
			w.Fatal(err)
		}
		if made {
			return
		}
	}
	w.Fatalf("%s: its tables were never made", m.Name())
}

// append appends facts to the end of a stream. Any goroutine may call it.
func (w *fixture) append(client id.Client, stream string, events ...event.Event) ([]eventstore.Recorded, error) {
	end, err := w.log.Version(w.Context(), eventstore.Stream(stream))
	if err != nil {
		return nil, err
	}
	return w.log.Append(w.Context(), end, eventstore.Origin{Client: client, Actor: "test"}, id.Random(rand.Reader), events...)
}

// record is append for the goroutine of the test.
func (w *fixture) record(client id.Client, stream string, events ...event.Event) []eventstore.Recorded {
	w.Helper()
	return must[[]eventstore.Recorded](w)(w.append(client, stream, events...))
}

// userID is the id of a generation of an external id.
func (w *fixture) userID(client id.Client, external string, generation int) id.User {
	w.Helper()
	keyed, err := w.log.Vault.Index(w.Context(), client, fmt.Sprintf("user:%d", generation), external)
	if err != nil {
		w.Fatal(err)
	}
	return id.From[id.User]([16]byte(keyed[:16]))
}

func (w *fixture) create(client id.Client, external, traits string) id.User {
	w.Helper()
	return w.createAgain(client, external, 0, traits)
}

func (w *fixture) createAgain(client id.Client, external string, generation int, traits string) id.User {
	w.Helper()
	user := w.userID(client, external, generation)
	w.recordUser(client, user, event.EndUserCreated{
		User: user, Generation: generation,
		ExternalID: event.Private([]byte(external)), Traits: event.Private([]byte(traits)),
	})
	return user
}

func (w *fixture) change(client id.Client, user id.User, traits string) {
	w.Helper()
	w.recordUser(client, user, event.EndUserTraitsChanged{User: user, Traits: event.Private([]byte(traits))})
}

// erase records an erasure and destroys the key, as the command does.
func (w *fixture) erase(client id.Client, user id.User) {
	w.Helper()
	w.recordUser(client, user, event.EndUserErased{User: user})
	w.forget(client, user)
}

// forget destroys the key of a user, and what finds it.
func (w *fixture) forget(client id.Client, user id.User) {
	w.Helper()
	if err := w.log.Vault.Destroy(w.Context(), client, string(user)); err != nil {
		w.Fatal(err)
	}
}

func (w *fixture) recordUser(client id.Client, user id.User, e event.Event) {
	w.Helper()
	w.record(client, userStream(client, user), e)
}

func userStream(client id.Client, user id.User) string {
	return string(eventstore.UserStream(client, user))
}

func (w *fixture) match(client id.Client, user, matched id.User, score float64) eventstore.Position {
	w.Helper()
	recorded := w.record(client, "matches-"+string(client)+"-"+string(user), event.MatchComputed{
		User: user, MatchedUser: matched, Score: score, Percentile: 100 * score,
		Explanation: []event.Term{{Trait: "age", Weight: 1, Similarity: score, Contribution: score}},
	})
	return recorded[0].Position
}

func (w *fixture) interact(client id.Client, user, item id.User, kind string, position int) {
	w.Helper()
	w.record(client, fmt.Sprintf("interactions-%s-%s-%s", client, user, item),
		event.InteractionRecorded{User: user, Item: string(item), Kind: kind, Impression: fmt.Sprint("f.", position), Position: position})
}

func (w *fixture) signUp(client id.Client, name string) id.Member {
	w.Helper()
	member := id.Next[id.Member](w.ids)
	w.record(client, "client-"+string(client),
		event.ClientSignedUp{Client: client, Name: name, Slug: name}, addedMember(member, "owner"))
	return member
}

func addedMember(member id.Member, role string) event.MemberAdded {
	return event.MemberAdded{
		Member: member, Role: role, Email: event.Private([]byte(string(member) + "@example.com")),
		PasswordHash: event.Private([]byte("$argon2id$")),
	}
}

func (w *fixture) issue(client id.Client, raw string) id.Key {
	w.Helper()
	key, hash := id.Next[id.Key](w.ids), sha256.Sum256([]byte(raw))
	w.record(client, "apikey-"+string(client)+"-"+string(key), event.APIKeyIssued{
		Key: key, Name: raw, Hash: hash[:], Fingerprint: "print", Scopes: []string{"read", "write"}, IssuedBy: "mem_",
	})
	return key
}

func (w *fixture) revoke(client id.Client, key id.Key) {
	w.Helper()
	w.record(client, "apikey-"+string(client)+"-"+string(key), event.APIKeyRevoked{Key: key})
}

func (w *fixture) subscribe(client id.Client, url string) id.Webhook {
	w.Helper()
	webhook := id.Next[id.Webhook](w.ids)
	w.webhook(client, webhook, event.WebhookSubscribed{
		Webhook: webhook, WebhookAddress: event.At(url), EventTypes: []string{"match.computed"}, Secret: event.Private([]byte("secret")),
	})
	return webhook
}

func (w *fixture) webhook(client id.Client, webhook id.Webhook, events ...event.Event) {
	w.Helper()
	w.record(client, "webhook-"+string(client)+"-"+string(webhook), events...)
}

func (w *fixture) define(client id.Client, name string) id.ConsentLayer {
	w.Helper()
	layer := id.Next[id.ConsentLayer](w.ids)
	w.layer(client, layer, event.ConsentLayerDefined{Layer: layer, Name: name, TraitPaths: []string{"age"}})
	return layer
}

func (w *fixture) layer(client id.Client, layer id.ConsentLayer, e event.Event) {
	w.Helper()
	w.record(client, "layer-"+string(client)+"-"+string(layer), e)
}

func (w *fixture) grant(client id.Client, layer id.ConsentLayer, user id.User, granted bool) {
	w.Helper()
	var e event.Event = event.ConsentWithdrawn{Layer: layer, User: user}
	if granted {
		e = event.ConsentGranted{Layer: layer, User: user, Source: event.Private([]byte("a form"))}
	}
	w.record(client, "consent-"+string(client)+"-"+string(layer)+"-"+string(user), e)
}

// history is the whole log, decoded.
func (w *fixture) history() []eventstore.Recorded {
	w.Helper()
	records, err := w.log.Store.ReadAll(w.Context(), eventstore.Start, 1000)
	if err != nil {
		w.Fatal(err)
	}
	history := make([]eventstore.Recorded, len(records))
	for i, r := range records {
		if history[i], err = w.log.Decode(r); err != nil {
			w.Fatal(err)
		}
		history[i].Record = r
	}
	return history
}

func (w *fixture) users() projections.Users { return projections.Users{Reader: w.reader} }

// wantFault checks that an error is a fault of a code.
func wantFault(t testing.TB, code string, err error) {
	t.Helper()
	if !fault.Is(err, code) {
		t.Errorf("the error is %v, not %s", err, code)
	}
}

// must takes the results of a call that may not fail.
func must[T any](t testing.TB) func(T, error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// externalIDs are those of users that are listed, with their traits.
func externalIDs(users []projections.User) (names []string) {
	for _, u := range users {
		names = append(names, u.ExternalID)
	}
	return names
}

func mustJSON(t testing.TB, v any) string {
	t.Helper()
	return string(must[[]byte](t)(json.Marshal(v)))
}
