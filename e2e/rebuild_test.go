package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"kindred/app"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/projections"
	"kindred/testkit"
)

func TestARebuildDisturbsNobody(t *testing.T) {
	t.Parallel()
	s := startService(t, impatient, func(c *app.Config) { c.WebhookTimeout = 30 * time.Second }) // an attempt that is given up is made again
	f := openApp(t, s.Config)
	storm := newStorm(t, s, 2)
	storm.blow()
	storm.acknowledged(40)
	// The log grows meanwhile: to build all twice takes minutes where other tests want the processors, too.
	for _, models := range [][]string{projections.Names(), {"users", "segments", "history"}} {
		said, err := tool(t, s.Config, append([]string{"projections", "rebuild"}, models...)...)
		if err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
		for _, name := range models {
			if !strings.Contains(said, "rebuilt "+name) {
				t.Errorf("%s is not among what was rebuilt:\n%s", name, said)
			}
		}
	}
	storm.acknowledged(20)
	storm.calm()
	storm.audit(f, s)
	made := storm.inbox.all()
	for what, times := range made {
		if times > 1 {
			t.Errorf("delivered %d times: %+v", times, what)
		}
	}
	testkit.Eventually(t, "the delivery log has each delivery", func() bool {
		var logged int
		err := f.Pool.QueryRow(t.Context(), `SELECT count(*) FROM dispatch_deliveries WHERE state = 'delivered'`).Scan(&logged)
		return err == nil && logged == len(made)
	})
	s.stop()
	checkRebuilt(t, f)
}

// TestVerifyNamesWhatDiffers changes rows of live read models behind the
// service's back.
func TestVerifyNamesWhatDiffers(t *testing.T) {
	t.Parallel()
	s := startService(t, pooled(t))
	a := storied(s)
	kept := a.createUser("kept", map[string]any{})
	f := openApp(t, s.Config)
	caughtUp(t, f)
	verify := func() (string, error) {
		return tool(t, s.Config, "projections", "verify", "users", "webhooks", "history")
	}
	if said, err := verify(); err != nil || strings.Count(said, " 0 differences") != 3 || strings.Contains(said, ": 0 rows") {
		t.Fatalf("%v\n%s", err, said)
	}
	for _, sql := range []string{
		`UPDATE users SET updated_at = updated_at + interval '1 second' WHERE id = '` + string(kept.ID) + `'`,
		`DELETE FROM webhooks`,
	} {
		if done, err := f.Pool.Exec(t.Context(), sql); err != nil || done.RowsAffected() != 1 {
			t.Fatal(done, err)
		}
	}
	said, err := verify()
	if err == nil || strings.Count(said, string(kept.ID)) != 2 || !strings.Contains(said, "users: ") ||
		!strings.Contains(said, "webhooks: webhooks lacks a row") || !strings.Contains(said, " 2 differences") {
		t.Errorf("%v\n%s", err, said)
	}
	a.createUser("still served", map[string]any{})
}

// checkRebuilt checks that every read model holds, row by row, what a rebuild
// from the log makes.
func checkRebuilt(t testing.TB, f *app.App) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	var leading sync.WaitGroup
	for _, model := range projections.All() {
		// A service that has stopped may have told of its last deliveries after its read models had ended.
		leading.Go(func() {
			if err := f.Runner.Run(ctx, model); err != nil {
				t.Errorf("%s: %v", model.Name(), err)
			}
		})
	}
	defer leading.Wait()
	defer end()
	for _, model := range projections.All() {
		if diff := rebuilt(t, f, model); diff != "" {
			t.Errorf("%s differs from its rebuild (-live +rebuilt):\n%.3000s", model.Name(), diff)
		}
	}
}

// rebuilt rebuilds a model and says how the rows of before differ from it,
// unless the log has grown meanwhile.
func rebuilt(t testing.TB, f *app.App, model projector.ReadModel) string {
	t.Helper()
	head := func() eventstore.Position {
		at, err := f.Log.Store.Head(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	for range 20 {
		caughtUp(t, f)
		from := head()
		before := rows(t, f, model)
		if err := f.Runner.Rebuild(t.Context(), model, nil); err != nil {
			t.Fatal(err)
		}
		diff := cmp.Diff(before, rows(t, f, model))
		if diff == "" || head() == from {
			return diff
		}
	}
	t.Fatalf("the log never stands still for a rebuild of %s", model.Name())
	return ""
}

// rows is every row of a read model's tables, as text.
func rows(t testing.TB, f *app.App, model projector.ReadModel) map[string][]string {
	t.Helper()
	schema := projector.ID(model)
	found, err := f.Pool.Query(t.Context(), `SELECT tablename FROM pg_tables WHERE schemaname = $1`, schema)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(found, pgx.RowTo[string])
	if err != nil || len(tables) == 0 {
		t.Fatalf("the tables of %s: %v %v", schema, tables, err)
	}
	all := map[string][]string{}
	for _, table := range tables {
		sql := fmt.Sprintf(`SELECT t::text FROM %s t ORDER BY 1`, pgx.Identifier{schema, table}.Sanitize())
		found, err := f.Pool.Query(t.Context(), sql)
		if err != nil {
			t.Fatal(err)
		}
		if all[table], err = pgx.CollectRows(found, pgx.RowTo[string]); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// The lease of a process that was killed ends within seconds: who runs the tool again meanwhile waits for that.
func TestWhatAKilledToolHeldIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := startService(t)
	f := openApp(t, s.Config)
	client := string(s.signUp().Client.ID)
	for _, test := range []struct {
		lease string
		line  []string
		fails string
	}{
		{"users_3_rebuild", []string{"rebuild", "users"}, ""},
		{"users_3_verify", []string{"verify", "users"}, ""},
		{"dispatcher_" + client, []string{"resume", "dispatcher", "--client", client}, "nothing was left out of it"},
	} {
		_, err := f.Pool.Exec(t.Context(), `
INSERT INTO leases (name, holder, epoch, expires_at) VALUES ($1, 'killed', 1, clock_timestamp() + interval '2.5 s')`, test.lease)
		if err != nil {
			t.Fatal(err)
		}
		_, err = tool(t, s.Config, append([]string{"projections"}, test.line...)...)
		if (err != nil) != (test.fails != "") || err != nil && !strings.Contains(err.Error(), test.fails) {
			t.Errorf("%s: %v", test.line, err)
		}
	}
}
