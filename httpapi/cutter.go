package httpapi

import (
	"sync"
	"time"
)

// cutter ends what waits for the caller of a request, for as long as that is served: its
// connection is then for the next request, which may be another caller's, behind a proxy. One
// whose reading is cut once the body has ended, when net/http watches it for a caller who goes
// away, ends every request that comes after.
type cutter struct {
	deadline func(time.Time) error // of reading or writing, on the request's connection

	mu   sync.Mutex
	over bool
	used bool
}

// cut may be called at any time, and again.
func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		c.used = true
		_ = c.deadline(time.Unix(1, 0)) // where there is no connection, nothing waits
	}
}

// end says whether it was cut. Nothing is, from here on.
func (c *cutter) end() (used bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	return c.used
}
