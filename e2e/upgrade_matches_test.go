package e2e

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"kindred/app"
	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/domain/traits"
	"kindred/eventstore"
	"kindred/httpapi"
	"kindred/testkit"
)

// computed counts the matches in the log.
func computed(t testing.TB, f *app.App) (n int) {
	t.Helper()
	for _, r := range history(t, f) {
		if _, is := r.Event.(event.MatchComputed); is {
			n++
		}
	}
	return n
}

// A release scores otherwise than the one before, whose schema is learnt anew: nobody is
// told of matches for that, neither at once nor when something is said that does not count.
func TestAnUpgradeByItselfComputesNoMatch(t *testing.T) {
	t.Parallel()
	s := startService(t)
	a := s.signUp()
	a.importUsers(30, func(i int) string {
		if i%3 == 0 {
			return fmt.Sprintf(`{"age":%d}`, 20+i%7) // what is missing scores otherwise
		}
		return fmt.Sprintf(`{"age":%d,"plan":"p%d","city":"c%d"}`, 20+i%7, i%2, i%4)
	})
	want[httpapi.ClientDetails](t, http.StatusOK, a.send("PATCH", a.under(""), `{"settings":{"automatic_matching":{"on":true,"k":5,"min_score":0.5}}}`))
	testkit.Eventually(t, "all are matched", func() bool { return a.swept().Done == 30 })
	known := want[httpapi.TraitSchema](t, http.StatusOK, a.send("PATCH", "/api/v1/traits", `{"traits":{"remark":{"ignore":true}}}`))
	s.stop()

	// What the last schema would be, had an older release learnt it.
	f := openApp(t, s.Config)
	before := computed(t, f)
	stream := eventstore.Stream("traitschema-" + string(a.Client.ID))
	events, end, err := f.Log.Load(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	var learnt eventstore.Recorded
	for _, r := range events {
		if _, is := r.Event.(event.TraitSchemaInferred); is {
			learnt = r
		}
	}
	document, err := f.Log.Open(t.Context(), learnt, "schema")
	if err != nil {
		t.Fatal(err)
	}
	var schema traits.Schema
	if err := json.Unmarshal(document, &schema); err != nil || schema.Edition != traits.Edition || len(schema.Traits) != 3 {
		t.Fatalf("%+v, %v", schema, err)
	}
	schema.Edition = 0
	for i := range schema.Traits {
		schema.Traits[i].Expected = 0
	}
	older, err := json.Marshal(schema)
	if err != nil {
		t.Fatal(err)
	}
	ids := id.Random(rand.Reader)
	origin := eventstore.Origin{Client: a.Client.ID, Actor: "test", Correlation: string(id.Next[id.Request](ids))}
	if _, err := f.Log.Append(t.Context(), end, origin, ids, event.TraitSchemaInferred{Client: a.Client.ID, Users: 30, Schema: event.Private(older)}); err != nil {
		t.Fatal(err)
	}

	upgraded := a.at(startService(t, replicaOf(s)))
	for i := range 30 {
		want[httpapi.User](t, http.StatusOK, upgraded.send("PATCH", fmt.Sprintf("/api/v1/users/ext:u%d", i), `{"traits":{"remark":"nothing that counts"}}`))
	}
	testkit.Eventually(t, "all are matched anew", func() bool { return upgraded.swept().Done >= 30 })
	if now := want[httpapi.TraitSchema](t, http.StatusOK, upgraded.get("/api/v1/traits")); now.Version < known.Version+2 {
		t.Errorf("version %d after %d and one of an older release", now.Version, known.Version)
	}
	if after := computed(t, f); after != before {
		t.Errorf("%d matches became %d by the upgrade", before, after)
	}
	want[httpapi.User](t, http.StatusOK, upgraded.send("PATCH", "/api/v1/users/ext:u1", `{"traits":{"age":26,"plan":"p0","city":"c0"}}`))
	testkit.Eventually(t, "who is otherwise now is told", func() bool { return computed(t, f) > before })
}
