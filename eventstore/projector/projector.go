// Package projector follows the log in order, exactly once where the effects stand
// in Postgres and at least once elsewhere: what a follower has done and how
// far it has come are one transaction, and only its one leader can write it.
package projector

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"kindred/domain/id"
	"kindred/eventstore"
)

// MaxBatch bounds the events of one transaction; MaxBulk those of one in a
// rebuild.
const (
	// limit: models | events of one transaction | {MaxBatch}, {MaxBulk} in a rebuild
	MaxBatch = 1000
	MaxBulk  = 2500
)

// Projection applies events to tables of its own.
type Projection interface {
	// Name is lower-case letters, digits and underscores.
	Name() string
	// Version counts the shapes of a read model's tables. It means nothing
	// for what is not a ReadModel.
	Version() int
	// Apply applies at most MaxBulk events, in order, within tx. It is called
	// again with the same events only after tx was rolled back. An error that
	// is neither the database's trouble nor Transient stops the client whose
	// event it came from.
	Apply(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) error
}

// Selective is a projection that most events do not concern: what it does not
// want is passed over, neither decoded nor applied.
type Selective interface {
	Wants(eventType string) bool
}

// Verbatim is a projection of events as they are stored: it is given their
// records, not decoded, also of those that only a newer release knows.
type Verbatim interface{ Verbatim() }

// Prompt is a projection that somebody waits for who cannot ask: what is to be
// applied is not gathered for longer than a moment.
type Prompt interface{ Prompt() }

// Opener is a projection, divided by client, in which events take more or less from client
// to client, such as what is sealed, which the log opens: it is given the events of one at a
// time, and says by spend what it does for it.
type Opener interface {
	// ApplyUnopened applies what takes little, and nothing opened, of all clients at once: a client
	// has all of a batch applied by it, or nothing, which is the rest.
	ApplyUnopened(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) (rest []eventstore.Recorded, err error)
	ApplyOpening(ctx context.Context, tx pgx.Tx, log *eventstore.Log, client id.Client, batch []eventstore.Recorded, spend Spend) error
}

// Apply applies events to a projection of whichever kind.
func Apply(ctx context.Context, p Projection, tx pgx.Tx, log *eventstore.Log, batch []eventstore.Recorded) error {
	return applyForgetting(ctx, p, tx, log, batch, unbounded, forgetAll)
}

func apply(ctx context.Context, p Projection, tx pgx.Tx, log *eventstore.Log, batch []eventstore.Recorded, spending func(id.Client) Spend) error {
	opener, ok := p.(Opener)
	if !ok {
		return p.Apply(ctx, tx, batch)
	}
	rest, err := opener.ApplyUnopened(ctx, tx, batch)
	if err != nil {
		return err
	}
	byClient := map[id.Client][]eventstore.Recorded{}
	for _, r := range rest {
		byClient[r.Client] = append(byClient[r.Client], r)
	}
	for _, client := range slices.Sorted(maps.Keys(byClient)) {
		if err := opener.ApplyOpening(ctx, tx, log, client, byClient[client], spending(client)); err != nil {
			return err
		}
	}
	return nil
}

// InProgress is a read model with work in its tables that follows from the log at its
// end alone: Compare passes over that, and so does Verify where something is compared in its place.
type InProgress interface {
	// InProgress says what is compared in the place of columns, "table.column", of a row t (empty:
	// nothing), and by table a condition on the rows t that are compared. SCHEMA is that of the table.
	InProgress() (columns, completed map[string]string)
}

// ReadModel is a projection whose tables hold nothing but what the log says,
// so that they can be built anew at any time. They live in a schema of their
// own, named by ID.
type ReadModel interface {
	Projection
	// Schema is the DDL of the tables, with unqualified names, of which no other model
	// has one: models read each other's. Columns that hold positions are of the domain
	// log_position.
	Schema() string
}

// LateIndexed is a read model with indexes that Apply does not look into: a
// rebuild makes them once the rows are there, side by side.
type LateIndexed interface {
	// Indexes is the DDL of each, with IF NOT EXISTS and unqualified names.
	Indexes() []string
}

// LateKeyed is a read model of one table whose key Apply looks into for some
// events only. A rebuild makes it before the first of them, or once the rows
// are there: sorted, it takes a fraction of what it does row by row.
type LateKeyed interface {
	// Key is its DDL, ALTER TABLE … ADD PRIMARY KEY, with an unqualified name.
	Key() string
	// LooksUp says whether Apply looks into it for events of a type.
	LooksUp(eventType string) bool
}

// isName says whether s can name a projection. Reads ask that of every request.
func isName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (i == 0 || c != '_' && (c < '0' || c > '9')) {
			return false
		}
	}
	return len(s) > 0 && len(s) <= maxName
}

// limit: models | name of a projection | {maxName} bytes
const maxName = 41 // bytes of a projection's name

// ID names the checkpoint of a projection and, for a read model, the schema
// of its tables: "<name>_<version>". What is no read model keeps its place
// from version to version, under its bare name.
func ID(p Projection) string {
	if !isName(p.Name()) {
		panic(fmt.Sprintf("projector: %q is not a name for a projection", p.Name()))
	}
	if _, ok := p.(ReadModel); ok {
		return p.Name() + "_" + strconv.Itoa(p.Version())
	}
	return p.Name()
}

// SearchPath lists the schemas of read models, for the search path of pools
// that read them.
func SearchPath(models ...ReadModel) []string {
	path := make([]string, len(models))
	for i, m := range models {
		path[i] = ID(m)
	}
	return path
}

func quote(identifier string) string { return pgx.Identifier{identifier}.Sanitize() }
