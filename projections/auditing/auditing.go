// Package auditing shows clients their history and proves it: events as they
// are stored, each with its place in the client's Merkle tree, and heads of
// that tree, signed under keys of their own. A head is signed only when the
// tree still begins with the one that was signed before.
package auditing

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/audit"
	"kindred/postgres"
	"kindred/projections"
)

// Secrets keeps private keys.
type Secrets interface {
	SealSecret(ctx context.Context, name string, plain []byte) ([]byte, error)
	OpenSecret(ctx context.Context, name string, sealed []byte) ([]byte, error)
}

// Auditor serves history. Any goroutine may use it.
type Auditor struct {
	History projections.History
	Log     *eventstore.Log
	Secrets Secrets
	Now     func() time.Time
	Entropy io.Reader
	Logger  *slog.Logger
}

const (
	// signEvery is how often heads are signed of clients that have changed: within
	// a minute of the change, since 10,000 heads take some 2 s.
	signEvery = 50 * time.Second
	// limit: models | heads that one round signs | {signAtOnce}
	signAtOnce  = 100_000 // heads of one round
	together    = 200     // heads that are read and kept in one statement each
	roundBudget = 45 * time.Second
)

const (
	lockKeys   = `SELECT pg_advisory_xact_lock(hashtextextended('kindred audit keys', 0))`
	selectKeys = `SELECT kid, public_jwk, sealed_seed FROM public.audit_keys ORDER BY created_at DESC, kid`
	// The newest signs: one that a clock behind has made is newer than those before all the same.
	insertKey = `
INSERT INTO public.audit_keys (kid, public_jwk, sealed_seed, created_at)
VALUES ($1, $2, $3, greatest($4, (SELECT max(created_at) + interval '1 microsecond' FROM public.audit_keys)))`
)

type keyRow struct {
	KID          string
	Public, Seed []byte
}

// keys returns all keys, the newest first.
func (a *Auditor) keys(ctx context.Context, db interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
},
) ([]keyRow, error) {
	rows, _ := db.Query(ctx, selectKeys) // what it fails with, its rows end with
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[keyRow])
	if err != nil {
		return nil, fmt.Errorf("read the audit keys: %w", err)
	}
	return found, nil
}

// Open makes the first key where there is none.
func (a *Auditor) Open(ctx context.Context) error { return a.makeKey(ctx, true) }

// Rotate makes a new key, which signs from now on. The old ones stay published.
func (a *Auditor) Rotate(ctx context.Context) error { return a.makeKey(ctx, false) }

func (a *Auditor) makeKey(ctx context.Context, first bool) error {
	present, err := a.keys(ctx, a.History.Pool)
	if err != nil || first && len(present) > 0 {
		return err
	}
	key, err := audit.NewKey(a.Entropy)
	if err != nil {
		return err
	}
	public, err := key.Public()
	if err != nil {
		return fmt.Errorf("publish an audit key: %w", err)
	}
	sealed, err := a.Secrets.SealSecret(ctx, secretName(key.ID), key.Seed())
	if err != nil {
		return fmt.Errorf("seal an audit key: %w", err)
	}
	return pgx.BeginFunc(ctx, a.History.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockKeys); err != nil {
			return err
		}
		present, err := a.keys(ctx, tx)
		if err != nil || first && len(present) > 0 {
			return err // somebody else was faster
		}
		_, err = tx.Exec(ctx, insertKey, key.ID, public, sealed, a.Now())
		return err
	})
}

func secretName(kid string) string { return "audit_key/" + kid }

// Published returns all public keys that ever signed, as JWKs.
func (a *Auditor) Published(ctx context.Context) ([][]byte, error) {
	rows, err := a.keys(ctx, a.History.Pool)
	if err != nil {
		return nil, err
	}
	jwks := make([][]byte, len(rows))
	for i, row := range rows {
		jwks[i] = row.Public
	}
	return jwks, nil
}

func (a *Auditor) signer(ctx context.Context) (audit.Key, error) {
	rows, err := a.keys(ctx, a.History.Pool)
	if err != nil {
		return audit.Key{}, err
	}
	if len(rows) == 0 {
		return audit.Key{}, errors.New("there is no audit key")
	}
	seed, err := a.Secrets.OpenSecret(ctx, secretName(rows[0].KID), rows[0].Seed)
	if err != nil {
		return audit.Key{}, fmt.Errorf("open audit key %s: %w", rows[0].KID, err)
	}
	return audit.KeyFromSeed(seed)
}

const (
	lastHeads = `
SELECT w.client, h.size, h.root FROM unnest($1::text[]) AS w (client)
JOIN LATERAL (SELECT size, root FROM public.audit_heads a WHERE a.client = w.client ORDER BY a.size DESC LIMIT 1) h ON true`
	insertHeads = `
INSERT INTO public.audit_heads (client, size, root, signed_at, jws)
SELECT client, size, root, $4, jws FROM unnest($1::text[], $2::bigint[], $3::bytea[], $5::text[]) AS h (client, size, root, jws)
ON CONFLICT (client, size) DO UPDATE SET signed_at = excluded.signed_at, jws = excluded.jws
WHERE audit_heads.root = excluded.root
RETURNING client`
)

