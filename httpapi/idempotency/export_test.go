package idempotency

import "time"

// Held is how many requests are under way.
func (s *Store) Held() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held)
}

// PrunedASecond is how many keys are forgotten in a second at most.
const PrunedASecond = maxRounds * batch / int64(pruneEvery/time.Second)
