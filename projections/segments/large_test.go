package segments_test

import (
	"testing"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/testkit"

	"kindred/eventstore/projector"
)

// What is of many users takes long, so the client that does it is applied beside the others.
func TestWhatIsOfManyUsersCountsAsWhatItTakes(t *testing.T) {
	w := newSegmentFixture(t)
	layer, run := w.Define(w.Acme, "large"), id.Run("run_1")
	for _, sql := range []string{
		`INSERT INTO segment_consents (client, user_id, layer) SELECT $1, 'usr_' || n, $2 FROM generate_series(1, 10000) n`,
		`INSERT INTO segment_clustered (client, layer, segment, user_id, run, attempt, cluster, counts)
		SELECT $1, $2, '', 'usr_' || n, 'run_1', 1, 'clu_1', false FROM generate_series(1, 10000) n`,
	} {
		if _, err := w.Pool.Exec(t.Context(), sql, w.Acme, layer); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range []event.Event{
		event.ConsentLayerRetired{Layer: layer},
		event.ClusteringStarted{Run: run, Layer: layer, Attempt: 2},
		event.ClusteringAssigned{Run: run, Layer: layer, Attempt: 1, Cluster: "clu_1", Users: make([]id.User, 2_000)},
		event.ClusteringCompleted{Run: run, Layer: layer, Attempt: 1, Clusters: []event.ClusterSummary{}},
	} {
		batch, spent := w.Record(w.Acme, "large", e), 0
		tx := testkit.Must(w.Pool.Begin(t.Context()))(t)
		err := w.model.ApplyClient(t.Context(), tx, w.EventLog, w.Acme, batch, func(steps int) error {
			spent += steps
			return nil
		})
		if err != nil || spent <= projector.BatchSteps {
			t.Errorf("%T spent %d steps: %v", e, spent, err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
