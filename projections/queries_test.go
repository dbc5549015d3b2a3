package projections_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/projections"
	"kindred/projections/projectionstest"
	"kindred/projections/readmodel"
	"kindred/semaphore"
	"kindred/testkit"
)

func everything() readmodel.Page { return readmodel.Page{Limit: 1000} }

func TestUsersAreListedByCreationInPagesThatMissNobody(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Users{})
	var created []string
	for n := range 12 {
		external := fmt.Sprint("person ", n)
		w.Create(w.Acme, external, `{}`)
		created = append(created, external)
	}
	w.Create(w.Bolt, "of another client", `{}`)

	var listed []string
	var after eventstore.Position
	for page := range 10 {
		found := testkit.Must(w.Users().List(t.Context(), w.Acme, false,
			projections.UserQuery{Page: readmodel.Page{After: after, Limit: 5}}))(t)
		listed = append(listed, projectionstest.ExternalIDs(found)...)
		if len(found) < 5 {
			break
		}
		after = found[len(found)-1].CreatedPosition
		// What happens between two pages moves nobody.
		w.Change(w.Acme, w.UserID(w.Acme, created[0], 0), fmt.Sprintf(`{"page":%d}`, page))
		w.Change(w.Acme, found[4].ID, `{}`)
	}
	if diff := cmp.Diff(created, listed); diff != "" {
		t.Errorf("(-created +listed):\n%s", diff)
	}
}

