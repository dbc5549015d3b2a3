package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"kindred/app"
	"kindred/eventstore/esdbstore/esdbtest"
	"kindred/eventstore/projector"
	"kindred/httpapi"
	"kindred/postgres/pgtest"
	"kindred/projections"
	"kindred/testkit"
)

// replayed runs kindred history replay in the environment of a kindred.
func replayed(t testing.TB, c app.Config, args ...string) (string, error) {
	t.Helper()
	return tool(t, c, append([]string{"history", "replay"}, args...)...)
}

// checkReplayed checks that a kindred that stands still is equal to one that is
// built from its log, and returns how that is configured.
func checkReplayed(t testing.TB, c app.Config, args ...string) app.Config {
	t.Helper()
	if undeclared := undeclaredPositions(t, c.DatabaseURL); len(undeclared) > 0 {
		t.Errorf("columns of read models hold positions and are no log_position: %q", undeclared)
	}
	second := c
	second.DatabaseURL, second.EventStoreURL = pgtest.URL(t), ""
	said, err := replayed(t, c, append([]string{"--into", second.DatabaseURL}, args...)...)
	if err != nil || !strings.HasSuffix(said, "\nequal\n") || strings.Count(said, ", 0 differences\n") != len(projections.Names()) {
		t.Fatalf("replayed: %v\n%s", err, said)
	}
	return second
}

// undeclaredPositions lists the columns of read models that hold positions of the
// log, and are not declared as such: they would be compared as any text is.
func undeclaredPositions(t testing.TB, database string) (found []string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	schemas := make([]string, 0, len(projections.All()))
	for _, m := range projections.All() {
		schemas = append(schemas, projector.ID(m))
	}
	rows, err := conn.Query(t.Context(), `
SELECT format('SELECT %L FROM %I.%I t JOIN events e ON position_text(e.position) = t.%I LIMIT 1', c.table_name || '.' || c.column_name, c.table_schema, c.table_name, c.column_name)
FROM information_schema.columns c WHERE c.table_schema = ANY($1) AND c.data_type = 'text' AND c.domain_name IS NULL`, schemas)
	if err != nil {
		t.Fatal(err)
	}
	look, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(look) == 0 {
		t.Fatalf("the columns of the read models: %d, %v", len(look), err)
	}
	for _, sql := range look {
		var column string
		switch err := conn.QueryRow(t.Context(), sql).Scan(&column); {
		case err == nil:
			found = append(found, column)
		case !errors.Is(err, pgx.ErrNoRows):
			t.Fatal(err)
		}
	}
	return found
}

// rest ends a service, and brings its read models to the end of its log, which
// it may not have reached.
func (s *service) rest() {
	s.Helper()
	s.stop()
	f := openApp(s, s.Config)
	for _, model := range projections.All() {
		if err := f.Runner.CatchUp(s.Context(), model, nil); err != nil {
			s.Fatal(err)
		}
	}
}

// lists is all that a client can list.
func (a account) lists() map[string][]any {
	a.Helper()
	// Who logs in to look leaves a trace.
	history := slices.DeleteFunc(each[any](a, a, a.under("/history?personal=open"), 200), func(e any) bool {
		return e.(map[string]any)["type"] == "member.logged_in"
	})
	all := map[string][]any{"history": history}
	for key, path := range stateLists(a) {
		all[key] = each[any](a, a, path, 200)
	}
	return all
}

// logIn gives an account a token of another kindred.
func (a account) logIn(s *service) account {
	a.Helper()
	session := want[httpapi.LoggedIn](a, http.StatusOK, s.send("POST", "/auth/token", map[string]string{"email": a.Email, "password": a.Password}))
	s.Logs.keepOut(a.Email, a.Password, session.Token)
	return a.at(s).with(session.Token)
}

