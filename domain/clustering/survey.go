package clustering

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"kindred/domain/splitmix"
	"kindred/domain/traits"
)

// A survey keeps the numbers of so many users of each cluster, or fewer where
// there are many clusters and traits.
const (
	surveyRows   = 4096
	surveyLeast  = 256
	surveyValues = 1 << 23 // 64 MiB
)

// Surveyed is what a run finds out about its clusters beyond who is in them.
type Surveyed struct {
	Profiles []Profile   // of each cluster
	Against  [][]Profile // of each cluster, in the edges and levels of each of the profiles it was to be compared with
	Labels   []Label     // of each cluster
	Cuts     [][]Cut     // of each cluster, by the earlier clusters of Question.Earlier
}

// Question is what a survey is asked.
type Question struct {
	Schema traits.Schema // restricted to what the consent layer permits
	AsOf   time.Time     // as for the encoder
	Result Result
	Seed   uint64
	// Against holds for each cluster the profiles of earlier runs that Compare
	// will look at; nil where there are none.
	Against [][]Profile
	// Divisions are earlier runs by whose cuts the users are divided, too, and Earlier
	// says for each of Against which cluster of which division it is of; both may be nil.
	Divisions []Division
	Earlier   [][]Earlier
	// Wanted says whether a trait would be looked at if anybody said it; nil: none. Where it is so, a trait of an
	// earlier run that nobody says any more is missing of all.
	Wanted func(path string, of traits.Type) bool
}

// Survey looks at each user of the run once; users are given by their place in
// the points, and those that are left out, because they were erased since, are
// not counted. What it holds (64 MiB of numbers, and the counts of levels) does
// not grow with the number of users.
func Survey(ctx context.Context, q Question, users iter.Seq2[int, traits.Flat]) (Surveyed, error) {
	s := newSurvey(q)
	seen := 0
	for i, f := range users {
		if stopped(ctx, seen) {
			return Surveyed{}, ctx.Err()
		}
		if i < 0 || i >= len(q.Result.Assignments) {
			return Surveyed{}, fmt.Errorf("user %d is not among the %d of the run", i, len(q.Result.Assignments))
		}
		s.count(int(q.Result.Assignments[i]), f)
		s.cutting.count(s, i, f)
		seen++
	}
	return s.conclude(), nil
}

// survey is the state of a Survey.
type survey struct {
	Question
	reader   reader
	units    []float64 // by dimension: what a standard deviation weighs
	readings []reading // of the user at hand, by trait
	groups   []group   // the clusters, and everybody last
	random   splitmix.Source
	frames   [][]frame // by cluster
	against  [][]Profile
	cutting  *cutting
	vanished map[string]bool // by path, traits of earlier runs that the schema has not: false once somebody says one
}

// noTrait is the place of a trait that the schema has not.
const noTrait = -1

// frame is a trait profile that a cluster's users are counted into.
type frame struct {
	trait   int // its place, or noTrait
	profile *TraitProfile
	asOf    float64 // of the run that the profile is of
}

// group is what is counted of some users.
type group struct {
	users   int
	numbers [][]float64         // by trait, where numeric: a sample of users; NaN is missing
	held    []map[string]int    // by trait, where not: users by level
	masks   [][]uint64          // by trait, where not: of the same sample, the levels of each
	missing []int               // by trait, where not numeric
	size    int                 // of the sample
	bits    []map[string]uint64 // by trait, where not numeric, of all groups: a bit for each of the first 64 levels
}

func newSurvey(q Question) *survey {
	s := &survey{Question: q, reader: newReader(q.Schema, q.AsOf), vanished: map[string]bool{}, random: draws(q.Seed, forProfile)}
	s.readings = make([]reading, len(s.reader.traits))
	weights := map[string]float64{}
	for _, t := range s.reader.traits {
		weights[t.Path] = t.Weight
	}
	for _, d := range q.Schema.Encoder(q.AsOf).Dimensions() {
		s.units = append(s.units, math.Sqrt(weights[d.Path]))
	}
	levels := make([]map[string]uint64, len(s.readings))
	for i := range levels {
		levels[i] = map[string]uint64{}
	}
	size := surveyValues / max(1, (q.Result.K+1)*len(s.reader.traits))
	for range q.Result.K + 1 {
		g := group{
			numbers: make([][]float64, len(s.readings)), held: make([]map[string]int, len(s.readings)),
			missing: make([]int, len(s.readings)), masks: make([][]uint64, len(s.readings)), bits: levels, size: min(max(size, surveyLeast), surveyRows),
		}
		for i := range g.held {
			g.held[i] = map[string]int{}
		}
		s.groups = append(s.groups, g)
	}
	s.against, s.frames = make([][]Profile, q.Result.K), make([][]frame, q.Result.K)
	for c := range min(len(q.Against), q.Result.K) {
		for _, older := range q.Against[c] {
			p, frames := s.empty(s.profile(c), older)
			s.against[c], s.frames[c] = append(s.against[c], p), append(s.frames[c], frames...)
		}
	}
	s.cutting = newCutting(s)
	return s
}

// empty is a profile in the frame of an older one, to be counted into. A trait
// that is of another type now, or is not wanted any more, cannot be compared, nor can a date with
// those of a run whose as-of was not kept.
func (s *survey) empty(p Profile, older Profile) (Profile, []frame) {
	p.Traits = make([]TraitProfile, 0, len(older.Traits)) // frames point into it
	var frames []frame
	for _, o := range older.Traits {
		i := slices.IndexFunc(s.reader.traits, func(t traits.Trait) bool { return t.Path == o.Path && t.Type == o.Type })
		if i < 0 && !s.hasVanished(o) || o.Type == traits.TypeDate && older.AsOf == 0 {
			continue
		}
		p.Traits = append(p.Traits, o.empty())
		if i >= 0 && o.Type == traits.TypeDate && older.AsOf != s.reader.asOf {
			p.Traits[len(p.Traits)-1].Aged = make([]int, len(o.Counts))
		}
		frames = append(frames, frame{i, &p.Traits[len(p.Traits)-1], older.AsOf})
	}
	return p, frames
}

