package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Settings are settings of a session, by name.
type Settings map[string]string

// startupParams are what a startup message may carry. A pooler in between refuses
// others, or takes them to be another client's.
var startupParams = []string{"application_name", "client_encoding", "datestyle", "options", "standard_conforming_strings", "timezone"}

// Set gives the connections of config settings, beside those that they have: each
// sets them, and learns whether its server takes writes, in one round trip once
// it is connected. Where the server takes none, the next one of the URL is tried.
func Set(config *pgx.ConnConfig, settings Settings) {
	before := config.ValidateConnect
	config.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if before != nil {
			if err := before(ctx, conn); err != nil {
				return err
			}
		}
		return setAll(ctx, conn, settings)
	}
}

const readOnlyTransaction = "25006" // SQLSTATE read_only_sql_transaction

// readOnlyError: the server is a standby, or takes no writes for another reason.
type readOnlyError struct{}

func (readOnlyError) Error() string {
	return "this server takes no writes: it is a standby, or default_transaction_read_only is on"
}

func setAll(ctx context.Context, conn *pgconn.PgConn, settings Settings) error {
	call, params := []string{"current_setting('transaction_read_only')", selectIdentity}, [][]byte(nil)
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		call = append(call, fmt.Sprintf("set_config($%d, $%d, false)", len(params)+1, len(params)+2))
		params = append(params, []byte(name), []byte(settings[name]))
	}
	result := conn.ExecParams(ctx, "SELECT "+strings.Join(call, ", "), params, nil, nil, nil).Read()
	switch {
	case result.Err != nil:
		return fmt.Errorf("set up the session: %w", result.Err)
	case len(result.Rows) != 1 || string(result.Rows[0][0]) != "off":
		return readOnlyError{}
	}
	conn.CustomData()[identity] = string(result.Rows[0][1])
	return nil
}

// selectIdentity names the history of commits that a server stands for: the cluster,
// and the timeline, which is another once a standby was promoted or a backup restored.
// A standby tells none.
const selectIdentity = `
CASE WHEN NOT pg_is_in_recovery() THEN (SELECT system_identifier FROM pg_control_system()) || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8) END`

const identity = "kindred: server"

// Identity names the server of a connection. One that lacks commits of another has
// another name; one that was restarted keeps its own.
func Identity(conn *pgx.Conn) string {
	name, _ := conn.PgConn().CustomData()[identity].(string)
	return name
}
