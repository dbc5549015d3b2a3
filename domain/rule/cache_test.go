package rule

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"kindred/testkit"
)

func TestWhatARuleTakesInMemoryIsBounded(t *testing.T) {
	repeated := func(part string, n int) string { return strings.TrimSuffix(strings.Repeat(part+" || ", n), " || ") }
	for _, text := range []string{
		`traits.a.matches("^\\pL{900}$")`,                                     // 7 MB each
		repeated(`traits.a.matches("^\\pL{90}$")`, 100),                       // 75 MB
		repeated(`traits.a.matches("a{999}")`, 130),                           // 6 MB
		`traits.a.matches("(` + strings.Repeat("ab", 1950) + `){400}")`,       // 150 MB, from 700
		`traits.a.matches("` + strings.Repeat(`\\pL`, 900) + `")`,             // 5 MB
		`traits.a.matches("((((` + strings.Repeat("x?", 500) + `)*)+){30})")`, // so are repetitions in one another
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Parse(text, Users)
		runtime.ReadMemStats(&after)
		if wrong, ok := errors.AsType[*Error](err); !ok || !strings.Contains(wrong.Detail, "128 KiB") || wrong.Line != 1 || wrong.Column < 2 {
			t.Errorf("%.40s…: %v", text, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 64<<20 {
			t.Errorf("%.40s…: %d MiB were made of it before it was refused", text, took>>20)
		}
	}
	for _, text := range []string{
		`traits.plan == "pro"`,
		`traits.mail.matches("^[a-z0-9._%+-]{1,64}@[a-z0-9.-]{1,255}\\.[a-z]{2,24}$")`,
		`traits.name.matches("^\\pL+( \\pL+)*$")`,
		repeated(`traits.a.matches("[[:alpha:]]{10}")`, 60),
		`traits.a.matches("a{1000}")`,
		`traits.a in [` + strings.Repeat(`"a", `, 800) + `"b"]`,
		repeated(`traits.a.exists(x, x == 1)`, 60),
		`traits.a == "` + strings.Repeat("x", 4000) + `"`,
	} {
		var before, after runtime.MemStats
		first, err := Parse(text, Users)
		if err != nil {
			t.Errorf("%.40s…: %v", text, err)
			continue
		}
		made := make([]*Rule, 20+1<<20/first.Size()) // some MiB in all: the test's process takes some KiB beside them
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range made {
			if made[i], err = Parse(text, Users); err != nil {
				t.Fatalf("%.40s…: %v", text, err)
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		each := (int(after.HeapAlloc) - int(before.HeapAlloc)) / len(made)
		if size := made[0].Size(); each > 2*size || size > 280<<10 {
			t.Errorf("%.40s…: takes %d bytes, and says %d", text, each, size)
		}
	}
}

func TestRulesAreKeptAsFarAsTheyFit(t *testing.T) {
	large := testkit.Must(Parse(`traits.a in [`+strings.Repeat(`"a", `, 800)+`"b"]`, Users))(t)
	var c Cache[int, *Rule]
	if c.Get(0) != nil {
		t.Error("something is kept")
	}
	n := 2 * maxCached / large.Size()
	for i := range n {
		c.Add(i, large)
		c.Add(i, large) // which is one
		if i > 0 && c.Get(0) == nil && i < maxCached/large.Size()-1 {
			t.Fatalf("the first is gone after %d", i)
		}
	}
	if c.size > maxCached || c.size < maxCached-large.Size() || c.kept.Len() != c.size/large.Size() {
		t.Errorf("%d rules of %d bytes are kept, and are said to take %d", c.kept.Len(), large.Size(), c.size)
	}
	if c.Get(n-1) == nil || c.Get(n/2+5) == nil || c.Get(1) != nil {
		t.Error("others are kept than the latest")
	}
	if size := c.size; c.Take(n-1) == nil || c.Take(n-1) != nil || c.Get(n-1) != nil || c.size != size-large.Size() {
		t.Error("what was taken is kept")
	}
	var many Cache[int, rules]
	many.Add(0, make(rules, maxCached/maxPart>>20))
	many.Add(1, make(rules, maxCached/maxPart>>20+1))
	if many.Get(0) == nil || many.Get(1) != nil {
		t.Error("too much is kept at once, or too little")
	}
}

// rules take a MiB each.
type rules []struct{}

func (r rules) Size() int { return len(r) << 20 }

// BenchmarkAmong makes the filter of a match beside a match rule.
func BenchmarkAmong(b *testing.B) {
	bounds, judging := func() (Bounds, error) { return Bounds{}, nil }, func(judge func() error) error { return judge() }
	for b.Loop() {
		if _, err := Among(Filter{}, `traits.sex in viewer.traits.seeks && traits.age > viewer.traits.age - 10`, bounds, judging); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkParse parses that match rule.
func BenchmarkParse(b *testing.B) {
	for b.Loop() {
		if _, err := Parse(`traits.sex in viewer.traits.seeks && traits.age > viewer.traits.age - 10`, Pairs); err != nil {
			b.Fatal(err)
		}
	}
}
