package matching

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"
)

// leaning marks a share of the users: with the row, the more alike a user is to it the more
// likely, or against it.
func leaning(p *Population, random *rand.Rand, mark string, row int, share float64, with bool) {
	type one struct {
		user  string
		score float64
	}
	v := p.view(nil)
	all := make([]one, 0, len(p.rows))
	for row2, user := range p.users {
		if user != "" {
			score, _ := v.score(row, row2)
			all = append(all, one{user, score})
		}
	}
	slices.SortFunc(all, func(a, b one) int {
		return cmp.Or(cmp.Compare(a.score, b.score), cmp.Compare(a.user, b.user))
	})
	marked := map[string]bool{}
	for i, one := range all {
		likely := 2 * share * float64(i) / float64(len(all))
		if !with {
			likely = 2*share - likely
		}
		if random.Float64() < likely {
			marked[one.user] = true
		}
	}
	p.Mark(mark, marked)
}

// exactly answers for marked rows by looking at everyone.
func exactly(v view, row int, mark string, limit int) []ranked {
	return v.everywhere(row, Query{Limit: limit, Keep: func(user string) bool { return v.marks.has(mark, v.rows[user]) }})
}

func foundOf(got, wanted []ranked) (n int) {
	for _, r := range wanted {
		if slices.Contains(got, r) {
			n++
		}
	}
	return n
}

// Whoever a filter lets through, few or many, whom it leans to, in all traits or in some:
// of the exact answer .95 is found, and without cells all of it.
func TestMarkedUsersAreFound(t *testing.T) {
	t.Parallel()
	p := multitude(t, 20_000, 0.05, archetypes)
	some := func(path string) bool { return path != p.traits[0].Path && path != p.traits[1].Path }
	try := func(least float64, users int) {
		t.Helper()
		for _, share := range []float64{.5, .1, .001} {
			for _, with := range []bool{true, false} {
				for _, permit := range []func(string) bool{nil, some} {
					found, wanted := 0, 0
					random := rand.New(rand.NewPCG(3, 3))
					for _, row := range someRows(p, random, users) {
						leaning(p, random, "m", row, share, with)
						v := p.view(permit)
						exact := exactly(v, row, "m", 20)
						wanted += len(exact)
						found += foundOf(v.scan(row, Query{Limit: 20, Marked: []string{"m"}}), exact)
					}
					if float64(found) < least*float64(wanted) || wanted == 0 {
						t.Errorf("of a share of %v, with it %v, of some traits %v: %d of %d are found", share, with, permit != nil, found, wanted)
					}
					p.Unmark("m")
				}
			}
		}
	}
	try(1, 1)
	p.Partition(1)
	try(.95, 4)
}

// A mark stays with its user, wherever that moves, and goes with it.
// What is seen through a part of the traits that weighs next to nothing is looked for everywhere.
func TestASearchThroughLittleWeightLooksAtAll(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 1))
	people := crowd(t, random, 3_000, 0.2)
	p := populate(learn(people, nil), people)
	p.Partition(1)
	for i := range p.partition.probes {
		p.partition.probes[i] = 3
	}
	v := p.view(nil)
	for _, wider := range []float64{1e5, 1e16, 1e200, math.Inf(1)} {
		v.total = 0
		for _, trait := range v.traits {
			v.total += trait.Weight / wider
		}
		if rows, probes := v.budget(Query{Limit: 10}, 2_900); rows != 2_900 || probes != len(v.cells) {
			t.Errorf("%g times the weight: %d rows of 2,900, in %d cells of %d", wider, rows, probes, len(v.cells))
		}
	}
}

