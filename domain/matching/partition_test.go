package matching

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"kindred/domain/traits"
)

// archetypes writes the traits of people of a hundred kinds, who are alike in
// most but not in all that is said of them.
func archetypes(random *rand.Rand, missing float64) string {
	kind := random.IntN(100)
	own := rand.New(rand.NewPCG(uint64(kind), 5))
	var parts []string
	add := func(format string, args ...any) {
		if random.Float64() >= missing {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	number := func() float64 { return own.NormFloat64() + random.NormFloat64()*0.3 }
	level := func(name string, n int) string {
		usual := own.IntN(n)
		if random.IntN(5) == 0 {
			usual = random.IntN(n)
		}
		return fmt.Sprintf("%s%d", name, usual)
	}
	add(`"age":%d`, 40+int(10*number()))
	add(`"income":%g`, math.Exp(number()+10))
	add(`"score":%g`, number())
	add(`"visits":%d`, int(math.Abs(20*number())))
	add(`"joined":"20%02d-%02d-%02d"`, own.IntN(25), 1+random.IntN(12), 1+random.IntN(28))
	add(`"vip":%t`, level("", 2) == "1")
	add(`"plan":%q`, level("p", 5))
	add(`"country":%q`, level("c", 40))
	lat, lon := own.Float64()*120-60, own.Float64()*360-180
	add(`"home":{"lat":%g,"lon":%g}`, lat+random.NormFloat64(), math.Mod(lon+random.NormFloat64(), 180))
	interests := make([]string, 2+random.IntN(5))
	for i := range interests {
		interests[i] = fmt.Sprintf("%q", level("i", 60))
	}
	add(`"interests":[%s]`, strings.Join(interests, ","))
	return "{" + strings.Join(parts, ",") + "}"
}

// few keeps only the first numbers of those who are like nobody.
func few(numbers int) func(*rand.Rand, float64) string {
	return func(random *rand.Rand, _ float64) string {
		parts := []string{
			fmt.Sprintf(`"a":%g`, random.NormFloat64()), fmt.Sprintf(`"b":%g`, math.Exp(random.NormFloat64())), fmt.Sprintf(`"c":%g`, random.Float64()),
		}
		return "{" + strings.Join(parts[:numbers], ",") + "}"
	}
}

// multitude makes a population of n without keeping what it is made of.
func multitude(t testing.TB, n int, missing float64, write func(*rand.Rand, float64) string) *Population {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 1))
	s := traits.Infer(func(yield func(string, traits.Flat) bool) {
		for i := range traits.SampleSize {
			if !yield(fmt.Sprint(i), flat(t, write(random, missing))) {
				return
			}
		}
	}, nil)
	p := New(s)
	for i := range n {
		p.Put(fmt.Sprintf("usr_%07d", i), flat(t, write(random, missing)))
	}
	return p
}

// recall is the share of the exact best matches that a search finds.
func recall(p *Population, rows []int, limit int) float64 {
	v := p.view(nil)
	found, wanted := 0, 0
	for _, row := range rows {
		q := Query{Limit: limit}
		got := v.scan(row, q)
		for _, r := range v.everywhere(row, q) {
			wanted++
			if slices.Contains(got, r) {
				found++
			}
		}
	}
	return float64(found) / float64(wanted)
}

// someRows are rows of random users.
func someRows(p *Population, random *rand.Rand, n int) []int {
	users := slices.Sorted(maps.Keys(p.rows))
	rows := make([]int, n)
	for i := range rows {
		rows[i] = p.rows[users[random.IntN(len(users))]]
	}
	return rows
}

func TestAPartitionFindsWhatIsThere(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		missing float64
		write   func(*rand.Rand, float64) string
		probed  bool // fewer than all cells must do
	}{
		"archetypes":                 {0, archetypes, true},
		"archetypes, a tenth unsaid": {0.1, archetypes, true},
		"one number":                 {0, few(1), true},
		"two numbers":                {0, few(2), true},
		"three numbers":              {0, few(3), true},
		"structureless":              {0.2, document, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := multitude(t, 3000, c.missing, c.write)
			p.Partition(1)
			if len(p.cells) != 55 || p.Len() != 3000 {
				t.Fatalf("%d users in %d cells", p.Len(), len(p.cells))
			}
			if c.probed && (p.partition.probes[0] == 0 || p.partition.probes[0] > len(p.cells)/3) {
				t.Errorf("it takes %v of %d cells", p.partition.probes, len(p.cells))
			}
			random := rand.New(rand.NewPCG(3, 3))
			for _, limit := range []int{5, 20, 100} {
				if got := recall(p, someRows(p, random, 25), limit); got < 0.95 {
					t.Errorf("recall %.3f of %d", got, limit)
				}
			}
		})
	}
}

