package populations

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/domain/traits"
)

// TraitSchema is what a client may see of its schema.
type TraitSchema struct {
	Version   int
	Users     int // that there were when it was learnt
	Skipped   int // paths beyond the bounds
	Traits    []Trait
	Overrides map[string]event.TraitOverride
}

// Trait is a path of a schema.
type Trait struct {
	Path      string
	Type      string
	Declared  bool
	Weight    float64
	Ignored   bool
	Sensitive bool
	Coverage  float64 // the share of the users who have it
	Why       string  // it takes no part; empty where it does
	Format    string  // how values spell the type; empty: as JSON does
	Because   string  // the type and the format are these
	Missing   []float64
	Suggested *traits.Suggestion // how it would be read, were it learnt now
	Levels    []string           // the values that at least ten users share, the most frequent first
}

// Schema returns a client's schema as matches use it now.
// Faults: building, busy, overloaded, population_too_large, quarantined, stale.
func (p *Populations) Schema(ctx context.Context, client id.Client) (TraitSchema, error) {
	now, _, err := p.current(ctx, client, nil)
	if err != nil {
		return TraitSchema{}, err
	}
	s := TraitSchema{
		Version: now.schema.Version, Users: now.trained, Skipped: now.schema.Skipped,
		Overrides: make(map[string]event.TraitOverride, len(now.overrides)),
	}
	for path, o := range now.overrides {
		s.Overrides[path] = event.TraitOverride{Type: string(o.Type), Weight: o.Weight, Ignore: o.Ignore, Sensitive: o.Sensitive}
	}
	s.Traits = shown(now.schema)
	return s, nil
}

// Inferred returns the schema that users would give by themselves, by distinct ids, under
// what the client has decided. Their traits are valid. Nothing is recorded.
// Faults: building, busy, overloaded, population_too_large, quarantined, stale.
func (p *Populations) Inferred(ctx context.Context, client id.Client, users map[string]json.RawMessage) (TraitSchema, error) {
	now, _, err := p.current(ctx, client, nil)
	if err != nil {
		return TraitSchema{}, err
	}
	flat := make(map[string]traits.Flat, len(users))
	for name, document := range users {
		if flat[name], err = traits.Flatten(document); err != nil {
			return TraitSchema{}, fmt.Errorf("read the traits of an import: %w", err)
		}
	}
	schema := traits.Infer(maps.All(flat), now.overrides)
	return TraitSchema{Users: schema.Sampled, Skipped: schema.Skipped, Traits: shown(schema)}, nil
}

// shown is what may be shown of the traits of a schema.
func shown(schema traits.Schema) (all []Trait) {
	for _, t := range schema.Traits {
		seen := Trait{
			Path: t.Path, Type: string(t.Type), Declared: t.Declared, Weight: t.Weight, Ignored: t.Ignored, Sensitive: t.Sensitive,
			Coverage: float64(t.Known) / float64(max(schema.Sampled, 1)), Why: whyNot(t),
			Format: string(t.Format), Because: string(t.Because), Missing: t.Sentinels,
		}
		if s := t.Suggested; s != nil && (s.Type != t.Type || s.Format != t.Format || !slices.Equal(s.Sentinels, t.Sentinels) || s.Sensitive && !t.Sensitive) {
			seen.Suggested = s
		}
		if !t.Sensitive {
			for _, level := range t.Shared() {
				seen.Levels = append(seen.Levels, level.Name)
			}
		}
		all = append(all, seen)
	}
	return all
}

// whyNot says why a trait takes no part in matches; empty where it does.
func whyNot(t traits.Trait) string {
	switch {
	case t.Ignored:
		return "ignored"
	case t.Sensitive:
		return "sensitive"
	case t.Type == traits.TypeExcluded:
		return "not_comparable"
	case t.Weight == 0:
		return "no_weight"
	case (t.Type == traits.TypeNumber || t.Type == traits.TypeDate) && !(t.Numbers.Span() > 0):
		return "always_the_same"
	}
	return ""
}

