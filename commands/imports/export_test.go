package imports

import "context"

// Turn applies one chunk, of the client whose turn it is. It is false where none waits.
func (w *Worker) Turn(ctx context.Context) (bool, error) { return w.queue().Turn(ctx, w.turn) }

// Prune forgets what is kept no longer.
func (w *Worker) Prune(ctx context.Context) error { return w.prune(ctx) }
