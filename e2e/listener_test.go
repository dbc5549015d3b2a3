package e2e

import (
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestAServiceHearsAllNotificationsOnOneConnection(t *testing.T) {
	t.Parallel()
	s := startService(t)
	s.signUp()
	conn, err := pgx.Connect(t.Context(), s.Config.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var n int
	const count = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN %'`
	if err := conn.QueryRow(t.Context(), count).Scan(&n); err != nil || n != 1 {
		t.Errorf("%d connections listen, %v; want 1", n, err)
	}
}
