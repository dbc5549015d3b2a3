package projections_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/projections"
	"kindred/projections/projectionstest"
	"kindred/projections/readmodel"
	"kindred/testkit"
)

// statements are those that a pool has run.
type statements struct {
	mu   sync.Mutex
	sql  string
	args []any
}

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sql, s.args = q.SQL, q.Args
	return ctx
}

func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// plan is a node of EXPLAIN's.
type plan struct {
	Rows      float64 `json:"Actual Rows"`
	Loops     float64 `json:"Actual Loops"`
	Dropped   float64 `json:"Rows Removed by Filter"`
	Rechecked float64 `json:"Rows Removed by Index Recheck"`
	Plans     []plan
}

// most is how many rows any node of the plan has looked at.
func (p plan) most() float64 {
	rows := (p.Rows + p.Dropped + p.Rechecked) * p.Loops
	for _, below := range p.Plans {
		rows = max(rows, below.most())
	}
	return rows
}

// What is listed: 100,000 of each, of which the last is of a rare kind. The
// filters are asked for from the beginning, where nothing of that kind is.
var manyOfEach = []string{
	`
INSERT INTO users (client, id, created_position, changed, revision, erased, created_at, updated_at)
SELECT $1, 'usr_' || n, lpad(n::text, 20, '0'), lpad(n::text, 20, '0'), 0, false, 'epoch'::timestamptz + n * interval '1 s', 'epoch'::timestamptz + n * interval '1 s'
FROM generate_series(1, 100000) n`, `
INSERT INTO history_events (client, ordinal, position, stream, type, actor, recorded_at, hash)
SELECT $1, n, lpad(n::text, 20, '0'), 'user-' || n, CASE WHEN n = 100000 THEN 'rare' WHEN n % 2 = 0 THEN 'seldom' ELSE 'often' END, CASE WHEN n = 100000 THEN 'rare' WHEN n % 2 = 0 THEN 'other' ELSE 'often' END,
	'epoch'::timestamptz + n * interval '1 s', decode(repeat('00', 32), 'hex')
FROM generate_series(1, 100000) n`, `
INSERT INTO campaigns (client, id, created_position, terms, status, spent_minor, revision, created_at, updated_at, spends, impressions, engaged, clicks, conversions, reach)
SELECT $1, 'cmp_' || n, lpad(n::text, 20, '0'), '{}', CASE n WHEN 100000 THEN 'running' ELSE 'completed' END, 0, 0, 'epoch', 'epoch', 0, 0, 0, 0, 0, 0
FROM generate_series(1, 100000) n`, `
INSERT INTO runs (client, segment, id, layer, created_position, trait_paths, k, seed, status, created_at)
SELECT $1, CASE n WHEN 99999 THEN 'rare' ELSE '' END, 'run_' || n, CASE n WHEN 100000 THEN 'rare' ELSE 'often' END, lpad(n::text, 20, '0'), '{}', 0, 0, CASE n WHEN 100000 THEN 'failed' ELSE 'completed' END, 'epoch'
FROM generate_series(1, 100000) n`, `
INSERT INTO clusters (client, segment, id, layer, run, first_run, size, label, spread, distinctions, ancestors, descendants, retired, revision, formed_at, updated_at, created_position)
SELECT $1, CASE n WHEN 99999 THEN 'rare' ELSE '' END, 'clu_' || n, CASE n WHEN 100000 THEN 'rare' ELSE 'often' END, 'run_1', 'run_1', 0, '', 0, '[]', '{}', '{}', false, 0, 'epoch', 'epoch', lpad(n::text, 20, '0')
FROM generate_series(1, 100000) n`,
	`ANALYZE users, history_events, campaigns, runs, clusters`,
}

