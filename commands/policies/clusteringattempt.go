package policies

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strconv"
	"time"

	"kindred/commands"
	"kindred/domain/clustering"
	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/domain/traits"
	"kindred/projections"
)

var (
	errTooLarge = errors.New("the vectors of the run do not fit into memory")
	errTooLong  = errors.New("the run took too long, or was broken off")
	errNoRoom   = errors.New("the run has to wait for memory")
	errNoTurn   = errors.New("the run waited too long for memory")
)

const (
	firstRead   = 100              // users that are read in the first statement: of the largest, 25 MB
	usersRead   = 500              // that are read in one statement at most
	bytesRead   = 8 << 20          // of traits that a statement should read, judged by the one before
	membersWait = 30 * time.Second // at most, for the read models to know the members
)

// attempt carries out one run once. All it decides follows from the log up to
// the request, but for users who have withdrawn or were erased since: those are
// left out.
type attempt struct {
	*Clustering
	run    projections.OpenRun
	number int
	by     commands.Call // without a seed
	memory *memory
	judges bool // a run that completed
	report reporter

	users    []id.User // in order of their ids; once they are encoded, in step with the points
	schema   traits.Schema
	hash     string // of the schema's shape
	decided  map[string]traits.Override
	points   clustering.Points
	last     commands.LastDivision
	before   division // of the last run
	under    []uint16 // by user, the cluster of the last run that it would be in; nil where that is not known
	result   clustering.Result
	clusters []id.Cluster // of each cluster of the result
}

func (a *attempt) call() commands.Call {
	call := a.by
	call.Seed = []string{policyName, string(a.run.ID), strconv.Itoa(a.number)}
	return call
}

func (a *attempt) seed() uint64 {
	return uint64(a.run.Seed) //nolint:gosec // any 64 bits will do
}

func (a *attempt) itself() event.RunAttempt {
	return event.RunAttempt{Run: a.run.ID, Attempt: a.number}
}

func (a *attempt) make(ctx context.Context) error {
	a.report = reporter{Clustering: a.Clustering, run: a.run, began: a.Now()}
	a.report.at(ctx, phaseReading, 0)
	if err := a.timed(ctx, a.readUsers); err != nil {
		return err
	}
	a.points.Dims = len(a.schema.Encoder(a.run.CreatedAt).Dimensions())
	size := int64(len(a.users)) * int64(max(a.points.Dims, 1)) * 4
	if size > a.Memory {
		return errTooLarge
	}
	a.report.at(ctx, phaseWaiting, 0)
	if !a.memory.take(a.run.ID, a.number, size, a.Now()) {
		return errNoRoom
	}
	defer a.memory.give(a.run.ID)
	a.report.began = a.Now() // how long it read and waited tells nothing about the rest
	return a.timed(ctx, a.divide)
}

// timed does a part of an attempt, and fails with errTooLong where it is broken off.
func (a *attempt) timed(ctx context.Context, part func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, a.Limit)
	defer cancel()
	err := part(ctx)
	if err != nil && ctx.Err() != nil {
		return errTooLong
	}
	return err
}

// divide divides the users, and makes that known.
func (a *attempt) divide(ctx context.Context) error {
	if err := a.encode(ctx); err != nil {
		return err
	}
	if err := a.fit(ctx); err != nil {
		return err
	}
	a.points = clustering.Points{} // only the division is needed from here on
	found, err := a.compare(ctx)
	if err != nil {
		return err
	}
	return a.publish(ctx, found)
}

// readUsers finds out who is looked at, and under which schema.
func (a *attempt) readUsers(ctx context.Context) (err error) {
	if err := a.Commands.CheckConsentLayer(ctx, a.run.Client, a.run.Layer); err != nil {
		return err
	}
	if err := a.Inputs.Reached(ctx, a.run.Client, a.run.CreatedPosition); err != nil {
		return err
	}
	if a.users, err = a.Inputs.Granted(ctx, a.run.Client, a.run.Layer, a.run.CreatedPosition); err != nil {
		return err
	}
	who := "who have granted the consent layer"
	if a.run.Segment != "" {
		who += " and are in the segment"
		if a.users, err = a.inSegment(ctx); err != nil {
			return err
		}
	}
	if n, least := len(a.users), 2*clustering.MinMembers; n < least {
		return &clustering.Failure{Code: clustering.NotEnoughUsers, Detail: fmt.Sprintf("There are %d users %s, and at least %d are needed.", n, who, least)}
	}
	if a.last, err = a.Commands.LastDivision(ctx, a.run.Client, a.run.Scope()); err != nil {
		return err
	}
	a.schema, err = a.inferSchema(ctx)
	return err
}

// inSegment are the users who are in the segment that the run is kept to, now; of a run
// that is judged, those who were when it read them and came into a cluster.
func (a *attempt) inSegment(ctx context.Context) ([]id.User, error) {
	if !a.judges {
		return a.Inputs.Among(ctx, a.run.Client, a.run.Segment, a.run.CreatedPosition, a.users)
	}
	assigned, err := a.Commands.Assignments(ctx, a.run.Client, event.RunAttempt{Run: a.run.ID, Attempt: a.run.Attempt})
	in := map[id.User]bool{}
	for _, users := range assigned {
		for _, u := range users {
			in[u] = true
		}
	}
	return slices.DeleteFunc(a.users, func(u id.User) bool { return !in[u] }), err
}

