package readmodel

import (
	"crypto/rand"
	"runtime"
	"testing"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/semaphore"
)

// However many rules one client and its sandboxes have judged, others find a processor.
func TestOneClientJudgesOnHalfOfTheProcessors(t *testing.T) {
	t.Cleanup(func(before int) func() { return func() { runtime.GOMAXPROCS(before) } }(runtime.GOMAXPROCS(2 * places))) // as serve does
	source, j := id.Random(rand.Reader), NewJudging()
	owner, other := id.Next[id.Client](source), id.Next[id.Client](source)
	begun, release, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	const rules = 100
	for i := range rules {
		client := owner
		if i%2 == 0 {
			client = id.NextSandbox(source, owner)
		}
		go func() {
			ended <- j.Do(t.Context(), client, func() error {
				begun <- struct{}{}
				<-release
				return nil
			})
		}()
	}
	half := (places + 1) / 2
	for range half {
		<-begun
	}
	if err := j.Do(t.Context(), other, func() error { return nil }); err != nil {
		t.Error(err)
	}
	select {
	case <-begun:
		t.Errorf("more than %d are judged of one client", half)
	default:
	}
	close(release)
	for n := half; n < rules; n++ {
		<-begun
	}
	for range rules {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestWhoeverIsTooManyToJudgeIsToldSo(t *testing.T) {
	j := Judging{&semaphore.Semaphore{Places: 1}}
	err := j.Do(t.Context(), "a", func() error {
		if err := j.Do(InNoPlace(t.Context()), "a", func() error { return nil }); err != nil {
			t.Errorf("in no place: %v", err)
		}
		return j.Do(t.Context(), "b", func() error { return nil })
	})
	if !fault.Is(err, "overloaded") {
		t.Error(err)
	}
}
