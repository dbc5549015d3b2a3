package projections_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/projections"
)

func everything() projections.Page { return projections.Page{Limit: 1000} }

func TestUsersAreListedByCreationInPagesThatMissNobody(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.follow(projections.Users{})
	var created []string
	for n := range 12 {
		external := fmt.Sprint("person ", n)
		w.create(w.acme, external, `{}`)
		created = append(created, external)
	}
	w.create(w.bolt, "of another client", `{}`)

	var listed []string
	var after eventstore.Position
	for page := range 10 {
		found := must[[]projections.User](t)(w.users().List(t.Context(), w.acme, false,
			projections.UserQuery{Page: projections.Page{After: after, Limit: 5}}))
		listed = append(listed, externalIDs(found)...)
		if len(found) < 5 {
			break
		}
		after = found[len(found)-1].CreatedPosition
		// What happens between two pages moves nobody.
		w.change(w.acme, w.userID(w.acme, created[0], 0), fmt.Sprintf(`{"page":%d}`, page))
		w.change(w.acme, found[4].ID, `{}`)
	}
	if diff := cmp.Diff(created, listed); diff != "" {
		t.Errorf("(-created +listed):\n%s", diff)
	}
}

func TestPagesOfLargeUsersEndEarlyAndMissNobody(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	stop := w.follow(projections.Users{})
	large := fmt.Sprintf(`{"text":%q}`, strings.Repeat("x", 370<<10))
	var users []id.User
	var want, all []string
	for n := range 60 { // 22 MiB
		name := fmt.Sprint("person ", n)
		users = append(users, w.create(w.acme, name, large))
		all = append(all, name)
		if n < 2 || n > 29 {
			want = append(want, name)
		}
	}
	must[projections.User](t)(w.users().Get(t.Context(), w.acme, false, users[59]))
	stop()
	for _, user := range users[2:30] { // more than a page
		w.erase(w.acme, user)
	}
	list := func(users projections.Users, q projections.UserQuery) (found []projections.User) {
		return must[[]projections.User](t)(users.List(t.Context(), w.acme, true, q))
	}
	for name, read := range map[string]func(projections.Page) []projections.User{
		"all": func(p projections.Page) []projections.User { return list(w.users(), projections.UserQuery{Page: p}) },
		"together": func(p projections.Page) []projections.User {
			return list(w.users().Coalescing(), projections.UserQuery{Page: p})
		},
		"by id": func(p projections.Page) []projections.User {
			return list(w.users(), projections.UserQuery{IDs: users, Page: p})
		},
		"erased": func(p projections.Page) []projections.User {
			return must[[]projections.User](t)(w.users().ListAll(t.Context(), w.acme, p))
		},
	} {
		var names []string
		page, pages := projections.Page{Limit: 101}, 0
		for ; pages < 50; pages++ {
			found := read(page)
			fitting := projections.Fitting(found, projections.UserSize)
			if len(found) > 2*(fitting+1) { // the page is read once more where some are left out
				t.Errorf("%s: %d users are read where %d fit", name, len(found), fitting)
			}
			for _, u := range found[:fitting] {
				names = append(names, u.ExternalID)
			}
			if fitting == len(found) {
				break
			}
			page.After = found[fitting-1].CreatedPosition
		}
		wanted := want
		if name == "erased" {
			wanted = slices.Concat(all[:2], slices.Repeat([]string{""}, 28), all[30:])
		}
		if diff := cmp.Diff(wanted, names); diff != "" || pages == 0 {
			t.Errorf("%s, %d pages more (-want +got):\n%s", name, pages, diff)
		}
	}
}