// inferSchema learns the schema from the same users as traits.Infer would draw
// from all.
func (a *attempt) inferSchema(ctx context.Context) (traits.Schema, error) {
	var sample traits.Sample
	for _, u := range a.users {
		sample.Add(string(u))
	}
	var drawn []id.User
	for _, u := range sample.IDs() {
		drawn = append(drawn, id.User(u))
	}
	decided, learnt, err := a.Commands.TraitSchemaAt(ctx, a.run.Client, a.run.CreatedPosition)
	if err != nil {
		return traits.Schema{}, err
	}
	before, err := traits.Decode(learnt)
	if err != nil {
		return traits.Schema{}, err
	}
	a.decided = projections.OverridesOf(decided)
	var failed error
	schema := traits.InferSampled(func(yield func(string, traits.Flat) bool) {
		for i, flat := range a.flats(ctx, drawn, &failed) {
			if !yield(string(drawn[i]), flat) {
				return
			}
		}
	}, a.decided, before)
	if failed != nil {
		return schema, failed
	}
	if a.hash, err = shape(schema, a.run.CreatedAt); err != nil {
		return schema, err
	}
	schema.Version = a.last.Completed.SchemaVersion
	if a.hash != a.last.Completed.Schema {
		schema.Version++
	}
	return schema, nil
}

// shape is a hash of what the places of a vector stand for. It is told, so a level that few hold
// has no part in it: whoever guesses could try it.
func shape(s traits.Schema, asOf time.Time) (string, error) {
	kept, _ := s.Kept()
	text, err := json.Marshal(struct {
		Dimensions []traits.Dimension
		Weights    map[string]float64
	}{kept.Encoder(asOf).Dimensions(), weights(s)})
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8]), err
}

func weights(s traits.Schema) map[string]float64 {
	w := map[string]float64{}
	for _, t := range s.Traits {
		if t.Participates() {
			w[t.Path] = t.Weight
		}
	}
	return w
}

// flats reads users as they were when the run was requested, by their place in
// users, restricted to what the layer permitted then. It passes over those who
// are not there any more, and ends early where failed is set.
func (a *attempt) flats(ctx context.Context, users []id.User, failed *error) iter.Seq2[int, traits.Flat] {
	permit := traits.Permit(a.run.TraitPaths)
	return func(yield func(int, traits.Flat) bool) {
		limit := firstRead
		for first := 0; first < len(users); {
			n := min(limit, len(users)-first)
			places := make(map[id.User]int, n)
			for i, u := range users[first : first+n] {
				places[u] = first + i
			}
			found, err := a.Inputs.Traits(ctx, a.run.Client, users[first:first+n])
			if err != nil {
				*failed = err
				return
			}
			slices.SortFunc(found, func(u, v projections.UserChange) int { return places[u.ID] - places[v.ID] })
			size := 0
			for _, u := range found {
				size += len(u.Traits)
				if u.At > a.run.CreatedPosition {
					if u.Traits, err = a.Commands.TraitsAt(ctx, a.run.Client, u.ID, a.run.CreatedPosition); err != nil {
						*failed = err
						return
					}
				}
				if u.Traits == nil {
					continue
				}
				flat, err := traits.Flatten(u.Traits)
				if err != nil {
					*failed = fmt.Errorf("read the traits of %s: %w", u.ID, err)
					return
				}
				flat.Values = slices.DeleteFunc(flat.Values, func(v traits.Value) bool { return !permit(v.Path) })
				if !yield(places[u.ID], flat) {
					return
				}
			}
			first += n
			limit = min(2*limit, usersRead, max(1, n*bytesRead/max(1, size)))
		}
	}
}

// encode turns the users into vectors.
func (a *attempt) encode(ctx context.Context) (err error) {
	var ids []id.Cluster
	for _, c := range a.last.Clusters {
		ids = append(ids, c.Cluster)
	}
	if a.before, err = a.division(ctx, a.lastAttempt(), ids); err != nil {
		return err
	}
	encoder := a.schema.Encoder(a.run.CreatedAt)
	older := clustering.Division{Encoder: a.before.encoder, Centroids: a.before.centroids}
	a.points.Data = make([]float32, 0, len(a.users)*a.points.Dims)
	present := a.users[:0:0]
	for i, flat := range a.flats(ctx, a.users, &err) {
		present = append(present, a.users[i])
		a.points.Data = encoder.Append(a.points.Data, flat)
		if older.Encoder != nil {
			a.under = append(a.under, uint16(older.Divide(flat))) //nolint:gosec // G115: at most MaxK
		}
		a.report.of(ctx, phaseReading, i, len(a.users))
	}
	a.users = present
	return err
}

