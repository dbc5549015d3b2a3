package populations_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/domain/traits"
	"kindred/eventstore"
	"kindred/projections/populations"
	"kindred/testkit"
)

// override records what the client has decided.
func (c *crowd) override(overrides map[string]event.TraitOverride) {
	c.Helper()
	c.Record(c.Acme, "traitschema-"+string(c.Acme), event.TraitSchemaOverridden{Overrides: overrides})
}

func (c *crowd) schema() populations.TraitSchema {
	c.Helper()
	return testkit.Must(c.populations.Schema(c.Context(), c.Acme))(c)
}

// trait is what was learnt of a path.
func (c *crowd) trait(path string) populations.Trait {
	c.Helper()
	s := c.schema()
	i := slices.IndexFunc(s.Traits, func(t populations.Trait) bool { return t.Path == path })
	if i < 0 {
		c.Fatalf("no trait %s in %+v", path, s)
	}
	return s.Traits[i]
}

func TestASchemaShowsWhatTakesPartAndWhyNot(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 0)
	if s := c.schema(); s.Version != 0 || len(s.Traits) != 0 {
		t.Errorf("of nobody: %+v", s)
	}
	for n := range 60 {
		rare := ""
		if n == 7 {
			rare = `,"disease":"gout"`
		}
		c.Create(c.Acme, fmt.Sprint("person ", n), fmt.Sprintf(`{"age":%d,"plan":"p%d","hair":"h%d","note":"text %d","same":1,"religion":"r%d"%s}`, n, n%2, n/9, n, n%2, rare))
	}
	ignore, none := true, 0.0
	c.override(map[string]event.TraitOverride{"hair": {Ignore: &ignore}, "plan": {Weight: &none}, "unheard": {Type: "set"}})
	got := map[string]string{}
	for _, trait := range c.schema().Traits {
		got[trait.Path] = trait.Why
	}
	want := map[string]string{
		"age": "", "plan": "no_weight", "hair": "ignored", "note": "not_comparable", "same": "always_the_same", "religion": "sensitive", "disease": "sensitive",
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := gocmp.Diff([]string{"p0", "p1"}, c.trait("plan").Levels); diff != "" {
		t.Errorf("levels:\n%s", diff)
	}
	for _, hidden := range []string{"religion", "disease", "hair"} { // sensitive, sensitive and rare, fewer than ten each
		if levels := c.trait(hidden).Levels; len(levels) != 0 {
			t.Errorf("%s shows %v", hidden, levels)
		}
	}
	if trait := c.trait("disease"); trait.Coverage != 1.0/60 {
		t.Errorf("coverage %v", trait.Coverage)
	}
	if s := c.schema(); s.Users != 60 || s.Version != 2 || s.Overrides["unheard"].Type != "set" {
		t.Errorf("%+v", s)
	}
	for client, want := range map[id.Client][2]int{c.Acme: {1, 2}, c.Bolt: {0, 0}} {
		if last, version, err := c.populations.Schemas.LastDecision(t.Context(), client); err != nil || [2]int{last, version} != want {
			t.Errorf("version %d of %d was decided last; %v", last, version, err)
		}
	}
}

func TestDecisionsCountAtOnce(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 30)
	ada, bob := c.join("ada", 3), c.join("bob", 23)
	score := func() (float64, int) {
		m, ok, err := c.populations.Pair(t.Context(), c.Acme, ada, bob, event.Within{})
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		return m.Score, m.Schema
	}
	before, version := score()
	weight, ignore := 10.0, true
	for _, step := range []struct {
		what      string
		overrides map[string]event.TraitOverride
		versions  int
		holds     func(float64) bool
	}{
		{"age weighs more, and is less alike than their towns", map[string]event.TraitOverride{"age": {Weight: &weight}}, 1, func(s float64) bool { return s < before }},
		{"age is ignored, and they share the town", map[string]event.TraitOverride{"age": {Ignore: &ignore}}, 1, func(s float64) bool { return s == 1 }},
		{"age has levels, which has to be learnt", map[string]event.TraitOverride{"age": {Type: "category"}}, 2, func(s float64) bool { return s == 0.5 }},
		{"nothing is decided", map[string]event.TraitOverride{}, 2, func(s float64) bool { return s == before }},
	} {
		c.override(step.overrides)
		now, at := score()
		if !step.holds(now) || at != version+step.versions {
			t.Errorf("%s: %v, before %v, in version %d after %d", step.what, now, before, at, version)
		}
		version = at
		if diff := gocmp.Diff(c.asNew(ada, 40), c.top(ada, 40), gocmp.AllowUnexported(event.MatchComputed{})); diff != "" {
			t.Errorf("%s: (-new +kept):\n%s", step.what, diff)
		}
	}
}

