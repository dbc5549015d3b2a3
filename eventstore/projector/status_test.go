package projector_test

import (
	"testing"

	"kindred/eventstore/projector"
	"kindred/postgres"
	"kindred/postgres/pgtest"
	"kindred/testkit"
)

// One that only answers requests has no lease.
func TestAServiceIsSeenByItsConnectionsToo(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	for name, want := range map[string]bool{projector.ToolName: false, postgres.DefaultName: true} {
		conn, err := postgres.Connect(t.Context(), pool.Config().ConnString(), name)
		if err != nil {
			t.Fatal(err)
		}
		served := func() bool {
			t.Helper()
			served, err := projector.Served(t.Context(), pool)
			if err != nil {
				t.Fatal(err)
			}
			return served
		}
		if got := served(); got != want {
			t.Errorf("beside %q: served %t", name, got)
		}
		if err := conn.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, "none is seen", func() bool { return !served() })
	}
}
