package app

import (
	"context"
	"runtime"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/commands"
	"kindred/commands/policies"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/projections"
)

const (
	clusteringMemory = 2 << 30 // bytes of vectors at most: 8 million users of 64 dimensions
	clusteringLimit  = 30 * time.Minute
	clusteringSlots  = 4 // at least: a large run leaves room for small ones
)

// clustering wires what carries out clustering runs.
func (a *App) clustering(c *commands.Commands, metrics *policies.Metrics) *policies.Clustering {
	reader := a.Reader()
	clusters := projections.Clusters{Reader: reader}
	return &policies.Clustering{
		Commands: c, Runs: &clusteringRuns{model: clusters, pool: a.Pool},
		Inputs: &clusteringInputs{
			progress: a.Progress, clusters: clusters,
			consent: projections.Consent{Reader: reader}, users: projections.Users{Reader: reader},
		},
		Lead: a.Runner.Lead, Now: time.Now, Logger: a.logger, Metrics: metrics,
		Slots: max(clusteringSlots, runtime.NumCPU()), Memory: min(clusteringMemory, a.memory/4), Limit: clusteringLimit,
	}
}

// layerOf finds the consent layer of a clustering run.
func layerOf(clusters projections.Clusters) func(context.Context, id.Client, id.Run) (id.ConsentLayer, error) {
	return func(ctx context.Context, client id.Client, run id.Run) (id.ConsentLayer, error) {
		found, err := clusters.Run(ctx, client, false, run)
		return found.Layer, err
	}
}

// clusteringRuns finds runs in the read model.
type clusteringRuns struct {
	model projections.Clusters
	pool  *pgxpool.Pool
}

// Next implements [policies.Runs].
func (r *clusteringRuns) Next(ctx context.Context, except []id.Run) ([]policies.OpenRun, error) {
	found, err := r.model.OpenRuns(ctx, except)
	open := make([]policies.OpenRun, len(found))
	for i, run := range found {
		open[i] = policies.OpenRun{
			Client: run.Client, Run: run.ID, Layer: run.Layer, TraitPaths: run.TraitPaths, K: run.K, Seed: run.Seed,
			CreatedAt: run.CreatedAt, Position: run.Born,
		}
	}
	return open, err
}

// Ended implements [policies.Runs].
func (r *clusteringRuns) Ended(ctx context.Context, runs map[id.Run]id.Client) ([]id.Run, error) {
	return r.model.EndedRuns(ctx, runs)
}

const (
	showRun = `
INSERT INTO clustering_progress (client, run, phase, share, eta_seconds) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (client, run) DO UPDATE SET
	phase = excluded.phase, share = excluded.share, eta_seconds = excluded.eta_seconds, updated_at = now()`
	hideRun = `DELETE FROM clustering_progress WHERE client = $1 AND run = $2`
)

// Show implements [policies.Runs].
func (r *clusteringRuns) Show(ctx context.Context, client id.Client, run id.Run, p policies.RunProgress) error {
	_, err := r.pool.Exec(ctx, showRun, client, run, p.Phase, p.Share, p.ETASeconds)
	return err
}

// Hide implements [policies.Runs].
func (r *clusteringRuns) Hide(ctx context.Context, client id.Client, run id.Run) error {
	_, err := r.pool.Exec(ctx, hideRun, client, run)
	return err
}

// clusteringInputs reads what runs look at from the read models.
type clusteringInputs struct {
	progress *projector.Progress
	clusters projections.Clusters
	consent  projections.Consent
	users    projections.Users
}

// Reached implements [policies.Inputs].
func (i *clusteringInputs) Reached(ctx context.Context, client id.Client, at eventstore.Position) error {
	for _, model := range []projector.Projection{i.users, i.consent, i.clusters} {
		for {
			err := i.progress.Wait(ctx, model, client, at)
			if err == nil {
				break
			}
			if !fault.Is(err, "stale") {
				return err
			}
		}
	}
	return nil
}

// Granted implements [policies.Inputs].
func (i *clusteringInputs) Granted(ctx context.Context, client id.Client, layer id.ConsentLayer, at eventstore.Position) ([]id.User, error) {
	return i.consent.GrantedAt(ctx, client, layer, at)
}

// Traits implements [policies.Inputs].
func (i *clusteringInputs) Traits(ctx context.Context, client id.Client, users []id.User) ([]policies.UserTraits, error) {
	found, err := i.users.TraitsOf(ctx, client, users)
	read := make([]policies.UserTraits, len(found))
	for n, u := range found {
		read[n] = policies.UserTraits{User: u.ID, Traits: u.Traits, Changed: u.At}
	}
	return read, err
}
