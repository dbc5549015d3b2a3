package projections_test

import (
	"crypto/rand"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/memstore"
	"kindred/eventstore/seal"
	"kindred/eventstore/seal/keystest"
	"kindred/postgres/pgtest"
	"kindred/projections"
)

// history is a log that tests write facts to as they please.
type history struct {
	*testing.T
	log    *eventstore.Log
	client id.Client
	ids    *id.Source
}

func newHistory(t *testing.T) *history {
	t.Helper()
	master := keystest.NewMaster(t)
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	h := &history{T: t, ids: id.Derived(t.Name())}
	h.client = id.Next[id.Client](h.ids)
	h.log = &eventstore.Log{
		Store: memstore.New("test"), Vault: seal.New(keystest.NewMemory(), master, rand.Reader), Registry: event.All(),
		Now: func() time.Time { now = now.Add(time.Second); return now },
	}
	return h
}

// record appends facts to a stream.
func (h *history) record(stream string, events ...event.Event) {
	h.Helper()
	end, err := h.log.Version(h.Context(), eventstore.Stream(stream))
	if err == nil {
		_, err = h.log.Append(h.Context(), end, eventstore.Origin{Client: h.client, Actor: "test"}, h.ids, events...)
	}
	if err != nil {
		h.Fatal(err)
	}
}

// all returns everything that was recorded.
func (h *history) all() []eventstore.Recorded {
	h.Helper()
	records, err := h.log.Store.ReadAll(h.Context(), eventstore.Start, 100_000)
	if err != nil {
		h.Fatal(err)
	}
	decoded := make([]eventstore.Recorded, len(records))
	for i, r := range records {
		if decoded[i], err = h.log.Decode(r); err != nil {
			h.Fatal(err)
		}
	}
	return decoded
}

func (h *history) grant(layer id.ConsentLayer, users ...id.User) {
	h.Helper()
	for _, u := range users {
		h.record("consent-"+string(layer)+string(u), event.ConsentGranted{Layer: layer, User: u, Source: event.Private([]byte("form"))})
	}
}

func (h *history) withdraw(layer id.ConsentLayer, users ...id.User) {
	h.Helper()
	for _, u := range users {
		h.record("consent-"+string(layer)+string(u), event.ConsentWithdrawn{Layer: layer, User: u})
	}
}

func (h *history) define() id.ConsentLayer {
	h.Helper()
	layer := id.Next[id.ConsentLayer](h.ids)
	h.record("layer-"+string(layer), event.ConsentLayerDefined{Layer: layer, Name: "A", TraitPaths: []string{"age"}})
	return layer
}

func (h *history) create(n int) []id.User {
	h.Helper()
	users := make([]id.User, n)
	for i := range users {
		users[i] = id.Next[id.User](h.ids)
		traits, err := json.Marshal(map[string]any{"age": 20 + i})
		if err != nil {
			h.Fatal(err)
		}
		h.record("user-"+string(h.client)+"-"+string(users[i]), event.EndUserCreated{
			User: users[i], ExternalID: event.Private([]byte("u" + strconv.Itoa(i))), Traits: event.Private(traits),
		})
	}
	return users
}

func TestConsentIsTheSameInWhateverBatches(t *testing.T) {
	pool := pgtest.New(t)
	h := newHistory(t)
	a, b := h.define(), h.define()
	u := h.create(6)
	h.grant(a, u...)
	h.grant(b, u[0], u[1])
	h.withdraw(a, u[1], u[2])
	h.grant(a, u[2])
	h.record("user-erased", event.EndUserErased{User: u[3]})
	h.grant(a, u[3]) // was on its way when the user was erased
	h.record("layer-"+string(a), event.ConsentLayerChanged{Layer: a, Name: "B", TraitPaths: []string{"age", "plan"}})
	h.record("layer-"+string(b), event.ConsentLayerRetired{Layer: b})
	h.grant(b, u[4]) // was on its way when the layer was retired
	h.withdraw(a, u[5])

	tables := wantSplitIndependent(t, pool, projections.Consent{}, h.all(), "consent_layers", "consents", "consent_changes", "consent_erased")
	for _, want := range []string{
		string(a) + "," + string(u[2]) + ",t,", string(a) + "," + string(u[1]) + ",f,", string(a) + "," + string(u[5]) + ",f,",
	} {
		if !strings.Contains(tables, want) {
			t.Errorf("no %s in\n%s", want, tables)
		}
	}
	for _, gone := range []string{string(a) + "," + string(u[3]), string(b) + "," + string(u[0]), string(b) + "," + string(u[4])} {
		if strings.Contains(tables, gone) {
			t.Errorf("%s is still in\n%s", gone, tables)
		}
	}
}
