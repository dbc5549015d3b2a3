package matching

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"kindred/domain/traits"
	"kindred/testkit"
)

func TestTopIsThatOfTheDefinition(t *testing.T) {
	weights := map[string]traits.Override{
		"age": {Weight: new(10.0)}, "plan": {Weight: new(0.001)}, "visits": {Weight: new(0.0)},
		"income": {Ignore: new(true)}, "vip": {Sensitive: new(true)},
	}
	for _, missing := range []float64{0, 0.2, 0.6, 0.95} {
		for i, overrides := range []map[string]traits.Override{nil, weights} {
			t.Run(fmt.Sprintf("missing %v overrides %d", missing, i), func(t *testing.T) {
				random := rand.New(rand.NewPCG(uint64(missing*100), uint64(i)))
				people := crowd(t, random, 1300, missing)
				s := learn(people, overrides)
				p := populate(s, people)
				for range 3 {
					user := people[random.IntN(len(people))].id
					sameTop(t, s, people, p, Query{User: user, Limit: 20})
					sameTop(t, s, people, p, Query{User: user, Limit: 3000})
					sameTop(t, s, people, p, Query{
						User: user, Limit: 10,
						Permit: func(path string) bool { return path != "age" && path != "home" },
						Keep:   func(id string) bool { return strings.HasSuffix(id, "7") },
					})
				}
			})
		}
	}
}

// Who wants to know who alone gets those whom others get, and no terms.
func TestBareAnswersAreNotExplained(t *testing.T) {
	people := crowd(t, rand.New(rand.NewPCG(2, 2)), 300, 0.2)
	p := populate(learn(people, nil), people)
	q := Query{User: people[0].id, Limit: 200}
	explained := testkit.Must(p.Top(q))(t)
	q.Bare = true
	bare, err := p.Top(q)
	if err != nil || len(bare) != len(explained) || len(bare) == 0 {
		t.Fatalf("%d, not %d: %v", len(bare), len(explained), err)
	}
	for i, m := range bare {
		if m.User != explained[i].User || m.Score != explained[i].Score || m.Terms != nil || explained[i].Terms == nil {
			t.Fatalf("%+v, not %+v", m, explained[i])
		}
	}
	others := []string{"nobody"}
	for _, m := range bare {
		others = append(others, m.User)
	}
	again, err := p.Explain(q.User, others, nil)
	if err != nil || !reflect.DeepEqual(again, explained) {
		t.Errorf("those alone: %v, %d of %d", err, len(again), len(explained))
	}
	slices.Reverse(others)
	again, err = p.Explain(q.User, others, nil)
	if err != nil || len(again) != len(explained) || !slices.IsSortedFunc(again, func(a, b Match) int { return cmp.Compare(b.Score, a.Score) }) {
		t.Errorf("not the best first: %v, %d of %d", err, len(again), len(explained))
	}
	if _, err := p.Explain("nobody", others, nil); !errors.Is(err, ErrUnknownUser) {
		t.Errorf("nobody is explained: %v", err)
	}
}

// Each trait alone leaves nothing for another to hide: a bound that is too low
// for one kind would lose matches here.
func TestTopOfEachTraitAlone(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	people := crowd(t, random, 1200, 0.05)
	s := learn(people, nil)
	p := populate(s, people)
	if len(p.traits) != 10 {
		t.Fatalf("%d traits", len(p.traits))
	}
	for _, c := range p.traits {
		t.Run(c.Path, func(t *testing.T) {
			for range 10 {
				user := people[random.IntN(len(people))].id
				sameTop(t, s, people, p, Query{User: user, Limit: 15, Permit: func(path string) bool { return path == c.Path }})
			}
		})
	}
}

// The bound of every pair is not below its similarity, whatever the kind.
func TestBoundsAreNeverTooLow(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 4))
	people := crowd(t, random, 1500, 0.1)
	for i := range 60 { // large sets, whose members share bits
		members := make([]string, random.IntN(300))
		for j := range members {
			members[j] = fmt.Sprintf(`"i%d"`, random.IntN(400))
		}
		doc := fmt.Sprintf(`{"interests":[%s],"home":{"lat":%g,"lon":%g}}`, strings.Join(members, ","), 48+random.Float64()/1e4, 11+random.Float64()/1e4)
		people = append(people, person{fmt.Sprintf("usr_x%d", i), flat(t, doc)})
	}
	p := populate(learn(people, nil), people)
	sums := make([]int64, len(people))
	tight := 0
	for i, c := range p.traits {
		for _, row := range append(random.Perm(len(people))[:60], len(people)-1, len(people)-2) {
			if !p.presences.keys[p.patterns[row]].has(i) {
				continue
			}
			clear(sums)
			c.values.bounds(row, 7)(0, sums)
			for other, sum := range sums {
				bound := float64(sum) / (7 * one)
				if !p.presences.keys[p.patterns[other]].has(i) {
					if sum != 0 {
						t.Fatalf("%s: a missing value adds %v", c.Path, bound)
					}
					continue
				}
				exact := c.values.similarity(row, other)
				if bound < exact {
					t.Fatalf("%s: bound %v below %v", c.Path, bound, exact)
				}
				if bound-exact < 0.02 {
					tight++
				}
			}
		}
	}
	if tight < 10*60*len(people)/2 {
		t.Errorf("only %d bounds are tight", tight)
	}
}

