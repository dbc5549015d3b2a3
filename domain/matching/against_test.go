package matching

import (
	"math/rand/v2"
	"testing"
)

func TestAGroupScoresAsPairsDo(t *testing.T) {
	people := crowd(t, rand.New(rand.NewPCG(5, 6)), 80, 0.5)
	p := populate(learn(people, nil), people)
	users, others := make([]string, len(people)), make([]int, 0, len(people))
	for i, someone := range people {
		users[i] = someone.id
		others = append(others, i)
	}
	users[3] = "nobody"
	for name, permit := range map[string]func(string) bool{"all": nil, "some": func(path string) bool { return path < "j" }} {
		g := p.Group(users, permit)
		p.Remove(people[7].id)
		p.Put("who takes the row", people[8].flat)
		scores := make([]float64, len(others))
		for one := range people {
			g.Against(one, others, scores)
			for i, other := range others {
				m, ok, _ := p.Pair(users[one], users[other], permit)
				if want := m.Score; ok && scores[i] != want || !ok && scores[i] != 0 {
					t.Fatalf("%s: %d and %d score %v, want %v, %t", name, one, other, scores[i], want, ok)
				}
			}
		}
		p.Remove("who takes the row")
		p.Put(people[7].id, people[7].flat)
	}
}
