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

	maxSubjects = 8192    // cached keys of subjects, about 1 KiB each
	maxRoots    = 1 << 15 // cached client keys and peppers: a few of each client
)

type subjectName struct {
	client  id.Client
	subject string
}

type heldSubject struct {
	subjectKey
	until time.Time // meaningless for a tombstone: those stay true
}

// subjectCache holds keys of subjects for a moment, and tombstones for longer.
type subjectCache struct {
	mu   sync.Mutex
	held *simplelru.LRU[subjectName, heldSubject]
}

func newSubjectCache() *subjectCache {
	return &subjectCache{held: newLRU[subjectName, heldSubject](maxSubjects)}
}

func (c *subjectCache) get(client id.Client, subject string, now time.Time) (subjectKey, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h, found := c.held.Get(subjectName{client, subject})
	if !found || h.cipher != nil && !now.Before(h.until) {
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
	c.held.Add(name, heldSubject{key, asOf.Add(subjectLife)})
	return key
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
// they are, so they do not age.
type rootCache struct {
	mu   sync.Mutex
	held *simplelru.LRU[rootName, rootKey]
}

func newRootCache() *rootCache { return &rootCache{held: newLRU[rootName, rootKey](maxRoots)} }

func (c *rootCache) get(kind Kind, client id.Client) (rootKey, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held.Get(rootName{kind, client})
}

func (c *rootCache) put(kind Kind, client id.Client, key rootKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held.Add(rootName{kind, client}, key)
}

func newLRU[K comparable, V any](size int) *simplelru.LRU[K, V] {
	lru, err := simplelru.NewLRU[K, V](size, nil)
	if err != nil {
		panic(err) // only for a size that is not positive
	}
	return lru
}