// Whoever asks, and whichever process is asked, the schema is one; and what
// was used stands in the log, byte by byte.
func TestASchemaCanBeHadAgainFromTheLog(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 40)
	ada := c.join("ada", 40)
	used := map[int]populations.TraitSchema{}
	for n := range 30 {
		other := populationsOf(c.Fixture)
		here, there := c.schema(), testkit.Must(other.Schema(t.Context(), c.Acme))(t)
		if diff := gocmp.Diff(here, there); diff != "" {
			t.Fatalf("two processes differ:\n%s", diff)
		}
		if before, found := used[here.Version]; found && !gocmp.Equal(before, here) {
			t.Fatalf("version %d is not what it was", here.Version)
		}
		used[here.Version] = here
		c.join(fmt.Sprint("later ", n), 40+n)
	}
	if len(used) < 3 || len(used) > 8 {
		t.Errorf("%d versions", len(used))
	}
	if got := c.top(ada, 1)[0].Schema; used[got].Version != got {
		t.Errorf("a match names version %d of %d", got, len(used))
	}
	stream := eventstore.Stream("traitschema-" + string(c.Acme))
	history, _, err := c.EventLog.Load(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range history {
		if strings.Contains(string(r.Data), "town") {
			t.Error("the log shows what a schema says")
		}
		document, err := c.EventLog.Open(t.Context(), r, "schema")
		var schema traits.Schema
		if err == nil {
			err = json.Unmarshal(document, &schema)
		}
		if err != nil {
			t.Fatal(err)
		}
		var paths []string
		for _, trait := range used[i+1].Traits {
			paths = append(paths, trait.Path)
		}
		if len(schema.Traits) != len(paths) || schema.Traits[0].Path != paths[0] || schema.Traits[0].Numbers.Span() <= 0 {
			t.Errorf("version %d: %+v, not %v", i+1, schema, paths)
		}
	}
}

func TestWhatTheUsersSayStillIsNotRecordedAgain(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 30)
	weight := 2.0
	c.override(map[string]event.TraitOverride{"age": {Weight: &weight}})
	version := c.schema().Version
	for range 3 {
		for n := range 30 {
			c.Change(c.Acme, c.UserID(c.Acme, fmt.Sprint("person ", n), 0), ages((n+1)%30))
			c.Change(c.Acme, c.UserID(c.Acme, fmt.Sprint("person ", n), 0), ages(n))
		}
		for _, s := range []populations.TraitSchema{c.schema(), testkit.Must(populationsOf(c.Fixture).Schema(t.Context(), c.Acme))(t)} {
			if s.Version != version {
				t.Fatalf("version %d follows %d, which says the same", s.Version, version)
			}
		}
	}
	for n := range 30 {
		c.Change(c.Acme, c.UserID(c.Acme, fmt.Sprint("person ", n), 0), ages(n+40))
	}
	if s := c.schema(); s.Version != version+1 {
		t.Errorf("version %d follows %d where all ages have changed", s.Version, version)
	}
}

// What a release before learnt lacks what comparisons need now: it is learnt anew, so
// that matches told before are compared by the schema of today and none is told again.
func TestASchemaOfAnOlderEditionIsLearntAnewOnce(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 30)
	version := c.schema().Version
	stream := "traitschema-" + string(c.Acme)
	history, _, err := c.EventLog.Load(t.Context(), eventstore.Stream(stream))
	if err != nil {
		t.Fatal(err)
	}
	document := testkit.Must(c.EventLog.Open(t.Context(), history[version-1], "schema"))(t)
	var schema traits.Schema
	if err := json.Unmarshal(document, &schema); err != nil {
		t.Fatal(err)
	}
	if schema.Edition != traits.Edition || schema.Traits[0].Expected <= 0 || schema.Traits[0].Expected >= 1 {
		t.Fatalf("%+v", schema)
	}
	schema.Edition = 0
	for i := range schema.Traits {
		schema.Traits[i].Expected = 0
	}
	older := testkit.Must(json.Marshal(schema))(t)
	c.Record(c.Acme, stream, event.TraitSchemaInferred{Client: c.Acme, Users: 30, Schema: event.Private(older)})
	for range 2 { // of two processes that begin after that
		later := testkit.Must(populationsOf(c.Fixture).Schema(t.Context(), c.Acme))(t)
		if later.Version != version+2 {
			t.Errorf("version %d follows %d and one of an older edition", later.Version, version)
		}
	}
}

// Numbers that a client counted with floats differ in their last bits, which no
// round edge parts.
func TestADistributionEndsThoughNumbersHardlyDiffer(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, 0)
	for n := range 40 {
		c.Create(c.Acme, fmt.Sprint("person ", n), fmt.Sprintf(`{"sum":%s,"ns":%d}`,
			[]string{"0.3", "0.30000000000000004"}[n%2], 1753142400000000000+int64(n%4)*256))
	}
	for _, path := range []string{"sum", "ns"} {
		got := make(chan populations.Distribution, 1)
		go func() {
			var d populations.Distribution
			if err := fault.Await(c.Context(), func(ctx context.Context) (err error) {
				d, err = c.populations.Distribution(ctx, c.Acme, path)
				return err
			}); err != nil {
				t.Error(err)
			}
			got <- d
		}()
		select {
		case d := <-got:
			if diff := gocmp.Diff([]populations.Bin{{Share: 1}}, d.Bins); diff != "" {
				t.Errorf("%s (-want +got):\n%s", path, diff)
			}
		case <-time.After(testkit.Patience()):
			t.Fatalf("%s: no answer", path)
		}
	}
}