// Signed is a head with its signature.
type Signed struct {
	audit.Head
	JWS string
}

// growth is a client's tree, and the root of the head that was signed before it
// was read: the zero value where there was none.
type growth struct {
	client id.Client
	before lastHead
	tree   projections.Grown
}

type lastHead struct {
	size int64
	root []byte
}

// Head signs what the history of a client is now. It fails with a fault,
// history_changed, where that does not begin with what was signed before.
// Faults: building, history_changed, overloaded, quarantined, stale.
func (a *Auditor) Head(ctx context.Context, client id.Client, eventual bool) (Signed, error) {
	g, err := a.growth(ctx, client, eventual)
	if err != nil {
		return Signed{}, err
	}
	return a.sign(ctx, g)
}

// growth reads how the history of a client has grown.
func (a *Auditor) growth(ctx context.Context, client id.Client, eventual bool) (growth, error) {
	before, err := a.last(ctx, []id.Client{client}) // first, since the tree only grows
	if err != nil {
		return growth{}, err
	}
	tree, err := a.History.Tree(ctx, client, eventual)
	return growth{client, before[client], tree}, err
}

// last returns the largest heads that were signed of clients.
func (a *Auditor) last(ctx context.Context, clients []id.Client) (map[id.Client]lastHead, error) {
	rows, _ := a.History.Pool.Query(ctx, lastHeads, clients) // what it fails with, its rows end with
	heads := make(map[id.Client]lastHead, len(clients))
	var (
		client id.Client
		head   lastHead
	)
	if _, err := pgx.ForEachRow(rows, []any{&client, &head.size, &head.root}, func() error {
		heads[client] = head
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read the last heads: %w", err)
	}
	return heads, nil
}

func (a *Auditor) sign(ctx context.Context, g growth) (Signed, error) {
	key, err := a.signer(ctx)
	if err != nil {
		return Signed{}, err
	}
	signed, err := a.signEach(ctx, key, []growth{g})
	if err != nil {
		return Signed{}, err
	}
	return signed[0], nil
}

// signEach signs and keeps heads of clients. Its error is the fault of the first
// that it leaves out: history_changed, which is logged, where the tree does not
// begin with what was signed before; stale where that cannot be seen yet.
func (a *Auditor) signEach(ctx context.Context, key audit.Key, grown []growth) ([]Signed, error) {
	sizes := map[id.Client]int64{}
	for _, g := range grown {
		if g.before.size > 0 && g.before.size <= g.tree.Size {
			sizes[g.client] = g.before.size
		}
	}
	then, err := a.History.RootsAt(ctx, sizes)
	if err != nil {
		return nil, err
	}
	now := a.Now().UTC().Truncate(time.Microsecond)
	var signed []Signed
	var left error
	for _, g := range grown {
		root, known := then[g.client]
		switch {
		case g.before.size == 0:
		case !known && g.before.size <= g.tree.Size:
			left = cmp.Or(left, projections.ErrShorter())
			continue
		case !bytes.Equal(root[:], g.before.root):
			left = cmp.Or(left, a.refuse(ctx, g.client, g.before.size))
			continue
		}
		head := audit.Head{Client: g.client, Size: g.tree.Size, Root: g.tree.Root(), SignedAt: now}
		jws, err := key.Sign(head)
		if err != nil {
			return nil, err
		}
		signed = append(signed, Signed{head, jws})
	}
	kept, err := a.keep(ctx, signed, now)
	return kept, cmp.Or(err, left)
}

// keep stores heads. It leaves out, with the fault history_changed, those that
// another root was signed for.
func (a *Auditor) keep(ctx context.Context, signed []Signed, at time.Time) ([]Signed, error) {
	var (
		clients, jws []string
		sizes        []int64
		roots        [][]byte
	)
	for _, s := range signed {
		clients, jws = append(clients, string(s.Client)), append(jws, s.JWS)
		sizes, roots = append(sizes, s.Size), append(roots, s.Root[:])
	}
	rows, _ := a.History.Pool.Query(ctx, insertHeads, clients, sizes, roots, at, jws) // what it fails with, its rows end with
	kept, err := pgx.CollectRows(rows, pgx.RowTo[id.Client])
	if err != nil {
		return nil, fmt.Errorf("keep heads: %w", err)
	}
	if len(kept) == len(signed) {
		return signed, nil
	}
	return slices.DeleteFunc(signed, func(s Signed) bool {
		refused := !slices.Contains(kept, s.Client)
		if refused {
			err = cmp.Or(err, a.refuse(ctx, s.Client, s.Size))
		}
		return refused
	}), err
}

func (a *Auditor) refuse(ctx context.Context, client id.Client, size int64) error {
	a.Logger.ErrorContext(ctx, "the history is not what was signed before; no head is signed", "client", client, "size", size)
	return fault.New(fault.Conflict, "history_changed",
		"The history of %s is not what was signed before: it was changed behind the service's back.", client)
}

const tryRound = `SELECT pg_try_advisory_xact_lock(hashtextextended('kindred audit heads', 0))`

// Run signs heads of the clients that have changed, within a minute, until ctx ends.
func (a *Auditor) Run(ctx context.Context) {
	tick := time.NewTicker(signEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := a.SignAll(ctx); err != nil && ctx.Err() == nil {
			a.Logger.WarnContext(ctx, "heads of histories not signed", "error", err)
		}
	}
}

// SignAll signs heads of all clients that have changed since the last one, as far
// as the model has come, unless another process is about it: 100,000 of them at
// most, within 45 s. Those that cannot be signed keep no other from it; its error
// tells of the first.
// Faults: stale.
func (a *Auditor) SignAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, roundBudget)
	defer cancel()
	return pgx.BeginFunc(ctx, a.History.Pool, func(tx pgx.Tx) error {
		var mine bool
		if err := tx.QueryRow(ctx, tryRound).Scan(&mine); err != nil || !mine {
			return err
		}
		clients, err := a.History.Unsigned(ctx, signAtOnce)
		if err != nil || len(clients) == 0 {
			return err
		}
		key, err := a.signer(ctx)
		if err != nil {
			return err
		}
		var failed error
		for some := range slices.Chunk(clients, together) {
			err := a.signTogether(ctx, key, some)
			if failed == nil && !fault.Is(err, "history_changed") {
				failed = err
			}
			if ctx.Err() != nil {
				break
			}
		}
		return failed
	})
}

