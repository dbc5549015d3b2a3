package projections_test

import (
	"fmt"
	"testing"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore/projector"
	"kindred/projections"
	"kindred/projections/projectionstest"
	"kindred/testkit"
)

// What ends for many users of a client at once is done beside what others do: here it waits
// for a row that is locked, and they do not.
func TestWhatEndsForManyUsersKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	const many = 10_000
	run := id.Run("run_new")
	members := func(ran id.Run) string {
		return fmt.Sprintf(`INSERT INTO cluster_members (client, layer, segment, run, cluster, user_id)
			SELECT $1, $2, '', '%s', 'clu_1', 'usr_' || n FROM generate_series(1, %d) n`, ran, many)
	}
	for _, tt := range []struct {
		name  string
		model projector.ReadModel
		large string // inserts what the layer has
		table string
		ends  func(layer id.ConsentLayer) event.Event
	}{
		{
			"consents of a layer",
			projections.Consent{},
			fmt.Sprintf(`INSERT INTO consents (client, layer, user_id, granted, changed, changed_at)
			SELECT $1, $2, 'usr_' || n, true, lpad(n::text, 20, '0'), now() FROM generate_series(1, %d) n`, many), "consents",
			func(layer id.ConsentLayer) event.Event { return event.ConsentLayerRetired{Layer: layer} },
		},
		{
			"members of a layer",
			projections.Clusters{},
			members("run_old"), "cluster_members",
			func(layer id.ConsentLayer) event.Event { return event.ConsentLayerRetired{Layer: layer} },
		},
		{
			"members of an older run",
			projections.Clusters{},
			members("run_old"), "cluster_members",
			func(layer id.ConsentLayer) event.Event {
				return event.ClusteringCompleted{Run: run, Layer: layer, Attempt: 1, Clusters: []event.ClusterSummary{}}
			},
		},
		{
			"members of an attempt",
			projections.Clusters{},
			members(run), "cluster_members",
			func(layer id.ConsentLayer) event.Event {
				return event.ClusteringStarted{Run: run, Layer: layer, Attempt: 2}
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := projectionstest.New(t)
			has := func(table string, client id.Client) (found bool) {
				if err := w.Pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM `+table+` WHERE client = $1)`, client).Scan(&found); err != nil {
					t.Error(err)
				}
				return found
			}
			w.Follow(tt.model)
			layer := w.Define(w.Acme, "large")
			if _, err := w.Pool.Exec(t.Context(), tt.large, w.Acme, layer); err != nil {
				t.Fatal(err)
			}
			locked := testkit.Must(w.Pool.Begin(t.Context()))(t)
			defer func() { _ = locked.Rollback(t.Context()) }()
			if _, err := locked.Exec(t.Context(), `SELECT FROM `+tt.table+` WHERE client = $1 AND user_id = 'usr_1' FOR UPDATE`, w.Acme); err != nil {
				t.Fatal(err)
			}

			w.Record(w.Acme, "runs", tt.ends(layer))
			others := w.Define(w.Bolt, "other")
			w.Grant(w.Bolt, others, "usr_other", true)
			w.Record(w.Bolt, "runs", event.ClusteringRequested{Run: "run_other", Layer: others, TraitPaths: []string{"age"}})

			table := map[string]string{"consent": "consents", "clusters": "runs"}[tt.model.Name()]
			testkit.Eventually(t, "the other client's event is applied", func() bool { return has(table, w.Bolt) })
			if !has(tt.table, w.Acme) {
				t.Error("the rows went though one was locked")
			}
			if err := locked.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, "the rows are gone", func() bool { return !has(tt.table, w.Acme) })
		})
	}
}
