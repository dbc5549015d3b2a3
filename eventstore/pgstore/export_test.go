package pgstore

var Unavailable = unavailable

func (q *queue) put(r *request) error {
	_, err := q.putAll(r)
	return err
}

// Waiting counts the appends that no batch has taken yet.
func (s *Store) Waiting() int {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	return s.queue.waiting
}
