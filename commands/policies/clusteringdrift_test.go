package policies

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"kindred/commands"
	"kindred/domain/event"
	"kindred/domain/id"
)

// rerun gives the users other traits, and divides them again.
func (o *town) rerun(call commands.Call, layer id.ConsentLayer, users, k int, traits func(i int) string) commands.Run {
	o.Helper()
	for i := range users {
		if _, err := o.ChangeTraits(o.Context(), call, commands.UserRef(fmt.Sprint("ext:u", i)), json.RawMessage(traits(i))); err != nil {
			o.Fatal(err)
		}
	}
	ended := len(o.endedRuns())
	run := o.request(call, layer, k)
	o.until(o.process(o.store, 1), o.ends(ended+1))
	return run
}

// One of three groups visits more, stays so, and comes back again and again.
func TestEachDriftIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newTown(t)
		call, layer := o.settle("acme", 180, kinds)
		var told []int
		for run, more := range []int{0, 4, 4, 0, 4, 0, 0} {
			before := len(facts[event.ClusterDriftDetected](o))
			o.rerun(call, layer, 180, 3, func(i int) string {
				if i%3 > 0 {
					return kinds(i)
				}
				return fmt.Sprintf(`{"age":%d,"plan":"p0","visits":%d}`, 20+i/3%5, i/3%4+more)
			})
			if n := len(facts[event.ClusterDriftDetected](o)) - before; n > 0 {
				told = append(told, run)
			}
		}
		if formed := facts[event.ClusterFormed](o); len(formed) != 3 {
			t.Fatalf("%d clusters were formed", len(formed))
		}
		if want := []int{1, 3, 4, 5}; !slices.Equal(told, want) {
			t.Errorf("drift is told at the runs %v, want %v", told, want)
		}
	})
}
