package clustering

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kindred/domain/traits"
	"kindred/testkit"
)

const stableFrom = 0.75 // as the contract says of a cluster's stability

// blobOf draws users of one cloud: numbers that share a factor, which holds so much of
// each, flags, and categories of four levels.
func blobOf(n, numbers, flags, categories int, shared float64, seed uint64) Trial {
	random := draws(seed, 99)
	t := Trial{Points: Points{Dims: numbers + flags + 4*categories}, Seed: seed, Threads: 2}
	for d := range numbers + flags {
		t.Traits = append(t.Traits, Span{d, 1, d < numbers, false})
	}
	for c := range categories {
		t.Traits = append(t.Traits, Span{numbers + flags + 4*c, 4, false, false})
	}
	for range n {
		factor, row := gauss(&random), make([]float32, t.Points.Dims)
		for d := range numbers {
			sign := float64(1 - 2*(d%3/2)) // each third one runs the other way
			row[d] = float32(min(max(sign*math.Sqrt(shared)*factor+math.Sqrt(1-shared)*gauss(&random), -3), 3))
		}
		for d := range flags {
			if random.Float64() < 0.3 {
				row[numbers+d] = 0.707
			}
		}
		for c := range categories {
			row[numbers+flags+4*c+min(random.IntN(4), random.IntN(4))] = 0.5
		}
		t.Points.Data = append(t.Points.Data, row...)
	}
	return t
}

// divided has the users of a trial divided as a run would.
func (t Trial) divided(tb testing.TB, k int) Trial {
	tb.Helper()
	r := mustFit(tb, t.Points, Options{K: k, Seed: t.Seed, Threads: 2})
	t.Assigned, t.K, t.Asked = r.Assignments, r.K, k
	return t
}

func mustJudge(tb testing.TB, t Trial) Judgement {
	tb.Helper()
	j := testkit.Must(Judge(context.Background(), t))(tb)
	return j
}

// spansMadeUp are the traits of madeUp.
func spansMadeUp() (spans []Span) {
	for d := range 20 {
		spans = append(spans, Span{d, 1, true, false})
	}
	for c := range 4 {
		spans = append(spans, Span{20 + 8*c, 8, false, false})
	}
	for d := range 8 {
		spans = append(spans, Span{52 + d, 1, false, false})
	}
	return append(spans, Span{60, 4, false, false})
}

// Of each test one in twenty may be wrong.
func TestACloudIsNoGroups(t *testing.T) {
	t.Parallel()
	round, long := map[Verdict]int{}, map[Verdict]int{}
	for seed := range uint64(3) { // make evaluate takes 40
		round[mustJudge(t, blobOf(150, 5, 2, 1, 0, seed).divided(t, 3)).Verdict]++
		long[mustJudge(t, blobOf(150, 5, 2, 1, 0.6, seed).divided(t, 3)).Verdict]++
	}
	if round[Groups]+long[Groups] > 0 || round[None] < 2 || long[Continuum] < 2 {
		t.Errorf("3 round clouds are %v, 3 long ones %v", round, long)
	}
}

func TestTrueGroupsAreGroups(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		k     int
		apart float64
	}{{2, 0.5}, {3, 0.3}, {8, 0.8}} {
		set := madeUp(110+25*c.k, c.k, c.apart, 0.6, uint64(c.k))
		j := mustJudge(t, Trial{Points: set.points, Traits: spansMadeUp(), Seed: 1, Threads: 2}.divided(t, c.k))
		if j.Agreement == nil || j.Cloud.Silhouette <= j.Cloud.Expected {
			t.Errorf("%d groups %.1f apart are one cloud: %+v, %+v", c.k, c.apart, j, j.Cloud)
		}
		if c.apart < 0.4 {
			continue // who is in which group is not settled
		}
		if j.Verdict != Groups {
			t.Errorf("%d groups %.1f apart are %s: %+v, %v", c.k, c.apart, j.Verdict, j, *j.Agreement)
		}
		if slices.Min(j.Stability) < stableFrom {
			t.Errorf("%d groups %.1f apart are unstable: %.2f", c.k, c.apart, j.Stability)
		}
	}
}

