package traits

import (
	"cmp"
	"container/heap"
	"crypto/sha256"
	"encoding/binary"
	"iter"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// What a schema is learnt from and how much of it is kept.
const (
	SampleSize     = 4096     // users
	SampleBytes    = 16 << 20 // of their traits, as Flat.Bytes counts; one user in any case
	CategoryLevels = 31
	SetLevels      = 64
)

// Override is what a client decided about a path and, but for the type, about
// every path below it; nil and "" leave the decision to the nearest path above
// and then to inference. Weights are brought into 0..MaxWeight.
type Override struct {
	Type      Type     `json:"type,omitempty"`
	Weight    *float64 `json:"weight,omitempty"`
	Ignore    *bool    `json:"ignore,omitempty"`
	Sensitive *bool    `json:"sensitive,omitempty"`
}

// Infer learns a schema from users, each given once by a distinct id. It looks
// at the SampleSize users whose ids hash lowest, or at fewer of them where these
// have SampleBytes, so the order of arrival cannot change the result. The caller
// sets the version.
func Infer(users iter.Seq2[string, Flat], overrides map[string]Override) Schema {
	var s Sample
	for id, flat := range users {
		s.offer(id, flat)
	}
	slices.SortFunc(s.best, drawn.compare)
	return InferSampled(func(yield func(string, Flat) bool) {
		for _, d := range s.best {
			if !yield(d.id, d.flat) {
				return
			}
		}
	}, overrides, Schema{})
}

// InferSampled is Infer of the users that a Sample has picked, in the order of
// its IDs. It asks for no more of them than it looks at, and holds no more than
// SampleBytes and one user. What was learnt before is kept where it was learnt from
// enough users or by other rules; the zero value is nothing.
func InferSampled(users iter.Seq2[string, Flat], overrides map[string]Override, before Schema) Schema {
	columns, sampled, size, cut := make(map[string][]Value), 0, 0, 0
	for _, flat := range users {
		for _, v := range flat.Values {
			columns[v.Path] = append(columns[v.Path], v)
		}
		sampled++
		cut = max(cut, flat.Skipped)
		if size += flat.Bytes(); size >= SampleBytes {
			break
		}
	}
	paths := slices.SortedFunc(maps.Keys(columns), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(columns[b]), len(columns[a])), strings.Compare(a, b))
	})
	kept := paths[:min(len(paths), MaxPaths)]
	s := Schema{Edition: Edition, Sampled: sampled, Traits: []Trait{}, Skipped: len(paths) - len(kept) + cut}
	for _, path := range slices.Sorted(slices.Values(kept)) {
		s.Traits = append(s.Traits, describe(path, columns[path], overrides, before.trait(path)))
	}
	findSeries(s.Traits, columns)
	return s
}

// drawn is a user in the sample, ordered by hash and then by id.
type drawn struct {
	hash uint64
	id   string
	flat Flat
}

func (d drawn) compare(e drawn) int {
	return cmp.Or(cmp.Compare(d.hash, e.hash), strings.Compare(d.id, e.id))
}

// worstFirst is a heap whose root is the next user to leave the sample.
type worstFirst []drawn

func (h worstFirst) Len() int           { return len(h) }
func (h worstFirst) Less(i, j int) bool { return h[i].compare(h[j]) > 0 }
func (h worstFirst) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *worstFirst) Push(x any)        { *h = append(*h, x.(drawn)) }
func (h *worstFirst) Pop() any {
	last := len(*h) - 1
	d := (*h)[last]
	*h = (*h)[:last]
	return d
}

// Sample picks, from ids that come in any order, those that Infer looks at.
// The zero value is empty.
type Sample struct {
	best worstFirst
	size int // bytes of their traits
}

// Add offers an id that was not offered before.
func (s *Sample) Add(id string) { s.offer(id, Flat{}) }

// IDs returns what was picked, in the order of the hashes.
func (s *Sample) IDs() []string {
	slices.SortFunc(s.best, drawn.compare) // from the last on, it is a heap no more
	ids := make([]string, len(s.best))
	for i, d := range s.best {
		ids[i] = d.id
	}
	return ids
}

func (s *Sample) offer(id string, flat Flat) {
	sum := sha256.Sum256([]byte(id))
	d := drawn{binary.BigEndian.Uint64(sum[:]), id, flat}
	heap.Push(&s.best, d)
	s.size += flat.Bytes()
	// Whoever comes behind SampleBytes of others is not looked at.
	for worst := s.best[0].flat.Bytes(); len(s.best) > SampleSize || s.size-worst >= SampleBytes; worst = s.best[0].flat.Bytes() {
		heap.Pop(&s.best)
		s.size -= worst
	}
}