func TestASecondKindredIsEqualAndGoesOn(t *testing.T) {
	t.Parallel()
	inbox := openInbox(t)
	s := startService(t, impatient)
	a := s.signUp()
	one := a.createUser("one", map[string]any{"town": "Ghent"})
	a.createUser("two", map[string]any{"town": "Ghent"})
	a.segment("Of Ghent", `traits.town == "Ghent"`) // judged by traits, which are sealed
	gone := a.createUser("gone", map[string]any{"town": "Ghent"})
	a.subscribe(inbox.URL+"/steady", stormSecret)
	want[httpapi.ComputedMatches](t, http.StatusOK, a.send("POST", "/api/v1/users/"+string(one.ID)+"/matches", nil))
	a.spend(a.run(nil), "s", 10)
	wantDone(t, a.send("DELETE", "/api/v1/users/"+string(gone.ID), nil))
	testkit.Eventually(t, "it is delivered, and the log says so", func() bool {
		return bytes.Count(a.get(a.under("/history?type=deliveries.ended")).Body, []byte("delivery_id")) == 2
	})
	jwks := s.send("GET", "/.well-known/audit-jwks.json", nil).Body
	kept := lastHead(t, a.export())
	lists := a.lists()

	// The first one serves meanwhile; the second is not empty any more then.
	second := checkReplayed(t, s.Config)
	if said, err := replayed(t, s.Config, "--into", second.DatabaseURL); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("replayed twice: %v\n%s", err, said)
	}
	if said, err := replayed(t, s.Config, "--into", s.Config.DatabaseURL); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("replayed into itself: %v\n%s", err, said)
	}
	s.stop()

	s = startService(t, impatient, func(c *app.Config) {
		c.DatabaseURL, c.MasterKey, c.EpochDir = second.DatabaseURL, second.MasterKey, second.EpochKeys()
	})
	b := a.logIn(s)
	if diff := cmp.Diff(lists, b.lists()); diff != "" {
		t.Errorf("the second kindred (-first +second):\n%s", diff)
	}
	if found := findings(t, jwks, b.export(), kept); len(found) > 0 {
		t.Errorf("a head of the first kindred: %q", found)
	}
	three := b.createUser("three", map[string]any{"town": "Ghent"})
	want[httpapi.ComputedMatches](t, http.StatusOK, b.send("POST", "/api/v1/users/"+string(three.ID)+"/matches", nil))
	testkit.Eventually(t, "what is new is delivered", func() bool { return len(inbox.all()) == 4 })
	for what, times := range inbox.all() {
		if times > 1 {
			t.Errorf("delivered %d times: %+v", times, what)
		}
	}
}

func TestTheSameSeedFindsTheSameClustersInAReplayedKindred(t *testing.T) {
	t.Parallel()
	s := startService(t)
	a := s.signUp()
	layer := a.createLayer("age", "visits", "orders", "points", "plan")
	a.importUsers(600, func(i int) string { // no groups: where the borders are is for the seed to say
		return fmt.Sprintf(`{"age":%d,"visits":%d,"orders":%d,"points":%d,"plan":"plan %d"}`, i*7919%83, i*104_729%97, i*i%89, i*i*i%101, i*31%7)
	})
	a.grantAll(layer)
	second := checkReplayed(t, s.Config)
	b := a.logIn(startService(t, func(c *app.Config) {
		c.DatabaseURL, c.MasterKey, c.EpochDir = second.DatabaseURL, second.MasterKey, second.EpochKeys()
	}))

	type cluster struct {
		Label   string
		Members []string
	}
	clusters := func(a account, seed int) (found []cluster, quality *httpapi.RunQuality) {
		t.Helper()
		run := a.ended(a.cluster(layer, "seed", seed, "k", 8))
		for _, c := range run.Clusters {
			found = append(found, cluster{c.Label, a.members(c.ID)})
		}
		slices.SortFunc(found, func(x, y cluster) int { return strings.Compare(x.Members[0], y.Members[0]) })
		return found, run.Quality
	}
	want, wantQuality := clusters(a, 7)
	got, quality := clusters(b, 7)
	if diff := cmp.Diff(want, got) + cmp.Diff(wantQuality, quality); diff != "" || len(want) != 8 {
		t.Errorf("%d clusters (-first +second):\n%s", len(want), diff)
	}
}