// fit divides the users.
func (a *attempt) fit(ctx context.Context) (err error) {
	var warm [][]float32 // where the last run saw the traits in the same shape
	if a.last.Completed.Schema == a.hash {
		warm = a.before.centroids
	}
	a.result, err = clustering.Fit(ctx, a.points, clustering.Options{
		K: a.run.K, Seed: a.seed(), MinSize: a.run.MinSize, Threads: runtime.NumCPU(), Warm: warm, Keep: len(a.last.Clusters),
		Progress: func(p clustering.Phase, done, total int) { a.report.of(ctx, phase(p), done, total) },
	})
	return err
}

func (a *attempt) lastAttempt() event.RunAttempt {
	return event.RunAttempt{Run: a.last.Completed.Run, Attempt: a.last.Completed.Attempt}
}

// publish records what was found; the last append makes all of it count.
func (a *attempt) publish(ctx context.Context, found findings) error {
	a.report.at(ctx, phasePublishing, 0)
	assigned, err := a.stillGranted(ctx)
	if err != nil {
		return err
	}
	for j, p := range found.profiles {
		if err := a.Commands.KeepProfile(ctx, a.call(), event.ClusteringProfiled{
			Run: a.run.ID, Layer: a.run.Layer, Attempt: a.number, Cluster: a.clusters[j],
		}, p); err != nil {
			return err
		}
	}
	if kept, ok := a.schema.Kept(); ok {
		err := a.Commands.KeepProfile(ctx, a.call(), event.ClusteringProfiled{Run: a.run.ID, Layer: a.run.Layer, Attempt: a.number}, kept)
		if err != nil {
			return err
		}
	}
	at, err := a.Commands.Assign(ctx, a.call(), a.run.Scope(), a.itself(), assigned)
	if err != nil {
		return err
	}
	// Readers are to find the members as soon as they hear of the clusters.
	waiting, cancel := context.WithTimeout(ctx, membersWait)
	defer cancel()
	if err := a.Inputs.Reached(waiting, a.run.Client, at); err != nil && waiting.Err() == nil {
		return err
	}
	division, err := found.division(a, assigned)
	if err != nil {
		return err
	}
	return a.Commands.CompleteRun(ctx, a.by, division)
}

// stillGranted are the members of each cluster without those who have withdrawn
// or were erased while the run was under way.
func (a *attempt) stillGranted(ctx context.Context) ([]commands.Assigned, error) {
	granted, err := a.Inputs.Granted(ctx, a.run.Client, a.run.Layer, a.run.CreatedPosition)
	if err != nil {
		return nil, err
	}
	assigned := make([]commands.Assigned, a.result.K)
	for j, cluster := range a.clusters {
		assigned[j].Cluster = cluster
	}
	for i, user := range a.users {
		for len(granted) > 0 && granted[0] < user { // both are in order
			granted = granted[1:]
		}
		if len(granted) > 0 && granted[0] == user {
			j := a.result.Assignments[i]
			assigned[j].Users = append(assigned[j].Users, user)
		}
	}
	return assigned, nil
}

// places gives each user its place among the users of the run.
func (a *attempt) places() map[id.User]int {
	places := make(map[id.User]int, len(a.users))
	for i, u := range a.users {
		places[u] = i
	}
	return places
}

// overlap compares the run with an earlier one, whose clusters are given in the
// order in which they count.
func (a *attempt) overlap(older [][]id.User, places map[id.User]int) clustering.Overlap {
	o := clustering.NewOverlap(len(older), a.result.K)
	for i, users := range older {
		for _, u := range users {
			if place, both := places[u]; both {
				o[i][a.result.Assignments[place]]++
			}
		}
	}
	return o
}

// division is the append that makes a run count. It shows less of each cluster
// until all of them fit.
func (f findings) division(a *attempt, assigned []commands.Assigned) (commands.Division, error) {
	for shown := maxShown; ; shown /= 2 {
		d := f.divisionOf(a, assigned, shown)
		if fits, err := d.Fits(); fits || err != nil || shown == 1 {
			return d, err
		}
	}
}

func (f findings) divisionOf(a *attempt, assigned []commands.Assigned, shown int) commands.Division {
	d := commands.Division{Completed: event.ClusteringCompleted{
		Run: a.run.ID, Layer: a.run.Layer, Segment: a.run.Segment, Attempt: a.number,
		SchemaVersion: a.schema.Version, Schema: a.hash, Silhouette: a.result.Silhouette,
	}}
	for j := range a.clusters {
		size := len(assigned[j].Users)
		d.Completed.Users += size
		d.Completed.Clusters = append(d.Completed.Clusters, event.ClusterSummary{
			ID: a.clusters[j], Size: size, Label: f.labels[j].Text,
		})
		d.Clusters = append(d.Clusters, f.events(a, j, size, shown)...)
	}
	slices.SortStableFunc(d.Completed.Clusters, func(x, y event.ClusterSummary) int { return y.Size - x.Size })
	for _, r := range f.retired {
		d.Clusters = append(d.Clusters, r)
	}
	return d
}
