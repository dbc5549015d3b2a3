package postgres_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"kindred/postgres"
	"kindred/postgres/pgtest"
	"kindred/testkit"
)

func TestSettingsOfTheURLHoldForEachSession(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := testkit.Must(postgres.Open(t.Context(), url+"&statement_timeout=7s&random_page_cost=3", postgres.Options{}))(t)
	defer pool.Close()
	config := pool.Config().ConnConfig
	postgres.Set(config, postgres.Settings{"synchronous_commit": "off"})
	conn := testkit.Must(pgx.ConnectConfig(t.Context(), config))(t)
	defer conn.Close(t.Context())
	for setting, want := range map[string]string{
		"statement_timeout": "7s", "random_page_cost": "3", "idle_in_transaction_session_timeout": "1min", "synchronous_commit": "off",
	} {
		var got string
		if err := conn.QueryRow(t.Context(), `SELECT current_setting($1)`, setting).Scan(&got); err != nil || got != want {
			t.Errorf("%s: %s (%v) instead of %s", setting, got, err, want)
		}
	}
}

func TestStatementsGoByNoSettingOfTheDatabase(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := testkit.Must(postgres.Open(t.Context(), url, postgres.Options{}))(t)
	defer pool.Close()
	name := pgx.Identifier{pool.Config().ConnConfig.Database}.Sanitize()
	for _, setting := range []string{
		`default_transaction_isolation = 'serializable'`, `search_path = 'elsewhere'`, `client_encoding = 'LATIN1'`,
		`statement_timeout = '1min'`, `lock_timeout = '1min'`, `idle_session_timeout = '1min'`, `synchronous_commit = 'off'`,
	} {
		if _, err := pool.Exec(t.Context(), `ALTER DATABASE `+name+` SET `+setting); err != nil {
			t.Fatal(err)
		}
	}
	conn := testkit.Must(postgres.Connect(t.Context(), url+"&search_path=elsewhere&client_encoding=LATIN2&default_query_exec_mode=simple_protocol&statement_cache_capacity=0", "test"))(t)
	defer conn.Close(t.Context())
	type named string
	var one string // without its type, what is a list is not known to be one
	if err := conn.QueryRow(t.Context(), `SELECT * FROM unnest($1::text[])`, []named{"é"}).Scan(&one); err != nil || one != "é" {
		t.Errorf("%q, %v", one, err)
	}
	for setting, want := range map[string]string{
		"default_transaction_isolation": "read committed", "search_path": "public", "client_encoding": "UTF8",
		"statement_timeout": "0", "lock_timeout": "0", "idle_session_timeout": "0", "synchronous_commit": "on",
	} {
		var got string
		if err := conn.QueryRow(t.Context(), `SELECT current_setting($1)`, setting).Scan(&got); err != nil || got != want {
			t.Errorf("%s: %s (%v) instead of %s", setting, got, err, want)
		}
	}
}

func TestAConnectionThatTakesNoWritesAnyMoreIsDropped(t *testing.T) {
	t.Parallel()
	pool := testkit.Must(postgres.Open(t.Context(), pgtest.URL(t), postgres.Options{MaxConns: 1}))(t)
	defer pool.Close()
	if _, err := pool.Exec(t.Context(), `SET default_transaction_read_only TO on`); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), `CREATE TABLE t (n int)`); err == nil {
		t.Fatal("a read-only session wrote")
	}
	if _, err := pool.Exec(t.Context(), `CREATE TABLE t (n int)`); err != nil {
		t.Errorf("the next one: %v", err)
	}
}

func TestAServerThatTakesNoWritesIsToldAtOnce(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	conn := testkit.Must(postgres.Connect(t.Context(), url, "test"))(t)
	defer conn.Close(t.Context())
	database := pgx.Identifier{conn.Config().Database}.Sanitize()
	if _, err := conn.Exec(t.Context(), `ALTER DATABASE `+database+` SET default_transaction_read_only TO on`); err != nil {
		t.Fatal(err)
	}
	if _, err := postgres.Open(t.Context(), url, postgres.Options{}); err == nil || !strings.Contains(err.Error(), "takes no writes") {
		t.Errorf("it says: %v", err)
	}
}

func TestAStandbyIsPassedOver(t *testing.T) {
	t.Parallel()
	primary := pgtest.Durable(t)
	standby := primary.Standby()
	pool := testkit.Must(postgres.Open(t.Context(), standby.Behind(primary.URL()), postgres.Options{MaxConns: 1}))(t)
	defer pool.Close()
	primary.Kill()
	if err := pool.Ping(t.Context()); err == nil {
		t.Error("a standby is used while the primary is away")
	}
	primary.Restart()
	if _, err := pool.Exec(t.Context(), `CREATE TABLE t (n int)`); err != nil {
		t.Error(err)
	}
}
