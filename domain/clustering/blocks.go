package clustering

import (
	"encoding/binary"
	"slices"
)

// leastMeetings is how often two values that exclude one another would be said together by
// chance: exp(-7) is under 0.001.
const leastMeetings = 7

// blocks joins traits that say one thing, so that users do not seem to stand in groups for
// what was written down twice: flags that exclude one another, as a category does that was
// exported as a column a level, and categories that follow from another, as the country
// does from the city.
func blocks(points Points, traits []Span) []block {
	n := points.Len()
	held := make([][]int, len(traits)) // by trait of few values, the number of each user's
	count := make([]int, len(traits))
	for i, t := range traits {
		held[i], count[i] = values(points, t)
		if count[i] < 2 || count[i]*10 > n || t.Number && count[i] > 2 {
			held[i] = nil
		}
	}
	of := make([]int, len(traits)) // the first trait of the block of each
	for i := range of {
		of[i] = i
		for j := range i {
			if of[i] == of[j] || held[i] == nil || held[j] == nil {
				continue
			}
			if follows(held[i], held[j], count[i]) || follows(held[j], held[i], count[j]) ||
				count[i] == 2 && count[j] == 2 && exclude(points, traits[i], traits[j], held[i], held[j]) {
				from, to := max(of[i], of[j]), min(of[i], of[j])
				for o := range i + 1 {
					if of[o] == from {
						of[o] = to
					}
				}
			}
		}
	}
	var all []block
	for i := range traits {
		if of[i] != i {
			continue
		}
		var b block
		for j := i; j < len(traits); j++ {
			if of[j] == i {
				b = append(b, traits[j])
			}
		}
		all = append(all, b)
	}
	return all
}

// values numbers what the users say of a trait, and counts it.
func values(points Points, t Span) (held []int, count int) {
	known := map[string]int{}
	held = make([]int, points.Len())
	var said []byte
	for i := range held {
		said, _ = binary.Append(said[:0], binary.BigEndian, points.row(i)[t.First:][:t.Width])
		at, ok := known[string(said)]
		if !ok {
			at = len(known)
			known[string(said)] = at
		}
		held[i] = at
	}
	return held, len(known)
}

// follows says whether who says the same of one trait, of so many values, says the same of another.
func follows(one, other []int, values int) bool {
	then := slices.Repeat([]int{-1}, values)
	for i, v := range one {
		if then[v] < 0 {
			then[v] = other[i]
		} else if then[v] != other[i] {
			return false
		}
	}
	return true
}

// exclude says whether nobody says two things, of two traits of two values each, that some
// would by chance. Of flags, these are that each is held. Nobody knows which of two words says
// that, so of words it is any two.
func exclude(points Points, a, b Span, heldA, heldB []int) bool {
	var cells [2][2]int
	for i, v := range heldA {
		cells[v][heldB[i]]++
	}
	words := a.Width > 1 || b.Width > 1
	onA, onB := higher(points, a.First, heldA), higher(points, b.First, heldB)
	for v := range 2 {
		for w := range 2 {
			ofA, ofB := cells[v][0]+cells[v][1], cells[0][w]+cells[1][w]
			if (words || v == onA && w == onB) && cells[v][w] == 0 && ofA*ofB >= leastMeetings*points.Len() {
				return true
			}
		}
	}
	return false
}

// higher is that of two values, as they are numbered, which is the larger in a dimension.
func higher(points Points, d int, held []int) int {
	at := slices.Index(held, 1)
	if points.row(at)[d] > points.row(0)[d] {
		return 1
	}
	return 0
}
