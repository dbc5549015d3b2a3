package populations

import (
	"sync/atomic"
	"time"

	"kindred/domain/fault"
)

// budget shares out the memory that populations and consents may take, among
// all clients. What was used longest ago is forgotten where there is no more.
type budget struct {
	whole int64 // bytes; one client's population takes half of it at most
	used  atomic.Int64
	// forget drops something, but for one that is to have a size. It is false where
	// there is nothing else.
	forget func(but *holding, size int64) bool
}

// holding is what one population, or the consents of one layer, take of a budget.
type holding struct {
	bytes atomic.Int64
	gone  atomic.Bool // it was forgotten: it takes nothing, and lasts for the requests that use it
}

// clientPart is the part of the memory of all populations that one client's may take. Those
// of a client and its sandboxes together have more only while nobody else needs it.
//
// limit: client | users that are compared | those whose traits fit into 1/{clientPart} of the memory for the users of all clients, which is two fifths of the process's | 409 `population_too_large`
const clientPart = 2

// grow takes more for what has, or will have, a size, or gives some back; for is
// what it is for. It fails with the fault population_too_large, or with busy where
// all is taken by what is being made just now.
func (b *budget) grow(taken *int64, size int64, of *holding) error {
	if size > b.whole/clientPart {
		return fault.New(fault.Conflict, "population_too_large",
			"The traits of this client's users take more than %d MiB to be compared. Send fewer or shorter traits, or leave some out of matches.", b.whole/clientPart>>20)
	}
	more := size - *taken
	for b.used.Add(more) > b.whole && more > 0 {
		b.used.Add(-more)
		if !b.forget(of, size) {
			return fault.New(fault.Unavailable, "busy", "Too many users are being read at once. Please try again.").After(time.Second)
		}
	}
	*taken = size
	return nil
}

// assign makes what was taken that of a holding, in place of what it had.
func (b *budget) assign(h *holding, taken int64) {
	b.used.Add(-h.bytes.Swap(taken))
	if h.gone.Load() {
		b.release(h)
	}
}

// resize makes a holding as large as what it holds is now.
func (b *budget) resize(h *holding, size int64) error {
	before := h.bytes.Load()
	taken := before
	if err := b.grow(&taken, size, h); err != nil {
		return err
	}
	h.bytes.Add(taken - before)
	if h.gone.Load() {
		b.release(h)
	}
	return nil
}

// release gives back all that a holding has, once it was forgotten.
func (b *budget) release(h *holding) {
	h.gone.Store(true)
	b.used.Add(-h.bytes.Swap(0))
}
