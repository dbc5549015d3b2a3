package cli

import (
	"crypto/rand"
	"io"
	"log/slog"
	"testing"

	"kindred/app"
	"kindred/eventstore"
	"kindred/eventstore/seal"
	"kindred/postgres/pgtest"
	"kindred/testkit"
)

func TestASnapshotMayIdle(t *testing.T) {
	t.Parallel()
	master := testkit.Must(seal.GenerateMasterKey(rand.Reader))(t)
	settings := map[string]string{"KINDRED_DATABASE_URL": pgtest.URL(t), "KINDRED_DATA_DIR": t.TempDir(), "KINDRED_MASTER_KEY": master}
	config := testkit.Must(app.ReadConfig(func(name string) string { return settings[name] }))(t)
	a := testkit.Must(app.Open(t.Context(), config, slog.New(slog.DiscardHandler)))(t)
	defer a.Close()
	r := replaying{to: a, out: io.Discard, errs: io.Discard}
	if err := r.buildModels(t.Context()); err != nil {
		t.Fatal(err)
	}
	still, _, err := standing(t.Context(), a.Pool, eventstore.Start)
	if err != nil {
		t.Fatal(err)
	}
	defer still.end(t.Context())
	var isolation, idle string
	const settingsNow = `SELECT current_setting('transaction_isolation'), current_setting('idle_in_transaction_session_timeout')`
	if err := still.tx.QueryRow(t.Context(), settingsNow).Scan(&isolation, &idle); err != nil || isolation != "repeatable read" || idle != "0" {
		t.Errorf("%s, it may idle for %s (%v)", isolation, idle, err)
	}
}