func TestPagesOfLargeUsersEndEarlyAndMissNobody(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	stop := w.Follow(projections.Users{})
	large := fmt.Sprintf(`{"text":%q}`, strings.Repeat("x", 370<<10))
	var users []id.User
	var want, all []string
	for n := range 60 { // 22 MiB
		name := fmt.Sprint("person ", n)
		users = append(users, w.Create(w.Acme, name, large))
		all = append(all, name)
		if n < 2 || n > 29 {
			want = append(want, name)
		}
	}
	testkit.Must(w.Users().Get(t.Context(), w.Acme, false, users[59]))(t)
	stop()
	for _, user := range users[2:30] { // more than a page
		w.Erase(w.Acme, user)
	}
	list := func(users projections.Users, q projections.UserQuery) (found []projections.User) {
		return testkit.Must(users.List(t.Context(), w.Acme, true, q))(t)
	}
	for name, read := range map[string]func(readmodel.Page) []projections.User{
		"all": func(p readmodel.Page) []projections.User { return list(w.Users(), projections.UserQuery{Page: p}) },
		"together": func(p readmodel.Page) []projections.User {
			return list(w.Users().Coalescing(), projections.UserQuery{Page: p})
		},
		"by id": func(p readmodel.Page) []projections.User {
			return list(w.Users(), projections.UserQuery{IDs: users, Page: p})
		},
		"erased": func(p readmodel.Page) []projections.User {
			return testkit.Must(w.Users().ListAll(t.Context(), w.Acme, p))(t)
		},
	} {
		var names []string
		page, pages := readmodel.Page{Limit: 101}, 0
		for ; pages < 50; pages++ {
			found := read(page)
			fitting := readmodel.Fitting(found, projections.UserSize)
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
	w := projectionstest.New(t)
	w.Follow(projections.Users{})
	created := map[id.Client][]string{}
	ids := map[id.Client][]id.User{}
	for n := range 30 {
		for _, client := range []id.Client{w.Acme, w.Bolt} {
			external := fmt.Sprint(client, " person ", n)
			ids[client] = append(ids[client], w.Create(client, external, `{}`))
			created[client] = append(created[client], external)
		}
	}
	users := w.Users().Coalescing()
	first := testkit.Must(users.List(t.Context(), w.Acme, false, projections.UserQuery{Page: readmodel.Page{Limit: 7}}))(t)

	var all sync.WaitGroup
	for n := range 64 {
		all.Go(func() {
			client, after, want := w.Bolt, eventstore.Start, created[w.Bolt]
			if n%2 == 0 {
				client, after, want = w.Acme, first[6].CreatedPosition, created[w.Acme][7:]
			}
			limit := 1 + n%20 // of two sizes
			found, err := users.List(t.Context(), client, false, projections.UserQuery{Page: readmodel.Page{After: after, Limit: limit}})
			if diff := cmp.Diff(want[:limit], projectionstest.ExternalIDs(found)); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
			one, err := users.Get(t.Context(), client, false, ids[client][n%30])
			if err != nil || one.ExternalID != created[client][n%30] {
				t.Errorf("got %q, %v, want %q", one.ExternalID, err, created[client][n%30])
			}
		})
	}
	all.Wait()
	if found, err := users.List(t.Context(), "cli_none", false, projections.UserQuery{Page: readmodel.Page{Limit: 7}}); err != nil || len(found) > 0 {
		t.Errorf("of nobody: %v, %v", found, err)
	}
}

func TestUsersAreSelected(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Users{})
	ada, bob := w.Create(w.Acme, "ada", `{"n":1}`), w.Create(w.Acme, "bob", `{}`)
	other := w.Create(w.Bolt, "ada", `{}`)
	w.Change(w.Acme, ada, `{"n":2}`)
	changed := testkit.Must(w.Users().Get(t.Context(), w.Acme, false, ada))(t)
	if projectionstest.MustJSON(t, changed.Traits) != `{"n":2}` || changed.Revision != 1 || changed.ExternalID != "ada" || !changed.CreatedAt.Before(changed.UpdatedAt) {
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
		found := testkit.Must(w.Users().List(t.Context(), w.Acme, false, test.query))(t)
		if diff := cmp.Diff(test.want, projectionstest.ExternalIDs(found)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	_, err := w.Users().Get(t.Context(), w.Acme, false, other)
	projectionstest.WantFault(t, "user_unknown", err)
}

func TestAnErasedUserIsGoneAtOnceAndCanComeBackManyTimes(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Users{})
	const again = 18 // more than are looked up at once
	for generation := range again {
		user := w.CreateAgain(w.Acme, "ada", generation, `{}`)
		if found := testkit.Must(w.Users().Find(t.Context(), w.Acme, false, "ada"))(t); found != user {
			t.Fatalf("found generation %s, not %s", found, user)
		}
		w.Erase(w.Acme, user)
		_, err := w.Users().Find(t.Context(), w.Acme, false, "ada")
		projectionstest.WantFault(t, "user_unknown", err)
		_, err = w.Users().Get(t.Context(), w.Acme, false, user)
		projectionstest.WantFault(t, "user_unknown", err)
	}
	changes := testkit.Must(w.Users().Changed(t.Context(), w.Acme, "", 1000))(t)
	if len(changes) != again {
		t.Fatalf("%d changes are told, not %d", len(changes), again)
	}
	for _, change := range changes {
		if change.Traits != nil {
			t.Errorf("traits after an erasure: %+v", change)
		}
	}
	_, err := w.Users().Find(t.Context(), w.Bolt, false, "ada")
	projectionstest.WantFault(t, "user_unknown", err)
}

func TestNobodyIsFoundOfAClientThatWasDeleted(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Users{})
	w.Create(w.Acme, "ada", `{}`)
	if err := w.Reader.Vault.DestroyClient(t.Context(), w.Acme); err != nil {
		t.Fatal(err)
	}
	w.Reader.Vault.Invalidate()
	_, err := w.Users().Find(t.Context(), w.Acme, false, "ada")
	projectionstest.WantFault(t, "user_unknown", err)
}

func TestAUserWhoseKeyIsDestroyedIsNotShownEvenBeforeTheErasureArrives(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	stop := w.Follow(projections.Users{})
	ada := w.Create(w.Acme, "ada", `{}`)
	testkit.Must(w.Users().Get(t.Context(), w.Acme, false, ada))(t)
	stop()
	w.Erase(w.Acme, ada)
	found := testkit.Must(w.Users().List(t.Context(), w.Acme, true, projections.UserQuery{Page: everything()}))(t)
	if len(found) != 0 {
		t.Errorf("still shown: %+v", found)
	}
	_, err := w.Users().List(t.Context(), w.Acme, false, projections.UserQuery{Page: everything()})
	projectionstest.WantFault(t, "stale", err)
}

func TestWhoWithdrewIsNotTakenForConsentingByAModelThatIsBehind(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Users{})
	stop := w.Follow(projections.Consent{})
	layer := w.Define(w.Acme, "personalisation")
	ada := w.Create(w.Acme, "ada", `{}`)
	consents := projections.Consent{Reader: w.Reader}
	w.Grant(w.Acme, layer, ada, true)
	testkit.Must(consents.Consenting(t.Context(), w.Acme, layer, "", 10))(t) // it has caught up
	stop()
	w.Grant(w.Acme, layer, ada, false)
	now := w.Record(w.Acme, string(eventstore.AllConsentsStream(w.Acme, layer)), event.ConsentGrantedToAll{Layer: layer})[0].Position
	_, err := consents.NotConsenting(t.Context(), w.Acme, layer, now, "", 10)
	projectionstest.WantFault(t, "stale", err)
	w.Follow(projections.Consent{})
	others := testkit.Must(consents.NotConsenting(t.Context(), w.Acme, layer, now, "", 10))(t)
	if diff := cmp.Diff([]id.User{ada}, others); diff != "" {
		t.Errorf("who does not consent (-want +got):\n%s", diff)
	}
}