func TestManyPagesThatAreReadTogetherAreEachTheirClients(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.follow(projections.Users{})
	created := map[id.Client][]string{}
	ids := map[id.Client][]id.User{}
	for n := range 30 {
		for _, client := range []id.Client{w.acme, w.bolt} {
			external := fmt.Sprint(client, " person ", n)
			ids[client] = append(ids[client], w.create(client, external, `{}`))
			created[client] = append(created[client], external)
		}
	}
	users := w.users().Coalescing()
	first := must[[]projections.User](t)(users.List(t.Context(), w.acme, false, projections.UserQuery{Page: projections.Page{Limit: 7}}))

	var all sync.WaitGroup
	for n := range 64 {
		all.Go(func() {
			client, after, want := w.bolt, eventstore.Start, created[w.bolt]
			if n%2 == 0 {
				client, after, want = w.acme, first[6].CreatedPosition, created[w.acme][7:]
			}
			limit := 1 + n%20 // of two sizes
			found, err := users.List(t.Context(), client, false, projections.UserQuery{Page: projections.Page{After: after, Limit: limit}})
			if diff := cmp.Diff(want[:limit], externalIDs(found)); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
			one, err := users.Get(t.Context(), client, false, ids[client][n%30])
			if err != nil || one.ExternalID != created[client][n%30] {
				t.Errorf("got %q, %v, want %q", one.ExternalID, err, created[client][n%30])
			}
		})
	}
	all.Wait()
	if found, err := users.List(t.Context(), "cli_none", false, projections.UserQuery{Page: projections.Page{Limit: 7}}); err != nil || len(found) > 0 {
		t.Errorf("of nobody: %v, %v", found, err)
	}
}

