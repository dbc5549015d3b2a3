package esdbstore_test

import (
	"fmt"
	"sync"
	"testing"

	"kindred/eventstore"
	"kindred/eventstore/esdbstore"
	"kindred/eventstore/esdbstore/esdbtest"
	"kindred/testkit"
)

// follow lets so many follow from the start until they have seen the last of so
// many events. It returns once all have caught up with what there is.
func follow(t testing.TB, s *esdbstore.Store, followers, want int) (done func()) {
	t.Helper()
	var ready, seen sync.WaitGroup
	for range followers {
		f := testkit.Must(s.Subscribe(t.Context(), eventstore.Start))(t)
		ready.Add(1)
		seen.Go(func() {
			defer f.Close()
			told := sync.OnceFunc(ready.Done)
			defer told()
			for n := 0; n < want; {
				batch, err := f.Next(t.Context(), 1000)
				if err != nil {
					t.Error(err)
					return
				}
				if n += len(batch.Records); batch.CaughtUp {
					told()
				}
			}
		})
	}
	ready.Wait()
	return seen.Wait
}

func TestTwentyFollowersReadAsOftenAsOne(t *testing.T) {
	const appends = 300
	reads := map[int]int{}
	for _, followers := range []int{1, 20} {
		server := esdbtest.Start(t)
		s, other := open(t, server.URL(), options(0)), open(t, server.URL(), options(0))
		done := follow(t, s, followers, appends)
		before := server.Reads()
		for i, e := range events(t, appends) {
			by := []*esdbstore.Store{s, other}[i%2]
			appended(t, by, eventstore.Stream(fmt.Sprint("user-", i)), eventstore.NoStream, []eventstore.Proposed{e})
			server.Write("$stats", uint64(i), map[string]string{"type": "$statsCollected"}, []byte(`{}`), nil)
		}
		done()
		reads[followers] = server.Reads() - before - appends // each append looks what stands there
	}
	if reads[20] > reads[1]*3/2+10 { // and some more, for a machine that stands still
		t.Errorf("20 followers read %d times, one %d times, while %d events came", reads[20], reads[1], appends)
	}
	t.Logf("reads: %v", reads)
}

func BenchmarkFollow(b *testing.B) {
	for _, followers := range []int{0, 1, 20} {
		b.Run(fmt.Sprint(followers), func(b *testing.B) {
			server := esdbtest.Start(b)
			s := open(b, server.URL(), options(0))
			done := follow(b, s, followers, b.N)
			all := events(b, b.N)
			b.ResetTimer()
			var writers sync.WaitGroup
			for w := range 32 {
				writers.Go(func() {
					for i := w; i < b.N; i += 32 {
						stream := eventstore.Stream(fmt.Sprint("user-", i))
						if _, err := s.Append(b.Context(), stream, eventstore.NoStream, all[i:i+1]); err != nil {
							b.Error(err)
						}
					}
				})
			}
			writers.Wait()
			done()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(float64(server.Reads())/float64(b.N), "reads/event")
		})
	}
}