func TestWhoConsentsIsToldOfOneLayerOfOneClient(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Users{}, projections.Consent{})
	layer, another := w.Define(w.Acme, "a layer"), w.Define(w.Acme, "another layer")
	names, users := map[id.User]string{}, map[string]id.User{}
	create := func(external string) {
		users[external] = w.Create(w.Acme, external, `{}`)
		names[users[external]] = external
	}
	for _, external := range []string{"granted", "withdrew", "granted another", "silent", "erased"} {
		create(external)
	}
	for _, external := range []string{"granted", "withdrew", "erased"} {
		w.Grant(w.Acme, layer, users[external], true)
	}
	w.Grant(w.Acme, layer, users["withdrew"], false)
	w.Grant(w.Acme, another, users["granted another"], true)
	w.Erase(w.Acme, users["erased"])
	before := w.Record(w.Acme, string(eventstore.AllConsentsStream(w.Acme, layer)), event.ConsentGrantedToAll{Layer: layer})[0].Position
	create("came later")

	consents, everybody := projections.Consent{Reader: w.Reader}, slices.Collect(maps.Keys(names))
	listed := func(client id.Client, granted bool) (found []id.User) {
		for _, c := range testkit.Must(consents.Consents(t.Context(), client, false, layer, granted, everything()))(t) {
			found = append(found, c.User)
		}
		return found
	}
	asked := func(client id.Client) []id.User {
		return slices.Collect(maps.Keys(testkit.Must(consents.Granted(t.Context(), client, false, layer, everybody))(t)))
	}
	consenting := func(client id.Client) []id.User {
		return testkit.Must(consents.Consenting(t.Context(), client, layer, "", 10))(t)
	}
	others := func(client id.Client) []id.User {
		return testkit.Must(consents.NotConsenting(t.Context(), client, layer, before, "", 10))(t)
	}
	for _, c := range []struct {
		what string
		got  []id.User
		want []string
	}{
		{"who consents", consenting(w.Acme), []string{"granted"}},
		{"who consents, of these", asked(w.Acme), []string{"granted"}},
		{"who is listed", listed(w.Acme, true), []string{"granted"}},
		{"who is listed as withdrawn", listed(w.Acme, false), []string{"withdrew"}},
		{"who does not consent", others(w.Acme), []string{"granted another", "silent", "withdrew"}},
		{"of another client, who consents", consenting(w.Bolt), nil},
		{"of another client, who consents, of these", asked(w.Bolt), nil},
		{"of another client, who is listed", listed(w.Bolt, true), nil},
		{"of another client, who does not consent", others(w.Bolt), nil},
	} {
		var got []string
		for _, user := range c.got {
			got = append(got, names[user])
		}
		slices.Sort(got)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.what, diff)
		}
	}
	count := func(what string, want, got int) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %d, want %d", what, got, want)
		}
	}
	count("users who were there", 4, testkit.Must(consents.CountUsers(t.Context(), w.Acme, before))(t))
	count("of another client", 0, testkit.Must(consents.CountUsers(t.Context(), w.Bolt, before))(t))
	for granted, want := range map[bool]int{true: 1, false: 1} {
		count(fmt.Sprint("granted: ", granted), want, testkit.Must(consents.CountChanged(t.Context(), w.Acme, layer, granted, ""))(t))
		count(fmt.Sprint("of another client, granted: ", granted), 0, testkit.Must(consents.CountChanged(t.Context(), w.Bolt, layer, granted, ""))(t))
	}
}

