package rule

import (
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// maxCached bounds rules that are kept ready to judge, for all clients: some 40,000 plain
// ones, or 250 of the largest.
// limit: models | rules of segments that are kept ready to judge | {maxCached B}
// limit: models | match rules that are kept ready to judge | {maxCached B}
// limit: webhooks | filters of subscriptions that are kept ready to judge | {maxCached B}
const maxCached = 64 << 20

// Cache keeps rules ready to judge, by what names them: those that were asked for last, as
// far as they fit. Any goroutine may use it; its zero value is empty.
type Cache[K comparable] struct {
	mu   sync.Mutex
	kept *simplelru.LRU[K, *Rule]
	size int // bytes
}

// Get returns a rule; nil where it is not kept.
func (c *Cache[K]) Get(key K) *Rule {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept == nil {
		return nil
	}
	r, _ := c.kept.Get(key)
	return r
}

// Add keeps a rule, and drops those that were asked for least recently where too much is
// kept.
func (c *Cache[K]) Add(key K, r *Rule) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept == nil {
		var err error
		if c.kept, err = simplelru.NewLRU(maxCached, func(_ K, dropped *Rule) { c.size -= dropped.size }); err != nil {
			panic(err) // the size is no size
		}
	}
	c.kept.Remove(key)
	c.kept.Add(key, r)
	for c.size += r.size; c.size > maxCached; {
		c.kept.RemoveOldest()
	}
}
