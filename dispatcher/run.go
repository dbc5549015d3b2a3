package dispatcher

import (
	"context"
	"fmt"
	"sync"
)

// Run delivers until ctx ends, from when the database is there. Then it claims nothing more, and returns when the
// attempts in flight have ended, within their time-out, and are noted; no other
// process takes them over meanwhile. Where the database does not answer, they cannot be
// noted: they are sent again once this worker is deregistered, or their leases have ended.
func (d *Dispatcher) Run(ctx context.Context) error {
	config := d.Config.withDefaults()
	w := newWorker(d, config)
	for {
		err := w.prepare(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return nil
		}
		w.trouble(ctx, err)
	}

	// alive lasts until the last attempt has ended.
	alive, die := context.WithCancel(context.WithoutCancel(ctx))
	defer die()
	w.outcomes = w.noting(ctx)
	var background sync.WaitGroup
	background.Go(func() { w.listen(ctx) })
	background.Go(func() { d.maintain(ctx, config.Retention) })
	background.Go(func() { w.noteHealth(alive) })
	background.Go(func() { w.keepAlive(alive) })

	w.work(ctx)

	w.inFlight.Wait()
	die()
	background.Wait()
	w.deregister(ctx)
	w.transport.CloseIdleConnections()
	return nil
}

// prepare makes the delivery log ready, and this worker known.
func (w *worker) prepare(ctx context.Context) error {
	if err := w.makePartitions(ctx); err != nil {
		return fmt.Errorf("prepare the delivery log: %w", err)
	}
	return (&registry{queue: w.queue}).register(ctx)
}