// Where the question is not the one that the cells were made for, everyone is
// looked at, and where all cells are probed, nobody is missed.
func TestAPartitionMissesNobodyItPromisesToFind(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 4))
	people := crowd(t, random, 2000, 0.2)
	s := learn(people, nil)
	p := populate(s, people)
	p.Partition(1)
	for i := range p.partition.probes {
		p.partition.probes[i] = 1
	}
	for range 5 {
		user := people[random.IntN(len(people))].id
		sameTop(t, s, people, p, Query{User: user, Limit: 101})
		sameTop(t, s, people, p, Query{User: user, Limit: 10, Keep: func(id string) bool { return strings.HasSuffix(id, "3") }})
		sameTop(t, s, people, p, Query{User: user, Limit: 10, Permit: func(path string) bool { return path != "age" }})
	}
	for _, limit := range []int{-1, 0} {
		if got, err := p.Top(Query{User: people[0].id, Limit: limit}); err != nil || len(got) != 0 {
			t.Errorf("limit %d: %v, %v", limit, got, err)
		}
	}
	for i := range p.partition.probes {
		p.partition.probes[i] = len(p.cells)
	}
	for range 5 {
		sameTop(t, s, people, p, Query{User: people[random.IntN(len(people))].id, Limit: 20})
	}
}

func TestAPartitionFollowsItsUsers(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 5))
	people := crowd(t, random, 1500, 0.2)
	s := learn(people, nil)
	p := populate(s, people[:1000])
	p.Partition(1)
	for i := range p.partition.probes {
		p.partition.probes[i] = len(p.cells)
	}
	for i := range people { // half of them change, the others come
		people[i].flat = flat(t, document(random, 0.2))
		if i >= 500 {
			p.Put(people[i].id, people[i].flat)
		}
	}
	for _, gone := range people[:500] {
		p.Remove(gone.id)
	}
	people = people[500:]
	for range 10 {
		sameTop(t, s, people, p, Query{User: people[random.IntN(len(people))].id, Limit: 20})
	}
	taken := 0
	for home, c := range p.cells {
		taken += len(c.chunks)*chunkRows - len(c.free)
		for _, chunk := range c.chunks {
			for row := chunk * chunkRows; row < (chunk+1)*chunkRows; row++ {
				if user := p.users[row]; user != "" && (p.rows[user] != row || p.nearest(row) != home) {
					t.Fatalf("%s is not where it belongs", user)
				}
			}
		}
	}
	if taken != len(people) || p.Len() != len(people) {
		t.Errorf("%d rows are taken by %d of %d users", taken, p.Len(), len(people))
	}
}

// Other weights are those of a population that was made for them, and someone
// who is asked about by the way leaves no trace.
func TestReweighedIsAsIfMadeSo(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	people := crowd(t, random, 1000, 0.2)
	p := populate(learn(people, nil), people)
	p.Partition(1)
	overrides := map[string]traits.Override{"age": {Weight: new(4.0)}, "plan": {Weight: new(0.0)}, "home": {Ignore: new(true)}, "vip": {Sensitive: new(true)}}
	s := learn(people, overrides)
	for range 3 {
		if !p.Reweigh(s) {
			t.Fatal("it cannot be reweighed")
		}
		for range 5 {
			sameTop(t, s, people, p, Query{User: people[random.IntN(len(people))].id, Limit: 20})
		}
		someone, other := people[random.IntN(len(people))], people[random.IntN(len(people))]
		score, ok, err := p.Like(someone.flat, other.id)
		want, _, _, wanted := reference(s, someone.flat, other.flat, nil)
		if err != nil || ok != wanted || math.Abs(score-want) > 1e-9 {
			t.Errorf("like %v (%v, %v), not %v", score, ok, err, want)
		}
	}
	if _, _, err := p.Like(people[0].flat, "nobody"); !errors.Is(err, ErrUnknownUser) || p.Len() != len(people) {
		t.Errorf("%v, %d users", err, p.Len())
	}
	for _, other := range []map[string]traits.Override{{"visits": {Type: traits.TypeCategory}}, {"plan": {Type: traits.TypeSet}}} {
		if p.Reweigh(learn(people, other)) {
			t.Errorf("%v is something else to read", other)
		}
	}
	less := populate(s, people) // without what the client did not want
	if less.Reweigh(learn(people, nil)) {
		t.Error("what was left out is back")
	}
	sameTop(t, s, people, less, Query{User: people[0].id, Limit: 20})
}

func TestNothingToPartition(t *testing.T) {
	for n := range 3 {
		people := crowd(t, rand.New(rand.NewPCG(6, 6)), n, 0)
		p := populate(learn(people, nil), people)
		p.Partition(1)
		for _, someone := range people {
			if got, err := p.Top(Query{User: someone.id, Limit: 5}); err != nil || len(got) != n-1 {
				t.Errorf("%d users: %v, %v", n, got, err)
			}
		}
	}
}
