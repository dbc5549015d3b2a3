package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kindred/app"
	"kindred/eventstore/esdbstore/esdbtest"
	"kindred/httpapi"
	"kindred/testkit"
)

// pastState is what the API listed at a moment.
type pastState struct {
	at    string
	lists map[string][]any // by the key of an item
}

// stateLists are the lists that a state shows, by the key of an item.
func stateLists(a account) map[string]string {
	return map[string]string{
		"user": "/api/v1/users", "webhook": a.under("/webhooks"), "campaign": "/api/v1/campaigns", "cluster": "/api/v1/clusters",
		"consent_layer": layersPath, "api_key": a.under("/api_keys"),
	}
}

// moment is what everything is now: read while nothing is recorded, as a verdict on
// clusters may be at any time.
func (a account) moment() (now pastState) {
	a.Helper()
	testkit.Eventually(a, "nothing is recorded for a moment", func() bool {
		before := a.size()
		now = pastState{at: fmt.Sprint(before - 1), lists: map[string][]any{}}
		for key, path := range stateLists(a) {
			if found := each[any](a, a, path, 200); len(found) > 0 {
				now.lists[key] = found
			}
		}
		return a.size() == before
	})
	return now
}

// state reads the past page by page.
func (a account) state(query string, limit int) map[string][]any {
	a.Helper()
	lists := map[string][]any{}
	for _, item := range each[map[string]any](a, a, a.under("/history/state"+query), limit) {
		if len(item) != 1 {
			a.Fatalf("an item with %d keys", len(item))
		}
		for key, value := range item {
			lists[key] = append(lists[key], value)
		}
	}
	return lists
}

// forget is what is left of users who were erased since.
func (l pastState) forget(users ...httpapi.UserID) pastState {
	for _, value := range l.lists["user"] {
		user := value.(map[string]any)
		if slices.Contains(users, httpapi.UserID(user["id"].(string))) {
			delete(user, "external_id")
			delete(user, "traits")
			user["erased"] = true
		}
	}
	return l
}

// TestThePastIsShownAsItWas compares, after a story, every moment of it with
// what the API listed then.
func TestThePastIsShownAsItWas(t *testing.T) {
	t.Parallel()
	t.Run("in postgres", func(t *testing.T) { t.Parallel(); checkPast(t, pooled(t)) })
	t.Run("in an event store", func(t *testing.T) { t.Parallel(); checkPast(t, onEventStore(t, esdbtest.StartNode(t))) })
}

