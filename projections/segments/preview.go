package segments

import (
	"cmp"
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	"kindred/domain/clustering"
	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/domain/rule"
	"kindred/domain/splitmix"
	"kindred/domain/traits"
	"kindred/projections/readmodel"
)

// Preview is what a rule would name.
type Preview struct {
	Users   int     // of the client, without those who cannot be opened any more
	Judged  int     // all of them, or a sample
	Named   int     // of those judged
	Members int     // of all, about
	Share   float64 // of those judged
	Margin  float64 // of the share, for 19 of 20 samples; 0: all were judged
	Sample  []Member
	Apart   []Distinction // of those judged, in these of the schema's traits
	Unknown []string      // paths that the rule looks at, and neither the schema has nor one of those judged
}

// Distinction is a trait that some users have otherwise than all.
type Distinction = clustering.Distinction

const (
	// previewAll is how many users a preview judges at most: of more it judges a random
	// sample.
	// limit: models | users that a preview judges, of more a random sample | {previewAll}
	previewAll = 20_000
	// limit: models | users that a preview shows | {previewShown}
	previewShown = 20
	// limit: models | users whose traits a preview is told by where none were learnt yet, a random sample | {inferredFrom}
	inferredFrom = 1_000
)

const (
	countSegmentUsers  = `SELECT count(*) FROM segment_users WHERE client = $1`
	segmentUsersNumber = `SELECT coalesce((SELECT c.users FROM segment_clients c WHERE c.client = $1), 0)`
	countNumbered      = countSegmentUsers + ` AND number = ANY($2)`
)

// Inferred is the schema that some of the users would give by themselves, for a preview before any was learnt.
// Faults: building, overloaded, quarantined, stale.
func (m Model) Inferred(ctx context.Context, client id.Client, eventual bool, overrides map[string]traits.Override) (traits.Schema, error) {
	numbered, err := readmodel.Count(ctx, m.Reader, m, client, eventual, segmentUsersNumber)
	if err != nil {
		return traits.Schema{}, err
	}
	var wrong error
	schema := traits.Infer(func(yield func(string, traits.Flat) bool) {
		for some := range slices.Chunk(sampled(numbered, inferredFrom), usersRead) {
			goOn := true
			err = m.judged(ctx, client, true, nil, nil, judgedByNumber, some, func(u *segmentUser, _ int) bool {
				var flat traits.Flat
				flat, wrong = flatOf(u.facts.Traits)
				goOn = wrong == nil && yield(string(u.id), flat)
				return goOn
			})
			if err != nil || !goOn {
				return
			}
		}
	}, overrides)
	return schema, cmp.Or(err, wrong)
}

