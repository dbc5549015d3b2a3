package projections

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"time"

	"kindred/domain/clustering"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/domain/traits"
	"kindred/eventstore"
	"kindred/projections/readmodel"
	"kindred/semaphore"
)

const sampleMembers = `
SELECT m.user_id, m.cluster, count(*) OVER () AS users FROM cluster_members m
WHERE m.client = $1 AND m.layer = $2 AND m.run = $3
ORDER BY hashtextextended(m.user_id, $4), m.user_id LIMIT $5`

// drawnMember is one of a sample of those who are in the clusters of a run.
type drawnMember struct {
	User    id.User
	Cluster id.Cluster
	Users   int // in clusters of the run, in all
}

// sample draws members by the run's seed, and returns them in order of their ids.
func (m Clusters) sample(ctx context.Context, client id.Client, run Run, limit int) ([]drawnMember, error) {
	found, err := readmodel.Query(ctx, m.Reader, m, client, true, sampleMembers, []any{string(run.Layer), string(run.ID), run.Seed, limit},
		func(d *drawnMember) []any {
			return []any{readmodel.Text(&d.User), readmodel.Text(&d.Cluster), &d.Users}
		})
	slices.SortFunc(found, func(a, b drawnMember) int { return cmp.Compare(a.User, b.User) })
	return found, err
}

const runBefore = `
SELECT r.id FROM runs r WHERE r.client = $1 AND r.layer = $2 AND r.segment = $4 AND r.status = 'completed' AND r.created_position < $3 ORDER BY r.created_position DESC LIMIT 1`

const runsSince = `
SELECT count(*) FROM (SELECT FROM runs r WHERE r.client = $1 AND r.layer = $2 AND r.segment = $4 AND r.status = 'completed' AND r.created_position > $3 LIMIT 1) n`

// current fails with a fault of kind Conflict where a run is not the last of its layer
// that has completed: the members of others are not kept.
func (m Clusters) current(ctx context.Context, client id.Client, run Run) error {
	since, err := readmodel.Count(ctx, m.Reader, m, client, true, runsSince, string(run.Layer), string(run.CreatedPosition), string(run.Segment))
	if err == nil && (since > 0 || run.Status != "completed") {
		err = fault.New(fault.Conflict, "run_not_current", "Who is in which cluster is known of the last completed run of a layer only.")
	}
	return err
}

// Flow is how many users a run has moved from one cluster to another.
type Flow struct {
	From  id.Cluster // of the run before; empty: they were in none
	To    id.Cluster // of the run; empty: they are in none
	Users int64
}

const flows = `
SELECT f.from_cluster, f.to_cluster, f.users FROM cluster_flow f
WHERE f.client = $1 AND f.run = $2 ORDER BY f.users DESC, f.from_cluster, f.to_cluster LIMIT $3`

// maxFlows bounds a run's flows: who was in one of 256 clusters or none may be in any.
// limit: client | flows of a clustering run | {maxFlows} | the smallest are left out
const maxFlows = 5_000

// Flows returns from where to where a completed run has moved users, the largest first,
// and the run before; "" where it is the first of its layer.
// Faults: building, overloaded, quarantined, stale.
func (m Clusters) Flows(ctx context.Context, client id.Client, run Run) (before id.Run, found []Flow, err error) {
	found, err = readmodel.Query(ctx, m.Reader, m, client, true, flows, []any{string(run.ID), maxFlows}, func(f *Flow) []any {
		return []any{readmodel.Text(&f.From), readmodel.Text(&f.To), &f.Users}
	})
	if err != nil || len(found) == 0 {
		return "", nil, err
	}
	runs, err := readmodel.Query(ctx, m.Reader, m, client, true, runBefore, []any{string(run.Layer), string(run.CreatedPosition), string(run.Segment)}, readmodel.OneText[id.Run])
	if len(runs) > 0 {
		before = runs[0]
	}
	return before, found, err
}

// RunMap shows a sample of those who are in the clusters of a run, in two dimensions.
type RunMap struct {
	Users  int        // in all clusters of the run
	Held   [2]float64 // the share of the variance of what the sample says, by direction
	Points []RunMapPoint
}

// RunMapPoint is a user of the sample.
type RunMapPoint struct {
	User    id.User
	Cluster id.Cluster
	X, Y    float64
}

