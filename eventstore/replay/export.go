package replay

import (
	"context"
	"errors"
	"fmt"
	"io"

	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/audit"
)

// Export is a Source: the events of one client, as an export holds them. It
// checks that each is the one that was hashed, and at the end that they are
// those that the export's last head commits to. Whether that head is genuine,
// only its signature tells: audit.Verify.
type Export struct {
	lines  *audit.Reader
	tree   audit.Tree
	client id.Client
	head   string // the last that was read
	ended  bool
}

// NewExport reads an export from its beginning.
func NewExport(from io.Reader) *Export { return &Export{lines: audit.NewReader(from)} }

// ErrExport: an export cannot be replayed.
var ErrExport = errors.New("the export is not whole")

// Next returns the next events.
func (x *Export) Next(_ context.Context, limit int) ([]eventstore.Record, error) {
	var records []eventstore.Record
	for len(records) < limit && !x.ended {
		e, head, err := x.lines.Next()
		switch {
		case errors.Is(err, io.EOF):
			x.ended = true
			if _, err := x.Head(); err != nil {
				return nil, err
			}
			return records, nil
		case err != nil:
			return nil, fmt.Errorf("%w: %w", ErrExport, err)
		case head != "":
			x.head = head
			continue
		}
		x.head = ""
		record, err := x.record(&e)
		if err != nil {
			return nil, fmt.Errorf("%w: event %d: %w", ErrExport, x.tree.Size, err)
		}
		records = append(records, record)
	}
	return records, nil
}

func (x *Export) record(e *audit.Event) (r eventstore.Record, err error) {
	if e.Ordinal == nil || e.Missing {
		return r, errors.New("the log did not hold what the history knew when this was exported")
	}
	if *e.Ordinal != x.tree.Size {
		return r, fmt.Errorf("out of order: event %d stands here; lines were moved, left out or doubled", *e.Ordinal)
	}
	hash, err := e.Recompute()
	if err != nil {
		return r, err
	}
	if hash != e.Hash {
		return r, errors.New("it was changed: its hash is another")
	}
	meta, err := eventstore.DecodeMeta([]byte(e.Meta))
	if err != nil {
		return r, err
	}
	if x.tree.Size > 0 && meta.Client != x.client {
		return r, errors.New("it is another client's")
	}
	x.client = meta.Client
	x.tree.Append(hash, nil)
	return eventstore.Record{
		Position: e.Position, Stream: e.Stream, Revision: e.Revision,
		Proposed: eventstore.Proposed{
			ID: e.ID, Type: e.Type, Version: meta.Version, Client: meta.Client, RecordedAt: meta.RecordedAt.UTC(),
			Data: []byte(e.Data), Meta: []byte(e.Meta),
		},
	}, nil
}

// Head is the head that the export ends with. It fails where that does not
// commit to exactly the events before it.
func (x *Export) Head() (audit.Head, error) {
	if x.head == "" {
		return audit.Head{}, fmt.Errorf("%w: it does not end with a signed head", ErrExport)
	}
	head, err := audit.ReadHead(x.head)
	if err != nil {
		return head, fmt.Errorf("%w: %w", ErrExport, err)
	}
	if head.Size != x.tree.Size || head.Root != x.tree.Root() {
		return head, fmt.Errorf("%w: its last head does not commit to the %d events before it", ErrExport, x.tree.Size)
	}
	if _, err := id.Parse[id.Client](string(head.Client)); err != nil || x.tree.Size > 0 && head.Client != x.client {
		return head, fmt.Errorf("%w: its last head is another client's", ErrExport)
	}
	return head, nil
}
