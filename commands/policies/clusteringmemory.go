package policies

import (
	"sync"
	"time"

	"kindred/domain/id"
)

// memory is shared out among runs. A run for which there is none waits outside
// of the slots, and smaller ones go before it; those that come once it has waited
// for patience have to fit beside it.
type memory struct {
	whole             int64
	patience, longest time.Duration // a run waits no longer than longest

	mu      sync.Mutex
	held    map[id.Run]int64
	waiting map[id.Run]wait
}

type wait struct {
	attempt int
	size    int64
	since   time.Time
}

func (c *Clustering) newMemory() *memory {
	return &memory{
		// Of those before a run there are fewer than slots, and they have the limit each.
		whole: c.Memory, patience: c.Limit, longest: time.Duration(c.Slots) * c.Limit,
		held: map[id.Run]int64{}, waiting: map[id.Run]wait{},
	}
}

// take gives a run its memory, or has its attempt wait.
func (m *memory) take(run id.Run, attempt int, size int64, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	since := m.since(run, now)
	if !m.room(run, size, now) {
		m.waiting[run] = wait{attempt, size, since}
		return false
	}
	delete(m.waiting, run)
	m.held[run] = size
	return true
}

func (m *memory) give(run id.Run) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.held, run)
}

// since is when a run began to wait.
func (m *memory) since(run id.Run, now time.Time) time.Time {
	if w, ok := m.waiting[run]; ok {
		return w.since
	}
	return now
}

// room says whether a run fits beside those that hold memory, and together with
// those that fit beside it, also beside the one that has waited the longest.
func (m *memory) room(run id.Run, size int64, now time.Time) bool {
	eldest := wait{since: m.since(run, now)}
	for _, w := range m.waiting {
		if waited := now.Sub(w.since); waited >= m.patience && waited < m.longest && w.since.Before(eldest.since) {
			eldest = w
		}
	}
	spare := m.whole - eldest.size
	used, beside := size, size
	for _, held := range m.held {
		if used += held; held <= spare {
			beside += held
		}
	}
	return used <= m.whole && beside <= spare
}

// blocked are the runs that wait, but for those whose turn it is: there is
// memory for them now, or they have waited too long.
func (m *memory) blocked(now time.Time) (runs []id.Run) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for run, w := range m.waiting {
		if now.Sub(w.since) < m.longest && !m.room(run, w.size, now) {
			runs = append(runs, run)
		}
	}
	return runs
}

// waits returns the attempt of a run that waits, or 0, and whether it has
// waited too long.
func (m *memory) waits(run id.Run, now time.Time) (attempt int, tooLong bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w, ok := m.waiting[run]
	return w.attempt, ok && now.Sub(w.since) >= m.longest
}

// forget ends the wait of a run.
func (m *memory) forget(run id.Run) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.waiting, run)
}