func TestAPageThatLosesUsersIsNotTakenForTheLast(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	stop := w.Follow(projections.Users{}, projections.Matches{}, projections.Consent{})
	layer := w.Define(w.Acme, "personalisation")
	asker := w.Create(w.Acme, "asker", `{}`)
	var users []id.User
	var want []string
	for n := range 9 {
		name := fmt.Sprint("person ", n)
		user := w.Create(w.Acme, name, `{}`)
		w.Match(w.Acme, asker, user, 0.5)
		w.Grant(w.Acme, layer, user, true)
		users = append(users, user)
		if n < 2 || n > 5 {
			want = append(want, name)
		}
	}
	models := projections.Consent{Reader: w.Reader}
	testkit.Must(models.Consents(t.Context(), w.Acme, false, layer, true, everything()))(t)
	testkit.Must(projections.Matches{Reader: w.Reader}.List(t.Context(), w.Acme, false, asker, everything()))(t)
	testkit.Must(w.Users().Get(t.Context(), w.Acme, false, users[8]))(t)
	stop()
	for _, user := range users[2:6] { // more than a page
		w.Erase(w.Acme, user)
	}
	const limit = 3
	for name, list := range map[string]func(after eventstore.Position) (names []string, last eventstore.Position){
		"users": func(after eventstore.Position) (names []string, last eventstore.Position) {
			found := testkit.Must(w.Users().List(t.Context(), w.Acme, true,
				projections.UserQuery{Page: readmodel.Page{After: after, Limit: limit}}))(t)
			for _, u := range found {
				if last = u.CreatedPosition; u.ID != asker {
					names = append(names, u.ExternalID)
				}
			}
			return names, last
		},
		"matches": func(after eventstore.Position) (names []string, last eventstore.Position) {
			found := testkit.Must(projections.Matches{Reader: w.Reader}.List(t.Context(), w.Acme, true, asker,
				readmodel.Page{After: after, Limit: limit}))(t)
			for _, m := range found {
				names, last = append(names, m.ExternalID), m.CreatedPosition
			}
			return names, last
		},
		"consents": func(after eventstore.Position) (names []string, last eventstore.Position) {
			found := testkit.Must(models.Consents(t.Context(), w.Acme, true, layer, true,
				readmodel.Page{After: after, Limit: limit}))(t)
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
	w := projectionstest.New(t)
	w.Follow(projections.Consent{}, projections.Clusters{}, projections.Matches{})
	stop := w.Follow(projections.Users{})
	layer := w.Define(w.Acme, "personalisation")
	known := w.Create(w.Acme, "known", `{}`)
	testkit.Must(w.Users().Get(t.Context(), w.Acme, false, known))(t)
	stop()
	users, seeker := []id.User{known, w.Create(w.Acme, "new", `{}`)}, id.Next[id.User](w.IDs)
	for _, user := range users {
		w.Grant(w.Acme, layer, user, true)
		w.Match(w.Acme, seeker, user, 0.5)
	}
	run, cluster := id.Next[id.Run](w.IDs), id.Next[id.Cluster](w.IDs)
	w.Record(w.Acme, "runs-"+string(layer),
		event.ClusteringRequested{Run: run, Layer: layer, TraitPaths: []string{}},
		event.ClusteringStarted{Run: run, Layer: layer, Attempt: 1})
	w.Record(w.Acme, "run-"+string(run), event.ClusteringAssigned{Run: run, Layer: layer, Attempt: 1, Cluster: cluster, Users: users})
	w.Record(w.Acme, "runs-"+string(layer),
		event.ClusterFormed{ClusterState: event.ClusterState{
			Cluster: cluster, Layer: layer, Run: run, First: event.RunAttempt{Run: run, Attempt: 1}, Size: 2, Distinctions: []event.Distinction{},
		}},
		event.ClusteringCompleted{Run: run, Layer: layer, Attempt: 1, Clusters: []event.ClusterSummary{{ID: cluster, Size: 2}}})

	consents := func(eventual bool) (names []string, err error) {
		found, err := projections.Consent{Reader: w.Reader}.Consents(t.Context(), w.Acme, eventual, layer, true, everything())
		for _, c := range found {
			names = append(names, c.ExternalID)
		}
		return names, err
	}
	members := func(eventual bool) (names []string, err error) {
		found, err := projections.Clusters{Reader: w.Reader}.Members(t.Context(), w.Acme, eventual, cluster, everything())
		for _, c := range found {
			names = append(names, c.ExternalID)
		}
		slices.Sort(names) // the order is that of their ids
		return names, err
	}
	matches := func(eventual bool) (names []string, err error) {
		found, err := projections.Matches{Reader: w.Reader}.List(t.Context(), w.Acme, eventual, seeker, everything())
		for _, m := range found {
			names = append(names, m.ExternalID)
		}
		return names, err
	}
	lists := map[string]func(bool) ([]string, error){"consents": consents, "members": members, "matches": matches}
	for name, list := range lists {
		t.Log(name)
		_, err := list(false)
		projectionstest.WantFault(t, "stale", err)
		if diff := cmp.Diff([]string{"known"}, testkit.Must(list(true))(t)); diff != "" {
			t.Errorf("what is there (-want +got):\n%s", diff)
		}
	}
	w.Follow(projections.Users{})
	for name, list := range lists {
		if diff := cmp.Diff([]string{"known", "new"}, testkit.Must(list(false))(t)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestChangesAreToldInTheirOrderEachUserOnce(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Users{})
	ada, bob, eve := w.Create(w.Acme, "ada", `{"n":1}`), w.Create(w.Acme, "bob", `{}`), w.Create(w.Acme, "eve", `{}`)
	w.Change(w.Acme, ada, `{"n":2}`)
	w.Erase(w.Acme, bob)
	w.Create(w.Bolt, "of another client", `{}`)
	type userChange struct {
		User   id.User
		Traits string
	}
	var got []userChange
	for after := eventstore.Start; ; {
		page := testkit.Must(w.Users().Changed(t.Context(), w.Acme, after, 2))(t)
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
	present := testkit.Must(w.Users().Present(t.Context(), w.Acme, eventstore.Start, 10))(t)
	if there := readmodel.Column(present, func(c projections.UserChange) id.User { return c.ID }); !slices.Equal(there, []id.User{eve, ada}) {
		t.Errorf("present are %v", there)
	}
}

func TestChangesOfLargeUsersAreToldOnSeveralPages(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Users{})
	const users = 60
	large := `{"about":"` + strings.Repeat("x", 250<<10) + `"}`
	for i := range users {
		w.Create(w.Acme, fmt.Sprint(i), large)
	}
	told := 0
	for after := eventstore.Start; told < users; {
		page := testkit.Must(w.Users().Changed(t.Context(), w.Acme, after, 1000))(t)
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
}

func TestClientsAndMembers(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Clients{})
	clients := projections.Clients{Reader: w.Reader}
	defaults := event.Settings{WebhookUserIDs: "user_id"}
	owner := w.SignUp(w.Acme, "acme")
	w.SignUp(w.Bolt, "bolt")
	found := testkit.Must(clients.Get(t.Context(), w.Acme, false, defaults))(t)
	if found.Name != "acme" || found.Slug != "acme" || found.Settings != defaults || found.Revision != 1 {
		t.Errorf("after the sign-up: %+v", found)
	}
	viewer, chosen := id.Next[id.Member](w.IDs), event.Settings{WebhookUserIDs: "external_id"}
	w.Record(w.Acme, "client-"+string(w.Acme), projectionstest.AddedMember(viewer, "viewer"),
		event.ClientRenamed{Client: w.Acme, Name: "Acme Inc."}, event.ClientSettingsChanged{Client: w.Acme, Settings: chosen})
	found = testkit.Must(clients.Get(t.Context(), w.Acme, false, defaults))(t)
	if found.Name != "Acme Inc." || found.Slug != "acme" || found.Settings != chosen || found.Revision != 4 {
		t.Errorf("after the changes: %+v", found)
	}
	emails := func() (list []string) {
		for _, m := range testkit.Must(clients.Members(t.Context(), w.Acme, false, everything()))(t) {
			list = append(list, m.Role+" "+m.Email)
		}
		return list
	}
	want := []string{"owner " + string(owner) + "@example.com", "viewer " + string(viewer) + "@example.com"}
	if diff := cmp.Diff(want, emails()); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
	w.Record(w.Acme, "client-"+string(w.Acme), event.MemberRemoved{Member: viewer})
	if diff := cmp.Diff(want[:1], emails()); diff != "" {
		t.Errorf("members after a removal (-want +got):\n%s", diff)
	}
	_, err := clients.Get(t.Context(), "cli_unknown", false, defaults)
	projectionstest.WantFault(t, "client_unknown", err)
}

func TestAPageThatLosesMembersIsNotTakenForTheLast(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Clients{})
	members := []id.Member{w.SignUp(w.Acme, "acme")}
	for range 5 {
		member := id.Next[id.Member](w.IDs)
		w.Record(w.Acme, "client-"+string(w.Acme), projectionstest.AddedMember(member, "viewer"))
		members = append(members, member)
	}
	for _, removed := range members[1:4] { // that it is recorded comes after
		if err := w.EventLog.Vault.Destroy(t.Context(), w.Acme, string(removed)); err != nil {
			t.Fatal(err)
		}
	}
	page := readmodel.Page{Limit: 2}
	var found []id.Member
	for _, m := range testkit.Must(projections.Clients{Reader: w.Reader}.Members(t.Context(), w.Acme, false, page))(t) {
		found = append(found, m.ID)
	}
	if diff := cmp.Diff([]id.Member{members[0], members[4]}, found); diff != "" {
		t.Errorf("a page (-want +got):\n%s", diff)
	}
}

func TestAPIKeysAreFoundByTheirHashAsTheyAreNow(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.APIKeys{})
	keys := projections.APIKeys{Reader: w.Reader}
	asked := 0
	head := func(ctx context.Context) (eventstore.Position, error) {
		asked++
		return w.EventLog.Store.Head(ctx)
	}
	byHash := func(raw string) (projections.APIKey, error) {
		return keys.ByHash(t.Context(), sha256.Sum256([]byte(raw)), head)
	}
	for n := range 50 { // each is asked for right after it was issued, and after it was revoked
		raw := fmt.Sprint("raw ", n)
		key := w.Issue(w.Acme, raw)
		if found, err := byHash(raw); err != nil || found.ID != key || found.Client != w.Acme || found.Revoked {
			t.Fatalf("issued: %+v %v", found, err)
		}
		w.Revoke(w.Acme, key)
		if found, err := byHash(raw); err != nil || !found.Revoked {
			t.Fatalf("revoked: %+v %v", found, err)
		}
	}
	before := asked
	if _, err := byHash("raw 0"); err != nil || asked != before {
		t.Errorf("a known key asked for the log's head: %v", err)
	}
	_, err := byHash("raw of nobody")
	projectionstest.WantFault(t, "api_key_unknown", err)
	listed := testkit.Must(keys.List(t.Context(), w.Acme, false, readmodel.Page{Limit: 3}))(t)
	if len(listed) != 3 || listed[0].Name != "raw 0" || !listed[0].Revoked {
		t.Errorf("listed: %+v", listed)
	}
}

func TestKeysInForceAreNeitherRevokedNorExpired(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.APIKeys{})
	keys := projections.APIKeys{Reader: w.Reader}
	member, now := id.Next[id.Member](w.IDs), time.Now()
	issue := func(by id.Member, expires time.Duration) id.Key {
		key := id.Next[id.Key](w.IDs)
		at := now.Add(expires)
		w.Record(w.Acme, string(key), event.APIKeyIssued{Key: key, Name: "n", Hash: []byte(key), Scopes: []string{"read"}, IssuedBy: by, ExpiresAt: &at})
		return key
	}
	first, revoked := issue(member, time.Hour), issue(member, time.Hour)
	issue(member, -time.Hour)
	others, last := issue(id.Next[id.Member](w.IDs), time.Hour), issue(member, time.Hour)
	w.Revoke(w.Acme, revoked)
	if made := testkit.Must(keys.MadeBy(t.Context(), w.Acme, member))(t); !slices.Equal(slices.Sorted(slices.Values(made)), slices.Sorted(slices.Values([]id.Key{first, last}))) {
		t.Errorf("the member made %s; want %s and %s", made, first, last)
	}
	for key, want := range map[id.Key]int{first: 0, others: 1, last: 2, "": 3} {
		if n, err := keys.Before(t.Context(), w.Acme, key); err != nil || n != want {
			t.Errorf("%d before %q, %v; want %d", n, key, err, want)
		}
	}
	expiring := func(client id.Client, from, to time.Duration, limit int) (found []id.Key) {
		for _, key := range testkit.Must(keys.Expiring(t.Context(), client, now.Add(from), now.Add(to), limit))(t) {
			found = append(found, key.ID)
		}
		return found
	}
	soonest := issue(member, time.Minute)
	testkit.Must(keys.List(t.Context(), w.Acme, false, everything()))(t) // it has caught up
	all := append([]id.Key{soonest}, slices.Sorted(slices.Values([]id.Key{first, others, last}))...)
	for _, c := range []struct {
		got, want []id.Key
	}{
		{expiring(w.Acme, 0, time.Hour, 10), all},
		{expiring(w.Acme, 0, time.Hour, 2), all[:2]},
		{expiring(w.Acme, 0, time.Hour-time.Second, 10), all[:1]},
		{expiring(w.Acme, time.Hour, 2*time.Hour, 10), nil},
		{expiring(w.Bolt, 0, time.Hour, 10), nil},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s expire, want %s", c.got, c.want)
		}
	}
	for range 2 {
		if err := keys.NoteUse(t.Context(), w.Acme, last); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range testkit.Must(keys.List(t.Context(), w.Acme, false, everything()))(t) {
		if used := key.LastUsedAt != nil; used != (key.ID == last) || used && !key.LastUsedAt.Equal(now.Truncate(time.Hour)) && time.Since(now) < time.Minute && now.Minute() < 58 {
			t.Errorf("%s was last used at %v", key.ID, key.LastUsedAt)
		}
	}
}

func TestWebhooks(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Webhooks{})
	webhooks := projections.Webhooks{Reader: w.Reader}
	one, two, gone := w.Subscribe(w.Acme, "https://one"), w.Subscribe(w.Acme, "https://two"), w.Subscribe(w.Acme, "https://gone")
	w.Webhook(w.Acme, two, event.WebhookPaused{Webhook: two})
	w.Webhook(w.Acme, one, event.WebhookPaused{Webhook: one}, event.WebhookResumed{Webhook: one},
		event.WebhookChanged{Webhook: one, WebhookAddress: event.At("https://changed"), EventTypes: []string{"clustering.failed"}})
	w.Webhook(w.Acme, gone, event.WebhookRemoved{Webhook: gone})
	yes, no := true, false
	for name, test := range map[string]struct {
		paused *bool
		want   []id.Webhook
	}{
		"all": {nil, []id.Webhook{one, two}}, "paused": {&yes, []id.Webhook{two}}, "active": {&no, []id.Webhook{one}},
	} {
		var got []id.Webhook
		for _, found := range testkit.Must(webhooks.List(t.Context(), w.Acme, false, test.paused, everything()))(t) {
			got = append(got, found.ID)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	found := testkit.Must(webhooks.Get(t.Context(), w.Acme, false, one))(t)
	if found.URL != "https://changed" || found.EventTypes[0] != "clustering.failed" || found.Paused || !found.Signed || found.Revision != 3 {
		t.Errorf("changed: %+v", found)
	}
	for _, webhook := range []id.Webhook{gone, "whk_unknown"} {
		_, err := webhooks.Get(t.Context(), w.Acme, false, webhook)
		projectionstest.WantFault(t, "webhook_unknown", err)
	}
	_, err := webhooks.Get(t.Context(), w.Bolt, false, one)
	projectionstest.WantFault(t, "webhook_unknown", err)
}

func TestMatchesOfAPairKeepTheirPlaceAndShowTheNewest(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Users{}, projections.Matches{})
	ada, bob, eve := w.Create(w.Acme, "ada", `{}`), w.Create(w.Acme, "bob", `{}`), w.Create(w.Acme, "eve", `{}`)
	first := w.Match(w.Acme, ada, bob, 0.25)
	w.Match(w.Acme, ada, eve, 0.5)
	w.Match(w.Acme, bob, ada, 0.125)
	w.Match(w.Acme, ada, bob, 0.75)
	list := func(user id.User, page readmodel.Page) (lines []string) {
		// The users that the matches name come from another model.
		testkit.Must(w.Users().Get(t.Context(), w.Acme, false, ada))(t)
		matches := projections.Matches{Reader: w.Reader}
		for _, m := range testkit.Must(matches.List(t.Context(), w.Acme, false, user, page))(t) {
			lines = append(lines, fmt.Sprint(m.ExternalID, " ", m.Score, " ", m.Percentile, " ", m.Explanation))
		}
		return lines
	}
	want := []string{"bob 0.75 75 [{age 1 0.75 0.75 false}]", "eve 0.5 50 [{age 1 0.5 0.5 false}]"}
	if diff := cmp.Diff(want, list(ada, everything())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[1:], list(ada, readmodel.Page{After: first, Limit: 5})); diff != "" {
		t.Errorf("the second page (-want +got):\n%s", diff)
	}
	w.Erase(w.Acme, eve)
	w.Match(w.Acme, ada, eve, 1) // it was on its way when she was erased
	if diff := cmp.Diff(want[:1], list(ada, everything())); diff != "" {
		t.Errorf("after an erasure (-want +got):\n%s", diff)
	}
}

func TestEachOpenClaimIsToldInTurn(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Claims{})
	for _, stream := range []string{"slug-1", "slug-2", "slug-3", "slug-4"} {
		w.Record("", stream, event.Reserved{Client: w.Acme})
	}
	w.Record("", "slug-2", event.Confirmed{Client: w.Acme})
	w.Record("", "slug-3", event.Released{Client: w.Acme})
	last := w.Record("", "slug-3", event.Reserved{Client: w.Bolt})[0]
	if err := w.Reader.Progress.Wait(t.Context(), projections.Claims{}, "", last.Position); err != nil {
		t.Fatal(err)
	}
	claims := projections.Claims{Reader: w.Reader}
	told := map[eventstore.Stream]bool{}
	testkit.Eventually(t, "all that are open are told, one at a time", func() bool {
		open := testkit.Must(claims.OpenSince(t.Context(), last.RecordedAt.Add(time.Microsecond), 1))(t)
		if len(open) != 1 {
			t.Fatalf("told %v", open)
		}
		told[open[0]] = true
		return len(told) == 3
	})
	if told["slug-2"] {
		t.Error("one is told that is confirmed")
	}
	if early := testkit.Must(claims.OpenSince(t.Context(), last.RecordedAt, 10))(t); len(early) != 2 {
		t.Errorf("open before the last was made: %v", early)
	}
}

