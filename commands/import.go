package commands

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"sync"

	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/seal"
	"kindred/panics"
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
	Errors                              []LineError // the first MaxLineErrors, by line
	Position                            eventstore.Position
}

// LineError is a line that was refused.
type LineError struct {
	Line  int
	Fault *fault.Fault
}

const (
	importLines   = 512     // lines that are sealed and appended together
	importBytes   = 1 << 20 // of their traits, unless one line has more
	importWorkers = 32      // for lines that need a look at their user first
	importPage    = 16      // events of a user that are looked through at once
	// limit: imports | refused lines that a report names | {MaxLineErrors} | the rest is counted
	MaxLineErrors  = 1_000 // that a report names
	importReplaces = "replace"
)

// ImportUsers upserts users as they arrive. A line that is refused does not
// stop the rest; any other error does, and what was applied until then stays.
// Lines of one external id are applied in their order. Users are created in the
// order of the lines, but for those who had been erased before: they follow
// within a batch; where the store is not Bulk, a batch is created in any order.
// mode is "merge" or "replace". next returns the lines
// that come next, none at the end; what it returns bounds what is read ahead.
//
// While a batch of lines is appended, the next one is sealed and the one after
// that is read.
//
// With a Seed, each line is applied once however often the call is repeated.
// The lines of users who are there then wait, in memory, for the last one.
// Faults: busy, catching_up, erased_since, idempotency_key_reused, invalid, overloaded, quarantined, stale,
// traits_too_large, user_exists, user_unknown.
func (c *Commands) ImportUsers(ctx context.Context, call Call, mode string, next func() ([]Imported, error)) (ImportReport, error) {
	run := &importing{commands: c, call: call, mode: mode}
	err := run.run(ctx, next)
	if err == nil {
		err = run.upsertAll(ctx, run.later)
	}
	if c.Imported != nil {
		c.Imported(run.report)
	}
	return run.report, err
}

