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

// Options say in what a projection departs from the others. One that has a method
// Options() Options departs in what that returns; its zero value is what the others do.
type Options struct {
	// Verbatim: it is given records as they are stored, not decoded, also of events that only
	// a newer release knows.
	Verbatim bool
	// Prompt: somebody waits for it who cannot ask, so what is to be applied is not gathered
	// for longer than a moment.
	Prompt bool
	// Gapless: it is wrong where one event is missing, because each row rests on every event
	// before it, or because what is not there counts as never recorded. A client's part stops
	// at the first event that cannot be applied, where others leave it out.
	Gapless bool

	// What follows is of read models alone.

	// KeepsDeleted: the rows of a client stay when the client is deleted.
	KeepsDeleted bool
	// AlsoForgets are tables of other packages, each with a column client, from which the rows
	// of a client that is deleted go, too.
	AlsoForgets []string
	// Indexes are those that Apply does not look into, each as DDL with IF NOT EXISTS and
	// unqualified names. A rebuild makes them once the rows are there, side by side.
	Indexes []string
	// Key is that of a model of one table, where Apply looks into it for some events only.
	Key LateKey
	// InProgress is work in the tables that follows from the log at its end alone.
	InProgress InProgress
}

// LateKey is a primary key that a rebuild makes before the first event for which Apply looks
// into it, or once the rows are there: sorted, it takes a fraction of what it does row by row.
type LateKey struct {
	DDL     string // ALTER TABLE … ADD PRIMARY KEY, with an unqualified name; empty: Schema has it
	LooksUp func(eventType string) bool
}

// InProgress is what Compare passes over, and so does Verify where something is compared in
// its place. SCHEMA is that of the table.
type InProgress struct {
	Columns   map[string]string // by "table.column" of a row t, what is compared in its place; empty: nothing
	Completed map[string]string // by table, a condition on the rows t that are compared
}

// OptionsOf are the options of a projection.
func OptionsOf(p Projection) Options {
	if departs, ok := p.(interface{ Options() Options }); ok {
		return departs.Options()
	}
	return Options{}
}

// PerClient is a projection whose events may take long, and of one client longer than of
// another: rules of many segments are judged, or what is sealed is opened. What is quick it
// applies for all clients together, and the rest for one client at a time. A client that
// spends too much there becomes slow: the leader goes on without it (see slowClients).
// Apply is not called.
type PerClient interface {
	// ApplyTogether applies what takes little, and opens nothing. A client has all of a batch
	// applied by it, or nothing, which is the rest.
	ApplyTogether(ctx context.Context, tx pgx.Tx, batch []eventstore.Recorded) (rest []eventstore.Recorded, err error)
	// ApplyClient applies the rest of a client, and says by spend what it does.
	ApplyClient(ctx context.Context, tx pgx.Tx, log *eventstore.Log, client id.Client, batch []eventstore.Recorded, spend Spend) error
}

// Apply applies events to a projection of whichever kind.
func Apply(ctx context.Context, p Projection, tx pgx.Tx, log *eventstore.Log, batch []eventstore.Recorded) error {
	return applyForgetting(ctx, p, tx, log, batch, unbounded, forgetAll, over{})
}

func apply(ctx context.Context, p Projection, tx pgx.Tx, log *eventstore.Log, batch []eventstore.Recorded, spending func(id.Client) Spend) error {
	model, ok := p.(PerClient)
	if !ok {
		return p.Apply(ctx, tx, batch)
	}
	rest, err := model.ApplyTogether(ctx, tx, batch)
	if err != nil {
		return err
	}
	byClient := map[id.Client][]eventstore.Recorded{}
	for _, r := range rest {
		byClient[r.Client] = append(byClient[r.Client], r)
	}
	for _, client := range slices.Sorted(maps.Keys(byClient)) {
		if err := model.ApplyClient(ctx, tx, log, client, byClient[client], spending(client)); err != nil {
			return err
		}
	}
	return nil
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