func TestAQueryTakesAPlace(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Sandboxes{})
	reader := w.Reader
	reader.Places = &semaphore.Semaphore{Places: 1}
	list := func() error {
		_, err := projections.Sandboxes{Reader: reader}.List(t.Context(), w.Acme, false, readmodel.Page{Limit: 1})
		return err
	}
	if err := list(); err != nil {
		t.Error(err)
	}
	if !reader.Places.Try("another") {
		t.Error("the query has kept its place")
	}
	if err := list(); !fault.Is(err, "overloaded") {
		t.Errorf("without a place: %v", err)
	}
}

func TestClientsTakeTurnsWithSandboxesThatAreOver(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Sandboxes{})
	over := time.Now().Add(-time.Minute)
	add := func(client id.Client, until time.Time) id.Client {
		sandbox := id.NextSandbox(w.IDs, client)
		w.Record(client, "sandboxes", event.SandboxAdded{Sandbox: sandbox, Name: "ci", ExpiresAt: &until})
		return sandbox
	}
	for range 20 {
		add(w.Acme, over)
	}
	one := add(w.Bolt, over)
	add(w.Bolt, time.Now().Add(time.Hour))
	sandboxes := projections.Sandboxes{Reader: w.Reader}
	for _, client := range []id.Client{w.Acme, w.Bolt} {
		testkit.Must(sandboxes.List(t.Context(), client, false, readmodel.Page{Limit: 1}))(t) // they are there
	}
	due := testkit.Must(sandboxes.Due(t.Context(), 2))(t)
	if due[one] != w.Bolt || len(due) != 2 {
		t.Errorf("the first two are %v, and do not take turns", due)
	}
	if due = testkit.Must(sandboxes.Due(t.Context(), 100))(t); len(due) != 21 {
		t.Errorf("%d are over, not 21", len(due))
	}
}