// TestWhatWasReplayedStaysSilent resumes a client whom the second kindred could
// not follow while the log was replayed.
func TestWhatWasReplayedStaysSilent(t *testing.T) {
	t.Parallel()
	s := startService(t)
	p := newPairs(s)
	r := receive(t, 200)
	hook := p.subscribe(r.URL, "")
	want[httpapi.ClientDetails](t, http.StatusOK, p.sendTo("PATCH", "", `{"settings":{"automatic_matching":{"on":true,"k":1,"min_score":1}}}`))
	p.match("ann", "bob")
	r.next(t)
	s.rest()
	second := checkReplayed(t, s.Config)
	f := openApp(t, second)
	first := history(t, f)[0]
	for _, follower := range []string{"dispatcher", "match_queue"} {
		if _, err := f.Pool.Exec(t.Context(), `INSERT INTO quarantine (projection, client, position, event_id, reason) VALUES ($1, $2, $3, $4, 'a test')`,
			follower, p.Client.ID, first.Position, first.ID); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.Pool.Exec(t.Context(), `DELETE FROM dispatch_endpoints; DELETE FROM match_sweeps`); err != nil {
		t.Fatal(err)
	}
	for _, follower := range []string{"dispatcher", "match_queue"} {
		if _, err := tool(t, second, "projections", "resume", follower, "--client", string(p.Client.ID)); err != nil {
			t.Fatal(err)
		}
	}
	var queued, waiting int
	if err := f.Pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM dispatch_queue), (SELECT count(*) FROM match_queue) +
		(SELECT count(*) FROM match_sweeps WHERE everyone_before IS NOT NULL)`).Scan(&queued, &waiting); err != nil {
		t.Fatal(err)
	}
	if queued != 0 || waiting != 0 {
		t.Errorf("of the past %d deliveries are queued, and %d users or sweeps wait to be matched", queued, waiting)
	}

	s = startService(t, func(c *app.Config) {
		c.DatabaseURL, c.MasterKey, c.EpochDir = second.DatabaseURL, second.MasterKey, second.EpochKeys()
	})
	b := p
	b.account = p.logIn(s)
	b.match("cat", "dan")
	if got := b.of(r.next(t)); got != "cat+dan" {
		t.Errorf("%s is delivered", got)
	}
	b.settled(t, hook, "delivered", 1)
}

func TestALogMovesBetweenStores(t *testing.T) {
	t.Parallel()
	s := startService(t)
	a := storied(s)
	storied(s)
	pairs := pairsOf(a)
	a.spend(a.run(nil), "s", 10)
	layer := a.createLayer("age")
	a.grantAll(layer)
	for _, other := range []string{"bob", "cat", "dan"} {
		pairs.match("ann", other)
	}
	first := a.lists()
	events := a.pull("").Data
	if len(events) < 2 {
		t.Fatalf("%d events to go on from", len(events))
	}
	s.rest()

	cluster := esdbtest.StartNode(t)
	second := checkReplayed(t, s.Config, "--into-store", cluster.URL())
	second.EventStoreURL = cluster.URL()
	third := checkReplayed(t, second)
	forth := checkReplayed(t, third)
	if said, err := replayed(t, s.Config, "--into", pgtest.URL(t), "--into-store", cluster.URL()); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("into a store that is not empty: %v\n%s", err, said)
	}
	for _, config := range []app.Config{second, forth} {
		s := startService(t, func(c *app.Config) {
			c.DatabaseURL, c.EventStoreURL, c.MasterKey, c.EpochDir = config.DatabaseURL, config.EventStoreURL, config.MasterKey, config.EpochKeys()
		})
		lists := a.logIn(s).lists()
		for _, all := range []map[string][]any{first, lists} {
			for _, e := range all["history"] {
				delete(e.(map[string]any), "position")
			}
		}
		if diff := cmp.Diff(first, lists); diff != "" {
			t.Errorf("after the move (-first +moved):\n%s", diff)
		}
		if diff := cmp.Diff(events[1:], a.logIn(s).pull("?after="+idOf(t, events[0])).Data); diff != "" {
			t.Errorf("pulled behind an id from before the move (-first +moved):\n%s", diff)
		}
		s.stop()
	}
}

func TestAReplayNamesWhatDiffers(t *testing.T) {
	t.Parallel()
	s := startService(t)
	a := storied(s)
	f := openApp(t, s.Config)
	s.rest()
	if _, err := f.Pool.Exec(t.Context(), `UPDATE webhooks SET paused = NOT paused`); err != nil {
		t.Fatal(err)
	}
	into := pgtest.URL(t)
	said, err := replayed(t, s.Config, "--into", into)
	if err == nil || strings.Count(said, "\nwebhooks: webhooks ") != 2 || !strings.Contains(said, string(a.Client.ID)) || !strings.Contains(said, "users: 2 rows compared, 0 differences") {
		t.Errorf("%v\n%s", err, said)
	}
	c := s.Config
	c.DatabaseURL = into
	if err := app.Serve(t.Context(), c, slog.New(slog.DiscardHandler), app.Hashing{Cores: 1}, nil); err == nil || !strings.Contains(err.Error(), "replay") {
		t.Errorf("it serves from what is not equal: %v", err)
	}
	if _, err := f.Pool.Exec(t.Context(), `UPDATE webhooks SET paused = NOT paused`); err != nil {
		t.Fatal(err)
	}
	if said, err := replayed(t, s.Config, "--into", into); err != nil || !strings.HasSuffix(said, "\nequal\n") {
		t.Errorf("once it is repaired: %v\n%s", err, said)
	}
}

func TestAnExportBecomesAKindred(t *testing.T) {
	t.Parallel()
	s := startService(t)
	a := storied(s)
	storied(s)
	key := a.createAPIKey("read", "write").RawKey
	lists := a.lists()
	export := a.export()
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	jwks := file("jwks", s.send("GET", "/.well-known/audit-jwks.json", nil).Body)
	whole := file("export", export)

	lost := s.Config
	lost.MasterKey, lost.DataDir = "", t.TempDir()
	for _, from := range [][]string{nil, {"--from", whole, "--keys", s.Config.DatabaseURL}} {
		said, err := replayed(t, lost, append([]string{"--into", pgtest.URL(t)}, from...)...)
		if err == nil || !strings.Contains(err.Error(), "master.key is missing") {
			t.Errorf("%v without a master key: %v\n%s", from, err, said)
		}
		if made, err := os.ReadDir(lost.DataDir); err != nil || len(made) != 0 {
			t.Errorf("%v made %v (%v)", from, made, err)
		}
	}

	withKeys := s.Config
	withKeys.DatabaseURL = pgtest.URL(t)
	said, err := replayed(t, s.Config, "--into", withKeys.DatabaseURL, "--from", whole, "--keys", s.Config.DatabaseURL, "--jwks", jwks)
	if err != nil || !strings.HasSuffix(said, "\nequal\n") || !strings.Contains(said, "genuine: ") || strings.Count(said, ", 0 differences\n") != len(projections.Names()) {
		t.Fatalf("%v\n%s", err, said)
	}
	sealed := s.Config
	sealed.DatabaseURL = pgtest.URL(t)
	if said, err := replayed(t, s.Config, "--into", sealed.DatabaseURL, "--from", whole); err != nil || !strings.HasSuffix(said, "\nequal\n") {
		t.Fatalf("%v\n%s", err, said)
	}
	for name, content := range map[string][]byte{
		"cut":     export[:bytes.LastIndexByte(bytes.TrimSpace(export), '\n')+1],
		"changed": bytes.Replace(export, []byte("api_key.issued"), []byte("api_key.issues"), 1),
	} {
		into := pgtest.URL(t)
		if said, err := replayed(t, s.Config, "--into", into, "--from", file(name, content)); err == nil || !strings.Contains(err.Error(), "not whole") {
			t.Errorf("an export that is %s: %v\n%s", name, err, said)
		}
	}
	s.stop()

	for config, opened := range map[*app.Config]bool{&withKeys: true, &sealed: false} {
		s := startService(t, func(c *app.Config) {
			c.DatabaseURL, c.MasterKey, c.EpochDir = config.DatabaseURL, config.MasterKey, config.EpochKeys()
		})
		b := a.at(s).with(s.exchange(key))
		users := each[any](t, b, "/api/v1/users", 200)
		if diff := cmp.Diff(lists["user"], users); opened && diff != "" {
			t.Errorf("users (-exported +replayed):\n%s", diff)
		}
		if !opened && len(users) > 0 {
			t.Errorf("without keys there is %v", users)
		}
		b.createUser("somebody new", map[string]any{"age": 1})
		if again := each[any](t, b, "/api/v1/users", 200); len(again) != len(users)+1 {
			t.Errorf("%d users, and one more makes %d", len(users), len(again))
		}
		b.createUser("somebody-like-that", map[string]any{"age": 1})
		if found := want[httpapi.ComputedMatches](t, http.StatusOK, b.send("POST", "/api/v1/users/ext:somebody-like-that/matches", nil)); len(found.Data) == 0 {
			t.Error("nobody matches who is new")
		}
		s.stop()
	}
}

// TestAReplayThatIsKilledGoesOn kills it at every stage.
func TestAReplayThatIsKilledGoesOn(t *testing.T) {
	t.Parallel()
	s := startService(t)
	for range 3 {
		a := storied(s)
		a.importUsers(1500, func(int) string { return `{}` })
	}
	s.rest()
	into := pgtest.URL(t)
	conn, err := pgx.Connect(t.Context(), into)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.WithoutCancel(t.Context())) })
	execute := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	const built = `SELECT count(*) >= $1 FROM checkpoints WHERE position <> ''`
	models := len(projections.Names())
	for _, stage := range []struct {
		reached string
		arg     int
	}{
		{`SELECT coalesce(max(events), 0) > $1 FROM replay`, 0},
		{`SELECT coalesce(max(events), 0) > $1 FROM replay`, 2000},
		{built, 1},
		{built, models / 2},
		{built, models},
	} {
		if stage.arg == models { // its end is near, and waits for us
			execute(`BEGIN; SELECT FROM replay FOR UPDATE`)
		}
		tool := exec.Command(os.Args[0], "history", "replay", "--into", into)
		tool.Env = append(os.Environ(), asKindred+"=1", "KINDRED_DATABASE_URL="+s.Config.DatabaseURL, "KINDRED_MASTER_KEY="+s.Config.MasterKey, "KINDRED_EPOCH_DIR="+s.Config.EpochKeys())
		hold, err := tool.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := tool.Start(); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, "it is as far as that: "+stage.reached, func() (reached bool) {
			err := conn.QueryRow(t.Context(), stage.reached, stage.arg).Scan(&reached)
			return err == nil && reached
		})
		_ = tool.Process.Kill() // what it means is checked
		_ = tool.Wait()
		_ = hold.Close()
		if tool.ProcessState.Exited() {
			t.Fatalf("it ended before it could be killed (%s %d): %s", stage.reached, stage.arg, tool.ProcessState)
		}
	}
	// What waited would not notice that nobody waits for it any more.
	execute(`SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid)); ROLLBACK`)
	said, err := replayed(t, s.Config, "--into", into)
	if err != nil || !strings.HasSuffix(said, "\nequal\n") {
		t.Fatalf("%v\n%s", err, said)
	}
}
