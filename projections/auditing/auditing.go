// Package auditing shows clients their history and proves it: events as they
// are stored, each with its place in the client's Merkle tree, and heads of
// that tree, signed under keys of their own. A head is signed only when the
// tree still begins with the one that was signed before.
package auditing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/audit"
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
	signEvery   = time.Minute // how often heads are signed of clients that have changed
	signAtOnce  = 1000        // heads of one round
	sweepBudget = 50 * time.Second
)

const (
	lockKeys   = `SELECT pg_advisory_xact_lock(hashtextextended('kindred audit keys', 0))`
	selectKeys = `SELECT kid, public_jwk, sealed_seed FROM public.audit_keys ORDER BY created_at DESC, kid`
	insertKey  = `INSERT INTO public.audit_keys (kid, public_jwk, sealed_seed, created_at) VALUES ($1, $2, $3, $4)`
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
	rows, err := db.Query(ctx, selectKeys)
	if err != nil {
		return nil, fmt.Errorf("read the audit keys: %w", err)
	}
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
	lastHead   = `SELECT size, root FROM public.audit_heads WHERE client = $1 ORDER BY size DESC LIMIT 1`
	insertHead = `
INSERT INTO public.audit_heads (client, size, root, signed_at, jws) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (client, size) DO UPDATE SET signed_at = excluded.signed_at, jws = excluded.jws
WHERE audit_heads.root = excluded.root`
)

// Signed is a head with its signature.
type Signed struct {
	audit.Head
	JWS string
}

// Head signs what the history of a client is now. It fails with a fault,
// history_changed, where that does not begin with what was signed before.
func (a *Auditor) Head(ctx context.Context, client id.Client, eventual bool) (Signed, error) {
	before, err := a.last(ctx, client) // first, since the tree only grows
	if err != nil {
		return Signed{}, err
	}
	tree, err := a.History.Tree(ctx, client, eventual)
	if err != nil {
		return Signed{}, err
	}
	return a.sign(ctx, client, before, tree)
}

// last is the largest head that was signed; the zero Head where there is none.
func (a *Auditor) last(ctx context.Context, client id.Client) (audit.Head, error) {
	head := audit.Head{Client: client}
	var root []byte
	err := a.History.Pool.QueryRow(ctx, lastHead, string(client)).Scan(&head.Size, &root)
	if errors.Is(err, pgx.ErrNoRows) {
		return head, nil
	}
	if err != nil {
		return head, fmt.Errorf("read the last head: %w", err)
	}
	if len(root) != len(head.Root) {
		return head, a.refuse(ctx, client, head.Size)
	}
	head.Root = audit.Hash(root)
	return head, nil
}

func (a *Auditor) sign(ctx context.Context, client id.Client, before audit.Head, tree projections.Grown) (Signed, error) {
	if err := a.unchanged(ctx, before, tree); err != nil {
		return Signed{}, err
	}
	key, err := a.signer(ctx)
	if err != nil {
		return Signed{}, err
	}
	head := audit.Head{Client: client, Size: tree.Size, Root: tree.Root(), SignedAt: a.Now().UTC().Truncate(time.Microsecond)}
	jws, err := key.Sign(head)
	if err != nil {
		return Signed{}, err
	}
	done, err := a.History.Pool.Exec(ctx, insertHead, string(client), head.Size, head.Root[:], head.SignedAt, jws)
	if err != nil {
		return Signed{}, fmt.Errorf("keep a head: %w", err)
	}
	if done.RowsAffected() == 0 {
		return Signed{}, a.refuse(ctx, client, head.Size)
	}
	return Signed{head, jws}, nil
}

// unchanged checks that a tree begins with the one that was signed before.
func (a *Auditor) unchanged(ctx context.Context, before audit.Head, tree projections.Grown) error {
	if before.Size == 0 {
		return nil
	}
	var now audit.Hash
	if before.Size <= tree.Size {
		if err := a.History.Prove(ctx, before.Client, func(nodes audit.Nodes) { now = audit.RootAt(nodes, before.Size) }); err != nil {
			return err
		}
	}
	if now != before.Root {
		return a.refuse(ctx, before.Client, before.Size)
	}
	return nil
}

func (a *Auditor) refuse(ctx context.Context, client id.Client, size int64) error {
	a.Logger.ErrorContext(ctx, "the history is not what was signed before; no head is signed", "client", client, "size", size)
	return changed(client)
}

func changed(client id.Client) error {
	return fault.New(fault.Conflict, "history_changed",
		"The history of %s is not what was signed before: it was changed behind the service's back.", client)
}

const trySweep = `SELECT pg_try_advisory_xact_lock(hashtextextended('kindred audit heads', 0))`

// Run signs heads of the clients that have changed, each minute, until ctx ends.
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

// SignAll signs heads of clients that have changed since the last one, unless
// another process is about it: a thousand of them at most, within a minute. Its
// error tells of the first that could not be signed: it keeps no other from it.
func (a *Auditor) SignAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sweepBudget)
	defer cancel()
	return pgx.BeginFunc(ctx, a.History.Pool, func(tx pgx.Tx) error {
		var mine bool
		if err := tx.QueryRow(ctx, trySweep).Scan(&mine); err != nil || !mine {
			return err
		}
		clients, err := a.History.Unsigned(ctx, tx, signAtOnce)
		if err != nil {
			return err
		}
		var failed error
		for _, client := range clients {
			_, err := a.Head(ctx, client, false)
			if err != nil && failed == nil && !fault.Is(err, "history_changed") {
				failed = fmt.Errorf("sign the head of %s: %w", client, err)
			}
			if ctx.Err() != nil {
				break
			}
		}
		return failed
	})
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
	err = a.History.Prove(ctx, client, func(nodes audit.Nodes) {
		if ordinal != nil {
			proof.Inclusion = audit.Inclusion(nodes, *ordinal, head.Size)
		}
		if from != nil {
			proof.Consistency = audit.Consistency(nodes, *from, head.Size)
		}
	})
	if err == nil && ordinal != nil {
		var entries []projections.Entry
		entries, err = a.History.List(ctx, client, true, projections.Filter{After: *ordinal - 1, Below: *ordinal + 1}, 1)
		if len(entries) == 1 {
			proof.Event = entries[0].Hash
		}
	}
	return proof, err
}