func (r *importing) run(ctx context.Context, next func() ([]Imported, error)) error {
	group, ctx := panics.WithContext(ctx)
	read, gathered, sealed := make(chan []Imported), make(chan []Imported), make(chan importBatch)
	group.Go(func() error {
		defer close(read)
		for {
			lines, err := next()
			if err != nil || len(lines) == 0 {
				return err
			}
			select {
			case read <- lines:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	group.Go(func() error {
		defer close(gathered)
		return gather(ctx, read, gathered)
	})
	group.Go(func() error {
		defer close(sealed)
		for lines := range gathered {
			batch, err := r.seal(ctx, lines)
			if err != nil {
				return err
			}
			select {
			case sealed <- batch:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	group.Go(func() error {
		for batch := range sealed {
			if err := r.apply(ctx, batch); err != nil {
				return err
			}
		}
		return nil
	})
	return group.Wait()
}

// gather passes on lines in portions, whenever the receiver is ready for one. It reads more
// as long as it holds less than a portion.
func gather(ctx context.Context, read <-chan []Imported, into chan<- []Imported) error {
	var held []Imported
	for read != nil || len(held) > 0 {
		first, whole := portion(held)
		from, to := read, into
		if whole {
			from = nil
		}
		if len(held) == 0 {
			to = nil
		}
		select {
		case lines, more := <-from:
			if !more {
				read = nil
			}
			held = append(held, lines...)
		case to <- held[:first]:
			held = slices.Clone(held[first:])
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// SkipLine passes over the rest of a line of an import that is longer than what reads it can hold.
func SkipLine(from *bufio.Reader) error {
	for {
		_, err := from.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil
		default:
			return err
		}
	}
}

// portion is how many lines make a batch, and whether they fill it.
func portion(lines []Imported) (n int, whole bool) {
	for size := 0; n < len(lines); {
		size += len(lines[n].Traits)
		if n++; n == importLines || size >= importBytes {
			return n, true
		}
	}
	return n, false
}

// importing is one import under way.
type importing struct {
	commands *Commands
	call     Call
	mode     string
	later    []Imported // lines of a seeded call, once all are known

	mu     sync.Mutex
	report ImportReport
}

// importBatch are lines on their way: those that may create a user, sealed, and
// those of a user who is named a second time.
type importBatch struct {
	first  []Imported
	sealed []eventstore.Sealed
	again  []Imported
}

// seal prepares the creation of all users that a batch names.
func (r *importing) seal(ctx context.Context, lines []Imported) (importBatch, error) {
	c := r.commands
	var (
		batch    importBatch
		openings []eventstore.Opening
		seen     = make(map[string]bool, len(lines))
	)
	for _, line := range lines {
		if line.Refused != nil {
			r.refuse(line.Line, line.Refused)
			continue
		}
		if seen[line.ExternalID] {
			batch.again = append(batch.again, line)
			continue
		}
		stream, created, err := c.opening(r.callOf(line), r.mode, line)
		if refused := fault.As(err); refused != nil {
			r.refuse(line.Line, refused)
			continue
		}
		if err != nil {
			return batch, err
		}
		seen[line.ExternalID] = true
		batch.first = append(batch.first, line)
		openings = append(openings, eventstore.Opening{
			Stream: stream,
			Entry:  eventstore.Entry{ID: r.first(line, stream), Origin: r.call.origin(), Event: created},
		})
	}
	var err error
	if batch.sealed, err = c.Log.SealOpenings(ctx, r.call.Client, openings); err != nil {
		return batch, err
	}
	return batch, r.leaveErased(ctx, &batch, openings)
}

// leaveErased takes users who were erased since the import was accepted out of a batch of
// new users. It runs after their names were taken: a user who is erased later still had the
// name then.
func (r *importing) leaveErased(ctx context.Context, batch *importBatch, openings []eventstore.Opening) error {
	erased, err := r.commands.erasedSince(ctx, r.call, batch.first...)
	if err != nil || !slices.Contains(erased, true) {
		return err
	}
	kept := importBatch{again: batch.again}
	for i, line := range batch.first {
		if !erased[i] {
			kept.first, kept.sealed = append(kept.first, line), append(kept.sealed, batch.sealed[i])
			continue
		}
		kept.again = append(kept.again, line)
		user := openings[i].Entry.Event.(event.EndUserCreated).User
		if err := r.commands.DestroyKey(ctx, r.call.Client, string(user)); err != nil {
			return err
		}
	}
	*batch = kept
	return nil
}

// erasedSince says which lines name somebody who was erased since their import was
// accepted.
func (c *Commands) erasedSince(ctx context.Context, call Call, lines ...Imported) ([]bool, error) {
	if call.Import == "" || c.Erasures == nil {
		return make([]bool, len(lines)), nil
	}
	lookups := make([][]byte, len(lines))
	for i, line := range lines {
		var err error
		if lookups[i], err = c.Log.Vault.Lookup(ctx, call.Client, event.ExternalName, line.ExternalID); err != nil {
			return nil, err
		}
	}
	return c.Erasures.Since(ctx, call.Client, call.Import, lookups)
}

// first is the id of the first event that a line records.
func (r *importing) first(line Imported, in eventstore.Stream) id.Event {
	return id.Next[id.Event](r.commands.ids(r.callOf(line), string(in)))
}

func (r *importing) callOf(line Imported) Call {
	call := r.call
	call.sliced = true
	if call.Seed != nil {
		call.Seed = append(slices.Clone(call.Seed), strconv.Itoa(line.Line))
	}
	return call
}

// opening is how the user of a line is created where it never was.
func (c *Commands) opening(call Call, mode string, line Imported) (eventstore.Stream, event.Event, error) {
	if err := domain.CheckExternalID(line.ExternalID); err != nil {
		return "", nil, err
	}
	user := c.newUser(call).id
	opened, err := openingTraits(mode, line.Traits)
	if err != nil {
		return "", nil, err
	}
	created, err := new(domain.EndUser).Create(creation(user, line.ExternalID, opened))
	if err != nil {
		return "", nil, err
	}
	return eventstore.UserStream(call.Client, user), created[0], nil
}

// openingTraits are those that a line gives a new user. What is merged is a patch of no traits (RFC
// 7396), of which nulls leave nothing: so the line changes nothing when it comes again.
func openingTraits(mode string, line json.RawMessage) (json.RawMessage, error) {
	if mode == importReplaces || !bytes.Contains(line, []byte("null")) {
		return line, nil
	}
	return patched(json.RawMessage(`{}`), line)
}

func creation(user id.User, external string, traits json.RawMessage) event.EndUserCreated {
	return event.EndUserCreated{
		User:       user,
		ExternalID: event.Private([]byte(external)), Traits: event.Private(traits),
	}
}

// slice applies a batch once the client has a place for it (Commands.slice).
func (r *importing) slice(ctx context.Context, apply func() error) error {
	return r.commands.slice(ctx, r.commands.Slices, r.call.Client, func() (eventstore.Position, error) {
		err := apply()
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.report.Position, err
	})
}

// slice makes a large append once the client has one of the places for it. The place is given back
// when readers see the append, so that a read of another client waits behind no more
// appends than there are places.
func (c *Commands) slice(ctx context.Context, places Slices, client id.Client, appends func() (eventstore.Position, error)) error {
	if places.Semaphore == nil {
		_, err := appends()
		return err
	}
	owner := client.Owner()
	if !places.Take(ctx, owner) {
		return cmp.Or(ctx.Err(), errBusy("large changes"))
	}
	appended := false
	defer func() {
		if !appended { // it may have panicked
			places.Give(owner)
		}
	}()
	at, err := appends()
	if err != nil {
		return err
	}
	appended = true
	go func() { // the next one is appended while the models take in this one
		defer places.Give(owner)
		places.Shown(context.WithoutCancel(ctx), at)
	}()
	return nil
}

// apply appends what a batch creates, and upserts the rest one by one.
func (r *importing) apply(ctx context.Context, batch importBatch) error {
	var opened []eventstore.Opened
	err := r.slice(ctx, func() (err error) {
		if opened, err = r.commands.Log.AppendOpenings(ctx, r.call.Client, batch.sealed); err != nil {
			return err
		}
		for _, o := range opened {
			if o.Err == nil {
				r.count(o.Recorded.Position, &r.report.Created)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	var rest []Imported
	var failed error
	for i, o := range opened {
		switch {
		case o.Err == nil:
		case moved(o.Err), errors.Is(o.Err, eventstore.ErrKeyed), errors.Is(o.Err, seal.ErrErased), errors.Is(o.Err, seal.ErrTaken):
			rest = append(rest, batch.first[i])
		default:
			failed = cmp.Or(failed, o.Err)
		}
	}
	if failed != nil {
		return failed
	}
	rest = append(rest, batch.again...)
	if r.call.Seed != nil {
		r.later = append(r.later, rest...)
		return nil
	}
	return r.upsertAll(ctx, rest)
}

// upsertAll applies lines at the same time, but for those of one user.
func (r *importing) upsertAll(ctx context.Context, lines []Imported) error {
	users, order := map[string][]Imported{}, []string(nil)
	for _, line := range lines {
		if users[line.ExternalID] == nil {
			order = append(order, line.ExternalID)
		}
		users[line.ExternalID] = append(users[line.ExternalID], line)
	}
	for names := range slices.Chunk(order, importLines) {
		err := r.slice(ctx, func() error {
			found, err := r.commands.Log.LookUp(ctx, r.call.Client, event.ExternalName, names...)
			if err != nil {
				return err
			}
			group, ctx := panics.WithContext(ctx)
			group.SetLimit(importWorkers)
			for i, external := range names {
				group.Go(func() error { return r.upsertUser(ctx, users[external], id.User(found[i])) })
			}
			return group.Wait()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// upsertUser applies the lines of one user; found is whom their external id was
// just seen to find, or nobody.
func (r *importing) upsertUser(ctx context.Context, lines []Imported, found id.User) error {
	done := 0
	if r.call.Seed != nil {
		var err error
		if done, err = r.passOver(ctx, lines, found); err != nil {
			return err
		}
	}
	at := named{}
	if found != "" {
		at = named{found, true}
	}
	for _, line := range lines[done:] {
		if err := r.upsert(ctx, line, at); err != nil {
			return err
		}
	}
	return nil
}

// passOver counts the first lines of one user that a repetition passes over, since an earlier
// run has applied them.
//
// An example: the lines of a user set its plan to
//
//	1 free    recorded an event, whose id is derived from the line
//	2 free    changed nothing, so recorded nothing
//	3 pro     recorded an event
//	4 pro     changed nothing
//	5 team    the run ended before it
//
// and after it ended a request set the plan to gold. Line 3 is the last one that recorded
// something, so all up to it are done. Line 4 changes nothing in how the user was after line 3,
// so it is done, too. Line 5 does, so the repetition goes on with it. If it applied line 2 or 4,
// it would undo later changes.
//
// Where no line recorded anything, how the user was when the import was begun counts instead.
// Where the external id finds nobody now, or somebody else, the user is the one whom the first
// line would have created.
func (r *importing) passOver(ctx context.Context, lines []Imported, found id.User) (done int, err error) {
	erased, err := r.commands.erasedSince(ctx, r.call, lines[0])
	if err != nil {
		return 0, err
	}
	if found == "" || erased[0] {
		found = r.commands.newUser(r.callOf(lines[0])).id
	}
	run, err := r.findEarlier(ctx, eventstore.UserStream(r.call.Client, found), lines)
	if err != nil {
		return 0, err
	}
	last := eventstore.Start
	for i, recorded := range run.recorded {
		if recorded != nil {
			done, last = i+1, max(last, recorded.Position)
		}
	}
	for _, recorded := range run.recorded[:done] {
		if recorded == nil {
			r.count(eventstore.Start, &r.report.Unchanged)
		} else {
			r.countChange(recorded.Position, recorded.Revision)
		}
	}
	if run.after != nil {
		unchanged, err := r.unchanged(ctx, &domain.EndUser{ID: found}, *run.after, lines[done:])
		if err != nil {
			return 0, err
		}
		done += unchanged
	}
	return done, r.commands.Log.NoteHead(ctx, r.call.Client, last)
}

// unchanged counts the first lines that change nothing in how a user was after an event.
func (r *importing) unchanged(ctx context.Context, user *domain.EndUser, after eventstore.Recorded, lines []Imported) (n int, err error) {
	for ; n < len(lines); n++ {
		changes, err := r.commands.replaceOrMerge(ctx, user, []eventstore.Recorded{after}, r.mode, lines[n].Traits)
		refused := fault.As(err) != nil || errors.Is(err, seal.ErrErased)
		if err != nil && !refused {
			return n, err
		}
		if refused || len(changes) > 0 {
			break
		}
		r.count(eventstore.Start, &r.report.Unchanged)
	}
	return n, nil
}

// earlierRun is what the stream of a user tells of an earlier run.
type earlierRun struct {
	recorded []*eventstore.Recorded // by line: its event; nil: it recorded none
	// after is the last of these events or, where there is none, the last one before the import
	// was begun. nil: nobody has changed the user since, or the user was erased.
	after *eventstore.Recorded
}

// findEarlier reads a stream back to when the import was accepted.
func (r *importing) findEarlier(ctx context.Context, stream eventstore.Stream, lines []Imported) (earlierRun, error) {
	run := earlierRun{recorded: make([]*eventstore.Recorded, len(lines))}
	ids := make(map[id.Event]int, len(lines))
	for i, line := range lines {
		ids[r.first(line, stream)] = i
	}
	newest, erased := id.Event(""), false
	for e, err := range r.commands.Log.Backward(ctx, stream, eventstore.End, importPage) {
		if err != nil {
			return run, err
		}
		newest = cmp.Or(newest, e.ID)
		if _, is := e.Event.(event.EndUserErased); is {
			erased = true
		}
		i, ours := ids[e.ID]
		if ours {
			run.recorded[i] = &e
		}
		if run.after == nil && (ours || e.Position <= r.call.Begun) {
			run.after = &e
		}
		if e.Position <= r.call.Accepted {
			break
		}
	}
	if erased || run.after != nil && run.after.ID == newest {
		run.after = nil
	}
	return run, nil
}

func (r *importing) upsert(ctx context.Context, line Imported, at named) error {
	outcome, err := r.commands.upsert(ctx, r.callOf(line), r.mode, line, at)
	if refused := fault.As(err); refused != nil && refused.Kind != fault.Unavailable {
		r.refuse(line.Line, refused)
		return nil
	}
	if err != nil {
		return err
	}
	if len(outcome.Recorded) == 0 {
		r.count(outcome.Position, &r.report.Unchanged)
	} else {
		r.countChange(outcome.Position, outcome.Recorded[0].Revision)
	}
	return nil
}

// upsert creates a user, or merges or replaces its traits where it exists.
func (c *Commands) upsert(ctx context.Context, call Call, mode string, line Imported, at named) (Outcome, error) {
	external, traits := line.ExternalID, line.Traits
	if err := domain.CheckExternalID(external); err != nil {
		return Outcome{}, err
	}
	var outcome Outcome
	err := c.withExternal(ctx, call, external, at, func(user named) error {
		erased, err := c.erasedSince(ctx, call, line) // after it was found: who is erased later has the name yet
		switch {
		case err != nil:
			return err
		case erased[0]:
			return errErasedSince()
		}
		outcome, err = c.executeNamed(ctx, call, user,
			func(u *domain.EndUser, history []eventstore.Recorded) ([]event.Event, error) {
				switch {
				case u.Erased && call.Accepted != eventstore.Start && history[len(history)-1].Position > call.Accepted:
					return nil, errErasedSince()
				case u.Erased:
					return nil, errErased
				case u.ID == "":
					opened, err := openingTraits(mode, traits)
					if err != nil {
						return nil, err
					}
					return u.Create(creation(user.id, external, opened))
				}
				return c.replaceOrMerge(ctx, u, history, mode, traits)
			})
		if errors.Is(err, seal.ErrErased) && call.Accepted != eventstore.Start {
			return errErasedSince()
		}
		return err
	})
	return outcome, err
}

func (c *Commands) replaceOrMerge(ctx context.Context, u *domain.EndUser, history []eventstore.Recorded, mode string, traits json.RawMessage) ([]event.Event, error) {
	if mode != importReplaces {
		return c.mergeTraits(ctx, u, history, traits)
	}
	old, err := c.traits(ctx, history)
	if err != nil {
		return nil, err
	}
	return u.ChangeTraits(old, traits)
}

func errErasedSince() error {
	return fault.New(fault.Conflict, "erased_since", "This user was erased after the import was accepted.")
}

// count counts a line that was applied, up to a position.
func (r *importing) count(at eventstore.Position, as *int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Position = max(r.report.Position, at)
	*as++
}

// countChange counts a line whose first event stands at a revision.
func (r *importing) countChange(at eventstore.Position, first eventstore.Revision) {
	if first == 0 {
		r.count(at, &r.report.Created)
	} else {
		r.count(at, &r.report.Updated)
	}
}

// refuse keeps the lowest lines, in order, whichever worker is first.
func (r *importing) refuse(line int, f *fault.Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := &r.report
	all.Failed++
	at := len(all.Errors)
	for at > 0 && all.Errors[at-1].Line > line {
		at--
	}
	if at == MaxLineErrors {
		return
	}
	all.Errors = slices.Insert(all.Errors, at, LineError{line, f})
	all.Errors = all.Errors[:min(len(all.Errors), MaxLineErrors)]
}
