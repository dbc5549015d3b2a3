package dispatcher

import (
	"testing"
	"time"
)

// Enqueue in batches of 1,000, then drain to one local receiver. One iteration is
// the whole queue: go test -bench Drain -benchtime 1x.
func BenchmarkDrain(b *testing.B) {
	const total = 20_000
	for b.Loop() {
		r := newFixture(b, Config{})
		rx := newReceiver(b, nil)
		client := r.client()
		_, subscribed := r.subscribe(client, rx.URL, "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQ=")
		r.apply(subscribed)
		began := time.Now()
		for range total / 1000 {
			batch := r.matches(client, 1000)
			r.apply(batch...)
		}
		enqueued := time.Since(began)
		began = time.Now()
		r.start(r.Dispatcher)
		for range total {
			rx.next(b)
		}
		drained := time.Since(began)
		r.ended("delivered", total)
		b.ReportMetric(total/enqueued.Seconds(), "enqueued/s")
		b.ReportMetric(total/drained.Seconds(), "delivered/s")
	}
}