func TestAPageOfAListCostsNoMoreThanItHolds(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Users{}, projections.History{}, projections.Campaigns{}, projections.Clusters{})()
	for _, sql := range manyOfEach {
		args := []any{string(w.Acme)}
		if sql[0] == 'A' {
			args = nil
		}
		if _, err := w.Pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	seen := &statements{}
	config := w.Pool.Config()
	config.ConnConfig.Tracer = seen
	traced := testkit.Must(pgxpool.NewWithConfig(t.Context(), config))(t)
	t.Cleanup(traced.Close)
	reader := w.Reader
	reader.Pool = traced
	users, history := projections.Users{Reader: reader}, projections.History{Reader: reader}
	campaigns, clusters := projections.Campaigns{Reader: reader}, projections.Clusters{Reader: reader}

	page, running := readmodel.Page{Limit: 101}, "running"
	at := func(n int) time.Time { return time.Unix(int64(n), 0) }
	ids := make([]id.User, 200)
	for i := range ids {
		ids[i] = id.User("usr_" + string(rune('1'+i%9)))
	}
	entries := func(f projections.Filter) func() (int, error) {
		return func() (int, error) {
			found, _, err := history.List(t.Context(), w.Acme, true, f, page.Limit)
			return len(found), err
		}
	}
	chosen := func(q projections.UserQuery) func() (int, error) {
		q.Page.Limit = page.Limit
		return func() (int, error) {
			found, err := users.List(t.Context(), w.Acme, true, q)
			return len(found), err
		}
	}
	for name, list := range map[string]func() (int, error){
		"users who changed lately":    chosen(projections.UserQuery{UpdatedSince: at(100_000)}),
		"users who changed ever":      chosen(projections.UserQuery{UpdatedSince: at(0)}),
		"of which the middle":         chosen(projections.UserQuery{UpdatedSince: at(0), Page: readmodel.Page{After: "50000000000/00000000000000050000"}}),
		"users named, of all changes": chosen(projections.UserQuery{UpdatedSince: at(0), IDs: ids}),
		"events of a rare type":       entries(projections.Filter{After: -1, Type: "rare"}),
		"events of no type":           entries(projections.Filter{After: -1, Type: "none"}),
		"events of a common type":     entries(projections.Filter{After: -1, Type: "often"}),
		"events of a rare actor":      entries(projections.Filter{After: -1, Actor: "rare"}),
		"a rare actor's common type":  entries(projections.Filter{After: -1, Actor: "rare", Type: "often"}),
		"events of a stream":          entries(projections.Filter{After: -1, Stream: "user-100000"}),
		"late events":                 entries(projections.Filter{After: -1, From: at(90_000)}),
		"early events":                entries(projections.Filter{After: -1, To: at(10)}),
		"events of no time":           entries(projections.Filter{After: -1, From: at(200_000)}),
		"late events of a type":       entries(projections.Filter{After: -1, Type: "often", From: at(90_000), To: at(90_010)}),
		"a rare pair of two common":   entries(projections.Filter{After: -1, Type: "seldom", Actor: "often"}),
		"all events":                  entries(projections.Filter{After: 5}),
		"the newest events":           entries(projections.Filter{After: -1, Newest: true}),
		"the newest of a rare type":   entries(projections.Filter{After: -1, Newest: true, Type: "rare"}),
		"the newest of a stream":      entries(projections.Filter{After: -1, Newest: true, Stream: "user-1"}),
		"how many events were there by an early time": func() (int, error) {
			n, err := history.SizeAt(t.Context(), w.Acme, true, at(10))
			return exactly(11, n, err)
		},
		"how many stand up to an early position": func() (int, error) {
			n, err := history.SizeUpTo(t.Context(), w.Acme, true, "00000000000000000010")
			return exactly(11, n, err)
		},
		"campaigns of a rare status": func() (int, error) {
			found, err := campaigns.List(t.Context(), w.Acme, true, &running, page)
			return len(found), err
		},
		"runs of a rare status": func() (int, error) {
			found, err := clusters.Runs(t.Context(), w.Acme, true, projections.RunQuery{Status: "failed", Page: page})
			return len(found), err
		},
		"runs of a rare layer": func() (int, error) {
			found, err := clusters.Runs(t.Context(), w.Acme, true, projections.RunQuery{Layer: "rare", Page: page})
			return len(found), err
		},
		"clusters of a rare layer": func() (int, error) {
			found, err := clusters.List(t.Context(), w.Acme, true, event.RunScope{Layer: "rare"}, page)
			return len(found), err
		},
		"runs of a rare segment": func() (int, error) {
			found, err := clusters.Runs(t.Context(), w.Acme, true, projections.RunQuery{Segment: "rare", Page: page})
			return len(found), err
		},
		"clusters of a rare segment": func() (int, error) {
			found, err := clusters.List(t.Context(), w.Acme, true, event.RunScope{Segment: "rare"}, page)
			return len(found), err
		},
	} {
		_, err := list()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		seen.mu.Lock()
		sql, args := seen.sql, seen.args
		seen.mu.Unlock()
		most := 500.0
		switch {
		case strings.Contains(sql, "w.fits"):
			most = 5_001 // where no index serves all that a page of a history is filtered by
		case strings.Contains(sql, "1 hour"):
			most = 3_700
		}
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			if looked := rowsLookedAt(t, w.Pool, mode, sql, args); looked > most {
				t.Errorf("%s: a page looks at %v rows (%s)\n%s", name, looked, mode, sql)
			}
		}
	}
}