// Three groups that are cut into five are cut elsewhere at another seed.
func TestGroupsThatAreCutAnywhereAreNoGroups(t *testing.T) {
	t.Parallel()
	set := madeUp(155, 3, 0.5, 0.6, 3)
	trial := Trial{Points: set.points, Traits: spansMadeUp(), Seed: 1, Threads: 2, MinSize: 10}
	for k, want := range map[int]Verdict{3: Groups, 5: Continuum} {
		j := mustJudge(t, trial.divided(t, k))
		if j.Verdict != want || j.Agreement == nil || (*j.Agreement >= stableRand) != (want == Groups) {
			t.Errorf("three groups as %d are %s: %+v, %v", k, j.Verdict, j, j.Agreement)
		}
	}
}

// Users are of three kinds, by four answers that mostly agree, while the clusters cut a square of two numbers that
// say nothing of each other.
func TestClustersThatAreNotTheGroupsAreNoGroups(t *testing.T) {
	t.Parallel()
	const seed, numbers, answers, kinds = 2, 2, 4, 3
	random := draws(seed, 99)
	trial := Trial{Points: Points{Dims: numbers + answers*kinds}, Seed: seed, Threads: 2}
	for d := range numbers {
		trial.Traits = append(trial.Traits, Span{d, 1, true, false})
	}
	for a := range answers {
		trial.Traits = append(trial.Traits, Span{numbers + a*kinds, kinds, false, false})
	}
	for range 400 {
		row, kind := make([]float32, trial.Points.Dims), random.IntN(kinds)
		for d := range numbers {
			row[d] = float32(1.2 * (2*random.Float64() - 1))
		}
		for a := range answers {
			answer := kind
			if random.Float64() < 0.2 {
				answer = random.IntN(kinds)
			}
			row[numbers+a*kinds+answer] = 0.25
		}
		trial.Points.Data = append(trial.Points.Data, row...)
	}
	j := mustJudge(t, trial.divided(t, 4))
	if j.Verdict != Continuum || j.Cloud == nil || j.Cloud.K != 4 || j.Cloud.P <= atMostByChance {
		t.Errorf("a square that is cut into four is %s: %+v", j.Verdict, j.Cloud)
	}
}

func TestDivisionsAreCompared(t *testing.T) {
	for _, c := range []struct {
		a, b []uint16
		want float64
	}{
		{[]uint16{0, 0, 1, 1}, []uint16{1, 1, 0, 0}, 1},
		{[]uint16{0, 0, 1, 1}, []uint16{0, 1, 0, 1}, -0.5},
		{[]uint16{0, 0, 1, 2}, []uint16{0, 0, 1, 1}, 4.0 / 7},
		{[]uint16{0, 0, 0, 0}, []uint16{0, 0, 0, 0}, 1},
		{nil, nil, 1},
	} {
		if got := AdjustedRand(c.a, c.b); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%v and %v: %v, not %v", c.a, c.b, got, c.want)
		}
	}
}

func TestACutThroughACloudIsUnstable(t *testing.T) {
	t.Parallel()
	j := mustJudge(t, blobOf(400, 8, 0, 0, 0, 1).divided(t, 8))
	if least := slices.Min(j.Stability); least >= stableFrom {
		t.Errorf("eight parts of one cloud are found again: %.2f", j.Stability)
	}
}

func TestAVerdictIsTheSameOnAnyThreads(t *testing.T) {
	t.Parallel()
	trial := blobOf(120, 4, 1, 1, 0.3, 1).divided(t, 3)
	trial.Threads = 1
	want := mustJudge(t, trial)
	trial.Threads = 3
	if diff := cmp.Diff(want, mustJudge(t, trial)); diff != "" {
		t.Error(diff)
	}
}

func TestAVerdictEndsWithItsContextAtAnyPoint(t *testing.T) {
	t.Parallel()
	trial := blobOf(90, 3, 0, 0, 0.3, 1).divided(t, 2)
	judge := func(ctx context.Context) error { _, err := Judge(ctx, trial); return err }
	count := &endingContext{Context: context.Background()}
	count.looks.Store(math.MaxInt64)
	if err := judge(count); err != nil {
		t.Fatal(err)
	}
	all := math.MaxInt64 - count.looks.Load()
	for part := range int64(6) {
		c := &endingContext{Context: context.Background()}
		c.looks.Store(part * all / 6)
		if err := judge(c); !errors.Is(err, context.Canceled) {
			t.Errorf("after %d/6: %v", part, err)
		}
	}
}

