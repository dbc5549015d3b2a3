package populations

import (
	"sync"

	"kindred/domain/id"
)

// wanted is a rule that is to be kept.
type wanted struct {
	client id.Client
	text   string
}

// wantedQueue holds the rules that are to be kept: of a client and its sandboxes one at a time,
// however many they ask for, in the order of asking. Any goroutine may use it.
type wantedQueue struct {
	mu     sync.Mutex
	of     map[string]wanted // by owner
	owners chan string
}

// newWantedQueue makes a queue in which so many owners wait at most.
func newWantedQueue(owners int) *wantedQueue {
	return &wantedQueue{of: map[string]wanted{}, owners: make(chan string, owners)}
}

// put puts a rule in the queue, unless its owner waits for one, or too many do: the next request asks
// again.
func (w *wantedQueue) put(rule wanted) {
	w.mu.Lock()
	defer w.mu.Unlock()
	owner := rule.client.Owner()
	if _, waits := w.of[owner]; waits {
		return
	}
	select {
	case w.owners <- owner:
		w.of[owner] = rule
	default:
	}
}

// take takes what an owner asked for.
func (w *wantedQueue) take(owner string) wanted {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer delete(w.of, owner)
	return w.of[owner]
}
