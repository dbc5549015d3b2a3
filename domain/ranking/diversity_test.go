package ranking

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"kindred/domain/matching"
	"kindred/domain/traits"
	"kindred/testkit"
)

// population is users with mixed traits, and how alike they are.
func population(t testing.TB, n int) *matching.Population {
	t.Helper()
	random := rand.New(rand.NewPCG(uint64(n), 1))
	flats := make(map[string]traits.Flat, n)
	for i := range n {
		flat, err := traits.Flatten(fmt.Appendf(nil,
			`{"age":%d,"income":%g,"visits":%d,"plan":"p%d","city":"c%d","vip":%t,"likes":["l%d","l%d","l%d"]}`,
			18+random.IntN(60), 30_000+9_000*random.NormFloat64(), random.IntN(300), random.IntN(4), random.IntN(12),
			random.IntN(5) == 0, random.IntN(20), random.IntN(20), random.IntN(20)))
		if err != nil {
			t.Fatal(err)
		}
		flats[fmt.Sprintf("u%06d", i)] = flat
	}
	p := matching.New(traits.Infer(func(yield func(string, traits.Flat) bool) {
		for user, flat := range flats {
			if !yield(user, flat) {
				return
			}
		}
	}, nil))
	for user, flat := range flats {
		p.Put(user, flat)
	}
	return p
}

func TestPagesKeepTheirRelevanceAndAreLessAlike(t *testing.T) {
	for _, n := range []int{200, 2_000, 20_000} {
		p := population(t, n)
		var kept, with, without float64
		const asked, page = 20, 20
		for u := range asked {
			found := testkit.Must(p.Top(matching.Query{User: fmt.Sprintf("u%06d", u), Limit: 10 * page}))(t)
			s, users := make([]float64, len(found)), make([]string, len(found))
			for i, m := range found {
				s[i], users[i] = MatchScore(m.Score, 0, 0), m.User
			}
			alike := p.Group(users, nil).Against
			order := diversify(s, alike)[:page]
			plain := make([]int, page)
			var relevance float64
			for i := range plain {
				plain[i] = i
				relevance += s[order[i]]
			}
			kept += relevance / sum(s[:page]) / asked
			with += intraList(order, alike) / asked
			without += intraList(plain, alike) / asked
		}
		t.Logf("%d users: relevance %.4f, similarity %.4f instead of %.4f", n, kept, with, without)
		if kept < 0.99 || with >= without {
			t.Errorf("%d users: relevance %.4f, similarity %.4f instead of %.4f", n, kept, with, without)
		}
	}
}

// BenchmarkArrange ranks ten pages of 50 out of 100,000 users.
func BenchmarkArrange(b *testing.B) {
	p := population(b, 100_000)
	found := testkit.Must(p.Top(matching.Query{User: "u000000", Limit: 500}))(b)
	in := Input{Matches: make([]Candidate, len(found))}
	names := make([]string, len(found))
	for i, m := range found {
		in.Matches[i].Score, names[i] = MatchScore(m.Score, 0, 0), m.User
	}
	in.Alike = p.Group(names, nil).Against
	for b.Loop() {
		if order := Arrange(in); !slices.ContainsFunc(order, func(s Slot) bool { return s.Explore }) {
			b.Fatal("nothing explores")
		}
	}
}