// Preview judges users by a rule that is no segment's yet, under a consent layer or none.
// It compares those whom the rule names with all, in the traits of a schema. It judges as
// of the client's time now, or of its last event where that is later.
// Faults: building, overloaded, quarantined, stale.
func (m Model) Preview(ctx context.Context, client id.Client, eventual bool, r *rule.Rule, within event.Within, schema traits.Schema, now time.Time) (p Preview, err error) {
	p.Unknown = r.Unknown(schema)
	p.Users, err = readmodel.Count(ctx, m.Reader, m, client, eventual, countSegmentUsers)
	if err != nil || p.Users == 0 {
		return p, err
	}
	numbered, err := readmodel.Count(ctx, m.Reader, m, client, true, segmentUsersNumber)
	if err != nil {
		return p, err
	}
	numbers := sampled(numbered, previewAll)
	serving, err := m.serving(ctx, client, true)
	if err != nil {
		return p, err
	}
	filter, by, asked := rule.Filter{Rule: r, Now: now}, r, 0
	if within.Layer != "" {
		by = nil // who grants it is asked of all
		schema = schema.Restrict(traits.Permit(within.TraitPaths))
	}
	var apart *clustering.Apart
	var wrong error
	for some := range slices.Chunk(numbers, usersRead) {
		if filter.Exhausted() {
			break
		}
		asked += len(some)
		if err := m.judged(ctx, client, true, serving, by, judgedByNumber, some, func(u *segmentUser, steps int) bool {
			p.Judged++
			p.Unknown = slices.DeleteFunc(p.Unknown, func(path string) bool { return has(u.facts.Traits, path) })
			named := namedUnder(within.Layer, &filter, u, steps)
			if apart == nil {
				apart = clustering.NewApart(schema, u.facts.Now)
			}
			var flat traits.Flat
			if flat, wrong = flatOf(u.facts.Traits); wrong != nil {
				return false
			}
			if apart.Count(flat, named); !named {
				return true
			}
			if p.Named++; len(p.Sample) < previewShown {
				p.Sample = append(p.Sample, Member{User: u.id, ExternalID: u.facts.ExternalID})
			}
			return true
		}); cmp.Or(err, wrong) != nil {
			return p, cmp.Or(err, wrong)
		}
	}
	found := p.Users
	if asked < numbered {
		if found, err = readmodel.Count(ctx, m.Reader, m, client, true, countNumbered, numbers[:asked]); err != nil {
			return p, err
		}
	}
	if found > 0 { // nobody stands for who cannot be opened any more
		p.Users = int(math.Round(float64(p.Users) * float64(p.Judged) / float64(found)))
	}
	if p.Margin = margin(p.Named, p.Judged, p.Users); p.Judged == 0 {
		return p, nil
	}
	p.Apart = apart.Distinctions()
	p.Share = float64(p.Named) / float64(p.Judged)
	p.Members = int(math.Round(p.Share * float64(p.Users)))
	return p, nil
}

// namedUnder says whether a filter names whom it took so many steps to open, under a consent layer
// or none. Who has not granted it takes steps, too.
func namedUnder(layer id.ConsentLayer, filter *rule.Filter, u *segmentUser, steps int) bool {
	u.facts.InCluster = u.known.inCluster(layer)
	return filter.Names(u.facts, steps) && (layer == "" || u.known.granted[layer])
}

// margin is how far the share of all may be from that of those judged, either way, in 19 of
// 20 random samples. It is Wilson's, since the usual one is 0 where none of a few was met,
// and one user more: where nearly all were judged Wilson's comes to a part of one.
func margin(named, judged, all int) float64 {
	switch {
	case judged >= all:
		return 0
	case judged == 0:
		return 1
	}
	const z = 1.96
	share := float64(min(named, judged-named)) / float64(judged) // off it is further towards a half
	z2 := z * z / float64(judged) * float64(all-judged) / float64(all-1)
	return min(1, (share+z2/2+math.Sqrt(z2*share*(1-share)+z2*z2/4))/(1+z2)-share+1/float64(all))
}

// has says whether there is something among traits at a path, below it, or above it other than an object.
func has(all map[string]any, path string) bool {
	if _, there := all[path]; there { // a name may hold points
		return true
	}
	name, below, _ := strings.Cut(path, ".")
	value, there := all[name]
	if object, is := value.(map[string]any); is {
		return has(object, below)
	}
	return there
}

func flatOf(all map[string]any) (traits.Flat, error) {
	document, err := json.Marshal(all)
	if err != nil {
		return traits.Flat{}, err
	}
	return traits.Flatten(document)
}

// sampled are at most so many of n numbers, the same each time, drawn one after the other:
// each beginning of them is a random sample, too.
func sampled(n, most int) []int64 {
	random := splitmix.Source(1)
	numbers, moved := make([]int64, min(n, most)), map[int]int64{} // where another number stands than the place's own
	at := func(i int) int64 {
		if number, ok := moved[i]; ok {
			return number
		}
		return int64(i)
	}
	for i := range numbers {
		drawn := i + random.IntN(n-i)
		numbers[i], moved[drawn] = at(drawn), at(i)
	}
	return numbers
}