// What is drawn has each trait spread as among the users, and numbers of a cloud have
// the correlations of theirs.
func TestNullsKeepWhatTheyPromise(t *testing.T) {
	trial := blobOf(2000, 4, 1, 1, 0.5, 7)
	for i := range 2000 { // steps, and values that are missing
		row := trial.Points.row(i)
		row[1] = float32(math.Round(float64(row[1])))
		if i%5 == 0 {
			row[2] = 0
		}
	}
	u := newNull(trial.Points, trial.Traits, 1)
	column := func(p Points, d int) (of []float64) {
		for i := range p.Len() {
			of = append(of, float64(p.row(i)[d]))
		}
		return of
	}
	correlation := func(p Points, d, e int) float64 {
		a, b := column(p, d), column(p, e)
		var ma, mb, ab, aa, bb float64
		for i := range a {
			ma, mb = ma+a[i]/2000, mb+b[i]/2000
		}
		for i := range a {
			ab, aa, bb = ab+(a[i]-ma)*(b[i]-mb), aa+(a[i]-ma)*(a[i]-ma), bb+(b[i]-mb)*(b[i]-mb)
		}
		return ab / math.Sqrt(aa*bb)
	}
	for name, drawn := range map[string]Points{"shuffled": u.shuffled(1, 0), "cloud": u.cloud(1, 0)} {
		for d := range trial.Points.Dims {
			want, got := column(trial.Points, d), column(drawn, d)
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(want, got) {
				t.Errorf("%s: dimension %d is spread otherwise", name, d)
			}
		}
		for i := range drawn.Len() { // a level of the category, and one alone
			held := 0
			for _, x := range drawn.row(i)[5:] {
				if x != 0 {
					held++
				}
			}
			if held != 1 {
				t.Fatalf("%s: user %d has %d levels", name, i, held)
			}
		}
		for d := range 4 {
			for e := range d {
				want := 0.0
				if name == "cloud" {
					want = correlation(trial.Points, d, e)
				}
				if got := correlation(drawn, d, e); math.Abs(got-want) > 0.09 { // four standard errors
					t.Errorf("%s: the correlation of %d and %d is %.2f, not %.2f", name, d, e, got, want)
				}
			}
		}
	}
	if diff := cmp.Diff(u.cloud(1, 3), u.cloud(1, 3)); diff != "" {
		t.Error(diff)
	}
}

func TestAMatrixIsTheSumOfItsEigenvectors(t *testing.T) {
	t.Parallel()
	random := draws(8)
	const n = 12
	m, want := make([][]float64, n), make([][]float64, n)
	for i := range m {
		m[i], want[i] = make([]float64, n), make([]float64, n)
		for j := range i + 1 {
			m[i][j] = gauss(&random)
			m[j][i] = m[i][j]
			want[i][j], want[j][i] = m[i][j], m[i][j]
		}
	}
	vectors := diagonalize(m)
	for i := range n {
		for j := range n {
			sum, same := 0.0, 0.0
			for k, v := range vectors {
				sum += v[i] * m[k][k] * v[j]
				same += v[i] * v[j]
			}
			if unit := map[bool]float64{true: 1}[i == j]; math.Abs(sum-want[i][j]) > 1e-9 || math.Abs(same-unit) > 1e-9 {
				t.Errorf("at %d, %d is %v of %v, and %v of %v", i, j, sum, want[i][j], same, unit)
			}
		}
	}
}

