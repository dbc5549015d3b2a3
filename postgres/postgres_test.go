package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/postgres"
	"kindred/postgres/pgtest"
	"kindred/testkit"
)

func TestAPoolHasItsOptions(t *testing.T) {
	t.Parallel()
	pool, err := postgres.Open(t.Context(), pgtest.URL(t), postgres.Options{
		MaxConns: 3, SearchPath: []string{"users_v2", `odd"name`}, AppName: "reader",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for setting, want := range map[string]string{
		"application_name":                    "reader",
		"search_path":                         `users_v2, "odd""name", public`,
		"idle_in_transaction_session_timeout": "1min",
		"statement_timeout":                   "0",
	} {
		var got string
		if err := pool.QueryRow(t.Context(), `SELECT current_setting($1)`, setting).Scan(&got); err != nil {
			t.Fatal(err)
		}
		if strings.ReplaceAll(got, `"users_v2"`, "users_v2") != want {
			t.Errorf("%s: %s instead of %s", setting, got, want)
		}
	}
	if got := pool.Config().MaxConns; got != 3 {
		t.Errorf("%d connections", got)
	}
}

// A schema is made while a session looks for one behind it in its path: it is told of the first
// one, and goes on without.
func TestASchemaThatIsMadeWhileASessionLooksForOthersIsFound(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := testkit.Must(postgres.Open(t.Context(), url, postgres.Options{MaxConns: 1, SearchPath: []string{"first", "second"}}))(t)
	t.Cleanup(pool.Close)
	maker := testkit.Must(postgres.Connect(t.Context(), url, "maker"))(t)
	t.Cleanup(func() { _ = maker.Close(context.WithoutCancel(t.Context())) })
	run := func(sql string) {
		t.Helper()
		if _, err := maker.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	read := func() error {
		_, err := pool.Exec(t.Context(), `SELECT FROM numbers`)
		return err
	}
	if err := read(); err == nil {
		t.Fatal("the table is there already")
	}
	run(`CREATE SCHEMA second`)
	run(`BEGIN; LOCK TABLE pg_namespace IN ACCESS EXCLUSIVE MODE; CREATE SCHEMA first; CREATE TABLE first.numbers ()`)
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		_ = read() // it may find the table, or not
	}()
	testkit.Eventually(t, "the session looks for the second schema", func() (waits bool) {
		err := maker.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'pg_namespace'::regclass AND NOT granted)`).Scan(&waits)
		if err != nil {
			t.Fatal(err)
		}
		return waits
	})
	run(`COMMIT`)
	<-looked
	if err := read(); err != nil {
		t.Error(err)
	}
}

func TestAnUnreadableURLIsNotRepeated(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"postgres://user:hunter2@host:notaport/db",
		"postgres://user:hunter2@host/db?sslmode=hunter2",
		"host=h password=hunter2 port=hunter2",
		"postgres://user:hunter2%zz@host/db",
	} {
		_, open := postgres.Open(t.Context(), url, postgres.Options{})
		migrate := postgres.Migrate(t.Context(), url)
		for _, err := range []error{open, migrate} {
			if err == nil || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: %v", url, err)
			}
		}
	}
}

func TestAServerThatIsStartingIsKnown(t *testing.T) {
	t.Parallel()
	socket := "postgres:///none?host=" + url.QueryEscape(t.TempDir())
	listener := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	listener.Close()
	_, refused := postgres.Connect(t.Context(), "postgres://"+listener.Addr().String()+"/none", "test")
	_, missing := postgres.Connect(t.Context(), socket, "test")
	for _, c := range []struct {
		err      error
		starting bool
	}{
		{refused, true},
		{missing, true},
		{fmt.Errorf("connect: %w", &pgconn.PgError{Code: "57P03"}), true},
		{&pgconn.PgError{Code: "28P01"}, false},
		{context.DeadlineExceeded, false},
		{nil, false},
	} {
		if got := postgres.Starting(c.err); got != c.starting {
			t.Errorf("%v: starting %v", c.err, got)
		}
	}
}

func TestADatabaseThatIsNotThereIsToldAtOnce(t *testing.T) {
	t.Parallel()
	started := time.Now()
	_, err := postgres.Open(t.Context(), "postgres://user:hunter2@127.0.0.1:1/db", postgres.Options{})
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("open says: %v", err)
	}
	if took := time.Since(started); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
}

func TestAStatementThatTakesTooLongIsEnded(t *testing.T) {
	t.Parallel()
	pool := testkit.Must(postgres.Open(t.Context(), pgtest.URL(t), postgres.Options{StatementTimeout: 20 * time.Millisecond}))(t)
	t.Cleanup(pool.Close)
	var ended *pgconn.PgError
	if _, err := pool.Exec(t.Context(), `SELECT pg_sleep(600)`); !errors.As(err, &ended) || ended.Code != "57014" {
		t.Errorf("got %v", err)
	}
}

// A server whose machine vanishes says nothing, and one that takes its place can be reached:
// for that a pool has room soon after it has given up a statement.
func TestAConnectionThatFallsSilentSoonLeavesItsPlace(t *testing.T) {
	t.Parallel()
	pool, err := postgres.Open(t.Context(), pgtest.URL(t), postgres.Options{MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	config := pool.Config()
	dial, vanished, first := config.ConnConfig.DialFunc, atomic.Bool{}, sync.Once{}
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		first.Do(func() { conn = deaf{conn, &vanished} })
		return conn, err
	}
	silent, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if err := silent.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	vanished.Store(true)
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := silent.Ping(soon); err == nil {
		t.Fatal("who has vanished answers")
	}
	within, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := silent.Ping(within); err != nil {
		t.Error(err)
	}
}
