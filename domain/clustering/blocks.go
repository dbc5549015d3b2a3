package clustering

import (
	"encoding/binary"
	"slices"
)

// leastMeetings is how often two flags that exclude one another would be held together by
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
				traits[i].Width == 1 && traits[j].Width == 1 && count[i] == 2 && count[j] == 2 && exclude(points, traits[i].First, traits[j].First) {
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

// exclude says whether nobody holds two flags, the larger of two values each, that some would
// by chance.
func exclude(points Points, a, b int) bool {
	highest := func(d int) (high float32) {
		high = points.row(0)[d]
		for i := range points.Len() {
			high = max(high, points.row(i)[d])
		}
		return high
	}
	highA, highB := highest(a), highest(b)
	holdA, holdB := 0, 0
	for i := range points.Len() {
		isA, isB := points.row(i)[a] == highA, points.row(i)[b] == highB
		if isA && isB {
			return false
		}
		if isA {
			holdA++
		}
		if isB {
			holdB++
		}
	}
	return holdA*holdB >= leastMeetings*points.Len()
}
