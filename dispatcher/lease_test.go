package dispatcher

import (
	"testing"
	"time"
)

// member is a process that delivers, as far as others can tell.
func (r *rig) member() *roll {
	r.Helper()
	m := &roll{queue: r.queue(time.Minute)}
	if err := m.join(r.Context()); err != nil {
		r.Fatal(err)
	}
	return m
}

// call has a member give a sign of life, and returns how many deliveries it set free.
func (r *rig) call(m *roll) int64 {
	r.Helper()
	freed, err := m.call(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	return freed
}

func TestADeadProcessIsTakenOverLongBeforeItsLeasesEnd(t *testing.T) {
	r := newRig(t, Config{})
	rx := newReceiver(t, nil)
	client := r.client()
	_, subscribed := r.subscribe(client, rx.URL, "")
	r.apply(subscribed)
	r.apply(r.matches(client, 10)...)
	dead := r.member()
	dead.queue.lease = time.Hour
	jobs := r.claimBy(dead.queue, 10)
	if len(jobs) != 10 {
		t.Fatal("claimed", len(jobs))
	}
	r.Config.Lease = time.Hour
	r.start(r.Dispatcher)
	seen := map[string]bool{}
	for range jobs {
		seen[rx.next(t).header.Get("Webhook-Id")] = true
	}
	r.ended("delivered", 10)
	for _, j := range jobs {
		if !seen[string(j.Delivery)] {
			t.Errorf("%s was not delivered", j.Delivery)
		}
	}
}

func TestAProcessThatGivesSignsOfLifeKeepsWhatItHolds(t *testing.T) {
	r := newRig(t, Config{})
	client := r.client()
	_, subscribed := r.subscribe(client, "http://a.example", "")
	r.apply(subscribed)
	r.apply(r.matches(client, 6)...)
	slow, quick := r.member(), r.member()
	held := r.claimBy(slow.queue, 3)
	r.claimBy(quick.queue, 3)

	// However fast another one's clock runs, and if the database is away in between.
	for range 3 {
		for range deadAfter {
			if freed := r.call(quick); freed != 0 {
				t.Fatalf("%d deliveries of a living process were set free", freed)
			}
		}
		r.call(slow)
	}
	var freed int64
	for range deadAfter + 1 {
		freed += r.call(quick)
	}
	if freed != 3 {
		t.Fatalf("%d deliveries of a dead process were set free, not 3", freed)
	}
	before := slow.queue.holder.Load()
	r.call(slow) // it was only held up
	if slow.queue.holder.Load() == before {
		t.Error("it claims under the name of the dead")
	}
	taken := r.claimBy(quick.queue, 10)
	if len(taken) != 3 || taken[0].Token != 2 {
		t.Fatalf("claimed %d of what was set free", len(taken))
	}
	if states := r.note(delivered, held...); len(states) != 0 {
		t.Errorf("whoever was given up still decides: %v", states)
	}
	for range 3 * deadAfter {
		if freed := r.call(slow) + r.call(quick); freed != 0 {
			t.Fatalf("%d deliveries were set free twice", freed)
		}
	}
}