func TestTheAddressOfAWebhookIsShownAndKeptSealed(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Webhooks{})
	webhooks := projections.Webhooks{Reader: w.Reader}
	one, two := w.Subscribe(w.Acme, "https://hunter2"), w.Subscribe(w.Acme, "https://two")
	w.Webhook(w.Acme, two, event.WebhookChanged{Webhook: two, WebhookAddress: event.At("https://hunter2/two"), EventTypes: []string{"clustering.failed"}})
	old := id.Next[id.Webhook](w.IDs)
	w.Webhook(w.Acme, old, event.WebhookSubscribed{Webhook: old, WebhookAddress: event.WebhookAddress{ClearURL: "https://old"}, EventTypes: []string{"match.computed"}})
	want := map[id.Webhook]string{one: "https://hunter2", two: "https://hunter2/two", old: "https://old"}
	for _, found := range testkit.Must(webhooks.List(t.Context(), w.Acme, false, nil, everything()))(t) {
		got := testkit.Must(webhooks.Get(t.Context(), w.Acme, false, found.ID))(t)
		if found.URL != want[found.ID] || got.URL != want[found.ID] {
			t.Errorf("listed with %q, read with %q, want %q", found.URL, got.URL, want[found.ID])
		}
		delete(want, found.ID)
	}
	if len(want) > 0 {
		t.Errorf("not listed: %v", want)
	}
	var shown int
	if err := w.Pool.QueryRow(t.Context(), `SELECT count(*) FROM webhooks w
WHERE w::text LIKE '%hunter2%' OR position('hunter2'::bytea IN w.url) > 0`).Scan(&shown); err != nil || shown > 0 {
		t.Errorf("%d rows show an address, %v", shown, err)
	}
}

