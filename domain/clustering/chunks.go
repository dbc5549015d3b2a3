package clustering

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"

	"kindred/panics"
)

// chunkRows is how many rows are summed up before their sum joins the rest.
// It may not depend on the number of threads, for it decides the rounding.
const chunkRows = 4096

// inChunks gives every chunk of the rows to work, on that many threads, each
// with a T of its own, and what work left in it to fold, one at a time and in
// the order of the rows. When the context ends, chunks that were not begun are
// left out, and its error is returned; work itself must be quick to see it. A panic
// of either is an error.
func inChunks[T any](ctx context.Context, rows, threads int, fresh func() T, work func(t T, from, to int), fold func(T)) error {
	total := (rows + chunkRows - 1) / chunkRows
	threads = min(threads, total)
	if threads <= 1 {
		t := fresh()
		for c := 0; c < total && ctx.Err() == nil; c++ {
			work(t, c*chunkRows, min((c+1)*chunkRows, rows))
			fold(t)
		}
		return ctx.Err()
	}
	var (
		wait   sync.WaitGroup
		mu     sync.Mutex
		turned = sync.NewCond(&mu)
		begun  int
		folded int
		failed error
	)
	for range threads {
		wait.Go(func() {
			t := fresh()
			mu.Lock()
			defer mu.Unlock()
			for begun < total && failed == nil && ctx.Err() == nil {
				mine := begun
				begun++
				mu.Unlock()
				err := panics.Caught(func() error { work(t, mine*chunkRows, min((mine+1)*chunkRows, rows)); return nil })
				mu.Lock()
				for folded != mine {
					turned.Wait()
				}
				if failed == nil && err == nil {
					err = panics.Caught(func() error { fold(t); return nil })
				}
				failed = cmp.Or(failed, err)
				folded++
				turned.Broadcast()
			}
		})
	}
	wait.Wait()
	return cmp.Or(failed, ctx.Err())
}

// each calls work for 0..n-1 on that many threads, and returns the error of the
// lowest, or the context's. A panic is an error.
func each(ctx context.Context, n, threads int, work func(i int) error) error {
	var (
		wait sync.WaitGroup
		next atomic.Int64
		errs = make([]error, n)
	)
	for range min(n, threads) {
		wait.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				errs[i] = panics.Caught(func() error { return work(i) })
			}
		})
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}
