package policies

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"kindred/domain/clustering"
	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/domain/traits"
)

// findings is what a run says of its clusters beyond who is in them.
type findings struct {
	profiles  []clustering.Profile
	labels    []clustering.Label
	ancestors [][]id.Cluster // of each cluster
	kept      []*kept        // nil where a cluster is new
	retired   []event.ClusterRetired
	divisions []clustering.Division // of the earlier runs that clusters are compared with
}

// kept is a cluster that lives on.
type kept struct {
	was       event.ClusterState
	baselines []baseline
	now       []clustering.Cause // of all comparisons
}

// baseline is an earlier run that a cluster is compared with.
type baseline struct {
	name    clustering.Baseline
	at      event.RunAttempt
	older   clustering.Profile
	members clustering.Members
	earlier clustering.Earlier // the cluster, among the divisions of the findings

	// Once it is judged:
	newer clustering.Profile // in the bins of older
	drift clustering.Drift
	cut   clustering.Cut
}

// maxShown bounds the traits and the causes that a comparison shows. It is less
// where so much of all clusters would not fit into one append.
// limit: client | findings that one event of a run tells | {maxShown} | the rest is left out
const maxShown = 20

// compare finds out which clusters live on, what sets each apart and how it has
// drifted.
func (a *attempt) compare(ctx context.Context) (findings, error) {
	f := findings{ancestors: make([][]id.Cluster, a.result.K), kept: make([]*kept, a.result.K)}
	a.clusters = make([]id.Cluster, a.result.K)
	ids := id.Derived(policyName, "clusters", string(a.run.ID))
	for j := range a.clusters {
		a.clusters[j] = id.Next[id.Cluster](ids)
	}
	if err := a.succeed(ctx, &f); err != nil {
		return f, err
	}
	against, earlier := make([][]clustering.Profile, a.result.K), make([][]clustering.Earlier, a.result.K)
	for j, k := range f.kept {
		if k == nil {
			continue
		}
		for _, b := range k.baselines {
			against[j], earlier[j] = append(against[j], b.older), append(earlier[j], b.earlier)
		}
	}
	permit := traits.Permit(a.run.TraitPaths)
	wanted := func(path string, of traits.Type) bool { return permit(path) && traits.Wanted(path, of, a.decided) }
	var failed error
	seen := 0
	surveyed, err := clustering.Survey(ctx, clustering.Question{
		Schema: a.schema, AsOf: a.run.CreatedAt, Result: a.result, Seed: a.seed(), Against: against,
		Divisions: f.divisions, Earlier: earlier, Wanted: wanted,
	}, func(yield func(int, traits.Flat) bool) {
		for i, flat := range a.flats(ctx, a.users, &failed) {
			seen++
			a.report.of(ctx, phaseDescribing, seen, len(a.users))
			if !yield(i, flat) {
				return
			}
		}
	})
	if failed != nil {
		err = failed
	}
	if err != nil {
		return f, err
	}
	f.profiles, f.labels = surveyed.Profiles, surveyed.Labels
	for j, k := range f.kept {
		if k != nil {
			k.judge(surveyed.Against[j], surveyed.Cuts[j])
		}
	}
	return f, nil
}

// succeed gives clusters that live on their ids, and collects what they are to
// be compared with.
func (a *attempt) succeed(ctx context.Context, f *findings) error {
	if len(a.last.Clusters) == 0 {
		return nil
	}
	assigned, err := a.Commands.Assignments(ctx, a.run.Client, a.lastAttempt())
	if err != nil {
		return err
	}
	places := a.places()
	older := make([][]id.User, len(a.last.Clusters))
	for i, c := range a.last.Clusters {
		older[i] = assigned[c.Cluster]
	}
	overlap := a.overlap(older, places)
	division := a.addDivision(f, a.before, assigned, places)
	succession := a.withNewcomers(overlap, f, division).Succession()
	for j, i := range succession.Keeps {
		if i < 0 {
			continue
		}
		was := a.last.Clusters[i]
		a.clusters[j] = was.Cluster
		f.kept[j] = &kept{was: was}
		if err := a.addBaseline(ctx, f.kept[j], clustering.Previous, a.lastAttempt(), overlap.Members(i, j), clustering.Earlier{Division: division, Cluster: i}); err != nil {
			return err
		}
	}
	a.trace(f, succession)
	return a.addFirsts(ctx, f, places)
}

// addDivision has the users of the survey divided by an earlier run's cut, too, and
// returns its place; -1 where that is not known.
func (a *attempt) addDivision(f *findings, d division, assigned map[id.Cluster][]id.User, places map[id.User]int) int {
	if d.encoder == nil {
		return -1
	}
	f.divisions = append(f.divisions, d.of(assigned, places))
	return len(f.divisions) - 1
}

