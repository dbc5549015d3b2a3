package app

import (
	"context"
	"runtime"
	"time"

	"kindred/commands"
	"kindred/commands/policies"
	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore/projector"
	"kindred/projections"
	"kindred/projections/segments"
)

const (
	// limit: commands | vectors of all clustering runs of a process | {clusteringMemory B}
	clusteringMemory = 2 << 30 // bytes of vectors at most: 8 million users of 64 dimensions
	// limit: commands | time of a clustering run | {clusteringLimit}
	clusteringLimit = 30 * time.Minute
	clusteringSlots = 4 // at least: a large run leaves room for small ones
)

// clustering wires what carries out clustering runs.
func (a *App) clustering(c *commands.Commands, metrics *policies.Metrics) *policies.Clustering {
	reader := a.Reader()
	clusters := projections.Clusters{Reader: reader}
	return &policies.Clustering{
		Commands: c, Runs: policies.ModelledRuns{
			Clusters: clusters,
			NoneOpen: &projector.NegativeCache{Progress: a.Progress, Of: clusters}, NoneUnjudged: &projector.NegativeCache{Progress: a.Progress, Of: clusters},
		},
		Inputs: policies.ModelledInputs{
			Progress: a.Progress, Clusters: clusters,
			Consent: projections.Consent{Reader: reader}, Users: projections.Users{Reader: reader}, Segments: segments.Model{Reader: reader},
		},
		Lead: a.Runner.Lead, Now: time.Now, Logger: a.logger, Metrics: metrics,
		Slots: max(clusteringSlots, runtime.NumCPU()), Memory: min(clusteringMemory, a.memory/4), Limit: clusteringLimit,
	}
}

// scopeOf finds what a clustering run divides.
func scopeOf(clusters projections.Clusters) func(context.Context, id.Client, id.Run) (event.RunScope, error) {
	return func(ctx context.Context, client id.Client, run id.Run) (event.RunScope, error) {
		found, err := clusters.Run(ctx, client, false, run)
		return found.Scope(), err
	}
}
