package semaphore

// Known is how many clients it remembers.
func (s *Semaphore) Known() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.clients)
}
