package matching

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"kindred/domain/traits"
	"kindred/testkit"
)

// person is a user as the reference sees it.
type person struct {
	id   string
	flat traits.Flat
}

// reference scores two users as the definition reads, in plain float64.
func reference(s traits.Schema, a, b traits.Flat, permit func(string) bool) (score, coverage float64, terms map[string]float64, ok bool) {
	terms = make(map[string]float64)
	neither := make(map[string]float64) // weights
	var sum, shared, either, all float64
	for _, t := range s.Traits {
		numeric := t.Type == traits.TypeNumber || t.Type == traits.TypeDate
		if !t.Participates() || permit != nil && !permit(t.Path) || numeric && t.Numbers.P99 == t.Numbers.P1 {
			continue
		}
		x, inA := t.Read(a)
		y, inB := t.Read(b)
		all += t.Weight
		if inA || inB {
			either += t.Weight
		}
		if !inA && !inB {
			neither[t.Path] = t.Weight
			terms[t.Path] = t.Expected
			continue
		}
		if !inA || !inB {
			sum += t.Weight * t.Expected
			terms[t.Path] = t.Weight * t.Expected
			continue
		}
		var similar float64
		switch t.Type {
		case traits.TypeNumber, traits.TypeDate:
			similar = 1 - min(1, math.Abs(x.Number-y.Number)/(t.Numbers.P99-t.Numbers.P1))
		case traits.TypeBool:
			similar = float64(map[bool]int{true: 1}[x.Number == y.Number])
		case traits.TypeCategory:
			similar = float64(map[bool]int{true: 1}[x.Text == y.Text])
		case traits.TypeSet:
			common := 0
			for _, m := range x.Set {
				if slices.Contains(y.Set, m) {
					common++
				}
			}
			similar = 1
			if len(x.Set)+len(y.Set) > 0 {
				similar = float64(common) / float64(len(x.Set)+len(y.Set)-common)
			}
		case traits.TypeGeo:
			similar = math.Exp(-kilometres(x, y) / 1000)
		}
		sum += t.Weight * similar
		shared += t.Weight
		terms[t.Path] = t.Weight * similar
	}
	if shared == 0 {
		return 0, 0, nil, false
	}
	whole := max(either, all/5)
	for path, weight := range neither {
		if part := (whole - either) / (all - either); part > 0 {
			terms[path] *= weight * part
			sum += terms[path]
		} else {
			delete(terms, path)
		}
	}
	for path := range terms {
		terms[path] /= whole
	}
	return sum / whole, shared / either, terms, sum/whole >= 0.00005
}

// kilometres measures by the angle between vectors (Vincenty's formula on a
// sphere), which is another way than the package's own.
func kilometres(a, b traits.Value) float64 {
	const radian = math.Pi / 180
	sinA, cosA := math.Sincos(a.Number * radian)
	sinB, cosB := math.Sincos(b.Number * radian)
	sinL, cosL := math.Sincos((a.Lon - b.Lon) * radian)
	return 6371.0088 * math.Atan2(math.Hypot(cosB*sinL, cosA*sinB-sinA*cosB*cosL), sinA*sinB+cosA*cosB*cosL)
}

// wanted is one answer of the reference.
type wanted struct {
	id    string
	score float64
	terms map[string]float64
}

// referenceTop scores everyone.
func referenceTop(s traits.Schema, people []person, q Query) []wanted {
	at := slices.IndexFunc(people, func(p person) bool { return p.id == q.User })
	var all []wanted
	for i, p := range people {
		if i == at || q.Keep != nil && !q.Keep(p.id) {
			continue
		}
		score, _, terms, ok := reference(s, people[at].flat, p.flat, q.Permit)
		if ok {
			all = append(all, wanted{p.id, score, terms})
		}
	}
	slices.SortFunc(all, func(a, b wanted) int {
		return cmp.Or(cmp.Compare(b.score, a.score), strings.Compare(a.id, b.id))
	})
	return all[:min(len(all), max(0, q.Limit))]
}