// Two flags that one user in a hundred holds go together by chance, and with a number, whose
// correlation with another number stays.
func TestContradictingCorrelationsAreDrawnTogether(t *testing.T) {
	t.Parallel()
	of := func(length float64, first ...float64) scores { // of 400 users
		s := scores{make([]float64, 400), length}
		for i := range s.steps {
			s.steps[i] = first[i%len(first)] / 10
		}
		return s
	}
	drawn := factor([]scores{
		of(1, 1, 0, 0, 0), of(1, 0.9, math.Sqrt(0.19), 0, 0),
		of(3, 0.4, -0.4, math.Sqrt(0.68), 0), of(4, 0.4, 0.4, -0.4, math.Sqrt(0.52)),
	})
	for i, row := range drawn {
		if length := dot(row, row); math.Abs(length-1) > 1e-9 {
			t.Errorf("the variance of column %d is %v", i, length)
		}
	}
	if kept := dot(drawn[0], drawn[1]); math.Abs(kept-0.9) > 0.1 {
		t.Errorf("the numbers go together by %v", kept)
	}
}

// A trait of one value, and flags that hardly anybody holds, take nothing from what numbers
// beside them have of one another: else a crowd with such traits would seem to be groups.
func TestRareAndConstantTraitsMakeNoGroups(t *testing.T) {
	t.Parallel()
	const numbers, flags = 4, 10
	for seed := range uint64(3) {
		random := draws(seed, 98)
		trial := Trial{Points: Points{Dims: numbers + flags + 1}, Seed: seed, Threads: 2}
		for d := range trial.Points.Dims { // the numbers last
			trial.Traits = append(trial.Traits, Span{d, 1, d > flags, false})
		}
		for range 300 {
			shared, row := gauss(&random), make([]float32, trial.Points.Dims)
			row[0] = 0.707
			for d := range flags {
				if random.IntN(50) == 0 {
					row[1+d] = 0.707
				}
			}
			for d := range numbers {
				row[1+flags+d] = float32(0.8*shared + 0.6*gauss(&random))
			}
			trial.Points.Data = append(trial.Points.Data, row...)
		}
		if j := mustJudge(t, trial.divided(t, 2)); j.Verdict != Continuum {
			t.Errorf("seed %d: %s: %+v", seed, j.Verdict, j.Cloud)
		}
	}
}

func TestSpansAreTheDimensionsOfTraits(t *testing.T) {
	users := shoppers(t, 200, draws(1))
	schema := traits.Infer(named(users), nil)
	encoder := schema.Encoder(asOf)
	next, numbers := 0, 0
	for _, s := range Spans(schema, encoder) {
		if s.First != next || s.Number && s.Width != 1 {
			t.Errorf("%+v does not follow on %d", s, next)
		}
		if next += s.Width; s.Number {
			numbers++
		}
	}
	if next != len(encoder.Dimensions()) || numbers != 2 {
		t.Errorf("%d of %d dimensions, %d numbers", next, len(encoder.Dimensions()), numbers)
	}
}

func TestFewUsersAreJudgedWhereTheyHaveManyDimensions(t *testing.T) {
	for _, c := range []struct{ n, dims, want int }{{100, 5, 100}, {100_000, 64, MostJudged}, {100_000, 1024, 1024}, {100_000, 16_000, leastJudged}} {
		if got := len(DrawJudged(c.n, c.dims, 1)); got != c.want {
			t.Errorf("of %d users of %d dimensions %d are drawn, not %d", c.n, c.dims, got, c.want)
		}
	}
}

// BenchmarkVerdict judges what a run of 100,000 users of 30 traits is judged by.
func BenchmarkVerdict(b *testing.B) {
	trial := blobOf(MostJudged, 15, 5, 10, 0.3, 1).divided(b, 20)
	for b.Loop() {
		forgetPeak(b)
		mustJudge(b, trial)
	}
	b.ReportMetric(peakMiB(b), "peak-MiB")
}

func TestTheLastNumberOfClustersStays(t *testing.T) {
	set := madeUp(250, 5, 0.5, 0.6, 5)
	for keep, want := range map[int]int{0: 5, 5: 5, 12: 5} {
		if r := mustFit(t, set.points, Options{Seed: 1, Keep: keep}); r.K != want {
			t.Errorf("after %d clusters: %d", keep, r.K)
		}
	}
	cloud := blobOf(400, 5, 0, 0, 0, 3).Points
	for _, keep := range []int{3, 5, 8} {
		if r := mustFit(t, cloud, Options{Seed: uint64(keep), Keep: keep}); r.K != keep {
			t.Errorf("of one cloud, where no number is clearly better than %d: %d", keep, r.K)
		}
	}
}

