package e2e

import (
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kindred/eventstore/projector"
	"kindred/httpapi"
	"kindred/projections"
	"kindred/testkit"
)

// attention is what needs somebody, by its subject.
func (a account) attention() map[string]httpapi.AttentionItem {
	a.Helper()
	found := map[string]httpapi.AttentionItem{}
	for _, item := range want[httpapi.AttentionList](a, http.StatusOK, a.get("/api/v1/attention")).Data {
		found[item.SubjectID] = item
	}
	return found
}

func TestAttentionNamesWhatNeedsSomebody(t *testing.T) {
	t.Parallel()
	s := shared(t)
	a, other := s.signUp(), s.signUp()
	if got := a.attention(); len(got) != 0 {
		t.Errorf("nothing is the matter, but %v", slices.Collect(maps.Keys(got)))
	}

	r := receive(t, http.StatusInternalServerError)
	hook := a.subscribe(r.URL, "a-secret-of-the-webhook", "match.computed")
	for _, user := range []string{"ann", "bob"} {
		a.createUser(user, map[string]any{"age": 30, "plan": "pro"})
	}
	if found := want[httpapi.ComputedMatches](t, http.StatusOK, a.send("POST", "/api/v1/users/ext:ann/matches", nil)); len(found.Data) != 1 {
		t.Fatalf("there is nothing to tell: %+v", found)
	}
	nearly, half := a.run(nil), a.run(nil)
	a.spend(nearly, "s1", 900)
	a.spend(half, "s1", 899)
	key := func(lives time.Duration) httpapi.APIKeyCreated {
		return want[httpapi.APIKeyCreated](t, http.StatusCreated, a.send("POST", a.under("/api_keys"), map[string]any{
			"name": "a key", "expires_at": time.Now().Add(lives).UTC().Format(time.RFC3339),
		}))
	}
	soon, sooner, later := key(13*24*time.Hour), key(2*24*time.Hour), key(15*24*time.Hour)
	layer := a.createLayer("age")
	a.ended(a.cluster(layer))
	run := a.ended(a.cluster(layer)) // the one before is not told any more

	var got map[string]httpapi.AttentionItem
	testkit.Eventually(t, "the endpoint is seen to fail", func() bool {
		got = a.attention()
		return got[string(hook.ID)].DeliveriesWaiting != nil
	})
	if diff := cmp.Diff([]string{string(hook.ID), string(soon.Record.ID), string(sooner.Record.ID), string(nearly.ID), string(run.ID)}, slices.Collect(maps.Keys(got)),
		cmp.Transformer("sorted", func(ids []string) []string { return slices.Sorted(slices.Values(ids)) })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if e := got[string(hook.ID)]; e.Kind != httpapi.EndpointFailing || e.Severity != httpapi.AttentionWarning || *e.DeliveriesWaiting != 1 || e.Since == nil {
		t.Errorf("the endpoint: %+v", e)
	}
	if c := got[string(nearly.ID)]; c.Kind != httpapi.BudgetNearlySpent || *c.SpentMinor != 900 || *c.BudgetMinor != 1000 || *c.Currency != "EUR" {
		t.Errorf("the campaign that spent 899: %v; that spent 900: %+v", half.ID, c)
	}
	if k, l := got[string(soon.Record.ID)], got[string(sooner.Record.ID)]; k.Kind != httpapi.APIKeyExpires || k.Severity != httpapi.AttentionWarning ||
		l.Severity != httpapi.AttentionCritical || !l.ExpiresAt.After(time.Now()) || k.Since.After(time.Now()) {
		t.Errorf("the keys: %+v, %+v; %s is not named", k, l, later.Record.ID)
	}
	if f := got[string(run.ID)]; f.Kind != httpapi.ClusteringRunFailed || *f.ErrorCode != "not_enough_users" || *f.ConsentLayerID != layer.ID {
		t.Errorf("the run: %+v", f)
	}
	list := want[httpapi.AttentionList](t, http.StatusOK, a.get("/api/v1/attention"))
	if list.Data[0].SubjectID != string(sooner.Record.ID) || list.HasMore {
		t.Errorf("the first is %+v", list.Data[0])
	}
	if got := other.attention(); len(got) != 0 {
		t.Errorf("another client sees %v", got)
	}
	viewer := a.addMember("viewer").attention()
	if _, told := viewer[string(soon.Record.ID)]; told || len(viewer) != 3 {
		t.Errorf("a viewer sees %v", slices.Collect(maps.Keys(viewer)))
	}
}

func TestAttentionIsAnsweredWhileAReadModelHasStopped(t *testing.T) {
	t.Parallel()
	s := shared(t)
	a := s.signUp()
	db := s.database()
	if _, err := db.Exec(t.Context(), `INSERT INTO quarantine (projection, client, position, event_id, reason) VALUES ($1, $2, '', '', 'a test')`,
		projector.ID(projections.Campaigns{}), string(a.Client.ID)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = db.Exec(t.Context(), `DELETE FROM quarantine WHERE client = $1`, string(a.Client.ID))
	})
	got := a.attention()
	if c := got["campaigns"]; c.Kind != httpapi.ProjectionQuarantined || c.Severity != httpapi.AttentionCritical || c.Since == nil || len(got) != 1 {
		t.Errorf("%+v", got)
	}
}
