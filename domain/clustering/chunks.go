package clustering

import (
	"context"
	"sync"
	"sync/atomic"
)

// chunkRows is how many rows are summed up before their sum joins the rest.
// It may not depend on the number of threads, for it decides the rounding.
const chunkRows = 4096

// inChunks gives every chunk of the rows to work, on that many threads, each
// with a T of its own, and what work left in it to fold, one at a time and in
// the order of the rows. When the context ends, chunks that were not begun are
// left out, and its error is returned; work itself must be quick to see it.
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
	)
	for range threads {
		wait.Go(func() {
			t := fresh()
			mu.Lock()
			defer mu.Unlock()
			for begun < total && ctx.Err() == nil {
				mine := begun
				begun++
				mu.Unlock()
				work(t, mine*chunkRows, min((mine+1)*chunkRows, rows))
				mu.Lock()
				for folded != mine {
					turned.Wait()
				}
				fold(t)
				folded++
				turned.Broadcast()
			}
		})
	}
	wait.Wait()
	return ctx.Err()
}

// each calls work for 0..n-1 on that many threads, and returns the error of the
// lowest, or the context's.
func each(ctx context.Context, n, threads int, work func(i int) error) error {
	var (
		wait sync.WaitGroup
		next atomic.Int64
		errs = make([]error, n)
	)
	for range min(n, threads) {
		wait.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				errs[i] = work(i)
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