// withNewcomers counts who was not in the last run by the cluster of it that they would
// be in: so that clusters keep their ids where the people are others.
func (a *attempt) withNewcomers(o clustering.Overlap, f *findings, division int) clustering.Overlap {
	if division < 0 || len(a.under) != len(a.users) {
		return o
	}
	all := clustering.NewOverlap(len(o), a.result.K)
	for i := range o {
		copy(all[i], o[i])
	}
	for place, then := range f.divisions[division].Then {
		if then == clustering.Nobody {
			all[a.under[place]][a.result.Assignments[place]]++
		}
	}
	return all
}

// addBaseline has a cluster compared with an earlier run, if that left a
// profile.
func (a *attempt) addBaseline(ctx context.Context, k *kept, name clustering.Baseline, at event.RunAttempt, members clustering.Members, of clustering.Earlier) error {
	b := baseline{name: name, at: at, members: members, earlier: of}
	found, err := a.Commands.Profile(ctx, a.run.Client, at, k.was.Cluster, &b.older)
	if found {
		k.baselines = append(k.baselines, b)
	}
	return err
}

// addFirsts has clusters compared with the runs that formed them, run by run,
// where those are not the last one.
func (a *attempt) addFirsts(ctx context.Context, f *findings, places map[id.User]int) error {
	firsts := map[event.RunAttempt][]int{}
	for j, k := range f.kept {
		if k != nil && k.was.First != a.lastAttempt() {
			firsts[k.was.First] = append(firsts[k.was.First], j)
		}
	}
	for first, clusters := range firsts {
		assigned, err := a.Commands.Assignments(ctx, a.run.Client, first)
		if err != nil {
			return err
		}
		d, err := a.division(ctx, first, slices.Sorted(maps.Keys(assigned)))
		if err != nil {
			return err
		}
		division := a.addDivision(f, d, assigned, places)
		for _, j := range clusters {
			// Its own members, and those of all others together.
			older := make([][]id.User, 2)
			for cluster, users := range assigned {
				if cluster == f.kept[j].was.Cluster {
					older[0] = users
				} else {
					older[1] = append(older[1], users...)
				}
			}
			members := a.overlap(older, places).Members(0, j)
			earlier := clustering.Earlier{Division: division}
			var there bool
			if earlier.Cluster, there = d.clusters[f.kept[j].was.Cluster]; !there {
				earlier.Division = -1
			}
			if err := a.addBaseline(ctx, f.kept[j], clustering.First, first, members, earlier); err != nil {
				return err
			}
		}
	}
	return nil
}

// trace notes which clusters came from which, where a cluster was split or
// several were merged, and which have ended.
func (a *attempt) trace(f *findings, s clustering.Succession) {
	descendants := make([][]id.Cluster, len(a.last.Clusters))
	link := func(i, j int) {
		from, into := a.last.Clusters[i].Cluster, a.clusters[j]
		if from != into && !slices.Contains(f.ancestors[j], from) {
			f.ancestors[j] = append(f.ancestors[j], from)
			descendants[i] = append(descendants[i], into)
		}
	}
	for _, split := range s.Splits {
		for _, j := range split.Newer {
			link(split.Older, j)
		}
	}
	for _, merge := range s.Merges {
		for _, i := range merge.Older {
			link(i, merge.Newer)
		}
	}
	for _, i := range s.Retired {
		f.retired = append(f.retired, event.ClusterRetired{
			Cluster: a.last.Clusters[i].Cluster, Layer: a.run.Layer, Run: a.run.ID, Descendants: descendants[i],
		})
	}
}

// judge compares a cluster with its baselines; newer are its profiles in the
// bins of each.
func (k *kept) judge(newer []clustering.Profile, cuts []clustering.Cut) {
	for n := range k.baselines {
		b := &k.baselines[n]
		b.newer, b.cut = newer[n], cuts[n]
		if b.cut.Known {
			b.drift = clustering.CompareCut(b.older, b.newer, b.members, b.cut, b.name)
		} else {
			b.drift = clustering.Compare(b.older, b.newer, b.members, b.name)
		}
		k.now = append(k.now, b.drift.Causes...)
	}
}

func (b baseline) comparison(shown int) event.ClusterComparison {
	return event.ClusterComparison{
		Turnover: turnover(b),
		Baseline: string(b.name), With: b.at.Run, Judged: b.drift.Judged, Jaccard: b.members.Jaccard(),
		ShareBefore: share(b.older), ShareAfter: share(b.newer), Shift: b.drift.Shift,
		Causes: causes(b.drift.Causes, shown), Traits: traitDrifts(b.drift.Traits, shown),
	}
}

// turnover is what became of the cluster's people by the cut of the earlier run.
func turnover(b baseline) *event.ClusterTurnover {
	if !b.cut.Known {
		return nil
	}
	return &event.ClusterTurnover{
		Stayed: b.cut.Stayed, Left: b.cut.Left, Came: b.cut.Came, New: b.cut.New,
		Gone: max(0, b.older.Users-b.cut.Stayed-b.cut.Left), SameCut: b.cut.Recut(),
	}
}

