package httpapi

import (
	"io"
	"sync"
	"time"

	"kindred/semaphore"
)

// slowRate is how fast a body must come, or an export be taken, in bytes a
// second on the whole, not to give way to another client's where all places are
// held.
const slowRate = 64 << 10

// meter measures how fast a caller sends or takes: what the service itself
// takes its time for does not count.
type meter struct {
	now func() time.Time

	mu      sync.Mutex
	bytes   int64
	waited  time.Duration
	waiting time.Time // since when; zero: the caller is not waited for
}

func (m *meter) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiting = m.now()
}

func (m *meter) end(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waited = m.sum()
	m.waiting = time.Time{}
	m.bytes += int64(n)
}

// forget begins anew, as with another request over the same connection.
func (m *meter) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bytes, m.waited, m.waiting = 0, 0, time.Time{}
}

func (m *meter) sum() time.Duration {
	if m.waiting.IsZero() {
		return m.waited
	}
	return m.waited + m.now().Sub(m.waiting)
}

// holder is who waits for the caller, until end is called.
func (m *meter) holder(end func()) *semaphore.Holder {
	return &semaphore.Holder{End: end, Slow: func(time.Duration) float64 { return m.slow() }}
}

// slow is in seconds a byte where less than slowRate comes, else 0.
func (m *meter) slow() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	waited := m.sum()
	if waited < tolerated || float64(m.bytes) >= slowRate*waited.Seconds() {
		return 0
	}
	return waited.Seconds() / float64(m.bytes+1)
}

// metered reads from a caller.
type metered struct {
	io.Reader
	meter *meter
}

func (m metered) Read(p []byte) (n int, err error) {
	m.meter.begin()
	defer func() { m.meter.end(n) }()
	return m.Reader.Read(p)
}
