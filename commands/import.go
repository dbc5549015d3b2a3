package commands

import (
	"context"
	"encoding/json"
	"errors"
	"hash/maphash"
	"sync"

	"golang.org/x/sync/errgroup"

	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/seal"
)

// Imported is one line of an import: a user to create, or to change where it
// exists. A line that could not be read carries the refusal instead.
type Imported struct {
	Line       int // from 1
	ExternalID string
	Traits     json.RawMessage
	Refused    *fault.Fault
}

// ImportReport says what became of an import.
type ImportReport struct {
	Created, Updated, Unchanged, Failed int
	Errors                              []LineError // the first maxLineErrors, by line
	Position                            eventstore.Position
}

// LineError is a line that was refused.
type LineError struct {
	Line  int
	Fault *fault.Fault
}

const (
	importWorkers  = 32
	importBacklog  = 16 // lines waiting per worker
	maxLineErrors  = 1_000
	importReplaces = "replace"
)

// ImportUsers upserts users as they arrive. A line that is refused does not
// stop the rest; any other error does, and what was applied until then stays.
// Lines of one external id are applied in their order. mode is "merge" or
// "replace".
func (c *Commands) ImportUsers(ctx context.Context, call Call, mode string, next func() (Imported, bool, error)) (ImportReport, error) {
	call.Seed = nil
	report := &importing{}
	group, ctx := errgroup.WithContext(ctx)
	var lanes [importWorkers]chan Imported
	for i := range lanes {
		lanes[i] = make(chan Imported, importBacklog)
		group.Go(func() error {
			for line := range lanes[i] {
				if err := c.importLine(ctx, call, mode, line, report); err != nil {
					return err
				}
			}
			return nil
		})
	}
	group.Go(func() error {
		defer func() {
			for _, lane := range lanes {
				close(lane)
			}
		}()
		return deal(ctx, lanes[:], next)
	})
	err := group.Wait()
	return report.sorted(), err
}

// deal hands each line to the worker of its external id.
func deal(ctx context.Context, lanes []chan Imported, next func() (Imported, bool, error)) error {
	seed := maphash.MakeSeed()
	for {
		line, more, err := next()
		if err != nil || !more {
			return err
		}
		lane := maphash.String(seed, line.ExternalID) % uint64(len(lanes))
		select {
		case lanes[lane] <- line:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *Commands) importLine(ctx context.Context, call Call, mode string, line Imported, report *importing) error {
	if line.Refused != nil {
		report.refuse(line.Line, line.Refused)
		return nil
	}
	outcome, err := c.upsert(ctx, call, mode, line.ExternalID, line.Traits)
	if refused := fault.As(err); refused != nil && refused.Kind != fault.Unavailable { //nolint:nilerr // the refusal stands in the report
		report.refuse(line.Line, refused)
		return nil
	}
	if err != nil {
		return err
	}
	report.count(outcome)
	return nil
}

// upsert creates a user, or merges or replaces its traits where it exists.
func (c *Commands) upsert(ctx context.Context, call Call, mode, external string, traits json.RawMessage) (Outcome, error) {
	if err := domain.CheckExternalID("/external_id", external); err != nil {
		return Outcome{}, err
	}
	var outcome Outcome
	err := c.eachGeneration(ctx, call.Client, external, func(user id.User, generation int) (err error) {
		outcome, err = execute[domain.EndUser](ctx, c, call, userStream(call.Client, user), true,
			func(u *domain.EndUser, history []eventstore.Recorded) ([]event.Event, error) {
				switch {
				case u.Erased:
					return nil, errErased
				case u.ID == "":
					return u.Create(event.EndUserCreated{
						User: user, Generation: generation,
						ExternalID: event.Private([]byte(external)), Traits: event.Private(traits),
					})
				case mode != importReplaces:
					return c.mergeTraits(ctx, u, history, traits)
				}
				old, err := c.traits(ctx, history)
				if err != nil {
					return nil, err
				}
				return u.ChangeTraits(old, traits)
			})
		if errors.Is(err, seal.ErrErased) {
			return errErased
		}
		return err
	})
	return outcome, err
}

// importing gathers a report from many workers.
type importing struct {
	mu sync.Mutex
	ImportReport
}

func (r *importing) count(o Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Position = max(r.Position, o.Position)
	switch {
	case len(o.Recorded) == 0:
		r.Unchanged++
	case o.Recorded[0].Revision == 0:
		r.Created++
	default:
		r.Updated++
	}
}

// refuse keeps the lowest lines, in order, whichever worker is first.
func (r *importing) refuse(line int, f *fault.Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Failed++
	at := len(r.Errors)
	for at > 0 && r.Errors[at-1].Line > line {
		at--
	}
	if at == maxLineErrors {
		return
	}
	r.Errors = append(r.Errors, LineError{})
	copy(r.Errors[at+1:], r.Errors[at:])
	r.Errors[at] = LineError{line, f}
	r.Errors = r.Errors[:min(len(r.Errors), maxLineErrors)]
}

func (r *importing) sorted() ImportReport {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ImportReport
}