func checkPast(t *testing.T, changes ...func(*app.Config)) {
	t.Helper()
	s := startService(t, changes...)
	a := s.signUp()
	var past []pastState
	live := func() { past = append(past, a.moment()) }
	live()
	ada := a.createUser("ada", map[string]any{"age": 31})
	bob := a.createUser("bob", map[string]any{"age": 32})
	hook := a.subscribe("http://127.0.0.1:1/", "a secret")
	live()
	between := time.Now().UTC().Format(time.RFC3339Nano)
	atTheTime := past[len(past)-1]
	aged := a.send("PATCH", "/api/v1/users/"+string(ada.ID), map[string]any{"traits": map[string]any{"age": 41}})
	aging := want[httpapi.HistoryPage](t, http.StatusOK, a.get(a.under("/history?type=end_user.traits_changed"))).Data[0]
	a.send("PATCH", a.under("/webhooks/"+string(hook.ID)), map[string]any{"status": "paused"})
	key := a.createAPIKey("read")
	live()
	c := a.run(nil)
	a.spend(c, "one", 300)
	layer := a.createLayer("age", "plan", "visits")
	a.importUsers(90, groups)
	a.grantAll(layer)
	live()
	if run := a.ended(a.cluster(layer, "k", 3)); run.Status != httpapi.RunCompleted {
		t.Fatalf("the run: %+v", run)
	}
	live()
	wantDone(t, a.send("DELETE", "/api/v1/users/"+string(bob.ID), nil))
	wantDone(t, a.send("DELETE", a.under("/api_keys/"+string(key.Record.ID)), nil))
	wantDone(t, a.send("DELETE", a.under("/webhooks/"+string(hook.ID)), nil))
	live()
	wantDone(t, a.send("DELETE", layersPath+"/"+string(layer.ID), nil))
	wantDone(t, a.send("DELETE", "/api/v1/users/"+string(ada.ID), nil))
	live()
	if last := past[len(past)-2].lists; len(last["cluster"]) != 3 || len(last["user"]) != 91 {
		t.Fatalf("the story: %d clusters, %d users", len(last["cluster"]), len(last["user"]))
	}
	for i, then := range past {
		if diff := cmp.Diff(then.forget(ada.ID, bob.ID).lists, a.state("?at="+then.at, 1+9*i)); diff != "" {
			t.Errorf("after event %s (-then +shown):\n%s", then.at, diff)
		}
	}
	if diff := cmp.Diff(atTheTime.lists, a.state("?at="+between, 200)); diff != "" {
		t.Errorf("at %s (-then +shown):\n%s", between, diff)
	}
	if shown := a.state("?kind=webhooks&at="+atTheTime.at, 1); len(shown) != 1 || len(shown["webhook"]) != 1 {
		t.Errorf("only webhooks: %v", shown)
	}

	position := aged.Header.Get("X-Kindred-Position")
	if position != aging.Position {
		t.Errorf("the write is told to stand at %s, and stands at %s", position, aging.Position)
	}
	for _, at := range []string{position, fmt.Sprint(aging.Ordinal)} {
		if shown := want[httpapi.HistoryState](t, http.StatusOK, a.get(a.under("/history/state?at="+at))); shown.Size != aging.Ordinal+1 {
			t.Errorf("at %s there were %d events, want %d", at, shown.Size, aging.Ordinal+1)
		}
	}
	before := want[httpapi.HistoryState](t, http.StatusOK, a.get(a.under("/history/state?at=2020-01-01T00:00:00Z")))
	if before.Size != 0 || len(before.Data) != 0 || before.RecordedAt != nil {
		t.Errorf("before there was anything: %+v", before)
	}
	future := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	for _, at := range []string{"1000000", "-1", "yesterday", future, "2026-01-31T12:00:00,5Z", "2026-01-31T9:00:00Z", strings.Repeat("f", len(position)), strings.Repeat("0", 48-len(position))} {
		wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.get(a.under("/history/state?at="+at)))
	}
	wantProblem(t, http.StatusForbidden, "missing_scope", a.with(s.exchange(a.createAPIKey("read", "write").RawKey)).get(a.under("/history/state?at=0")))

	lists := map[string][]any{}
	said, err := tool(t, s.Config, "history", "state", "--client", string(a.Client.ID), "--at", atTheTime.at)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(said) {
		var item map[string]any
		if err := json.Unmarshal([]byte(line), &item); err != nil {
			t.Fatal(err)
		}
		for key, value := range item {
			lists[key] = append(lists[key], value)
		}
	}
	if diff := cmp.Diff(atTheTime.lists, lists); diff != "" {
		t.Errorf("by the tool (-then +printed):\n%s", diff)
	}
}

// settingsOf is the environment of a tool that stands beside a service.
func settingsOf(c app.Config) map[string]string {
	return map[string]string{
		"KINDRED_DATABASE_URL": c.DatabaseURL, "KINDRED_EVENTSTORE_URL": c.EventStoreURL, "KINDRED_MASTER_KEY": c.MasterKey,
		"KINDRED_DATA_DIR": c.DataDir, "KINDRED_EPOCH_DIR": c.EpochDir,
	}
}