func TestAModelThatSaysWhatNeverHappenedStopsAtAnEventThatItLacks(t *testing.T) {
	t.Parallel()
	for _, m := range []projector.Projection{projections.Spends{}, projections.EventIDs{}} {
		if !projector.OptionsOf(m).Gapless {
			t.Errorf("%s goes on without an event", m.Name())
		}
	}
	w := projectionstest.New(t)
	spends, campaign := projections.Spends{Reader: w.Reader}, id.Next[id.Campaign](w.IDs)
	w.Follow(spends)
	if _, err := w.Pool.Exec(t.Context(), `ALTER TABLE spends_1.spends ADD CHECK (id <> 'bad')`); err != nil {
		t.Fatal(err)
	}
	spend := func(name string) event.Event {
		return event.CampaignSpendRecorded{Campaign: campaign, SpendID: name, AmountMinor: 1, Currency: "EUR", SpentMinor: 1, BudgetMinor: 100}
	}
	w.Record(w.Acme, "spends-acme", spend("good"), spend("bad"))
	w.Record(w.Bolt, "spends-bolt", spend("good"))
	for found := 0; found == 0; time.Sleep(time.Millisecond) { // until it has passed the last
		known, _, err := spends.Recorded(t.Context(), w.Bolt, campaign, []string{"good"})
		if found = len(known); err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := spends.Recorded(t.Context(), w.Acme, campaign, []string{"bad"})
	projectionstest.WantFault(t, "quarantined", err)
}

func TestAClientThatIsQuarantinedIsToldAndTheOthersAreServed(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.MaxLeftOut = -1
	w.Follow(projections.Webhooks{})
	for _, client := range []id.Client{w.Acme, w.Bolt} {
		hook := w.Subscribe(client, "https://one")
		w.Webhook(client, hook, event.WebhookPaused{Webhook: hook})
	}
	// What no command records, and no column takes.
	other := w.Subscribe(w.Acme, "https://two")
	w.Webhook(w.Acme, other, event.WebhookChanged{Webhook: other, WebhookAddress: event.At("https://two"), EventTypes: []string{"\x00"}})
	w.Subscribe(w.Bolt, "https://two")
	webhooks := projections.Webhooks{Reader: w.Reader}
	_, err := webhooks.List(t.Context(), w.Acme, false, nil, everything())
	projectionstest.WantFault(t, "quarantined", err)
	if found := testkit.Must(webhooks.List(t.Context(), w.Bolt, false, nil, everything()))(t); len(found) != 2 {
		t.Errorf("the other client has %d subscriptions", len(found))
	}
}
