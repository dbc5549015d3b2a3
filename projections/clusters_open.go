package projections

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/projections/readmodel"
)

// OpenRun is a run that has not ended.
type OpenRun struct {
	Client id.Client
	Run
}

// maxOpenRuns bounds how many clients OpenRuns returns a run of: those whose runs have waited
// the longest, so that each client's turn comes.
// limit: models | clients of whose runs one look takes one | {maxOpenRuns}, whose runs are the oldest
const maxOpenRuns = 1_000

const openRuns = `
SELECT * FROM (
	SELECT DISTINCT ON (client) client, id, layer, trait_paths, k, seed, created_at, created_position, min_size, attempt, segment
	FROM runs WHERE status IN ('pending', 'running') AND NOT id = ANY($1) ORDER BY client, created_position
) r ORDER BY created_position LIMIT $2`

const unjudgedRuns = `
SELECT * FROM (
	SELECT DISTINCT ON (client) client, id, layer, trait_paths, k, seed, created_at, created_position, min_size, attempt, segment
	FROM runs WHERE status = 'completed' AND judged IS NULL AND NOT id = ANY($1) ORDER BY client, created_position
) r ORDER BY created_position LIMIT $2`

// OpenRuns returns, of each client, the oldest run that has not ended and is
// not among those given; none while the read model is yet to be made.
func (m Clusters) OpenRuns(ctx context.Context, except []id.Run) ([]OpenRun, error) {
	return m.openRuns(ctx, openRuns, except)
}

// UnjudgedRuns returns, of each client, the oldest completed run that is to be judged and
// is not among those given; none while the read model is yet to be made.
func (m Clusters) UnjudgedRuns(ctx context.Context, except []id.Run) ([]OpenRun, error) {
	return m.openRuns(ctx, unjudgedRuns, except)
}

func (m Clusters) openRuns(ctx context.Context, sql string, except []id.Run) ([]OpenRun, error) {
	return readmodel.OfAll(ctx, m.Reader, func(row pgx.CollectableRow) (r OpenRun, err error) {
		err = row.Scan(readmodel.Text(&r.Client), readmodel.Text(&r.ID), readmodel.Text(&r.Layer), &r.TraitPaths, &r.K, &r.Seed, &r.CreatedAt, readmodel.Text(&r.CreatedPosition), &r.MinSize, &r.Attempt, readmodel.Text(&r.Segment))
		return r, err
	}, sql, readmodel.Texts(except), maxOpenRuns)
}

// Runs that are not there any more went with their client.
const endedRuns = `
SELECT w.run FROM unnest($1::text[], $2::text[]) AS w (client, run) LEFT JOIN LATERAL (
	SELECT status FROM runs WHERE client = w.client AND id = w.run LIMIT 1) r ON true
WHERE coalesce(r.status, '') NOT IN ('pending', 'running')`

const judgedRuns = `
SELECT w.run FROM unnest($1::text[], $2::text[]) AS w (client, run) LEFT JOIN LATERAL (
	SELECT judged IS NULL AS waits FROM runs WHERE client = w.client AND id = w.run LIMIT 1) r ON true
WHERE NOT coalesce(r.waits, false)`

// EndedRuns returns those of the runs that have ended, or whose client was deleted.
func (m Clusters) EndedRuns(ctx context.Context, runs map[id.Run]id.Client) ([]id.Run, error) {
	return m.runsOf(ctx, endedRuns, runs)
}

// JudgedRuns returns those of the runs that have a verdict, or whose client was deleted.
func (m Clusters) JudgedRuns(ctx context.Context, runs map[id.Run]id.Client) ([]id.Run, error) {
	return m.runsOf(ctx, judgedRuns, runs)
}

func (m Clusters) runsOf(ctx context.Context, sql string, runs map[id.Run]id.Client) ([]id.Run, error) {
	var clients, names []string
	for run, client := range runs {
		clients, names = append(clients, string(client)), append(names, string(run))
	}
	rows, _ := m.Pool.Query(ctx, sql, clients, names) // what it fails with, its rows end with
	return pgx.CollectRows(rows, pgx.RowTo[id.Run])
}

const (
	showRun = `
INSERT INTO clustering_progress (client, run, phase, share, eta_seconds) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (client, run) DO UPDATE SET
	phase = excluded.phase, share = excluded.share, eta_seconds = excluded.eta_seconds, updated_at = now()`
	hideRun = `DELETE FROM clustering_progress WHERE client = $1 AND run = $2`
)

// ShowProgress notes how far a run has come; the seconds that it still takes may not
// be known yet.
func (m Clusters) ShowProgress(ctx context.Context, client id.Client, run id.Run, phase string, share float64, etaSeconds *int) error {
	_, err := m.Pool.Exec(ctx, showRun, client, run, phase, share, etaSeconds)
	return err
}

// HideProgress forgets it.
func (m Clusters) HideProgress(ctx context.Context, client id.Client, run id.Run) error {
	_, err := m.Pool.Exec(ctx, hideRun, client, run)
	return err
}

// Of users whose consent has changed since, the history tells what it was.
const grantedAt = `
SELECT c.user_id FROM consents c
WHERE c.client = $1 AND c.layer = $2 AND c.granted AND c.user_id > $4 AND (c.changed <= $3 OR coalesce((
	SELECT h.granted FROM consent_changes h
	WHERE h.client = $1 AND h.user_id = c.user_id AND h.layer = $2 AND h.at <= $3 ORDER BY h.at DESC LIMIT 1), false))
ORDER BY c.user_id LIMIT $5`

// GrantedAt returns, in order of their ids, the users who had granted a layer
// at a position and have not withdrawn since. The model must have reached that
// position.
// Faults: building, overloaded, quarantined, stale.
func (m Consent) GrantedAt(ctx context.Context, client id.Client, layer id.ConsentLayer, at eventstore.Position) (users []id.User, err error) {
	for after := id.User(""); ; {
		page, err := readmodel.Query(ctx, m.Reader, m, client, true, grantedAt, []any{string(layer), string(at), string(after), readmodel.UsersAtOnce}, readmodel.OneText[id.User])
		if err != nil {
			return nil, err
		}
		if users = append(users, page...); len(page) < readmodel.UsersAtOnce {
			return users, nil
		}
		after = page[len(page)-1]
	}
}

const traitsOf = `
SELECT u.id, u.changed, u.traits, u.traits_event, k.id AS key, k.client_key, k.wrapped
FROM users u LEFT JOIN subject_keys k ON k.client = u.client AND k.subject = u.id
WHERE u.client = $1 AND u.id = ANY($2) AND NOT u.erased ORDER BY u.id`

// TraitsOf returns what users say, as far as the model has come, in order of
// their ids. Who is not there, or was erased, is left out.
// Faults: building, overloaded, quarantined, stale.
func (m Users) TraitsOf(ctx context.Context, client id.Client, users []id.User) ([]UserChange, error) {
	found, err := m.changes(ctx, client, nil, traitsOf, readmodel.Texts(users))
	return slices.DeleteFunc(found, func(u UserChange) bool { return u.Traits == nil }), err
}