func share(p clustering.Profile) float64 {
	if p.Total == 0 {
		return 0
	}
	return float64(p.Users) / float64(p.Total)
}

// traitDrifts are the traits that come nearest to their limits, or are the
// farthest beyond.
func traitDrifts(all []clustering.TraitDrift, most int) []event.TraitDrift {
	sorted := slices.SortedStableFunc(slices.Values(all), func(x, y clustering.TraitDrift) int {
		return cmp.Compare(y.PSI*x.Limit, x.PSI*y.Limit)
	})
	shown := make([]event.TraitDrift, 0, min(len(sorted), most))
	for _, t := range sorted[:cap(shown)] {
		shown = append(shown, event.TraitDrift{Path: t.Path, PSI: t.PSI, Limit: t.Limit})
	}
	return shown
}

// causes are those with the largest amounts, if there are very many.
func causes(found []clustering.Cause, most int) []event.DriftCause {
	if len(found) > most {
		found = slices.SortedStableFunc(slices.Values(found), func(x, y clustering.Cause) int {
			return cmp.Compare(y.Amount, x.Amount)
		})[:most]
	}
	return recorded(found)
}

func recorded(found []clustering.Cause) []event.DriftCause {
	out := make([]event.DriftCause, len(found))
	for i, c := range found {
		out[i] = event.DriftCause{
			Kind: string(c.Kind), Baseline: string(c.Baseline), Trait: c.Trait, Amount: c.Amount, Severity: string(c.Severity),
			Origin: string(c.Origin), Effect: c.Effect, Level: c.Level, Before: c.Before, After: c.After,
		}
	}
	return out
}

func told(causes []event.DriftCause) []clustering.Cause {
	out := make([]clustering.Cause, len(causes))
	for i, c := range causes {
		out[i] = clustering.Cause{
			Kind: clustering.CauseKind(c.Kind), Baseline: clustering.Baseline(c.Baseline), Trait: c.Trait,
			Amount: c.Amount, Severity: clustering.Severity(c.Severity), Origin: clustering.Origin(c.Origin),
			Move: clustering.Move{Effect: c.Effect, Level: c.Level, Before: c.Before, After: c.After},
		}
	}
	return out
}

// told are the causes to be told now, and those that stand. What has changed
// since the last run has changed since the first one too, where both are one.
// What stood still does so while nothing can be said about it.
func (k *kept) told(last event.RunAttempt) (fresh, standing []clustering.Cause) {
	before := told(k.was.Standing)
	var first clustering.Drift
	if i := slices.IndexFunc(k.baselines, func(b baseline) bool { return b.name == clustering.First }); i >= 0 {
		first = k.baselines[i].drift
	}
	fresh, standing = clustering.Told(before, k.now, first.Near)
	switch {
	case k.was.First == last:
		since := slices.Clone(k.now)
		for i := range since {
			since[i].Baseline = clustering.First
		}
		_, standing = clustering.Told(nil, since, first.Near)
	case !first.Judged:
		standing = before
	}
	return fresh, standing
}

// events are what a run records of one cluster. shown bounds what it says of
// its traits.
func (f findings) events(a *attempt, j, size, shown int) []event.Event {
	state := event.ClusterState{
		Cluster: a.clusters[j], Layer: a.run.Layer, Run: a.run.ID, First: a.itself(), Size: size,
		Label: f.labels[j].Text, Spread: a.result.Spreads[j], Distinctions: []event.Distinction{},
	}
	distinctions := f.labels[j].Distinctions
	for _, d := range distinctions[:min(len(distinctions), shown)] {
		state.Distinctions = append(state.Distinctions, event.Distinction{
			Path: d.Path, Type: string(d.Type), Level: d.Level, Effect: d.Effect, Here: d.Here, All: d.All,
		})
	}
	k := f.kept[j]
	if k == nil {
		return []event.Event{event.ClusterFormed{ClusterState: state, Ancestors: f.ancestors[j]}}
	}
	fresh, standing := k.told(a.lastAttempt())
	state.First, state.Standing = k.was.First, recorded(standing)
	lives := event.ClusterKept{ClusterState: state, Ancestors: f.ancestors[j]}
	for _, b := range k.baselines {
		lives.Comparisons = append(lives.Comparisons, b.comparison(shown))
	}
	if len(fresh) == 0 {
		return []event.Event{lives}
	}
	return []event.Event{lives, event.ClusterDriftDetected{
		Cluster: a.clusters[j], Layer: a.run.Layer, Run: a.run.ID,
		Severity: string(clustering.Drift{Causes: fresh}.Severity()), Causes: causes(fresh, shown),
	}}
}