// Distribution is how the users' values of a trait are spread. It singles out nobody:
// each part holds traits.MinHolders users at least, and a sensitive trait has none.
type Distribution struct {
	Trait
	Bins   []Bin   // of numbers and dates that take part in matches, in order
	Shares []Share // of values of the other types, the most frequent first
}

// Bin is the share of the values in [From, To); nil is without an end.
type Bin struct {
	From, To *float64
	Share    float64
}

// Share is how many of those who have the trait have a value, or hold it in their set.
type Share struct {
	Value string
	Share float64
}

const (
	// limit: models | bins of a trait's distribution | {maxBins}
	maxBins = 20
	// limit: models | values of a trait's distribution | {maxValues}
	maxValues = 50
	// finest is how fine bins are at most beside their numbers: a double has no more
	// digits, and adding a finer step to it changes nothing, so edges would never end.
	finest = 1e-15
)

// Distribution returns how the values of a trait are spread, or fails with a fault of
// kind Missing.
// Faults: building, busy, overloaded, population_too_large, quarantined, stale, trait_unknown.
func (p *Populations) Distribution(ctx context.Context, client id.Client, path string) (d Distribution, err error) {
	s, err := p.Schema(ctx, client)
	if err != nil {
		return d, err
	}
	i := slices.IndexFunc(s.Traits, func(t Trait) bool { return t.Path == path })
	if i < 0 {
		return d, fault.New(fault.Missing, "trait_unknown", "Nothing was learnt of such a trait.")
	}
	d.Trait = s.Traits[i]
	if d.Sensitive {
		return d, nil
	}
	now, _, err := p.current(ctx, client, nil)
	if err != nil {
		return d, err
	}
	d.Bins = binned(now.users.Numbers(path))
	counts, of := now.users.Levels(path), 0
	for _, n := range counts {
		of += n
	}
	if i := slices.IndexFunc(now.schema.Traits, func(t traits.Trait) bool { return t.Path == path }); i >= 0 && counts == nil {
		counts, of = map[string]int{}, now.schema.Traits[i].Known // of the sample, as sets are kept by hash
		for _, level := range now.schema.Traits[i].Shared() {
			counts[level.Name] = level.Count
		}
	}
	for value, n := range counts {
		if n >= traits.MinHolders {
			d.Shares = append(d.Shares, Share{value, float64(n) / float64(of)})
		}
	}
	slices.SortFunc(d.Shares, func(a, b Share) int { return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(a.Value, b.Value)) })
	d.Shares = d.Shares[:min(len(d.Shares), maxValues)]
	return d, nil
}

// binned spreads values over bins whose edges are round, so that none is anybody's
// value. Neighbours that hold few go together.
func binned(values []float64) (bins []Bin) {
	if len(values) < traits.MinHolders {
		return nil
	}
	slices.Sort(values)
	low, high := values[len(values)/100], values[len(values)-1-len(values)/100]
	step := roundStep((high - low) / maxBins)
	if step <= finest*max(math.Abs(low), math.Abs(high)) {
		return []Bin{{Share: 1}}
	}
	var edges []float64
	for n := math.Floor(low/step) + 1; n*step <= high; n++ {
		edges = append(edges, n*step) // maxBins and one at most
	}
	counts := make([]int, len(edges)+1)
	for _, x := range values {
		at, on := slices.BinarySearch(edges, x)
		if on {
			at++
		}
		counts[at]++
	}
	var from *float64
	held, left := 0, len(values)
	for i, n := range counts {
		held, left = held+n, left-n
		if left > 0 && (held < traits.MinHolders || left < traits.MinHolders) {
			continue
		}
		bin := Bin{From: from, Share: float64(held) / float64(len(values))}
		if left > 0 {
			bin.To = &edges[i]
		}
		bins = append(bins, bin)
		if from, held = bin.To, 0; left == 0 {
			break
		}
	}
	return bins
}

// roundStep is the least of 1, 2 and 5 times a power of ten that is not below x; 0 for 0.
func roundStep(x float64) float64 {
	if !(x > 0) || math.IsInf(x, 0) {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(x)))
	for _, times := range []float64{1, 2, 5} {
		if times*unit >= x {
			return times * unit
		}
	}
	return 10 * unit
}
