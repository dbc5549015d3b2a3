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
)

func TestASnapshotMayIdle(t *testing.T) {
	t.Parallel()
	master, err := seal.GenerateMasterKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string]string{"KINDRED_DATABASE_URL": pgtest.URL(t), "KINDRED_DATA_DIR": t.TempDir(), "KINDRED_MASTER_KEY": master}
	config, err := app.ReadConfig(func(name string) string { return settings[name] })
	if err != nil {
		t.Fatal(err)
	}
	a, err := app.Open(t.Context(), config, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
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
