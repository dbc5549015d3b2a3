package rule

import (
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// maxCached bounds rules that are kept ready to judge, for all clients: some 40,000 plain
// ones, or 250 of the largest. What takes more than maxPart of that is not kept.
// limit: models | rules of segments that are kept ready to judge | {maxCached B}
// limit: models | segments of clients that are kept ready, with their rules | {maxCached B}, {maxCached / maxPart B} of a client
// limit: models | match rules that are kept ready to judge | {maxCached B}
// limit: webhooks | filters of subscriptions that are kept ready to judge | {maxCached B}
const (
	maxCached = 64 << 20
	maxPart   = 4
)

// Sized is a rule, or some: Size is about how many bytes it takes in memory.
type Sized interface{ Size() int }

// Cache keeps rules ready to judge, by what names them: those that were asked for last, as
// far as they fit. Any goroutine may use it; its zero value is empty.
type Cache[K comparable, V Sized] struct {
	mu   sync.Mutex
	kept *simplelru.LRU[K, V]
	size int // bytes
}

// Get returns what is kept; else the zero value.
func (c *Cache[K, V]) Get(key K) (kept V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept != nil {
		kept, _ = c.kept.Get(key)
	}
	return kept
}

// Take is Get of what is kept no more from then on.
func (c *Cache[K, V]) Take(key K) (kept V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept != nil {
		kept, _ = c.kept.Peek(key)
		c.kept.Remove(key)
	}
	return kept
}

// Add keeps something, and drops what was asked for least recently where too much is kept.
func (c *Cache[K, V]) Add(key K, v V) {
	size := v.Size()
	if size > maxCached/maxPart {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept == nil {
		var err error
		if c.kept, err = simplelru.NewLRU(maxCached, func(_ K, dropped V) { c.size -= dropped.Size() }); err != nil {
			panic(err) // the size is no size
		}
	}
	c.kept.Remove(key)
	c.kept.Add(key, v)
	for c.size += size; c.size > maxCached; {
		c.kept.RemoveOldest()
	}
}