func TestUsersAreSelected(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.follow(projections.Users{})
	ada, bob := w.create(w.acme, "ada", `{"n":1}`), w.create(w.acme, "bob", `{}`)
	other := w.create(w.bolt, "ada", `{}`)
	w.change(w.acme, ada, `{"n":2}`)
	changed := must[projections.User](t)(w.users().Get(t.Context(), w.acme, false, ada))
	if mustJSON(t, changed.Traits) != `{"n":2}` || changed.Revision != 1 || changed.ExternalID != "ada" || !changed.CreatedAt.Before(changed.UpdatedAt) {
		t.Errorf("after a change: %+v", changed)
	}
	for name, test := range map[string]struct {
		query projections.UserQuery
		want  []string
	}{
		"all":                   {projections.UserQuery{}, []string{"ada", "bob"}},
		"by id":                 {projections.UserQuery{IDs: []id.User{bob, other, "usr_unknown"}}, []string{"bob"}},
		"by no id":              {projections.UserQuery{IDs: []id.User{}}, nil},
		"by time of change":     {projections.UserQuery{UpdatedSince: changed.UpdatedAt}, []string{"ada"}},
		"by a time yet to come": {projections.UserQuery{UpdatedSince: changed.UpdatedAt.Add(time.Microsecond)}, nil},
	} {
		test.query.Page = everything()
		found := must[[]projections.User](t)(w.users().List(t.Context(), w.acme, false, test.query))
		if diff := cmp.Diff(test.want, externalIDs(found)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	_, err := w.users().Get(t.Context(), w.acme, false, other)
	wantFault(t, "user_unknown", err)
}

func TestAnErasedUserIsGoneAtOnceAndCanComeBackManyTimes(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.follow(projections.Users{})
	const again = 18 // more than are looked up at once
	for generation := range again {
		user := w.createAgain(w.acme, "ada", generation, `{}`)
		if found := must[id.User](t)(w.users().Find(t.Context(), w.acme, false, "ada")); found != user {
			t.Fatalf("found generation %s, not %s", found, user)
		}
		w.erase(w.acme, user)
		_, err := w.users().Find(t.Context(), w.acme, false, "ada")
		wantFault(t, "user_unknown", err)
		_, err = w.users().Get(t.Context(), w.acme, false, user)
		wantFault(t, "user_unknown", err)
	}
	changes := must[[]projections.UserChange](t)(w.users().Changed(t.Context(), w.acme, "", 1000))
	if len(changes) != again {
		t.Fatalf("%d changes are told, not %d", len(changes), again)
	}
	for _, change := range changes {
		if change.Traits != nil {
			t.Errorf("traits after an erasure: %+v", change)
		}
	}
	_, err := w.users().Find(t.Context(), w.bolt, false, "ada")
	wantFault(t, "user_unknown", err)
}

func TestAUserWhoseKeyIsDestroyedIsNotShownEvenBeforeTheErasureArrives(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	stop := w.follow(projections.Users{})
	ada := w.create(w.acme, "ada", `{}`)
	must[projections.User](t)(w.users().Get(t.Context(), w.acme, false, ada))
	stop()
	w.erase(w.acme, ada)
	found := must[[]projections.User](t)(w.users().List(t.Context(), w.acme, true, projections.UserQuery{Page: everything()}))
	if len(found) != 0 {
		t.Errorf("still shown: %+v", found)
	}
	_, err := w.users().List(t.Context(), w.acme, false, projections.UserQuery{Page: everything()})
	wantFault(t, "stale", err)
}

func TestAPageThatLosesUsersIsNotTakenForTheLast(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	stop := w.follow(projections.Users{}, projections.Matches{}, projections.Consent{})
	layer := w.define(w.acme, "personalisation")
	asker := w.create(w.acme, "asker", `{}`)
	var users []id.User
	var want []string
	for n := range 9 {
		name := fmt.Sprint("person ", n)
		user := w.create(w.acme, name, `{}`)
		w.match(w.acme, asker, user, 0.5)
		w.grant(w.acme, layer, user, true)
		users = append(users, user)
		if n < 2 || n > 5 {
			want = append(want, name)
		}
	}
	models := projections.Consent{Reader: w.reader}
	must[[]projections.UserConsent](t)(models.Consents(t.Context(), w.acme, false, layer, true, everything()))
	must[[]projections.Match](t)(projections.Matches{Reader: w.reader}.List(t.Context(), w.acme, false, asker, everything()))
	must[projections.User](t)(w.users().Get(t.Context(), w.acme, false, users[8]))
	stop()
	for _, user := range users[2:6] { // more than a page
		w.erase(w.acme, user)
	}
	const limit = 3
	for name, list := range map[string]func(after eventstore.Position) (names []string, last eventstore.Position){
		"users": func(after eventstore.Position) (names []string, last eventstore.Position) {
			found := must[[]projections.User](t)(w.users().List(t.Context(), w.acme, true,
				projections.UserQuery{Page: projections.Page{After: after, Limit: limit}}))
			for _, u := range found {
				if last = u.CreatedPosition; u.ID != asker {
					names = append(names, u.ExternalID)
				}
			}
			return names, last
		},
		"matches": func(after eventstore.Position) (names []string, last eventstore.Position) {
			found := must[[]projections.Match](t)(projections.Matches{Reader: w.reader}.List(t.Context(), w.acme, true, asker,
				projections.Page{After: after, Limit: limit}))
			for _, m := range found {
				names, last = append(names, m.ExternalID), m.CreatedPosition
			}
			return names, last
		},
		"consents": func(after eventstore.Position) (names []string, last eventstore.Position) {
			found := must[[]projections.UserConsent](t)(models.Consents(t.Context(), w.acme, true, layer, true,
				projections.Page{After: after, Limit: limit}))
			for _, c := range found {
				names, last = append(names, c.ExternalID), c.Changed
			}
			return names, last
		},
	} {
		var got []string
		var after eventstore.Position
		for page := 0; ; page++ {
			names, last := list(after)
			got, after = append(got, names...), last
			if full := len(names) == limit || page == 0 && name == "users"; !full {
				break
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestUsersWhomTheUsersModelDoesNotKnowYetAreWaitedFor(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.follow(projections.Consent{}, projections.Clusters{}, projections.Matches{})
	stop := w.follow(projections.Users{})
	layer := w.define(w.acme, "personalisation")
	known := w.create(w.acme, "known", `{}`)
	must[projections.User](t)(w.users().Get(t.Context(), w.acme, false, known))
	stop()
	users, seeker := []id.User{known, w.create(w.acme, "new", `{}`)}, id.Next[id.User](w.ids)
	for _, user := range users {
		w.grant(w.acme, layer, user, true)
		w.match(w.acme, seeker, user, 0.5)
	}
	run, cluster := id.Next[id.Run](w.ids), id.Next[id.Cluster](w.ids)
	w.record(w.acme, "runs-"+string(layer),
		event.ClusteringRequested{Run: run, Layer: layer, TraitPaths: []string{}},
		event.ClusteringStarted{Run: run, Layer: layer, Attempt: 1})
	w.record(w.acme, "run-"+string(run), event.ClusteringAssigned{Run: run, Layer: layer, Attempt: 1, Cluster: cluster, Users: users})
	w.record(w.acme, "runs-"+string(layer),
		event.ClusterFormed{ClusterState: event.ClusterState{
			Cluster: cluster, Layer: layer, Run: run, First: event.RunAttempt{Run: run, Attempt: 1}, Size: 2, Distinctions: []event.Distinction{},
		}},
		event.ClusteringCompleted{Run: run, Layer: layer, Attempt: 1, Clusters: []event.ClusterSummary{{ID: cluster, Size: 2}}})

	consents := func(eventual bool) (names []string, err error) {
		found, err := projections.Consent{Reader: w.reader}.Consents(t.Context(), w.acme, eventual, layer, true, everything())
		for _, c := range found {
			names = append(names, c.ExternalID)
		}
		return names, err
	}
	members := func(eventual bool) (names []string, err error) {
		found, err := projections.Clusters{Reader: w.reader}.Members(t.Context(), w.acme, eventual, cluster, everything())
		for _, c := range found {
			names = append(names, c.ExternalID)
		}
		slices.Sort(names) // the order is that of their ids
		return names, err
	}
	matches := func(eventual bool) (names []string, err error) {
		found, err := projections.Matches{Reader: w.reader}.List(t.Context(), w.acme, eventual, seeker, everything())
		for _, m := range found {
			names = append(names, m.ExternalID)
		}
		return names, err
	}
	lists := map[string]func(bool) ([]string, error){"consents": consents, "members": members, "matches": matches}
	for name, list := range lists {
		t.Log(name)
		_, err := list(false)
		wantFault(t, "stale", err)
		if diff := cmp.Diff([]string{"known"}, must[[]string](t)(list(true))); diff != "" {
			t.Errorf("what is there (-want +got):\n%s", diff)
		}
	}
	w.follow(projections.Users{})
	for name, list := range lists {
		if diff := cmp.Diff([]string{"known", "new"}, must[[]string](t)(list(false))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestChangesAreToldInTheirOrderEachUserOnce(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.follow(projections.Users{})
	ada, bob, eve := w.create(w.acme, "ada", `{"n":1}`), w.create(w.acme, "bob", `{}`), w.create(w.acme, "eve", `{}`)
	w.change(w.acme, ada, `{"n":2}`)
	w.erase(w.acme, bob)
	type userChange struct {
		User   id.User
		Traits string
	}
	var got []userChange
	for after := eventstore.Start; ; {
		page := must[[]projections.UserChange](t)(w.users().Changed(t.Context(), w.acme, after, 2))
		for _, c := range page {
			got, after = append(got, userChange{c.ID, string(c.Traits)}), c.At
		}
		if len(page) < 2 {
			break
		}
	}
	if diff := cmp.Diff([]userChange{{eve, `{}`}, {ada, `{"n":2}`}, {bob, ""}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestChangesOfLargeUsersAreToldOnSeveralPages(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.follow(projections.Users{}, projections.TraitSchemas{})
	const users = 60
	large := `{"about":"` + strings.Repeat("x", 250<<10) + `"}`
	var ids []id.User
	for i := range users {
		ids = append(ids, w.create(w.acme, fmt.Sprint(i), large))
	}
	told := 0
	for after := eventstore.Start; told < users; {
		page := must[[]projections.UserChange](t)(w.users().Changed(t.Context(), w.acme, after, 1000))
		if len(page) == 0 || len(page) > users*2/3 {
			t.Fatalf("a page of %d users of 250 KiB, after %d", len(page), told)
		}
		for _, c := range page {
			if string(c.Traits) != large {
				t.Fatalf("%d bytes of traits", len(c.Traits))
			}
		}
		told, after = told+len(page), page[len(page)-1].At
	}
	populations := w.populations()
	for _, user := range ids {
		if _, _, err := populations.Pair(t.Context(), w.acme, ids[0], user, event.Within{}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestClientsAndMembers(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.follow(projections.Clients{})
	clients := projections.Clients{Reader: w.reader}
	defaults := event.Settings{WebhookUserIDs: "user_id"}
	owner := w.signUp(w.acme, "acme")
	w.signUp(w.bolt, "bolt")
	found := must[projections.Client](t)(clients.Get(t.Context(), w.acme, false, defaults))
	if found.Name != "acme" || found.Slug != "acme" || found.Settings != defaults || found.Revision != 1 {
		t.Errorf("after the sign-up: %+v", found)
	}
	viewer, chosen := id.Next[id.Member](w.ids), event.Settings{WebhookUserIDs: "external_id"}
	w.record(w.acme, "client-"+string(w.acme), addedMember(viewer, "viewer"),
		event.ClientRenamed{Client: w.acme, Name: "Acme Inc."}, event.ClientSettingsChanged{Client: w.acme, Settings: chosen})
	found = must[projections.Client](t)(clients.Get(t.Context(), w.acme, false, defaults))
	if found.Name != "Acme Inc." || found.Slug != "acme" || found.Settings != chosen || found.Revision != 4 {
		t.Errorf("after the changes: %+v", found)
	}
	emails := func() (list []string) {
		for _, m := range must[[]projections.Member](t)(clients.Members(t.Context(), w.acme, false, everything())) {
			list = append(list, m.Role+" "+m.Email)
		}
		return list
	}
	want := []string{"owner " + string(owner) + "@example.com", "viewer " + string(viewer) + "@example.com"}
	if diff := cmp.Diff(want, emails()); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
	w.record(w.acme, "client-"+string(w.acme), event.MemberRemoved{Member: viewer})
	if diff := cmp.Diff(want[:1], emails()); diff != "" {
		t.Errorf("members after a removal (-want +got):\n%s", diff)
	}
	_, err := clients.Get(t.Context(), "cli_unknown", false, defaults)
	wantFault(t, "client_unknown", err)
}

func TestAPageThatLosesMembersIsNotTakenForTheLast(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.follow(projections.Clients{})
	members := []id.Member{w.signUp(w.acme, "acme")}
	for range 5 {
		member := id.Next[id.Member](w.ids)
		w.record(w.acme, "client-"+string(w.acme), addedMember(member, "viewer"))
		members = append(members, member)
	}
	for _, removed := range members[1:4] { // that it is recorded comes after
		if err := w.log.Vault.Destroy(t.Context(), w.acme, string(removed)); err != nil {
			t.Fatal(err)
		}
	}
	page := projections.Page{Limit: 2}
	var found []id.Member
	for _, m := range must[[]projections.Member](t)(projections.Clients{Reader: w.reader}.Members(t.Context(), w.acme, false, page)) {
		found = append(found, m.ID)
	}
	if diff := cmp.Diff([]id.Member{members[0], members[4]}, found); diff != "" {
		t.Errorf("a page (-want +got):\n%s", diff)
	}
}

func TestAPIKeysAreFoundByTheirHashAsTheyAreNow(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.follow(projections.APIKeys{})
	keys := projections.APIKeys{Reader: w.reader}
	asked := 0
	head := func(ctx context.Context) (eventstore.Position, error) {
		asked++
		return w.log.Store.Head(ctx)
	}
	byHash := func(raw string) (projections.APIKey, error) {
		return keys.ByHash(t.Context(), sha256.Sum256([]byte(raw)), head)
	}
	for n := range 50 { // each is asked for right after it was issued, and after it was revoked
		raw := fmt.Sprint("raw ", n)
		key := w.issue(w.acme, raw)
		if found, err := byHash(raw); err != nil || found.ID != key || found.Client != w.acme || found.Revoked {
			t.Fatalf("issued: %+v %v", found, err)
		}
		w.revoke(w.acme, key)
		if found, err := byHash(raw); err != nil || !found.Revoked {
			t.Fatalf("revoked: %+v %v", found, err)
		}
	}
	before := asked
	if _, err := byHash("raw 0"); err != nil || asked != before {
		t.Errorf("a known key asked for the log's head: %v", err)
	}
	_, err := byHash("raw of nobody")
	wantFault(t, "api_key_unknown", err)
	listed := must[[]projections.APIKey](t)(keys.List(t.Context(), w.acme, false, projections.Page{Limit: 3}))
	if len(listed) != 3 || listed[0].Name != "raw 0" || !listed[0].Revoked {
		t.Errorf("listed: %+v", listed)
	}
}

func TestKeysInForceAreNeitherRevokedNorExpired(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.follow(projections.APIKeys{})
	keys := projections.APIKeys{Reader: w.reader}
	member, now := id.Next[id.Member](w.ids), time.Now()
	issue := func(by id.Member, expires time.Duration) id.Key {
		key := id.Next[id.Key](w.ids)
		at := now.Add(expires)
		w.record(w.acme, string(key), event.APIKeyIssued{Key: key, Name: "n", Hash: []byte(key), Scopes: []string{"read"}, IssuedBy: by, ExpiresAt: &at})
		return key
	}
	first, revoked := issue(member, time.Hour), issue(member, time.Hour)
	issue(member, -time.Hour)
	others, last := issue(id.Next[id.Member](w.ids), time.Hour), issue(member, time.Hour)
	w.revoke(w.acme, revoked)
	if made := must[[]id.Key](t)(keys.MadeBy(t.Context(), w.acme, member)); !slices.Equal(slices.Sorted(slices.Values(made)), slices.Sorted(slices.Values([]id.Key{first, last}))) {
		t.Errorf("the member made %s; want %s and %s", made, first, last)
	}
	for key, want := range map[id.Key]int{first: 0, others: 1, last: 2, "": 3} {
		if n, err := keys.Before(t.Context(), w.acme, key); err != nil || n != want {
			t.Errorf("%d before %q, %v; want %d", n, key, err, want)
		}
	}
	for range 2 {
		if err := keys.NoteUse(t.Context(), w.acme, last); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range must[[]projections.APIKey](t)(keys.List(t.Context(), w.acme, false, everything())) {
		if used := key.LastUsedAt != nil; used != (key.ID == last) || used && !key.LastUsedAt.Equal(now.Truncate(time.Hour)) && time.Since(now) < time.Minute && now.Minute() < 58 {
			t.Errorf("%s was last used at %v", key.ID, key.LastUsedAt)
		}
	}
}

func TestWebhooks(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.follow(projections.Webhooks{})
	webhooks := projections.Webhooks{Reader: w.reader}
	one, two, gone := w.subscribe(w.acme, "https://one"), w.subscribe(w.acme, "https://two"), w.subscribe(w.acme, "https://gone")
	w.webhook(w.acme, two, event.WebhookPaused{Webhook: two})
	w.webhook(w.acme, one, event.WebhookPaused{Webhook: one}, event.WebhookResumed{Webhook: one},
		event.WebhookChanged{Webhook: one, WebhookAddress: event.At("https://changed"), EventTypes: []string{"clustering.failed"}})
	w.webhook(w.acme, gone, event.WebhookRemoved{Webhook: gone})
	yes, no := true, false
	for name, test := range map[string]struct {
		paused *bool
		want   []id.Webhook
	}{
		"all": {nil, []id.Webhook{one, two}}, "paused": {&yes, []id.Webhook{two}}, "active": {&no, []id.Webhook{one}},
	} {
		var got []id.Webhook
		for _, found := range must[[]projections.Webhook](t)(webhooks.List(t.Context(), w.acme, false, test.paused, everything())) {
			got = append(got, found.ID)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	found := must[projections.Webhook](t)(webhooks.Get(t.Context(), w.acme, false, one))
	if found.URL != "https://changed" || found.EventTypes[0] != "clustering.failed" || found.Paused || !found.Signed || found.Revision != 3 {
		t.Errorf("changed: %+v", found)
	}
	for _, webhook := range []id.Webhook{gone, "whk_unknown"} {
		_, err := webhooks.Get(t.Context(), w.acme, false, webhook)
		wantFault(t, "webhook_unknown", err)
	}
	_, err := webhooks.Get(t.Context(), w.bolt, false, one)
	wantFault(t, "webhook_unknown", err)
}

func TestMatchesOfAPairKeepTheirPlaceAndShowTheNewest(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.follow(projections.Users{}, projections.Matches{})
	ada, bob, eve := w.create(w.acme, "ada", `{}`), w.create(w.acme, "bob", `{}`), w.create(w.acme, "eve", `{}`)
	first := w.match(w.acme, ada, bob, 0.25)
	w.match(w.acme, ada, eve, 0.5)
	w.match(w.acme, bob, ada, 0.125)
	w.match(w.acme, ada, bob, 0.75)
	list := func(user id.User, page projections.Page) (lines []string) {
		// The users that the matches name come from another model.
		must[projections.User](t)(w.users().Get(t.Context(), w.acme, false, ada))
		matches := projections.Matches{Reader: w.reader}
		for _, m := range must[[]projections.Match](t)(matches.List(t.Context(), w.acme, false, user, page)) {
			lines = append(lines, fmt.Sprint(m.ExternalID, " ", m.Score, " ", m.Percentile, " ", m.Explanation))
		}
		return lines
	}
	want := []string{"bob 0.75 75 [{age 1 0.75 0.75 false}]", "eve 0.5 50 [{age 1 0.5 0.5 false}]"}
	if diff := cmp.Diff(want, list(ada, everything())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[1:], list(ada, projections.Page{After: first, Limit: 5})); diff != "" {
		t.Errorf("the second page (-want +got):\n%s", diff)
	}
	w.erase(w.acme, eve)
	w.match(w.acme, ada, eve, 1) // it was on its way when she was erased
	if diff := cmp.Diff(want[:1], list(ada, everything())); diff != "" {
		t.Errorf("after an erasure (-want +got):\n%s", diff)
	}
}

func TestOpenClaimsAreToldTheOldestFirst(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.follow(projections.Claims{})
	for _, stream := range []string{"slug-1", "slug-2", "slug-3", "slug-4"} {
		w.record("", stream, event.Reserved{Client: w.acme})
	}
	w.record("", "slug-2", event.Confirmed{Client: w.acme})
	w.record("", "slug-3", event.Released{Client: w.acme})
	last := w.record("", "slug-3", event.Reserved{Client: w.bolt})[0]
	if err := w.reader.Progress.Wait(t.Context(), projections.Claims{}, "", last.Position); err != nil {
		t.Fatal(err)
	}
	claims := projections.Claims{Reader: w.reader}
	for limit, want := range map[int][]eventstore.Stream{
		10: {"slug-1", "slug-4", "slug-3"}, 2: {"slug-1", "slug-4"},
	} {
		open := must[[]eventstore.Stream](t)(claims.OpenSince(t.Context(), last.RecordedAt.Add(time.Microsecond), limit))
		if diff := cmp.Diff(want, open); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if early := must[[]eventstore.Stream](t)(claims.OpenSince(t.Context(), last.RecordedAt, 10)); len(early) != 2 {
		t.Errorf("open before the last was made: %v", early)
	}
}

func TestTheAddressOfAWebhookIsShownAndKeptSealed(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.follow(projections.Webhooks{})
	webhooks := projections.Webhooks{Reader: w.reader}
	one, two := w.subscribe(w.acme, "https://hunter2"), w.subscribe(w.acme, "https://two")
	w.webhook(w.acme, two, event.WebhookChanged{Webhook: two, WebhookAddress: event.At("https://hunter2/two"), EventTypes: []string{"clustering.failed"}})
	old := id.Next[id.Webhook](w.ids)
	w.webhook(w.acme, old, event.WebhookSubscribed{Webhook: old, WebhookAddress: event.WebhookAddress{ClearURL: "https://old"}, EventTypes: []string{"match.computed"}})
	want := map[id.Webhook]string{one: "https://hunter2", two: "https://hunter2/two", old: "https://old"}
	for _, found := range must[[]projections.Webhook](t)(webhooks.List(t.Context(), w.acme, false, nil, everything())) {
		got := must[projections.Webhook](t)(webhooks.Get(t.Context(), w.acme, false, found.ID))
		if found.URL != want[found.ID] || got.URL != want[found.ID] {
			t.Errorf("listed with %q, read with %q, want %q", found.URL, got.URL, want[found.ID])
		}
		delete(want, found.ID)
	}
	if len(want) > 0 {
		t.Errorf("not listed: %v", want)
	}
	var shown int
	if err := w.pool.QueryRow(t.Context(), `SELECT count(*) FROM webhooks w
WHERE w::text LIKE '%hunter2%' OR position('hunter2'::bytea IN w.url) > 0`).Scan(&shown); err != nil || shown > 0 {
		t.Errorf("%d rows show an address, %v", shown, err)
	}
}

func TestAModelThatSaysWhatNeverHappenedStopsAtAnEventThatItLacks(t *testing.T) {
	t.Parallel()
	for _, m := range []projector.Projection{projections.Spends{}, projections.EventIDs{}} {
		if _, ok := m.(projector.Gapless); !ok {
			t.Errorf("%s goes on without an event", m.Name())
		}
	}
	w := newFixture(t)
	spends, campaign := projections.Spends{Reader: w.reader}, id.Next[id.Campaign](w.ids)
	w.follow(spends)
	if _, err := w.pool.Exec(t.Context(), `ALTER TABLE spends_1.spends ADD CHECK (id <> 'bad')`); err != nil {
		t.Fatal(err)
	}
	spend := func(name string) event.Event {
		return event.CampaignSpendRecorded{Campaign: campaign, SpendID: name, AmountMinor: 1, Currency: "EUR", SpentMinor: 1, BudgetMinor: 100}
	}
	w.record(w.acme, "spends-acme", spend("good"), spend("bad"))
	w.record(w.bolt, "spends-bolt", spend("good"))
	for found := 0; found == 0; time.Sleep(time.Millisecond) { // until it has passed the last
		known, _, err := spends.Recorded(t.Context(), w.bolt, campaign, []string{"good"})
		if found = len(known); err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := spends.Recorded(t.Context(), w.acme, campaign, []string{"bad"})
	wantFault(t, "quarantined", err)
}

func TestAClientThatIsQuarantinedIsToldAndTheOthersAreServed(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.maxLeftOut = -1
	w.follow(projections.Webhooks{})
	for _, client := range []id.Client{w.acme, w.bolt} {
		hook := w.subscribe(client, "https://one")
		w.webhook(client, hook, event.WebhookPaused{Webhook: hook})
	}
	// What no command records, and no column takes.
	other := w.subscribe(w.acme, "https://two")
	w.webhook(w.acme, other, event.WebhookChanged{Webhook: other, WebhookAddress: event.At("https://two"), EventTypes: []string{"\x00"}})
	w.subscribe(w.bolt, "https://two")
	webhooks := projections.Webhooks{Reader: w.reader}
	_, err := webhooks.List(t.Context(), w.acme, false, nil, everything())
	wantFault(t, "quarantined", err)
	if found := must[[]projections.Webhook](t)(webhooks.List(t.Context(), w.bolt, false, nil, everything())); len(found) != 2 {
		t.Errorf("the other client has %d subscriptions", len(found))
	}
}