// document writes the traits of someone who is like many others: few distinct
// values, outliers, missing traits and neighbours on both sides of the
// antimeridian all occur. Each trait is missing with the given chance.
func document(random *rand.Rand, missing float64) string {
	var parts []string
	add := func(format string, args ...any) {
		if random.Float64() >= missing {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	wild := func(x float64) float64 {
		if random.IntN(50) == 0 {
			return x * 1e12
		}
		return x
	}
	add(`"age":%d`, 18+random.IntN(60))
	add(`"income":%g`, wild(math.Exp(random.NormFloat64()+10)))
	add(`"score":%g`, random.NormFloat64())
	add(`"visits":%d`, random.IntN(4)*random.IntN(100))
	add(`"joined":"20%02d-%02d-%02d"`, random.IntN(25), 1+random.IntN(12), 1+random.IntN(28))
	add(`"vip":%t`, random.IntN(4) == 0)
	add(`"plan":"p%d"`, random.IntN(5))
	add(`"country":"c%d"`, int(math.Abs(random.NormFloat64()*12)))
	add(`"home":{"lat":%g,"lon":%g}`, random.Float64()*180-90, []float64{179.99, -179.99, random.Float64()*360 - 180}[random.IntN(3)])
	interests := make([]string, random.IntN(8))
	for i := range interests {
		interests[i] = fmt.Sprintf(`"i%d"`, int(math.Abs(random.NormFloat64()*40)))
	}
	add(`"interests":[%s]`, strings.Join(interests, ","))
	return "{" + strings.Join(parts, ",") + "}"
}

func flat(t testing.TB, doc string) traits.Flat {
	t.Helper()
	return testkit.Must(traits.Flatten([]byte(doc)))(t)
}

func crowd(t testing.TB, random *rand.Rand, n int, missing float64) []person {
	t.Helper()
	people := make([]person, n)
	for i := range people {
		people[i] = person{fmt.Sprintf("usr_%05d", i), flat(t, document(random, missing))}
	}
	return people
}

func learn(people []person, overrides map[string]traits.Override) traits.Schema {
	return traits.Infer(func(yield func(string, traits.Flat) bool) {
		for _, p := range people {
			if !yield(p.id, p.flat) {
				return
			}
		}
	}, overrides)
}

func populate(s traits.Schema, people []person) *Population {
	p := New(s)
	for _, someone := range people {
		p.Put(someone.id, someone.flat)
	}
	return p
}

// sameTop compares with the reference: scores within 1e-9 place by place, and
// the same users in the same order but where the reference itself, which sums
// its distances in another way, cannot tell two scores apart.
func sameTop(t testing.TB, s traits.Schema, people []person, p *Population, q Query) {
	t.Helper()
	want := referenceTop(s, people, Query{User: q.User, Limit: len(people), Permit: q.Permit, Keep: q.Keep})
	got := testkit.Must(p.Top(q))(t)
	if len(got) != min(q.Limit, len(want)) {
		t.Fatalf("%d matches of %s, not %d", len(got), q.User, min(q.Limit, len(want)))
	}
	byID := make(map[string]wanted, len(want))
	for _, w := range want {
		byID[w.id] = w
	}
	for i, m := range got {
		w, ok := byID[m.User]
		if !ok || math.Abs(m.Score-w.score) > 1e-9 || math.Abs(m.Score-want[i].score) > 1e-9 {
			t.Fatalf("match %d of %s is %s with %.12f, not %s with %.12f", i, q.User, m.User, m.Score, want[i].id, want[i].score)
		}
		if lot := func(user string) uint64 { return mix(hashOf(q.User) + hashOf(user)) }; i > 0 &&
			(got[i-1].Score < m.Score || got[i-1].Score == m.Score && lot(got[i-1].User) >= lot(m.User)) {
			t.Fatalf("%s is out of order at %d", m.User, i)
		}
		clear := (i == 0 || want[i-1].score-want[i].score > 1e-9) && (i+1 == len(want) || want[i].score-want[i+1].score > 1e-9)
		if clear && m.User != want[i].id {
			t.Fatalf("match %d of %s is %s, not %s", i, q.User, m.User, want[i].id)
		}
		var sum float64
		for _, term := range m.Terms {
			sum += term.Contribution
			if math.Abs(term.Contribution-w.terms[term.Trait]) > 1e-9 || term.Similarity < 0 || term.Similarity > 1 {
				t.Fatalf("term %+v of %s, not %v", term, m.User, w.terms[term.Trait])
			}
		}
		if len(m.Terms) != len(w.terms) || math.Abs(sum-m.Score) > 1e-9 {
			t.Fatalf("%d terms that add up to %v, not %d and %v", len(m.Terms), sum, len(w.terms), m.Score)
		}
	}
}