func TestAnswersDoNotDependOnHowThePopulationCameAbout(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 5))
	people := crowd(t, random, 1200, 0.3)
	s := learn(people, nil)
	p := New(s)
	for range 4 { // everyone comes, changes and goes several times
		for _, i := range random.Perm(len(people)) {
			p.Put(people[i].id, flat(t, document(random, 0.3)))
		}
		for _, i := range random.Perm(len(people))[:900] {
			p.Remove(people[i].id)
			p.Remove(people[i].id)
		}
	}
	for _, i := range random.Perm(len(people)) {
		p.Put(people[i].id, people[i].flat)
	}
	gone := people[1000:]
	for _, someone := range gone {
		p.Remove(someone.id)
	}
	people = people[:1000]
	if p.Len() != len(people) || len(p.users) != 1200+chunkRows-1200%chunkRows {
		t.Fatalf("%d users in %d rows", p.Len(), len(p.users))
	}
	for range 20 {
		sameTop(t, s, people, p, Query{User: people[random.IntN(len(people))].id, Limit: 30})
	}
	fresh := populate(s, people)
	if len(p.presences.numbers) != len(fresh.presences.numbers) {
		t.Errorf("%d patterns are held, not %d", len(p.presences.numbers), len(fresh.presences.numbers))
	}
	for i := range p.traits {
		held := func(p *Population) int {
			switch v := p.traits[i].values.(type) {
			case *levels:
				return len(v.known.numbers)
			case *sets:
				return v.held
			}
			return 0
		}
		if held(p) != held(fresh) {
			t.Errorf("%s: %d texts or members are held, not %d", p.traits[i].Path, held(p), held(fresh))
		}
	}
}

func TestTopAtItsEdges(t *testing.T) {
	people := []person{
		{"a", flat(t, `{"x":1,"y":true}`)}, {"b", flat(t, `{"x":2,"y":true}`)}, {"c", flat(t, `{"x":3}`)}, {"d", flat(t, `{}`)}, {"e", flat(t, `{"z":"only"}`)},
	}
	p := populate(learn(people, nil), people)
	for _, limit := range []int{-1, 0} {
		if got, err := p.Top(Query{User: "a", Limit: limit}); err != nil || len(got) != 0 {
			t.Errorf("limit %d: %v, %v", limit, got, err)
		}
	}
	for _, user := range []string{"d", "e"} {
		if got, err := p.Top(Query{User: user, Limit: 9}); err != nil || len(got) != 0 {
			t.Errorf("%s shares nothing with anyone: %v, %v", user, got, err)
		}
	}
	if got, err := p.Top(Query{User: "a", Limit: 1 << 60}); err != nil || len(got) != 2 || got[0].User != "b" {
		t.Errorf("got %v, %v", got, err)
	}
	for _, user := range []string{"nobody", ""} {
		if _, err := p.Top(Query{User: user, Limit: 1}); !errors.Is(err, ErrUnknownUser) {
			t.Errorf("%q: %v", user, err)
		}
	}
	p.Remove("b")
	if got, err := p.Top(Query{User: "a", Limit: 9}); err != nil || len(got) != 1 || got[0].User != "c" {
		t.Errorf("after b went: %v, %v", got, err)
	}
}

func FuzzTop(f *testing.F) {
	f.Add(`{"a":1,"b":["x"],"c":{"lat":1,"lon":2},"d":"2024-01-01","e":true,"f":"x"}`, `{"a":2,"b":[],"c":{"lat":-90,"lon":180}}`, `{"a":-1e150,"f":"y"}`, 1.0)
	f.Add(`{"a":1e150}`, `{"a":-1e150}`, `{"a":5e-324}`, 1e-320)
	f.Fuzz(func(t *testing.T, first, second, third string, weight float64) {
		var people []person
		for i, doc := range []string{first, second, third, first} {
			flat, err := traits.Flatten([]byte(doc))
			if err != nil {
				return
			}
			people = append(people, person{fmt.Sprint("u", i), flat})
		}
		s := learn(people, map[string]traits.Override{"a": {Weight: &weight}})
		p := populate(s, people)
		sameTop(t, s, people, p, Query{User: "u0", Limit: 3})
		if matches, err := p.Top(Query{User: "u1", Limit: 3}); err != nil || len(matches) > 3 {
			t.Fatal(matches, err)
		}
		p.Put("u2", people[1].flat)
		p.Remove("u0")
		people = []person{people[1], {"u2", people[1].flat}, people[3]}
		sameTop(t, s, people, p, Query{User: "u1", Limit: 3})
	})
}