// trait finds a path; nil where it is not there.
func (s Schema) trait(path string) *Trait {
	i, found := slices.BinarySearchFunc(s.Traits, path, func(t Trait, p string) int { return strings.Compare(t.Path, p) })
	if !found {
		return nil
	}
	return &s.Traits[i]
}

func describe(path string, values []Value, overrides map[string]Override, prior *Trait) Trait {
	t := Trait{Path: path, Rules: Rules}
	if prior != nil {
		t.Rules = prior.Rules // by which its name is judged
	}
	t.decide(overrides)
	t.guess(values, prior)
	t.Known = t.have(values)
	switch t.Type {
	case TypeNumber, TypeDate:
		t.Numbers = t.measure(values)
	case TypeCategory:
		t.Levels, t.Distinct = t.count(values, CategoryLevels)
	case TypeSet:
		t.Levels, t.Distinct = t.count(values, SetLevels)
	}
	t.Expected = t.expect(values)
	t.decide(overrides)
	return t
}

// decide takes over what the client has decided about the trait.
func (t *Trait) decide(overrides map[string]Override) {
	decided := overrideOf(t.Path, overrides)
	t.Declared = decided.Type != ""
	if t.Declared {
		t.Type = decided.Type
	}
	t.Weight = 1
	if decided.Weight != nil && !math.IsNaN(*decided.Weight) {
		t.Weight = min(max(*decided.Weight, 0), MaxWeight)
	}
	t.Ignored = decided.Ignore != nil && *decided.Ignore
	t.Sensitive = likelySensitive(t.Path, t.Rules) && !t.isOfPages()
	if decided.Sensitive != nil {
		t.Sensitive = *decided.Sensitive
	}
}

// Wanted says whether a trait of that type would take part under these overrides if anybody said it.
func Wanted(path string, of Type, overrides map[string]Override) bool {
	t := Trait{Path: path, Type: of, Rules: Rules}
	t.decide(overrides)
	return t.Type == of && t.Participates()
}

// overrideOf joins what was decided about path and about the paths above it,
// the nearest first. A type that does not exist counts as none.
func overrideOf(path string, overrides map[string]Override) Override {
	decided := Override{}
	switch own := overrides[path].Type; own {
	case TypeBool, TypeNumber, TypeDate, TypeGeo, TypeSet, TypeCategory, TypeExcluded:
		decided.Type = own
	}
	for above := true; above; {
		o := overrides[path]
		decided.Weight = cmp.Or(decided.Weight, o.Weight)
		decided.Ignore = cmp.Or(decided.Ignore, o.Ignore)
		decided.Sensitive = cmp.Or(decided.Sensitive, o.Sensitive)
		dot := strings.LastIndexByte(path, '.')
		if above = dot >= 0; above {
			path = path[:dot]
		}
	}
	return decided
}

// count returns the most frequent levels, ties by name, and how many there are.
func (t Trait) count(values []Value, most int) ([]Level, int) {
	held := make(map[string]int)
	for _, raw := range values {
		v, ok := t.convert(raw)
		switch {
		case !ok:
		case v.Kind == Set:
			for _, member := range v.Set {
				held[member]++
			}
		default:
			held[v.Text]++
		}
	}
	levels := make([]Level, 0, len(held))
	for name, n := range held {
		levels = append(levels, Level{strings.Clone(name), n})
	}
	slices.SortFunc(levels, func(a, b Level) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Name, b.Name))
	})
	return slices.Clone(levels[:min(len(levels), most)]), len(levels)
}

func (t Trait) measure(values []Value) Numbers {
	var xs []float64
	for _, raw := range values {
		if v, ok := t.convert(raw); ok {
			xs = append(xs, v.Number)
		}
	}
	return describeNumbers(xs, len(xs), t.Type)
}

// describeNumbers says how numbers of so many users are spread, as far as it may be kept: it
// outlives the users, and tells no number of one of them. It sorts xs, and changes them.
// Numbers of one user, and of ten at least, that are all the same have no span and no scale, and
// nothing is measured by their quantiles.
func describeNumbers(xs []float64, users int, of Type) Numbers {
	if len(xs) == 0 {
		return Numbers{}
	}
	slices.Sort(xs)
	n := Numbers{Min: xs[0], Max: xs[len(xs)-1]}
	switch {
	case n.Min == n.Max && (users == 1 || users >= MinHolders):
	case users < MinHolders:
		n.spreadEvenly(of)
	default:
		n.measure(xs)
	}
	return n
}

