// Package projectionstest is a log with a database for tests of read models.
package projectionstest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
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
	"kindred/eventstore/seal/keystest"
	"kindred/eventstore/seal/pgkeys"
	"kindred/postgres"
	"kindred/postgres/pgtest"
	"kindred/projections"
	"kindred/projections/readmodel"
	"kindred/testkit"
)

// Fixture is a database with a log, and what reads the models on top of it.
type Fixture struct {
	MaxLeftOut int // of a runner; -1: the first stops a client
	testing.TB
	Pool     *pgxpool.Pool
	EventLog *eventstore.Log
	Reader   readmodel.Reader
	IDs      *id.Source
	Acme     id.Client
	Bolt     id.Client
}

func New(t testing.TB) *Fixture {
	t.Helper()
	pool, err := postgres.Open(t.Context(), pgtest.URL(t), postgres.Options{
		SearchPath: append([]string{"public"}, projector.SearchPath(projections.All()...)...),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	master := keystest.NewMaster(t)
	store, err := pgstore.Open(t.Context(), pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	vault := seal.New(pgkeys.Keys{Pool: pool}, master, rand.Reader)
	ids := id.Random(rand.Reader)
	return &Fixture{
		TB: t, Pool: pool, IDs: ids, Acme: id.Next[id.Client](ids), Bolt: id.Next[id.Client](ids),
		EventLog: &eventstore.Log{Store: store, Vault: vault, Registry: event.All(), Now: time.Now},
		Reader: readmodel.Reader{
			Pool: pool, Vault: vault, Progress: projector.NewProgress(pool, slog.New(slog.DiscardHandler)),
		},
	}
}

// Follow makes models and keeps them up to date until the test ends, or stop
// is called.
func (w *Fixture) Follow(models ...projector.ReadModel) (stop func()) {
	w.Helper()
	runner := &projector.Runner{
		Pool: w.Pool, Log: w.EventLog, Name: "test", Logger: slog.New(slog.DiscardHandler), Now: time.Now,
		Progress: w.Reader.Progress, MaxLeftOut: w.MaxLeftOut,
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	var all sync.WaitGroup
	all.Go(func() { w.Reader.Progress.Run(ctx) })
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
func (w *Fixture) await(m projector.ReadModel) {
	w.Helper()
	for began := time.Now(); time.Since(began) < 30*time.Second; time.Sleep(2 * time.Millisecond) {
		var made bool
		if err := w.Pool.QueryRow(w.Context(), `SELECT to_regnamespace($1) IS NOT NULL`, projector.ID(m)).Scan(&made); err != nil {
			w.Fatal(err)
		}
		if made {
			return
		}
	}
	w.Fatalf("%s: its tables were never made", m.Name())
}

// Append appends facts to the end of a stream. Any goroutine may call it.
func (w *Fixture) Append(client id.Client, stream string, events ...event.Event) ([]eventstore.Recorded, error) {
	end, err := w.EventLog.Version(w.Context(), eventstore.Stream(stream))
	if err != nil {
		return nil, err
	}
	return w.EventLog.Append(w.Context(), end, eventstore.Origin{Client: client, Actor: "test"}, id.Random(rand.Reader), events...)
}

// Record is append for the goroutine of the test.
func (w *Fixture) Record(client id.Client, stream string, events ...event.Event) []eventstore.Recorded {
	w.Helper()
	return testkit.Must(w.Append(client, stream, events...))(w)
}

// RecordSchema records a schema of traits that was learnt, unless another was meanwhile.
func (w *Fixture) RecordSchema(ctx context.Context, client id.Client, under, users int, schema []byte) error {
	end, err := w.EventLog.Version(ctx, eventstore.Stream("traitschema-"+string(client)))
	if err != nil || int(end.Revision)+1 != under {
		return err
	}
	_, err = w.EventLog.Append(ctx, end, eventstore.Origin{Client: client, Actor: "test"}, id.Random(rand.Reader),
		event.TraitSchemaInferred{Client: client, Users: users, Schema: event.Private(schema)})
	if _, moved := errors.AsType[*eventstore.ConflictError](err); moved {
		return nil
	}
	return err
}

// UserID is the id of a generation of an external id.
func (w *Fixture) UserID(client id.Client, external string, generation int) id.User {
	w.Helper()
	keyed, err := w.EventLog.Vault.Index(w.Context(), client, fmt.Sprintf("user:%d", generation), external)
	if err != nil {
		w.Fatal(err)
	}
	return id.From[id.User]([16]byte(keyed[:16]))
}

func (w *Fixture) Create(client id.Client, external, traits string) id.User {
	w.Helper()
	return w.CreateAgain(client, external, 0, traits)
}

func (w *Fixture) CreateAgain(client id.Client, external string, generation int, traits string) id.User {
	w.Helper()
	user := w.UserID(client, external, generation)
	w.RecordUser(client, user, event.EndUserCreated{
		User: user, Generation: generation,
		ExternalID: event.Private([]byte(external)), Traits: event.Private([]byte(traits)),
	})
	return user
}

func (w *Fixture) Change(client id.Client, user id.User, traits string) {
	w.Helper()
	w.RecordUser(client, user, event.EndUserTraitsChanged{User: user, Traits: event.Private([]byte(traits))})
}

// Erase records an erasure and destroys the key, as the command does.
func (w *Fixture) Erase(client id.Client, user id.User) {
	w.Helper()
	w.RecordUser(client, user, event.EndUserErased{User: user})
	w.Forget(client, user)
}

// Forget destroys the key of a user, and what finds it.
func (w *Fixture) Forget(client id.Client, user id.User) {
	w.Helper()
	if err := w.EventLog.Vault.Destroy(w.Context(), client, string(user)); err != nil {
		w.Fatal(err)
	}
}

func (w *Fixture) RecordUser(client id.Client, user id.User, e event.Event) {
	w.Helper()
	w.Record(client, UserStream(client, user), e)
}

func UserStream(client id.Client, user id.User) string {
	return string(eventstore.UserStream(client, user))
}

func (w *Fixture) Match(client id.Client, user, matched id.User, score float64) eventstore.Position {
	w.Helper()
	recorded := w.Record(client, "matches-"+string(client)+"-"+string(user), event.MatchComputed{
		User: user, MatchedUser: matched, Score: score, Percentile: 100 * score,
		Explanation: []event.Term{{Trait: "age", Weight: 1, Similarity: score, Contribution: score}},
	})
	return recorded[0].Position
}

func (w *Fixture) Interact(client id.Client, user, item id.User, kind string, position int) {
	w.Helper()
	w.Record(client, fmt.Sprintf("interactions-%s-%s-%s", client, user, item),
		event.InteractionRecorded{User: user, Item: string(item), Kind: kind, Impression: fmt.Sprint("f.", position), Position: position})
}

func (w *Fixture) SignUp(client id.Client, name string) id.Member {
	w.Helper()
	member := id.Next[id.Member](w.IDs)
	w.Record(client, "client-"+string(client),
		event.ClientSignedUp{Client: client, Name: name, Slug: name}, AddedMember(member, "owner"))
	return member
}

func AddedMember(member id.Member, role string) event.MemberAdded {
	return event.MemberAdded{
		Member: member, Role: role, Email: event.Private([]byte(string(member) + "@example.com")),
		PasswordHash: event.Private([]byte("$argon2id$")),
	}
}

func (w *Fixture) Issue(client id.Client, raw string) id.Key {
	w.Helper()
	key, hash := id.Next[id.Key](w.IDs), sha256.Sum256([]byte(raw))
	w.Record(client, "apikey-"+string(client)+"-"+string(key), event.APIKeyIssued{
		Key: key, Name: raw, Hash: hash[:], Fingerprint: "print", Scopes: []string{"read", "write"}, IssuedBy: "mem_",
	})
	return key
}

func (w *Fixture) Revoke(client id.Client, key id.Key) {
	w.Helper()
	w.Record(client, "apikey-"+string(client)+"-"+string(key), event.APIKeyRevoked{Key: key})
}

func (w *Fixture) Subscribe(client id.Client, url string) id.Webhook {
	w.Helper()
	webhook := id.Next[id.Webhook](w.IDs)
	w.Webhook(client, webhook, event.WebhookSubscribed{
		Webhook: webhook, WebhookAddress: event.At(url), EventTypes: []string{"match.computed"}, Secret: event.Private([]byte("secret")),
	})
	return webhook
}

func (w *Fixture) Webhook(client id.Client, webhook id.Webhook, events ...event.Event) {
	w.Helper()
	w.Record(client, "webhook-"+string(client)+"-"+string(webhook), events...)
}

func (w *Fixture) Define(client id.Client, name string) id.ConsentLayer {
	w.Helper()
	layer := id.Next[id.ConsentLayer](w.IDs)
	w.Layer(client, layer, event.ConsentLayerDefined{Layer: layer, Name: name, TraitPaths: []string{"age"}})
	return layer
}

func (w *Fixture) Layer(client id.Client, layer id.ConsentLayer, e event.Event) {
	w.Helper()
	w.Record(client, "layer-"+string(client)+"-"+string(layer), e)
}

func (w *Fixture) Grant(client id.Client, layer id.ConsentLayer, user id.User, granted bool) {
	w.Helper()
	var e event.Event = event.ConsentWithdrawn{Layer: layer, User: user}
	if granted {
		e = event.ConsentGranted{Layer: layer, User: user, Source: event.Private([]byte("a form"))}
	}
	w.Record(client, "consent-"+string(client)+"-"+string(layer)+"-"+string(user), e)
}

// History is the whole log, decoded.
func (w *Fixture) History() []eventstore.Recorded {
	w.Helper()
	records, err := w.EventLog.Store.ReadAll(w.Context(), eventstore.Start, 1000)
	if err != nil {
		w.Fatal(err)
	}
	history := make([]eventstore.Recorded, len(records))
	for i, r := range records {
		if history[i], err = w.EventLog.Decode(r); err != nil {
			w.Fatal(err)
		}
		history[i].Record = r
	}
	return history
}

func (w *Fixture) Users() projections.Users { return projections.Users{Reader: w.Reader} }

// WantFault checks that an error is a fault of a code.
func WantFault(t testing.TB, code string, err error) {
	t.Helper()
	if !fault.Is(err, code) {
		t.Errorf("the error is %v, not %s", err, code)
	}
}

// ExternalIDs are those of users that are listed, with their traits.
func ExternalIDs(users []projections.User) (names []string) {
	for _, u := range users {
		names = append(names, u.ExternalID)
	}
	return names
}

func MustJSON(t testing.TB, v any) string {
	t.Helper()
	return string(testkit.Must(json.Marshal(v))(t))
}

// At records facts as of a time.
func (w *Fixture) At(when time.Time, record func()) {
	w.Helper()
	before := w.EventLog.Now
	w.EventLog.Now = func() time.Time { return when }
	record()
	w.EventLog.Now = before
}

func (w *Fixture) Segment(client id.Client, e event.Event) {
	w.Helper()
	w.Record(client, string(eventstore.SegmentsStream(client)), e)
}
