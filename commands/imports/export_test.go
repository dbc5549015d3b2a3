package imports

import (
	"context"
	"io"
	"time"
)

// Turn applies one chunk, of the client whose turn it is. It is false where none waits.
func (w *Worker) Turn(ctx context.Context) (bool, error) { return w.queue().Turn(ctx, w.turn) }

// Prune forgets what is kept no longer.
func (w *Worker) Prune(ctx context.Context) error { return w.prune(ctx) }

// Cut cuts a file into chunks, by a clock.
func Cut(body io.Reader, maxLine int, now func() time.Time) (chunks []string, err error) {
	cut := newChunker(body, maxLine, now)
	for {
		chunk, lines, err := cut.next()
		if err != nil || lines == 0 {
			return chunks, err
		}
		chunks = append(chunks, string(chunk))
	}
}