// Four groups are apart, and a fifth comes to stand alone: half of one moves far away, or others
// come there. Two clusters then have by far the best silhouette: those far away, and all others.
func TestAGroupFarAwayIsOneClusterMore(t *testing.T) {
	t.Parallel()
	const n = 400
	for seed := range uint64(2) {
		set := func(far func(i int) bool, n int) Points {
			random := draws(seed)
			users := make([]traits.Flat, n)
			for i := range users {
				for d, center := range [4][3]float64{{0, 0, 0}, {4, 0, 1}, {0, 4, 2}, {2, 2, 5}}[i%4] {
					if far(i) {
						center = 20
					}
					users[i].Values = append(users[i].Values, traits.Value{
						Path: fmt.Sprint("t", d), Kind: traits.Number, Number: center + 0.8*gauss(&random),
					})
				}
			}
			return encode(users)
		}
		older := mustFit(t, set(func(int) bool { return false }, n), Options{Seed: seed})
		if older.K != 4 {
			t.Fatalf("seed %d: %d clusters of four groups", seed, older.K)
		}
		for what, now := range map[string]Points{
			"half of a group has moved": set(func(i int) bool { return i%8 == 0 }, n),
			"others came":               set(func(i int) bool { return i >= n }, n+150),
		} {
			if first := mustFit(t, now, Options{Seed: seed + 100}); first.K != 5 {
				t.Errorf("seed %d, %s: a first run finds %d clusters of five groups", seed, what, first.K)
			}
			newer := mustFit(t, now, Options{Seed: seed + 100, Keep: older.K})
			o := NewOverlap(older.K, newer.K)
			for i := range n {
				o[older.Assignments[i]][newer.Assignments[i]]++
			}
			if s := o.Succession(); newer.K != 5 || len(s.Retired) > 0 {
				t.Errorf("seed %d, %s: %d clusters after %d, of which %v are lost", seed, what, newer.K, older.K, s.Retired)
			}
		}
	}
}

// A category of four levels is exported as a column a level, a flag follows from another
// category, and a number is written down twice, which is no block.
func TestTraitsThatSayOneThingAreOneBlock(t *testing.T) {
	t.Parallel()
	random := draws(5)
	trial := Trial{Points: Points{Dims: 12}, Seed: 5, Threads: 2}
	for d := range 7 {
		trial.Traits = append(trial.Traits, Span{d, 1, true, false})
	}
	trial.Traits = append(trial.Traits, Span{7, 3, false, false}, Span{10, 1, false, false}, Span{11, 1, false, false})
	for range 300 {
		row := make([]float32, 12)
		row[0], row[1] = float32(gauss(&random)), float32(gauss(&random))
		row[2] = row[0]
		row[3+random.IntN(4)] = 1.5
		level := random.IntN(3)
		row[7+level] = 0.5
		row[10] = float32(min(level, 1))
		row[11] = float32(random.IntN(2))
		trial.Points.Data = append(trial.Points.Data, row...)
	}
	want := []block{{{0, 1, true, false}}, {{1, 1, true, false}}, {{2, 1, true, false}}, {{3, 1, true, false}, {4, 1, true, false}, {5, 1, true, false}, {6, 1, true, false}}, {{7, 3, false, false}, {10, 1, false, false}}, {{11, 1, false, false}}}
	if diff := cmp.Diff(want, blocks(trial.Points, trial.Traits)); diff != "" {
		t.Errorf("blocks (-want +got):\n%s", diff)
	}
	if j := mustJudge(t, trial.divided(t, 4)); j.Verdict == Groups {
		t.Errorf("one category, said in four columns, makes groups: %+v, %v", j, j.Cloud)
	}
}