// measure keeps quantiles. The outermost are rounded outwards to a power of two that is a
// sixteenth at least of what lies between them, for fewer than ten users may be beyond. A
// deviation, by which one who knows the numbers of all others finds the last one, is kept with
// two digits, and where the scale needs it alone.
func (n *Numbers) measure(sorted []float64) {
	n.P1, n.P99 = quantile(sorted, 0.01), quantile(sorted, 0.99)
	n.P1, n.P99 = n.rounded(outwards((n.P99 - n.P1) / steps))
	n.P25, n.P50, n.P75 = SharedQuantile(sorted, 0.25), SharedQuantile(sorted, 0.5), SharedQuantile(sorted, 0.75)
	if n.P25 < n.P75 {
		return
	}
	n.SD = deviation(sorted)
	if n.Min >= 0 {
		for i, x := range sorted {
			sorted[i] = math.Log1p(x)
		}
		n.LogSD = deviation(sorted)
	}
	n.SD, n.LogSD = Rounded(n.SD, n.SD/10), Rounded(n.LogSD, n.LogSD/10)
}

// spreadEvenly keeps of few users where their numbers lie alone: the range, rounded outwards to a
// power of two that is no less than the range, a sixteenth of the numbers and, of dates, a year. So
// few whose numbers are the same are alike in them.
func (n *Numbers) spreadEvenly(of Type) {
	step := max(n.Max-n.Min, n.Max/steps, -n.Min/steps)
	if of == TypeDate {
		const year = 365
		step = max(n.Max-n.Min, year)
	}
	if step == 0 {
		step = 1 // all are 0
	}
	step = outwards(step)
	n.P1, n.P99 = n.Min, n.Max
	n.P1, n.P99 = n.rounded(step)
	n.P99 = max(n.P99, n.P1+step)
	quarter := float64(n.Span() / 4)
	n.P25, n.P50, n.P75 = n.P1+quarter, n.P1+float64(2*quarter), n.P99-quarter
}

// steps are how fine bounds are told.
const steps = 16

// rounded are the outermost quantiles, rounded outwards to a step.
func (n Numbers) rounded(step float64) (p1, p99 float64) {
	if step == 0 {
		return n.P1, n.P99 // ten users at least have the same
	}
	return math.Floor(n.P1/step) * step, math.Ceil(n.P99/step) * step
}

// SharedQuantile is what may be kept of one, as it outlives those whom it was learnt
// from: the mean of the ten users around it, as round as a tenth of the
// distance between the outermost of them allows. So it is nobody's own number,
// but where ten users have the same.
func SharedQuantile(sorted []float64, q float64) float64 {
	n := min(MinHolders, len(sorted))
	first := int(math.Round(float64(q*float64(len(sorted)-1)) - float64(float64(n-1)/2)))
	first = min(max(first, 0), len(sorted)-n)
	around := sorted[first : first+n]
	width := around[n-1] - around[0]
	if width == 0 {
		return around[0]
	}
	mean := 0.0
	for _, x := range around {
		mean += x / float64(n)
	}
	return Rounded(mean, width/10)
}

// Rounded returns x to the last decimal place that is worth no more than unit.
// What is less than the least number of full precision counts as 0.
func Rounded(x, unit float64) float64 {
	const least = 0x1p-1022
	digits := exponent(x) - exponent(max(unit, least))
	if math.Abs(x) < least || digits < 0 {
		return 0
	}
	near, err := strconv.ParseFloat(strconv.FormatFloat(x, 'e', digits, 64), 64)
	if err != nil {
		return x
	}
	return near
}

// exponent is that of the first decimal place. A logarithm may be another on another processor.
func exponent(x float64) int {
	text := strconv.FormatFloat(x, 'e', -1, 64)
	n, _ := strconv.Atoi(text[strings.LastIndexByte(text, 'e')+1:]) // 0 of what is no number
	return n
}

// quantile interpolates between the neighbours in sorted (type 7 of Hyndman
// and Fan, 1996).
func quantile(sorted []float64, q float64) float64 {
	at := float64(q * float64(len(sorted)-1))
	below := int(at)
	if below+1 == len(sorted) {
		return sorted[below]
	}
	return sorted[below] + float64((at-float64(below))*(sorted[below+1]-sorted[below]))
}

// deviation is the standard deviation of xs, exactly 0 where all are equal.
func deviation(xs []float64) float64 {
	if slices.Min(xs) == slices.Max(xs) {
		return 0
	}
	var sum, squares float64
	for _, x := range xs {
		sum += x
	}
	mean := sum / float64(len(xs))
	for _, x := range xs {
		squares += float64((x - mean) * (x - mean))
	}
	return math.Sqrt(squares / float64(len(xs)))
}