// hasVanished says whether the schema has not heard of a trait that it would have if anybody said it.
func (s *survey) hasVanished(o TraitProfile) bool {
	known := slices.ContainsFunc(s.Schema.Traits, func(t traits.Trait) bool { return t.Path == o.Path })
	if known || s.Wanted == nil || !s.Wanted(o.Path, o.Type) {
		return false
	}
	s.vanished[o.Path] = true
	return true
}

// withoutSaid leaves out the traits that have not vanished: the schema is learnt from a sample.
func (s *survey) withoutSaid(p *Profile) {
	p.Traits = slices.DeleteFunc(p.Traits, func(t TraitProfile) bool {
		vanished, asked := s.vanished[t.Path]
		return asked && !vanished
	})
}

// profile is a cluster's profile without its traits, users and centroid.
func (s *survey) profile(cluster int) Profile {
	return Profile{
		Schema: s.Schema.Version, Spread: s.Result.Spreads[cluster], AsOf: s.reader.asOf,
	}
}

// centroid is what is kept of a cluster's, as it outlives the users: of each dimension the sum
// over all of them is as round as a standard deviation. Who knows all others finds no more of the
// last one by it, nor of one who alone has a trait.
func (s *survey) centroid(cluster int) []float32 {
	kept, users := slices.Clone(s.Result.Centroids[cluster]), float64(max(1, s.groups[cluster].users))
	for d := range min(len(kept), len(s.units)) {
		unit := s.units[d] / users
		kept[d] = float32(math.Round(float64(kept[d])/unit) * unit)
	}
	return kept
}

func (s *survey) count(cluster int, f traits.Flat) {
	for i := range s.readings {
		s.readings[i].read(s.reader, i, f)
	}
	s.groups[cluster].count(s.reader.traits, s.readings, &s.random)
	s.groups[s.Result.K].count(s.reader.traits, s.readings, &s.random)
	s.into(s.frames[cluster])
	for path := range s.vanished {
		if _, said := f.Get(path); said {
			s.vanished[path] = false
		}
	}
}

// into counts the user at hand into profiles of earlier runs.
func (s *survey) into(frames []frame) {
	for _, frame := range frames {
		r, into := reading{}, frame.profile
		if frame.trait != noTrait {
			r = s.readings[frame.trait]
		}
		if r.known && into.Aged != nil {
			into.Aged[into.bin(r.number)]++
			r.number = daysBefore(frame.asOf, r.day)
		}
		into.count(r)
	}
}

// count adds a user; those of a group are sampled as in Algorithm R (Vitter
// 1985).
func (g *group) count(of []traits.Trait, readings []reading, random *splitmix.Source) {
	place := g.users
	if place >= g.size {
		place = random.IntN(g.users + 1)
	}
	g.users++
	for i, r := range readings {
		switch {
		case numeric(of[i].Type):
			x := r.number
			if !r.known {
				x = math.NaN()
			}
			switch {
			case place < len(g.numbers[i]):
				g.numbers[i][place] = x
			case place < g.size:
				g.numbers[i] = append(g.numbers[i], x)
			}
		case !r.known:
			g.missing[i]++
		}
		var mask uint64
		for _, level := range r.levels {
			g.held[i][level]++
			mask |= g.bit(i, level)
		}
		switch {
		case numeric(of[i].Type):
		case place < len(g.masks[i]):
			g.masks[i][place] = mask
		case place < g.size:
			g.masks[i] = append(g.masks[i], mask)
		}
	}
}

// bit is that of a level in the masks; 0 where there are too many.
func (g *group) bit(trait int, level string) uint64 {
	bit, known := g.bits[trait][level]
	if !known && len(g.bits[trait]) < 64 {
		bit = 1 << len(g.bits[trait])
		g.bits[trait][level] = bit
	}
	return bit
}

// sorted returns the sampled numbers of a trait that are known, and how many
// are not.
func (g *group) sorted(trait int) (known []float64, missing int) {
	known = slices.DeleteFunc(slices.Clone(g.numbers[trait]), math.IsNaN)
	slices.Sort(known)
	return known, len(g.numbers[trait]) - len(known)
}

func (s *survey) conclude() Surveyed {
	all := &s.groups[s.Result.K]
	done := Surveyed{Against: s.against}
	for c := range s.Result.K {
		g := &s.groups[c]
		p := s.profile(c)
		p.Users, p.Total, p.Centroid = g.users, all.users, s.centroid(c)
		p.Traits = make([]TraitProfile, 0, len(s.reader.traits))
		for i, t := range s.reader.traits {
			if numeric(t.Type) {
				known, missing := g.sorted(i)
				p.Traits = append(p.Traits, binned(t, known, missing))
			} else {
				p.Traits = append(p.Traits, levelled(t, g.held[i], all.held[i], g.users, g.missing[i]))
			}
		}
		done.Profiles = append(done.Profiles, p)
		for i := range s.against[c] {
			s.withoutSaid(&s.against[c][i])
			s.against[c][i].Users, s.against[c][i].Total, s.against[c][i].Centroid = g.users, all.users, p.Centroid
		}
	}
	for _, cuts := range s.cutting.cuts {
		for i := range cuts {
			s.withoutSaid(&cuts[i].Under)
			s.withoutSaid(&cuts[i].Same)
		}
	}
	done.Labels, done.Cuts = s.labels(), s.cutting.cuts
	return done
}