// A client has imported 20,000 users since the table of keys was last analyzed, when there was another alone.
var manyNewKeys = []string{
	`SET session_replication_role TO replica`, // no trigger looks for the keys above these
	`
INSERT INTO subject_keys (client, subject, id, client_key, destroyed_at)
SELECT 'cli_of_old', 'usr_old_' || n, 'old ' || n, '', 'epoch' FROM generate_series(1, 100) n`,
	`ANALYZE subject_keys`, `
INSERT INTO subject_keys (client, subject, id, client_key, destroyed_at)
SELECT $1, 'usr_' || n, 'new ' || n, '', 'epoch' FROM generate_series(1, 20000) n`, `
INSERT INTO users (client, id, created_position, changed, revision, erased, created_at, updated_at)
SELECT $1, 'usr_' || n, lpad(n::text, 20, '0'), lpad(n::text, 20, '0'), 0, false, 'epoch', 'epoch' FROM generate_series(1, 20000) n`,
	`ANALYZE users`,
	`RESET session_replication_role`,
}

func TestKeysAreFoundByTheirSubjectsHoweverNewTheClientIs(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Users{})()
	conn := testkit.Must(w.Pool.Acquire(t.Context()))(t)
	for _, sql := range manyNewKeys {
		var args []any
		if strings.Contains(sql, "$1") {
			args = []any{string(w.Acme)}
		}
		if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	conn.Release()
	seen := &statements{}
	config := w.Pool.Config()
	config.ConnConfig.Tracer = seen
	traced := testkit.Must(pgxpool.NewWithConfig(t.Context(), config))(t)
	t.Cleanup(traced.Close)
	reader := w.Reader
	reader.Pool = traced
	var reached eventstore.Position
	for _, err := range (projections.Users{Reader: reader}).AllChanged(t.Context(), w.Acme, &reached) {
		if err != nil {
			t.Fatal(err)
		}
		break // the first page was read
	}
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		if looked := rowsLookedAt(t, w.Pool, mode, seen.sql, seen.args); looked > 6000 {
			t.Errorf("a page looks at %v rows (%s)\n%s", looked, mode, seen.sql)
		}
	}
}

// exactly fails where a count is not what it should be.
func exactly(want, n int64, err error) (int, error) {
	if err == nil && n != want {
		err = fmt.Errorf("%d, not %d", n, want)
	}
	return int(n), err
}

// rowsLookedAt runs a statement as one that is prepared, and counts.
func rowsLookedAt(t *testing.T, pool *pgxpool.Pool, mode, sql string, args []any) float64 {
	t.Helper()
	tx := testkit.Must(pool.Begin(t.Context()))(t)
	defer tx.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // nothing was written
	if _, err := tx.Exec(t.Context(), `SET LOCAL plan_cache_mode TO `+mode); err != nil {
		t.Fatal(err)
	}
	var text string
	if err := tx.QueryRow(t.Context(), `EXPLAIN (ANALYZE, FORMAT JSON) `+sql, args...).Scan(&text); err != nil {
		t.Fatal(err)
	}
	var explained []struct{ Plan plan }
	if err := json.Unmarshal([]byte(text), &explained); err != nil {
		t.Fatal(err)
	}
	return explained[0].Plan.most()
}

