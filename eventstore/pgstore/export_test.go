package pgstore

// Waiting counts the appends that no batch has taken yet.
func (s *Store) Waiting() int {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	return s.queue.waiting
}
