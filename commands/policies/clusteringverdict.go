package policies

import (
	"context"
	"math"
	"runtime"
	"slices"

	"kindred/domain"
	"kindred/domain/clustering"
	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/panics"
	"kindred/projections"
)

// judge makes one attempt to judge a completed run.
func (c *Clustering) judge(ctx context.Context, run projections.OpenRun, memory *memory) {
	call := c.call(ctx, run)
	number, err := c.Commands.StartJudging(ctx, call, run.Scope(), run.ID)
	if err == nil && number == 0 {
		return
	}
	if err == nil {
		a := &attempt{Clustering: c, run: run, number: number, by: call, memory: memory, judges: true}
		err = a.judge(ctx)
	}
	if isTold(ctx, err) {
		c.Logger.WarnContext(ctx, "verdict on a clustering run interrupted, trying again",
			"run", run.ID, "client", run.Client, "attempt", number, "error", err)
	}
}

// judge records the verdict that is found, or why there is none and will be none.
func (a *attempt) judge(ctx context.Context) error {
	verdict := event.ClusteringJudged{Run: a.run.ID, Layer: a.run.Layer}
	err := panics.Caught(func() error {
		return a.timed(ctx, func(ctx context.Context) error { return a.findVerdict(ctx, &verdict) })
	})
	if code, _ := a.excuse(ctx, err); code != "" {
		verdict.Verdict, verdict.Code, err = domain.VerdictUnknown, code, nil
	}
	if err != nil {
		return err
	}
	return a.Commands.JudgeRun(ctx, a.by, a.run.Scope(), verdict)
}

// findVerdict judges by a sample of those who are in the clusters and have not
// withdrawn since.
func (a *attempt) findVerdict(ctx context.Context, verdict *event.ClusteringJudged) error {
	if err := a.readUsers(ctx); err != nil || a.last.Completed.Run != a.run.ID {
		return err
	}
	assigned, err := a.Commands.Assignments(ctx, a.run.Client, event.RunAttempt{Run: a.run.ID, Attempt: a.run.Attempt})
	if err != nil {
		return err
	}
	encoder := a.schema.Encoder(a.run.CreatedAt)
	a.points.Dims = len(encoder.Dimensions())
	of := make(map[id.User]uint16, len(a.users))
	for j, c := range a.last.Clusters {
		for _, u := range assigned[c.Cluster] {
			of[u] = uint16(j)
		}
	}
	members := slices.DeleteFunc(a.users, func(u id.User) bool { _, in := of[u]; return !in })
	q := clustering.Trial{
		K: len(a.last.Clusters), Asked: a.run.K, Traits: clustering.Spans(a.schema, encoder), Seed: a.seed(), Threads: max(1, runtime.NumCPU()/2),
	}
	drawn := make([]id.User, 0, clustering.MostJudged)
	for _, i := range clustering.DrawJudged(len(members), a.points.Dims, a.seed()) {
		drawn = append(drawn, members[i])
	}
	for i, flat := range a.flats(ctx, drawn, &err) {
		a.points.Data = encoder.Append(a.points.Data, flat)
		q.Assigned = append(q.Assigned, of[drawn[i]])
	}
	if err != nil {
		return err
	}
	q.Points = a.points
	if a.run.MinSize > 0 {
		q.MinSize = max(1, a.run.MinSize*len(drawn)/max(1, len(members)))
	}
	found, err := clustering.Judge(ctx, q)
	if err != nil {
		return err
	}
	verdict.Verdict, verdict.Users = string(found.Verdict), a.points.Len()
	verdict.Shuffled, verdict.Cloud = (*event.NullComparison)(&found.Shuffled), (*event.NullComparison)(found.Cloud)
	verdict.Agreement = found.Agreement
	for j, jaccard := range found.Stability {
		if !math.IsNaN(jaccard) {
			verdict.Stability = append(verdict.Stability, event.ClusterStability{Cluster: a.last.Clusters[j].Cluster, Jaccard: jaccard})
		}
	}
	return nil
}
