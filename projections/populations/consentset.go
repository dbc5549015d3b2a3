package populations

import (
	"fmt"
	"sync"
	"sync/atomic"
	"weak"

	"kindred/domain/id"
	"kindred/domain/matching"
	"kindred/eventstore"
	"kindred/projections"
)

// layerOf names a consent layer among those of all clients.
type layerOf struct {
	client id.Client
	layer  id.ConsentLayer
}

// maxLayers bounds how many layers are kept in memory.
// limit: models | consent layers in memory | {maxLayers}
const maxLayers = 256

const (
	// pairsSeed makes the random pairs of a percentile the same ones each time.
	pairsSeed = 1
	// keptAtOnce is how many users are judged before others may search.
	// limit: models | users that are judged at once for a part of a filter to be kept | {keptAtOnce}
	keptAtOnce = 1_000
)

// consentSet is who has granted a layer. Each request first takes in what has
// changed.
type consentSet struct {
	lock    ctxLock
	reached eventstore.Position // guarded by lock, as is the next
	server  int64               // that they were read from
	held    holding

	// marking is held while those who have granted, or the users of the population, change
	// together with the marks. It is locked before mu, and guards the next fields.
	marking sync.Mutex
	mark    string                            // of users who have granted, in a population: no other set's
	marked  weak.Pointer[matching.Population] // which has it, for as long as that is in memory; the zero value: none
	evicted atomic.Bool

	mu      sync.RWMutex // guards the rest; it is not held while the database is waited for
	granted map[id.User]struct{}

	// distribution is that of the population among the layer's traits.
	distribution *matching.Distribution
	population   weak.Pointer[matching.Population]
	version      int // of the schema, whose weights the population may take over
	paths        string
}

var consentSets atomic.Int64

func newConsentSet() *consentSet {
	return &consentSet{lock: newCtxLock(), granted: map[id.User]struct{}{}, mark: fmt.Sprint("consents ", consentSets.Add(1))}
}

func (c *consentSet) apply(page []projections.ConsentChange) {
	c.marking.Lock()
	defer c.marking.Unlock()
	changed := make(map[string]bool, len(page))
	c.mu.Lock()
	for _, change := range page {
		changed[string(change.User)] = change.Granted
		if c.reached = change.At; change.Granted {
			c.granted[change.User] = struct{}{}
		} else {
			delete(c.granted, change.User)
		}
	}
	c.mu.Unlock()
	if users := c.marked.Value(); users != nil {
		users.Mark(c.mark, changed)
	}
}

// markIn marks in a population who has granted, and keeps the marks up to date from then
// on.
func (c *consentSet) markIn(users *matching.Population) {
	c.marking.Lock()
	defer c.marking.Unlock()
	if c.marked == weak.Make(users) || c.evicted.Load() {
		return
	}
	c.unmark()
	building := c.mark + " …"
	some := make(map[string]bool, keptAtOnce)
	for user := range c.granted { // which changes under marking
		if some[string(user)] = true; len(some) == keptAtOnce {
			users.Mark(building, some)
			clear(some)
		}
	}
	users.Mark(building, some)
	users.Rename(building, c.mark)
	c.marked = weak.Make(users)
}

// isThere marks a user that came into a population or changed in it, where the population
// has the marks of this set.
func (c *consentSet) isThere(users *matching.Population, user string) {
	c.marking.Lock()
	defer c.marking.Unlock()
	if c.marked == weak.Make(users) {
		users.Mark(c.mark, map[string]bool{user: c.has(user)})
	}
}

// replace takes over what another set has read. No population has its marks then.
func (c *consentSet) replace(by *consentSet, server int64) {
	c.marking.Lock()
	defer c.marking.Unlock()
	c.unmark()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.granted, c.reached, c.server = by.granted, by.reached, server
}

// evict unmarks users for good.
func (c *consentSet) evict() {
	c.evicted.Store(true)
	c.marking.Lock()
	defer c.marking.Unlock()
	c.unmark()
}

// unmark takes the mark from a population, if there is one; marking is held.
func (c *consentSet) unmark() {
	if users := c.marked.Value(); users != nil {
		users.Unmark(c.mark)
	}
	c.marked = weak.Pointer[matching.Population]{}
}

func (c *consentSet) has(user string) bool {
	_, granted := c.granted[id.User(user)]
	return granted
}

// among returns how alike two random users are in the layer's traits.
func (c *consentSet) among(users *matching.Population, version int, paths string, permit func(string) bool) matching.Distribution {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.distribution == nil || c.population != weak.Make(users) || c.version != version || c.paths != paths {
		d := users.Distribution(pairsSeed, permit)
		c.distribution, c.population, c.version, c.paths = &d, weak.Make(users), version, paths
	}
	return *c.distribution
}
