package imports

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"time"

	"kindred/commands"
)

// chunker cuts a file into chunks of whole lines.
type chunker struct {
	from  *bufio.Reader
	most  int // bytes of a line that are kept
	chunk []byte
	now   func() time.Time
}

func newChunker(from io.Reader, maxLine int, now func() time.Time) *chunker {
	return &chunker{from: bufio.NewReaderSize(from, maxLine+1), most: maxLine + 1, now: now}
}

// next returns the next chunk and how many lines it has, 0 at the end: what comes slowly is
// cut after chunkWithin. The chunk is the caller's until the next call. Of a line that is
// longer than it may be, one byte more than it may have is kept: enough to be refused.
func (c *chunker) next() (chunk []byte, lines int64, err error) {
	c.chunk = c.chunk[:0]
	due := c.now().Add(chunkWithin)
	for len(c.chunk) < chunkSize && (lines == 0 || c.now().Before(due)) {
		line, err := c.from.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			c.chunk = append(append(c.chunk, line[:c.most]...), '\n')
			lines++
			if err := commands.SkipLine(c.from); err != nil {
				return nil, 0, fmt.Errorf("receive an import: %w", err)
			}
			continue
		}
		last := errors.Is(err, io.EOF)
		if err != nil && !last {
			return nil, 0, fmt.Errorf("receive an import: %w", err)
		}
		if len(line) > 0 {
			c.chunk = append(c.chunk, line...)
			lines++
		}
		if last {
			break
		}
	}
	return c.chunk, lines, nil
}