// The same category with "yes" and "no" in its columns, or one word and else nothing; a flag in
// words that is beside them, and half of it is missing, is no part of them.
func TestFlagsInWordsThatExcludeOneAnotherAreOneBlock(t *testing.T) {
	t.Parallel()
	const levels, width = 6, 3 // yes, no, other
	for _, no := range []float32{0.5, 0} {
		random := draws(6)
		trial := Trial{Points: Points{Dims: (levels + 1) * width}, Seed: 6, Threads: 2}
		for c := range levels + 1 {
			trial.Traits = append(trial.Traits, Span{c * width, width, false, false})
		}
		for range 300 {
			row, level := make([]float32, trial.Points.Dims), random.IntN(levels)
			for c := range levels {
				row[c*width+1] = no
			}
			row[level*width], row[level*width+1] = 0.5, 0
			row[levels*width] = 0.5 * float32(random.IntN(2))
			trial.Points.Data = append(trial.Points.Data, row...)
		}
		want := []block{trial.Traits[:levels], trial.Traits[levels:]}
		if diff := cmp.Diff(want, blocks(trial.Points, trial.Traits)); diff != "" {
			t.Errorf("blocks (-want +got):\n%s", diff)
		}
		if j := mustJudge(t, trial.divided(t, levels)); j.Verdict != None {
			t.Errorf("one category, said in columns of words, is %v: %+v", j.Verdict, j.Shuffled)
		}
	}
}

// Tags that go together are no single crowd, though they are one trait.
func TestMembersOfASetAreDealtOut(t *testing.T) {
	t.Parallel()
	const n, members = 200, 12
	random := draws(1, 99)
	held := func(kinds int) Trial {
		trial := Trial{Points: Points{Dims: members}, Traits: []Span{{0, members, false, true}}, Seed: 1, Threads: 2}
		for i := range n {
			row, has := make([]float32, members), 0
			for m := range row {
				often := 0.2
				if kinds > 1 && m/4 == i%kinds {
					often = 0.8
				}
				if i%10 > 0 && random.Float64() < often { // one in ten says nothing
					row[m] = 1
					has++
				}
			}
			for m := range row {
				row[m] /= float32(math.Sqrt(float64(max(has, 1))))
			}
			trial.Points.Data = append(trial.Points.Data, row...)
		}
		return trial
	}
	three := held(3)
	if j := mustJudge(t, three.divided(t, 3)); j.Verdict != Continuum {
		t.Errorf("three kinds of tags: %s, %+v", j.Verdict, j.Shuffled)
	}
	if j := mustJudge(t, held(1).divided(t, 3)); j.Verdict != None {
		t.Errorf("tags by chance: %s, %+v", j.Verdict, j.Shuffled)
	}
	dealt := newNull(three.Points, three.Traits, 1).shuffled(1, 1)
	holds := func(p Points) (byUser map[int]int, byMember [members]int) {
		byUser = map[int]int{}
		for i := range n {
			has := 0
			for m, x := range p.row(i) {
				if x > 0 {
					has++
					byMember[m]++
				}
			}
			for _, x := range p.row(i) {
				if x > 0 && math.Abs(float64(x)-1/math.Sqrt(float64(has))) > 1e-6 {
					t.Fatalf("user %d holds %d by %v", i, has, x)
				}
			}
			byUser[has]++
		}
		return byUser, byMember
	}
	byUser, byMember := holds(three.Points)
	dealtByUser, dealtByMember := holds(dealt)
	if diff := cmp.Diff(byUser, dealtByUser) + cmp.Diff(byMember, dealtByMember); diff != "" || cmp.Equal(three.Points, dealt) {
		t.Errorf("dealt (-before +after):\n%s", diff)
	}
}

// Answers of yes and no that go together by degrees part nobody, however surely two halves are found.
func TestAnswersByDegreesAreNoGroups(t *testing.T) {
	t.Parallel()
	found := map[Verdict]int{}
	for seed := range uint64(4) {
		random := draws(seed, 99)
		trial := Trial{Points: Points{Dims: 12}, Seed: seed, Threads: 2}
		for d := range trial.Points.Dims {
			trial.Traits = append(trial.Traits, Span{d, 1, false, false})
		}
		for range 200 {
			degree, row := gauss(&random), make([]float32, trial.Points.Dims)
			for d := range row {
				if 0.9*degree+0.4*gauss(&random) > float64(d)/6-1 {
					row[d] = 0.707
				}
			}
			trial.Points.Data = append(trial.Points.Data, row...)
		}
		found[mustJudge(t, trial.divided(t, 2)).Verdict]++
	}
	if found[Continuum] < 3 {
		t.Errorf("4 crowds are %v", found)
	}
}
