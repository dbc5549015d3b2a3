package projector

import (
	"time"

	"kindred/eventstore"
)

// negativeFor is how long a negative answer holds at most: a model whose leader is elsewhere may
// come further unheard, and a client that is paused does beside it.
const negativeFor = 2 * time.Second

// NegativeCache remembers that a look at a read model has found nothing to do, which holds until the
// model has come further. One goroutine uses it. The nil NegativeCache remembers nothing.
type NegativeCache struct {
	Progress *Progress
	Of       Projection

	at    eventstore.Position
	until time.Time // zero: there may be something to do
}

// Look looks, unless there is known to be nothing.
func (n *NegativeCache) Look(look func() (found bool, err error)) error {
	if n == nil {
		_, err := look()
		return err
	}
	at, _ := n.Progress.Reached(n.Of)             // before the look, so that no change is missed
	if at == n.at && time.Now().Before(n.until) { //nolint:forbidigo // measured on the process's monotonic clock
		return nil
	}
	found, err := look()
	n.at, n.until = at, time.Time{}
	if !found && err == nil {
		n.until = time.Now().Add(negativeFor) //nolint:forbidigo // as above
	}
	return err
}
