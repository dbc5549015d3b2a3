// Package postgres gives the service its one database: a pool with bounded waits,
// a schema that only moves forward and is never guessed at, and, where no database
// is configured, a private local server that no network can reach.
package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// DefaultMaxConns is for a pool that asks for no number.
	DefaultMaxConns = 16
	// DefaultName is for a pool that asks for none: a service's.
	DefaultName     = "kindred"
	statementCache  = 512 // of a connection, as pgx has it; it cannot do without
	connectTimeout  = 5 * time.Second
	idleInTxTimeout = "60s"
	// closeTimeout bounds how long a connection of a pool is listened to once it is given up. It
	// keeps its place in the pool until then: for 15 s, if it were for pgx.
	closeTimeout = 2 * time.Second
	// vanishedAfter is how long a peer may confirm nothing, asked or sent something, until it is taken
	// to have vanished: whatever waits for it fails then, a transaction or a LISTEN too.
	// limit: log | silence of the database after which its connections are given up | {vanishedAfter}
	vanishedAfter  = 20 * time.Second
	randomPageCost = "1.1" // no disk has to turn: a page of a list is read along its index, not sorted
)

// Options are what callers of [Open] may differ in. The zero value is the default.
type Options struct {
	MaxConns   int32    // 0 means 16
	SearchPath []string // schemas that are searched before public
	AppName    string   // seen in pg_stat_activity; empty means DefaultName

	// StatementTimeout is when the server ends a statement; 0: it does not.
	StatementTimeout time.Duration
}

// Open opens a pool on url and makes sure that the database answers. Statements
// are prepared once per connection and cached; connecting takes at most 5 s, of which
// each server in url has its share, and a transaction that idles for 60 s is ended by the
// server. Deadlines of statements are the callers', through their contexts.
//
// Of several servers in url, and of one, only a primary is used: what was just
// written must be read. A connection whose server takes no writes any more is closed.
func Open(ctx context.Context, url string, o Options) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errBadURL
	}
	config.MaxConns = cmp.Or(o.MaxConns, DefaultMaxConns)
	config.MaxConnLifetime = 30 * time.Minute
	config.MaxConnLifetimeJitter = 5 * time.Minute
	config.MaxConnIdleTime = 5 * time.Minute
	configure(config.ConnConfig, cmp.Or(o.AppName, DefaultName))
	if len(o.SearchPath) > 0 {
		Set(config.ConnConfig, Settings{"search_path": searchPath(o.SearchPath)})
		findAgain(config)
	}
	if o.StatementTimeout > 0 {
		Set(config.ConnConfig, Settings{"statement_timeout": strconv.FormatInt(o.StatementTimeout.Milliseconds(), 10)})
	}
	config.BeforeClose = func(conn *pgx.Conn) {
		silent := conn.PgConn().Conn()
		time.AfterFunc(closeTimeout, func() { _ = silent.Close() }) // mostly it is closed by then
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("reach database: %w", err)
	}
	return pool, nil
}

// errBadURL names no part of the URL, nor the parser's words: both may hold a password.
var errBadURL = errors.New("the database URL is not a PostgreSQL connection URL")

// Starting says whether a server that could not be reached may be about to start: nobody
// listens yet, or it says so itself, as while it recovers from a crash.
func Starting(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "57P03" {
		return true
	}
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT) // of a socket
}

// Connect opens a single connection, for work that needs a session of its own.
func Connect(ctx context.Context, url, appName string) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, errBadURL
	}
	configure(config, appName)
	return pgx.ConnectConfig(ctx, config)
}

func configure(config *pgx.ConnConfig, appName string) {
	config.ConnectTimeout = connectTimeout / time.Duration(hosts(config)) // which is for each of them
	dial := dialer(vanishedAfter).DialContext
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, config.ConnectTimeout) // also to have a statement cancelled
		defer cancel()
		return dial(ctx, network, address)
	}
	settings := Settings{
		"idle_in_transaction_session_timeout": idleInTxTimeout,
		"random_page_cost":                    randomPageCost,
		// Of a role or a database: a model of millions is indexed and analyzed for as long as that takes, and who listens is idle.
		"statement_timeout":    "0",
		"lock_timeout":         "0",
		"idle_session_timeout": "0",
		"synchronous_commit":   "on", // what is acknowledged stands on the disk, and on the standby
	}
	for name, value := range config.RuntimeParams { // of the URL
		if !slices.Contains(startupParams, strings.ToLower(name)) {
			settings[name] = value
			delete(config.RuntimeParams, name)
		}
	}
	config.RuntimeParams["application_name"] = appName
	// Statements rely on these, whatever the role, the database or the URL has set.
	config.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement // others guess what an argument is
	config.StatementCacheCapacity = cmp.Or(config.StatementCacheCapacity, statementCache)
	settings["client_encoding"] = "UTF8" // what pgx sends and reads
	settings["default_transaction_isolation"] = "read committed"
	settings["search_path"] = "public" // a schema that is called like the role would come first
	Set(config, settings)
	config.OnNotice = noteWarning
	onError := config.OnPgError
	config.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		return err.Code != readOnlyTransaction && (onError == nil || onError(conn, err))
	}
}

// dialer connects to peers that are given up when they have been silent for so long.
func dialer(silence time.Duration) *net.Dialer {
	return &net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: silence / 2, Interval: silence / 4, Count: 2},
		Control:         giveUp(silence),
	}
}

// hosts counts the servers that config names.
func hosts(config *pgx.ConnConfig) int {
	all := map[string]bool{net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))): true}
	for _, other := range config.Fallbacks { // some are the same server without TLS
		all[net.JoinHostPort(other.Host, strconv.Itoa(int(other.Port)))] = true
	}
	return len(all)
}

const (
	undefinedTable = "42P01" // SQLSTATE
	missed         = "kindred: missed a table"
	setPathAnew    = `SELECT set_config('search_path', current_setting('search_path'), false)`
)

// findAgain has a connection that misses a table look for the schemas of its path anew before
// it is used again. A session of Postgres keeps which of them are there until it is told of
// another one; where that is made while it looks for those behind it in the path, it takes
// what it was told to be known, and does not see the schema until one more is made or dropped.
func findAgain(config *pgxpool.Config) {
	onError := config.ConnConfig.OnPgError
	config.ConnConfig.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		if err.Code == undefinedTable {
			conn.CustomData()[missed] = true
		}
		return onError(conn, err)
	}
	config.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) {
		known := conn.PgConn().CustomData()
		if known[missed] == nil {
			return true, nil
		}
		delete(known, missed)
		_, err := conn.Exec(ctx, setPathAnew)
		return err == nil, nil // else it is closed, and another one taken
	}
}

func searchPath(schemas []string) string {
	quoted := make([]string, 0, len(schemas)+1)
	for _, schema := range schemas {
		quoted = append(quoted, pgx.Identifier{schema}.Sanitize())
	}
	return strings.Join(append(quoted, "public"), ", ")
}
