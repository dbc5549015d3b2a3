package seal

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"kindred/domain/id"
)

const (
	// subjectLife is how long a process may use a subject's key without
	// looking whether it still exists. Erasure bites everywhere within 1 s.
	subjectLife = 800 * time.Millisecond

	// limit: log | keys in memory | {maxSubjects} of users, {maxRoots} of clients
	maxSubjects = 8192    // cached keys of subjects, about 1 KiB each
	maxRoots    = 1 << 15 // cached client keys and peppers: a few of each client
)

type subjectName struct {
	client  id.Client
	subject string
}

type heldSubject struct {
	subjectKey
	asOf time.Time // when the key table said so; meaningless for a tombstone: those stay true
}

// subjectCache holds keys of subjects for a moment, and tombstones for longer.
type subjectCache struct {
	mu    sync.Mutex
	held  *simplelru.LRU[subjectName, heldSubject]
	since time.Time // what the key table said before does not count
}

func newSubjectCache() *subjectCache {
	return &subjectCache{held: newLRU[subjectName, heldSubject](maxSubjects)}
}

// get returns a key of which the key table said lately, and not before since, that it is there.
func (c *subjectCache) get(client id.Client, subject string, now, since time.Time) (subjectKey, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h, found := c.held.Get(subjectName{client, subject})
	if !found || h.cipher != nil && (now.Sub(h.asOf) >= subjectLife || h.asOf.Before(since)) {
		return subjectKey{}, false
	}
	return h.subjectKey, true
}

// put keeps what the key table said at a time, and returns what counts: a
// tombstone that came in between is not replaced.
func (c *subjectCache) put(client id.Client, subject string, key subjectKey, asOf time.Time) subjectKey {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := subjectName{client, subject}
	if h, found := c.held.Peek(name); found && h.cipher == nil {
		return h.subjectKey
	}
	if asOf.Before(c.since) {
		return key
	}
	c.held.Add(name, heldSubject{key, asOf})
	return key
}

// forget drops the keys, as of a time; tombstones stay.
func (c *subjectCache) forget(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since = now
	for _, name := range c.held.Keys() {
		if h, found := c.held.Peek(name); found && h.cipher != nil {
			c.held.Remove(name)
		}
	}
}

func (c *subjectCache) bury(client id.Client, subject string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held.Add(subjectName{client, subject}, heldSubject{})
}

type rootName struct {
	kind   Kind
	client id.Client
}

// rootCache holds client keys and peppers; a new wrapping leaves the keys as
// they are, so they do not age. They count as long as the key table is on the server
// that they were read from.
type rootCache struct {
	mu     sync.Mutex
	held   *simplelru.LRU[rootName, heldRoot]
	server int64 // counts the servers
	lost   *simplelru.LRU[id.Client, time.Time]
}

type heldRoot struct {
	rootKey
	server int64 // that it was read from
}

func newRootCache() *rootCache {
	return &rootCache{held: newLRU[rootName, heldRoot](maxRoots), lost: newLRU[id.Client, time.Time](maxRoots)}
}

// get returns a key, and the server that one that is not found is to be read from.
func (c *rootCache) get(kind Kind, client id.Client) (key rootKey, server int64, found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h, found := c.held.Get(rootName{kind, client})
	return h.rootKey, c.server, found && h.server == c.server
}

// stale says whether a key is held that was read from a server before.
func (c *rootCache) stale(kind Kind, client id.Client) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	h, found := c.held.Peek(rootName{kind, client})
	return found && h.server != c.server
}

// put keeps what a server holds. Where another key was held, that one is lost.
func (c *rootCache) put(kind Kind, client id.Client, key rootKey, server int64, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := rootName{kind, client}
	if before, found := c.held.Peek(name); found && before.id != key.id {
		c.lost.Add(client, now)
	}
	c.held.Add(name, heldRoot{key, server})
}

// drop notes that a server does not hold a key. What was kept of a server before is
// lost; what was kept of this one was made since it was asked.
func (c *rootCache) drop(kind Kind, client id.Client, server int64, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := rootName{kind, client}
	if before, found := c.held.Peek(name); found && before.server < server {
		c.held.Remove(name)
		c.lost.Add(client, now)
	}
}

// bury drops the keys of a client, which were destroyed.
func (c *rootCache) bury(client id.Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, kind := range []Kind{ClientKey, Pepper} {
		c.held.Remove(rootName{kind, client})
	}
}

func (c *rootCache) invalidate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server++
}

// lostWithin says whether a key of the client was lost that shortly ago.
func (c *rootCache) lostWithin(client id.Client, now time.Time, ago time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, found := c.lost.Peek(client)
	return found && now.Sub(at) < ago
}

func newLRU[K comparable, V any](size int) *simplelru.LRU[K, V] {
	lru, err := simplelru.NewLRU[K, V](size, nil)
	if err != nil {
		panic(err) // only for a size that is not positive
	}
	return lru
}