func (a *Auditor) signTogether(ctx context.Context, key audit.Key, clients []id.Client) error {
	before, err := a.last(ctx, clients) // first, since the trees only grow
	if err != nil {
		return err
	}
	trees, err := a.History.Trees(ctx, clients)
	if err != nil {
		return err
	}
	var grown []growth
	for client, tree := range trees {
		if tree != nil { // nil: its part of the model is being replaced
			grown = append(grown, growth{client, before[client], *tree})
		}
	}
	_, err = a.signEach(ctx, key, grown)
	return err
}

// Proof shows what a head commits to.
type Proof struct {
	Signed
	Event       audit.Hash   // at the ordinal that was asked for
	Inclusion   []audit.Hash // of that event
	Consistency []audit.Hash // with the tree of the size that was asked for
}

// Prove signs a head and proves that the event at an ordinal is in it, and
// that it goes on from the tree of an earlier size; nil asks for neither.
// Faults: building, history_changed, invalid, overloaded, quarantined, stale.
func (a *Auditor) Prove(ctx context.Context, client id.Client, eventual bool, ordinal, from *int64) (Proof, error) {
	head, err := a.Head(ctx, client, eventual)
	if err != nil {
		return Proof{}, err
	}
	var wrong []fault.Field
	if ordinal != nil && *ordinal >= head.Size {
		wrong = append(wrong, fault.Field{Pointer: "ordinal", Detail: fmt.Sprintf("must be below the size, %d", head.Size)})
	}
	if from != nil && *from > head.Size {
		wrong = append(wrong, fault.Field{Pointer: "from_size", Detail: fmt.Sprintf("must be at most the size, %d", head.Size)})
	}
	if len(wrong) > 0 {
		return Proof{}, fault.NewInvalid(wrong...)
	}
	proof := Proof{Signed: head}
	err = a.History.Prove(ctx, client, func(nodes audit.Nodes) (err error) {
		if ordinal != nil {
			proof.Inclusion, err = audit.Inclusion(nodes, *ordinal, head.Size)
		}
		if from != nil && err == nil {
			proof.Consistency, err = audit.Consistency(nodes, *from, head.Size)
		}
		return err
	})
	if err == nil && ordinal != nil {
		var entries []projections.Entry
		entries, _, err = a.History.List(ctx, client, true, projections.Filter{After: *ordinal - 1, Below: *ordinal + 1}, 1)
		if len(entries) == 1 {
			proof.Event = entries[0].Hash
		}
	}
	return proof, err
}

// A head of what was not copied would say that something is missing.
const dropHeads = `
DELETE FROM public.audit_heads h WHERE size > coalesce((SELECT t.size FROM history_trees t WHERE t.client = h.client), 0)`

// CopyHeads puts the signed heads of another database, and the keys that signed them,
// in place of those that are here, as far as the history was copied.
func CopyHeads(ctx context.Context, source, to pgx.Tx) error {
	err := errors.Join(
		postgres.CopyRows(ctx, source, to, "audit_keys", "kid, public_jwk, sealed_seed, created_at", ""),
		postgres.CopyRows(ctx, source, to, "audit_heads", "client, size, root, signed_at, jws", ""))
	if err == nil {
		_, err = to.Exec(ctx, dropHeads)
	}
	if err != nil {
		return fmt.Errorf("copy the heads: %w", err)
	}
	return nil
}
