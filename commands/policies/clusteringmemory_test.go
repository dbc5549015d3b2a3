package policies

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"kindred/domain/event"
	"kindred/domain/id"
)

func TestSmallRunsGoBeforeALargeOneAndKeepRoomForIt(t *testing.T) {
	m := (&Clustering{Memory: 100, Slots: 4, Limit: time.Hour}).newMemory()
	start := time.Now()
	for _, step := range []struct {
		after time.Duration
		run   id.Run
		size  int64
		want  bool
	}{
		{0, "large", 70, true},
		{1 * time.Minute, "larger", 80, false},
		{2 * time.Minute, "small", 15, true},
		{59 * time.Minute, "other", 20, false},
		{62 * time.Minute, "other", 6, false}, // the larger one has waited for an hour, and needs all but 20
		{62 * time.Minute, "other", 5, true},
		{62 * time.Minute, "another", 1, false},
	} {
		if got := m.take(step.run, 1, step.size, start.Add(step.after)); got != step.want {
			t.Errorf("%s takes %d after %s: %t", step.run, step.size, step.after, got)
		}
	}
	later := start.Add(63 * time.Minute)
	if blocked := m.blocked(later); len(blocked) != 2 {
		t.Errorf("%v are blocked", blocked)
	}
	m.give("large")
	if blocked := m.blocked(later); slices.Contains(blocked, "larger") || !m.take("larger", 1, 80, later) {
		t.Errorf("the larger one waits for nobody, and %v are blocked", blocked)
	}
	if attempt, tooLong := m.waits("another", later.Add(4*time.Hour)); attempt != 1 || !tooLong {
		t.Errorf("attempt %d, too long: %t", attempt, tooLong)
	}
}

// Of two large runs one waits for the other, and there are two slots.
func TestARunThatWaitsForMemoryLeavesItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, c := crowd(t, 10*time.Second)
		call, layer := o.populate("small", 40, kinds)
		o.request(call, layer, 2)
		c.Memory, c.Limit = (63+40)*4*6, 20*time.Second // of six dimensions: for a large and a small one
		began := time.Now()
		o.until(c, o.ends(3))
		if failed := facts[event.ClusteringFailed](o); len(failed) > 0 {
			t.Errorf("failed: %+v", failed)
		}
		if n := len(facts[event.ClusteringStarted](o)); n != 3 {
			t.Errorf("three runs had %d attempts", n)
		}
		for _, r := range o.records() {
			if _, ok := r.Event.(event.ClusteringCompleted); ok && r.Client == call.Client && r.RecordedAt.Sub(began) > 15*time.Second {
				t.Errorf("a small run took %s", r.RecordedAt.Sub(began))
			}
		}
	})
}