// However little a filter selects, its pages together hold all of it.
func TestThePagesOfAFilteredHistoryMissNothing(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.History{})()
	if _, err := w.Pool.Exec(t.Context(), `
INSERT INTO history_events (client, ordinal, position, stream, type, actor, recorded_at, hash)
SELECT $1, n, lpad(n::text, 20, '0'), 'user-' || n, CASE n % 5000 WHEN 4999 THEN 'rare' ELSE 'often' END, CASE n % 5000 WHEN 4998 THEN 'bob' ELSE 'ada' END,
	'epoch'::timestamptz + (n + CASE n % 2 WHEN 0 THEN 60 ELSE 0 END) * interval '1 s', decode(repeat('00', 32), 'hex')
FROM generate_series(0, 20000) n`, string(w.Acme)); err != nil {
		t.Fatal(err)
	}
	history := projections.History{Reader: w.Reader}
	for name, tt := range map[string]struct {
		filter      projections.Filter
		want, pages int
	}{
		"a rare pair":           {projections.Filter{Type: "rare", Actor: "ada"}, 4, 5},
		"no such pair":          {projections.Filter{Type: "none", Actor: "ada"}, 0, 5},
		"between two times":     {projections.Filter{From: time.Unix(10_000, 0), To: time.Unix(10_100, 0)}, 100, 3},
		"from a time on":        {projections.Filter{From: time.Unix(19_990, 0)}, 41, 1},
		"up to a time":          {projections.Filter{To: time.Unix(100, 0)}, 70, 1},
		"of a type by an index": {projections.Filter{Type: "rare"}, 4, 1},
		"of a rare actor":       {projections.Filter{Actor: "bob"}, 4, 1},
		"his common type":       {projections.Filter{Actor: "bob", Type: "often"}, 4, 1},
		"a type he has not":     {projections.Filter{Actor: "bob", Type: "rare"}, 0, 1},
		"of a stream":           {projections.Filter{Stream: "user-77"}, 1, 1},
	} {
		for _, newest := range []bool{false, true} {
			found, pages := []int64{}, 0
			for tt.filter.After, tt.filter.Below, tt.filter.Newest = -1, 0, newest; ; {
				page, more, err := history.List(t.Context(), w.Acme, true, tt.filter, 1000)
				if err != nil {
					t.Fatal(name, err)
				}
				for _, entry := range page {
					found = append(found, entry.Ordinal)
				}
				pages++
				if more == nil {
					break
				}
				if newest {
					tt.filter.Below = *more
				} else {
					tt.filter.After = *more
				}
			}
			if newest {
				slices.Reverse(found)
			}
			if len(found) != tt.want || !slices.IsSorted(found) || pages > tt.pages {
				t.Errorf("%s, newest first %v: %d events on %d pages, not %d on %d at most", name, newest, len(found), pages, tt.want, tt.pages)
			}
		}
	}
}

func TestUsersAreListedByTheirLastChangeInPagesThatMissNobody(t *testing.T) {
	t.Parallel()
	w := projectionstest.New(t)
	w.Follow(projections.Users{})
	began := time.Now().Add(-time.Hour)
	var users []id.User
	for _, external := range []string{"a", "b", "c", "d", "e"} {
		users = append(users, w.Create(w.Acme, external, `{}`))
	}
	w.Change(w.Acme, users[1], `{"n":1}`) // a c d e b
	query := projections.UserQuery{UpdatedSince: began, Page: readmodel.Page{Limit: 2}}
	var got []string
	for page := range 5 {
		found := testkit.Must(w.Users().List(t.Context(), w.Acme, false, query))(t)
		got = append(got, projectionstest.ExternalIDs(found)...)
		if len(found) < query.Page.Limit {
			break
		}
		query.Page.After = query.Place(found[len(found)-1])
		if page == 0 {
			w.Change(w.Acme, users[0], `{"n":2}`) // was listed, and changes: it is listed again
		}
	}
	if want := []string{"a", "c", "d", "e", "b", "a"}; !slices.Equal(got, want) {
		t.Errorf("listed %v, want %v", got, want)
	}
}