func TestMarksMoveWithUsers(t *testing.T) {
	p := multitude(t, 5_000, 0.1, archetypes)
	random := rand.New(rand.NewPCG(4, 4))
	marked := [2]map[string]bool{{}, {}}
	for user := range p.rows {
		for mark := range marked {
			marked[mark][user] = random.IntN(3) > 0
		}
	}
	p.Mark("0", marked[0])
	p.Mark("1", marked[1])
	check := func() {
		t.Helper()
		for row, user := range p.users {
			for i, mark := range []string{"0", "1"} {
				if p.marks.has(mark, row) != (user != "" && marked[i][user]) {
					t.Fatalf("mark %s of %q in row %d is %v", mark, user, row, p.marks.has(mark, row))
				}
			}
		}
	}
	check()
	p.Partition(1)
	check()
	for i := range 3_000 { // most move to another cell
		user := fmt.Sprintf("usr_%07d", random.IntN(6_000))
		switch p.Put(user, flat(t, archetypes(random, 0.1))); {
		case i%5 == 0:
			p.Remove(user)
			delete(marked[0], user)
			delete(marked[1], user)
		case i%7 == 0:
			marked[0][user] = !marked[0][user]
			p.Mark("0", map[string]bool{user: marked[0][user], "nobody": true})
		}
	}
	check()
	for _, row := range someRows(p, random, 20) {
		for _, m := range p.view(nil).scan(row, Query{Limit: 50, Marked: []string{"0", "1", "unknown"}}) {
			if user := p.users[m.row]; !marked[0][user] || !marked[1][user] {
				t.Errorf("%s is answered, who lacks a mark", user)
			}
		}
	}
	p.Mark("nobody's", nil)
	if found := p.view(nil).scan(someRows(p, random, 1)[0], Query{Limit: 50, Marked: []string{"nobody's"}}); len(found) != 0 {
		t.Errorf("%d have a mark that nobody has", len(found))
	}
	p.Unmark("nobody's")
	if found := p.view(nil).scan(someRows(p, random, 1)[0], Query{Limit: 50, Marked: []string{"nobody's"}}); len(found) != 50 {
		t.Errorf("a mark that was forgotten leaves %d", len(found))
	}
}

// BenchmarkMarked searches a million users for those whom a filter lets through: the
// share is that of all of them; half of the queries lean with it, half against it. Queries go by
// the processor's time, which others on the machine take no part in.
func BenchmarkMarked(b *testing.B) {
	for _, c := range []struct {
		name  string
		write func(*rand.Rand, float64) string
	}{{"10 mixed traits", archetypes}, {"structureless", document}} {
		b.Run(c.name, func(b *testing.B) {
			p := multitude(b, 1_000_000, 0, c.write)
			p.Partition(1)
			some := func(path string) bool { return path != p.traits[0].Path && path != p.traits[1].Path }
			for _, share := range []float64{.5, .1, .01, .001} {
				random := rand.New(rand.NewPCG(2, 2))
				rows := someRows(p, random, 10)
				for mark, row := range rows {
					p.Unmark(fmt.Sprint(mark)) // of the share before
					leaning(p, random, fmt.Sprint(mark), row, share, mark%2 == 0)
				}
				for _, permit := range []func(string) bool{nil, some} {
					b.Run(fmt.Sprintf("share %v/of some traits %v", share, permit != nil), func(b *testing.B) {
						benchmarkMarked(b, p, rows, permit)
					})
				}
			}
		})
	}
}

func benchmarkMarked(b *testing.B, p *Population, rows []int, permit func(string) bool) {
	b.Helper()
	found, wanted := 0, 0
	v := p.view(permit)
	before := processorTime(b)
	for mark, row := range rows {
		exact := exactly(v, row, fmt.Sprint(mark), 20)
		wanted += len(exact)
		found += foundOf(v.scan(row, Query{Limit: 20, Marked: []string{fmt.Sprint(mark)}}), exact)
	}
	without := processorTime(b) - before // and 10 searches
	b.ResetTimer()
	before = processorTime(b)
	for i := 0; b.Loop(); i++ {
		if _, err := p.Top(Query{User: p.users[rows[i%len(rows)]], Limit: 20, Marked: []string{fmt.Sprint(i % len(rows))}, Permit: permit}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/(processorTime(b)-before).Seconds(), "queries/cpu-s")
	b.ReportMetric(float64(found)/float64(wanted), "recall")
	b.ReportMetric(float64(without.Microseconds())/float64(len(rows)), "everyone-µs")
}

// processorTime is that of the thread, which the goroutine has for itself: a collection of garbage
// among a million users takes as long as 100 queries.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	runtime.LockOSThread()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_THREAD, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