// RunMaps makes maps of clustering runs, as many at a time as half of the processors.
// Any goroutine may use it.
type RunMaps struct {
	Clusters Clusters
	Users    Users
	// TraitsAt returns what a user said at a position, nil where there was no such user
	// or is none any more.
	TraitsAt func(ctx context.Context, client id.Client, user id.User, at eventstore.Position) (json.RawMessage, error)
	// TraitSchemaAt returns what was decided about traits then, by path, and the JSON of
	// what was learnt last.
	TraitSchemaAt func(ctx context.Context, client id.Client, at eventstore.Position) (map[string]event.TraitOverride, json.RawMessage, error)

	places *semaphore.Semaphore
}

const (
	// limit: edge | maps of clustering runs that wait to be made, on one process | {mapsWaiting}
	mapsWaiting  = 32
	mapsPatience = 5 * time.Second
)

// NewRunMaps makes maps of what these hold.
func NewRunMaps(m RunMaps) *RunMaps {
	m.places = &semaphore.Semaphore{Places: max(1, runtime.NumCPU()/2), Each: 1, Waiting: mapsWaiting, Patience: mapsPatience}
	return &m
}

// Map shows the last completed run of a layer: a sample that its seed draws, by what
// they said when it was requested. Who has withdrawn or was erased since is left out.
// Faults: building, overloaded, quarantined, run_not_current, stale.
func (m *RunMaps) Map(ctx context.Context, client id.Client, run Run) (RunMap, error) {
	if err := m.Clusters.current(ctx, client, run); err != nil {
		return RunMap{}, err
	}
	if !m.places.Take(ctx, client.Owner()) {
		return RunMap{}, fault.New(fault.Unavailable, "overloaded", "Too many maps are made at once. Try again.").After(time.Second)
	}
	defer m.places.Give(client.Owner())
	drawn, err := m.Clusters.sample(ctx, client, run, clustering.PlanePoints)
	if err != nil || len(drawn) == 0 {
		return RunMap{}, err
	}
	flats, err := m.flats(ctx, client, run, drawn)
	if err != nil {
		return RunMap{}, err
	}
	decided, learnt, err := m.TraitSchemaAt(ctx, client, run.CreatedPosition)
	if err != nil {
		return RunMap{}, err
	}
	before, err := traits.Decode(learnt)
	if err != nil {
		return RunMap{}, err
	}
	schema := traits.InferSampled(func(yield func(string, traits.Flat) bool) {
		for _, d := range drawn {
			if flat, there := flats[d.User]; there && !yield(string(d.User), flat) {
				return
			}
		}
	}, OverridesOf(decided), before)
	encoder := schema.Encoder(run.CreatedAt)
	points := clustering.Points{Dims: len(encoder.Dimensions())}
	drawn = slices.DeleteFunc(drawn, func(d drawnMember) bool { _, there := flats[d.User]; return !there })
	for _, d := range drawn {
		points.Data = encoder.Append(points.Data, flats[d.User])
	}
	shown := RunMap{Points: make([]RunMapPoint, len(drawn))}
	at, held := clustering.Plane(points)
	shown.Held = held
	for i, d := range drawn {
		shown.Users = d.Users
		shown.Points[i] = RunMapPoint{User: d.User, Cluster: d.Cluster}
		if len(at) > 0 { // where nothing participates, there are no dimensions
			shown.Points[i].X, shown.Points[i].Y = at[i][0], at[i][1]
		}
	}
	return shown, nil
}

// flats reads what users said when the run was requested, restricted to what the
// layer permitted then: traits.SampleBytes of it and one user more, at most.
func (m *RunMaps) flats(ctx context.Context, client id.Client, run Run, drawn []drawnMember) (map[id.User]traits.Flat, error) {
	permit := traits.Permit(run.TraitPaths)
	flats, size := make(map[id.User]traits.Flat, len(drawn)), 0
	for some := range slices.Chunk(drawn, SampledAtOnce) {
		found, err := m.Users.TraitsOf(ctx, client, readmodel.Column(some, func(d drawnMember) id.User { return d.User }))
		if err != nil {
			return nil, err
		}
		for _, u := range found {
			document := u.Traits
			if u.At > run.CreatedPosition {
				if document, err = m.TraitsAt(ctx, client, u.ID, run.CreatedPosition); err != nil {
					return nil, fmt.Errorf("read what %s said: %w", u.ID, err)
				}
			}
			if document == nil {
				continue
			}
			flat, err := Flatten(u.ID, document)
			if err != nil {
				return nil, err
			}
			flat.Values = slices.DeleteFunc(flat.Values, func(v traits.Value) bool { return !permit(v.Path) })
			flats[u.ID] = flat
			if size += flat.Bytes(); size >= traits.SampleBytes {
				return flats, nil
			}
		}
	}
	return flats, nil
}