func TestThrowAwayTablesGoWithThoseWhoReadThem(t *testing.T) {
	t.Parallel()
	s := startService(t)
	a := s.signUp()
	for i := range 6 { // more than are kept
		a.createUser(fmt.Sprint("person ", i), map[string]any{})
	}
	answers := together(12, func(i int) (got answer) {
		for range 20 { // each waits a while for what is being built
			got = a.get(a.under(fmt.Sprintf("/history/state?at=%d", i/2)))
			if !strings.Contains(string(got.Body), `"code":"building"`) {
				break
			}
		}
		return got
	})
	shown := 0
	for _, got := range answers {
		switch got.Status {
		case http.StatusOK:
			shown++
		case http.StatusServiceUnavailable:
			wantProblem(t, http.StatusServiceUnavailable, "busy", got)
			if got.Header.Get("Retry-After") == "" {
				t.Error("it does not say when to come again")
			}
		default:
			t.Errorf("%d %s", got.Status, got.Body)
		}
	}
	f := openApp(t, s.Config)
	left := func() (n int) {
		t.Helper()
		if err := f.Pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'scratch%'`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := left(); shown < 3 || n == 0 || n > 3 {
		t.Errorf("%d answers were right, %d schemas are kept", shown, n)
	}
	s.stop()
	if n := left(); n > 0 {
		t.Errorf("%d schemas outlive the service", n)
	}

	// Those of a process that died are dropped by the next that looks.
	if _, err := f.Pool.Exec(t.Context(), `CREATE SCHEMA aside_3; CREATE TABLE aside_3.users (id text)`); err != nil {
		t.Fatal(err)
	}
	if err := f.Runner.SweepScratches(t.Context()); err != nil || left() > 0 {
		t.Errorf("%d schemas of the dead are left: %v", left(), err)
	}
}

// Where one backend is killed, Postgres ends all connections and empties the tables that it keeps no
// log of, in less time than a lease lasts. Here the test does.
func TestAStateThatACrashOfPostgresEmptiedIsBuiltAnew(t *testing.T) {
	t.Parallel()
	s := startService(t)
	a := s.signUp()
	for i := range 3 {
		a.createUser(fmt.Sprint("person ", i), map[string]any{})
	}
	path := a.under(fmt.Sprintf("/history/state?kind=users&at=%d", a.size()-1))
	shown := func() (got answer) {
		testkit.Eventually(t, "the state is shown", func() bool {
			got = a.get(path)
			return got.Status == http.StatusOK
		})
		return got
	}
	before := shown()
	f := openApp(t, s.Config)
	var logged []string
	if err := f.Pool.QueryRow(t.Context(), `SELECT array_agg(oid::regclass::text) FROM pg_class
		WHERE relkind = 'r' AND relpersistence = 'p' AND relnamespace::regnamespace::text LIKE 'scratch%'`).Scan(&logged); err != nil || len(logged) > 0 {
		t.Errorf("these are logged: %v %v", logged, err)
	}
	if _, err := f.Pool.Exec(t.Context(), `
DO $$ DECLARE name text; BEGIN
	FOR name IN SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname LIKE 'scratch%' LOOP
		EXECUTE 'TRUNCATE ' || name;
	END LOOP;
	PERFORM pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid();
END $$`); err != nil {
		t.Fatal(err)
	}
	if after := shown(); string(after.Body) != string(before.Body) {
		t.Errorf("shown before %s, and after %s", before.Body, after.Body)
	}
}

// A crash of Postgres takes from a read model what it had not flushed. Its leader applies that again, and a
// state of more events waits for this: the log still holds them.
func TestAStateWaitsForAHistoryThatACrashOfPostgresSetBack(t *testing.T) {
	t.Parallel()
	s := startService(t)
	a := s.signUp()
	a.createUser("ann", nil)
	a.size() // the history has come as far
	f := openApp(t, s.Config)
	exec := func(sql string) {
		t.Helper()
		if _, err := f.Pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	tables := []string{"history_1.history_events", "history_1.history_nodes", "history_1.history_trees"}
	for i, table := range tables {
		exec(fmt.Sprintf(`CREATE TABLE flushed_%d AS TABLE %s`, i, table))
	}
	exec(`CREATE TABLE flushed AS SELECT * FROM checkpoints WHERE name = 'history_1'`)
	for _, name := range []string{"bob", "cat"} {
		a.createUser(name, nil)
	}
	first := want[httpapi.HistoryState](t, http.StatusOK, a.get(a.under(fmt.Sprintf("/history/state?kind=users&limit=1&at=%d", a.size()-1))))
	next := a.under(fmt.Sprintf("/history/state?kind=users&limit=2&at=%d&cursor=%s", first.Size-1, *first.NextCursor))
	s.stop()
	for i, table := range tables {
		exec(fmt.Sprintf(`TRUNCATE %s; INSERT INTO %[1]s TABLE flushed_%d`, table, i))
	}
	exec(`UPDATE checkpoints c SET position = f.position, event_id = f.event_id, events = f.events FROM flushed f WHERE c.name = f.name`)

	behind := a.at(startService(t, replicaOf(s), func(c *app.Config) { c.Roles = []string{"api"} }))
	wantProblem(t, http.StatusServiceUnavailable, "stale", behind.get(next))
	startService(t, replicaOf(s))
	testkit.Eventually(t, "the next page is shown", func() bool {
		got := behind.get(next)
		return got.Status == http.StatusOK && len(want[httpapi.HistoryState](t, http.StatusOK, got).Data) == 2
	})
}

// One user can be asked for alone, as the user was.
func TestAUserIsShownAsTheUserWas(t *testing.T) {
	t.Parallel()
	s := shared(t)
	a := s.signUp()
	a.createUser("bob", map[string]any{"age": 30})
	ada := a.createUser("ada", map[string]any{"age": 40})
	then := want[httpapi.HistoryProof](t, http.StatusOK, a.get(a.under("/history/proof"))).Size - 1
	a.send("PATCH", "/api/v1/users/"+string(ada.ID), map[string]any{"traits": map[string]any{"age": 41}})
	ask := func(at int64, query string) []httpapi.HistoryStateItem {
		return want[httpapi.HistoryState](t, http.StatusOK, a.get(a.under(fmt.Sprintf("/history/state?at=%d%s", at, query)))).Data
	}
	for _, query := range []string{"&user_id=" + string(ada.ID), "&user_id=ext:ada", "&kind=users&user_id=ext:ada"} {
		if got := ask(then, query); len(got) != 1 || *got[0].User.ExternalID != "ada" || string(got[0].User.Traits) != `{"age":40}` {
			t.Errorf("%s: %+v", query, got)
		}
	}
	if got := ask(then+1, "&user_id=ext:ada"); string(got[0].User.Traits) != `{"age":41}` {
		t.Errorf("after the change: %+v", got)
	}
	if got := ask(0, "&user_id=ext:ada"); len(got) != 0 {
		t.Errorf("before the user was there: %+v", got)
	}
	wantProblem(t, http.StatusNotFound, "user_unknown", a.get(a.under("/history/state?at=1&user_id=ext:nobody")))
	refused := wantProblem(t, http.StatusUnprocessableEntity, "invalid", a.get(a.under("/history/state?at=1&kind=webhooks&user_id=ext:ada")))
	if refused.Errors[0].Pointer != "kind" {
		t.Errorf("refused: %+v", refused.Errors)
	}
	other := s.signUp()
	other.createUser("eve", map[string]any{})
	if got := want[httpapi.HistoryState](t, http.StatusOK, other.get(other.under("/history/state?at=1&user_id="+string(ada.ID)))).Data; len(got) != 0 {
		t.Errorf("another client sees %+v", got)
	}
	a.send("DELETE", "/api/v1/users/"+string(ada.ID), nil)
	if got := ask(then, "&user_id="+string(ada.ID)); len(got) != 1 || got[0].User.Erased == nil || got[0].User.Traits != nil {
		t.Errorf("erased since: %+v", got)
	}
}
