package commands

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
)

// Spends finds spends that were recorded, however long ago.
type Spends interface {
	// Recorded returns those of a campaign's spends whose id is among ids: all that stand
	// at or before reached, a position of the log, and perhaps later ones. It fails where a
	// spend before reached may be missing.
	Recorded(ctx context.Context, client id.Client, campaign id.Campaign, ids []string) (found []eventstore.Recorded, reached eventstore.Position, err error)
}

const (
	// maxLength is about how many events a stream of a campaign holds before the next one
	// begins. The newest stream is read to learn how a campaign stands, so it stays short.
	// limit: commands | events of a campaign's stream before the next begins | about {maxLength}
	maxLength = 1_000
	// maxParts bounds the spending streams of a campaign.
	// limit: commands | streams of a campaign | {maxParts}
	maxParts = 1 << 24
	// maxBehind bounds how many spends the read model may lack.
	// limit: commands | spends of a campaign that the read model may lack | {maxBehind}
	maxBehind = 50_000
	spendPage = 500
	// minRecent is how many spends are remembered before it is worth looking
	// which of them the read model has by now.
	minRecent = 256
	// maxRoundSize bounds the events of a round, in bytes, by estimate.
	// limit: commands | events of one round of spends | {maxRoundSize B}
	maxRoundSize = eventstore.MaxAppendSize * 2 / 3
)

// account is how a campaign stands: the fold of its newest stream up to version.
//
// A spend id counts once for the campaign's life, which may be millions of spends in many
// streams. To load all of them for each record, or to keep all ids in memory, would cost
// more with every spend. A claim in a stream of its own would not be atomic with the
// budget.
//
// So an id is looked up in two places that overlap. A read model holds every spend up to a
// position, which it returns in the same statement. The map recent holds every spend from
// the position floor up to version. Where the model has reached floor, no spend can lie
// between the two. Where it has not, floor is moved back until it has, by reading the
// streams backwards. What any process records after version makes the append conflict. So
// the answer is exact however far the model lags, and recent holds no more than that lag.
type account struct {
	domain.Campaign
	version eventstore.StreamVersion
	at      eventstore.Position            // of the last event
	recent  map[string]eventstore.Recorded // by spend id; positions may be rounded up within an append
	floor   eventstore.Position
	trimAt  int // how many recent ones are worth a look
}

func (a *account) fold(recorded []eventstore.Recorded, end eventstore.StreamVersion) {
	for _, r := range recorded {
		a.at = r.Position
		a.Apply(r.Event, r.RecordedAt)
		if e, ok := r.Event.(event.CampaignSpendRecorded); ok {
			a.remember(e.SpendID, r)
		}
	}
	a.version = end
}

// remember keeps of a spend what an answer needs.
func (a *account) remember(spendID string, r eventstore.Recorded) {
	r.Data, r.Meta = nil, nil
	a.recent[spendID] = r
}

// decide decides the first of entries, in order, and records what follows in one append:
// those behind the end of a stream go into the next round.
//
// It plans by the account, which may be older than the log. Where the plan has events, their
// append tells: it conflicts where others have appended since, and the round plans again by
// what these recorded. Where it has none, since all is refused or repeated, there is no append
// to conflict, and the end of the log has to be looked at before that is answered.
func (l *ledger) decide(ctx context.Context, entries []*entry) (decided []struct{}, err error) {
	defer func() {
		if err != nil {
			l.account = nil // whether the append took place is not known
		}
	}()
	current := false // the account is not older than the entries
	for range maxConflicts {
		if server := l.commands.server(); server != l.server {
			l.account, l.server = nil, server
		}
		if l.account == nil {
			if l.account, err = l.load(ctx); err != nil {
				return nil, err
			}
			current = true
		}
		if l.account.ID == "" {
			l.commands.ledgers.forget(l.ledgerKey)
			return nil, fault.UnknownCampaign()
		}
		found, err := l.recorded(ctx, entries)
		if err != nil {
			return nil, err
		}
		now, err := l.commands.Log.TimeOf(ctx, l.client)
		if err != nil {
			return nil, err
		}
		p := l.plan(entries, found, now)
		if len(p.events) > 0 {
			recorded, err := l.append(ctx, p)
			if err == nil && p.recordedAs(recorded) {
				return p.tell(recorded), nil
			}
			if err != nil && !moved(err) {
				return nil, err
			}
			current = false // others have appended
		}
		if !current {
			current, err = l.refresh(ctx)
			if errors.Is(err, errSetBack) {
				l.account = nil
				continue
			}
			if err != nil {
				return nil, err
			}
		}
		if current && len(p.events) == 0 {
			return p.tell(nil), l.commands.Log.NoteHead(ctx, l.client, l.account.at)
		}
		current = true // by now
	}
	return nil, errBusy("changes to the campaign")
}

// plan is what a round will do.
type plan struct {
	entries []*entry
	before  domain.Campaign
	state   domain.Campaign          // as it will be, but for the times of its changes
	version eventstore.StreamVersion // what the events are appended to
	events  []eventstore.Entry
	size    int               // of the events, in bytes, by estimate
	spends  map[string]*spend // that were or will be recorded
	decided []decided         // of the first entries, one each
}

// decided is what came of an entry: a refusal, or the plan's events from begin
// to end.
type decided struct {
	err        error
	begin, end int
}

// spend is one that was recorded, or that the plan's event at index will.
type spend struct {
	recorded eventstore.Recorded
	index    int // -1: recorded before
}

func (l *ledger) plan(entries []*entry, found map[string]eventstore.Recorded, now time.Time) *plan {
	p := &plan{
		entries: entries, before: l.account.Campaign, state: l.account.Campaign, version: l.account.version,
		spends: make(map[string]*spend, len(found)),
	}
	for spendID, r := range found {
		p.spends[spendID] = &spend{r, -1}
	}
	for _, e := range entries {
		var recorded *event.CampaignSpendRecorded
		if s := p.spends[e.spend]; e.spend != "" && s != nil {
			first := s.recorded.Event.(event.CampaignSpendRecorded)
			recorded = &first
		}
		begin := len(p.events)
		events, err := e.decide(&p.state, recorded, now)
		if err == nil && len(events) > 0 {
			l.record(p, e, events, now)
		}
		p.decided = append(p.decided, decided{err, begin, len(p.events)})
		if p.state.Length >= maxLength && !p.state.Over() && !p.state.Closed {
			p.add(e, l.derived("closed", p.state.Part), now, p.state.Close())
		}
		if p.size > maxRoundSize || p.state.Closed && len(p.events) > 0 {
			break
		}
	}
	return p
}

// record adds what an entry has decided to a plan. Where the campaign's stream
// has ended, that begins the next one.
func (l *ledger) record(p *plan, e *entry, events []event.Event, now time.Time) {
	if p.state.Closed {
		opened := p.state.Open()
		p.version = eventstore.NewStreamVersion(eventstore.CampaignStream(l.client, l.campaign, opened.Part))
		p.add(e, l.derived("opened", opened.Part), now, opened)
	}
	ids := l.commands.ids(e.call, string(p.version.Stream))
	if e.spend != "" {
		ids = id.Derived("spend", string(l.client), string(l.campaign), e.spend)
	}
	for _, fact := range events {
		if s, ok := fact.(event.CampaignSpendRecorded); ok {
			p.spends[s.SpendID] = &spend{eventstore.Recorded{Event: s}, len(p.events)}
		}
		p.add(e, ids, now, fact)
	}
}

// derived hands out the id of the event that begins or ends a stream.
func (l *ledger) derived(what string, part int) *id.Source {
	return id.Derived(what, string(eventstore.CampaignStream(l.client, l.campaign, part)))
}

func (p *plan) add(e *entry, ids *id.Source, now time.Time, fact event.Event) {
	const envelope, cluster = 3 << 10, 40 // bytes, at most
	p.size += envelope
	switch fact.(type) {
	case event.CampaignChanged, event.CampaignSpendingOpened:
		p.size += cluster * len(p.state.Clusters)
	}
	p.events = append(p.events, eventstore.Entry{ID: id.Next[id.Event](ids), Origin: e.call.origin(), Event: fact})
	p.state.Apply(fact, now)
}

// tell sets what came of the entries that are decided.
func (p *plan) tell(recorded []eventstore.Recorded) []struct{} {
	state, folded := p.before, 0
	for i, d := range p.decided {
		for ; folded < d.end; folded++ {
			state.Apply(recorded[folded].Event, recorded[folded].RecordedAt)
		}
		e := p.entries[i]
		e.err, e.after = d.err, state
		if d.end > d.begin {
			e.position = recorded[d.end-1].Position
		}
		switch s := p.spends[e.spend]; {
		case e.spend == "" || s == nil:
		case s.index >= 0:
			e.recorded = recorded[s.index]
		default:
			e.recorded = s.recorded
		}
	}
	return make([]struct{}, len(p.decided))
}

// recordedAs says whether the log holds what was planned. Another process may have recorded
// something else under the same ids: the same spend id with another amount.
func (p *plan) recordedAs(recorded []eventstore.Recorded) bool {
	for i, r := range recorded {
		if !reflect.DeepEqual(r.Event, p.events[i].Event) {
			return false
		}
	}
	return true
}

// append records a plan and folds it.
func (l *ledger) append(ctx context.Context, p *plan) ([]eventstore.Recorded, error) {
	recorded, err := l.commands.Log.AppendEntries(ctx, p.version, p.events)
	if err != nil {
		return nil, err
	}
	last := recorded[len(recorded)-1]
	end, err := last.StreamVersion()
	if err != nil {
		return nil, err
	}
	for i := range recorded {
		recorded[i].Position = last.Position // only that of the last is told
	}
	l.account.fold(recorded, end)
	return recorded, nil
}

// recorded finds the spends of entries that were recorded before.
func (l *ledger) recorded(ctx context.Context, entries []*entry) (map[string]eventstore.Recorded, error) {
	var ids []string
	for _, e := range entries {
		if e.spend != "" {
			ids = append(ids, e.spend)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	old, reached, err := l.commands.Spends.Recorded(ctx, l.client, l.campaign, ids)
	if err != nil {
		return nil, fmt.Errorf("look for spends of %s: %w", l.campaign, err)
	}
	if err := l.reach(ctx, reached); err != nil {
		return nil, err
	}
	found := make(map[string]eventstore.Recorded, len(old))
	for _, r := range old {
		found[r.Event.(event.CampaignSpendRecorded).SpendID] = r
	}
	for _, spendID := range ids {
		if r, ok := l.account.recent[spendID]; ok {
			found[spendID] = r
		}
	}
	return found, nil
}

// reach makes recent hold every spend after a position, and drops those up to it once there
// are many.
func (l *ledger) reach(ctx context.Context, reached eventstore.Position) error {
	a := l.account
	if reached < a.floor {
		if err := l.readBack(ctx, reached); err != nil {
			return err
		}
	}
	if len(a.recent) >= max(a.trimAt, minRecent) {
		maps.DeleteFunc(a.recent, func(_ string, r eventstore.Recorded) bool { return r.Position <= reached })
		a.floor, a.trimAt = reached, 2*len(a.recent)
	}
	if len(a.recent) > maxBehind {
		return errCatchingUp()
	}
	return nil
}

// readBack moves floor back to a position.
func (l *ledger) readBack(ctx context.Context, to eventstore.Position) error {
	a := l.account
	read := 0
parts:
	for part := a.Part; part > 0; part-- {
		stream := eventstore.CampaignStream(l.client, l.campaign, part)
		for r, err := range l.commands.Log.Backward(ctx, stream, eventstore.End, spendPage) {
			if err != nil {
				return err
			}
			if r.Position <= to {
				break parts
			}
			if e, ok := r.Event.(event.CampaignSpendRecorded); ok {
				a.remember(e.SpendID, r)
			}
			if read++; read > maxBehind {
				return errCatchingUp()
			}
		}
	}
	a.floor = to
	return nil
}

// load learns how the campaign stands from its newest stream. ID is empty where
// there is no such campaign.
func (l *ledger) load(ctx context.Context) (*account, error) {
	part, err := l.newestPart(ctx)
	if err != nil {
		return nil, err
	}
	a := &account{recent: map[string]eventstore.Recorded{}}
	return a, l.follow(ctx, a, part)
}

// errSetBack: the log does not hold any more what the account was made of. A
// failover can lose what it had acknowledged.
var errSetBack = errors.New("the log was set back")

// follow folds a stream: from the account's version on, where that is of this stream, else
// all of it. It also checks that the event of that version still stands there. Hashes chain
// the events, so then all that the account says still stands, and nothing is answered from
// memory alone.
func (l *ledger) follow(ctx context.Context, a *account, part int) error {
	end := a.version
	stream := eventstore.CampaignStream(l.client, l.campaign, part)
	if end.Stream != stream {
		end = eventstore.NewStreamVersion(stream)
	}
	known, before := end, end.Revision != eventstore.NoStream
	if before {
		end.Revision--
	}
	history, end, err := l.commands.Log.LoadAfter(ctx, end)
	if err != nil {
		return err
	}
	if before {
		if len(history) == 0 {
			return errSetBack
		}
		there, err := history[0].StreamVersion()
		if err != nil {
			return err
		}
		if there != known {
			return errSetBack
		}
		history = history[1:]
	}
	if a.ID == "" && len(history) > 0 {
		a.floor = history[0].Position // the event that opens a stream is no spend
	}
	if len(history) > 0 || a.version.Stream == "" {
		a.fold(history, end)
	}
	return nil
}

// refresh brings the account up to date, and says whether it was already. It fails with
// errSetBack where the log has lost events that the account was made of.
func (l *ledger) refresh(ctx context.Context) (was bool, err error) {
	a := l.account
	before := a.version
	for range maxParts {
		if err := l.follow(ctx, a, a.Part); err != nil {
			return false, err
		}
		if !a.Closed {
			break
		}
		part := a.Part
		if err := l.follow(ctx, a, part+1); err != nil {
			return false, err
		}
		if a.Part == part {
			break
		}
	}
	return a.version == before, nil
}

// newestPart finds the last of the campaign's streams, which have numbers
// without a gap: in doubling steps, then by halving.
func (l *ledger) newestPart(ctx context.Context) (int, error) {
	low, high := 0, 1
	for ; high < maxParts; high *= 2 {
		there, err := l.begun(ctx, high)
		if err != nil {
			return 0, err
		}
		if !there {
			break
		}
		low = high
	}
	for low+1 < high {
		middle := low + (high-low)/2
		there, err := l.begun(ctx, middle)
		switch {
		case err != nil:
			return 0, err
		case there:
			low = middle
		default:
			high = middle
		}
	}
	return low, nil
}

func (l *ledger) begun(ctx context.Context, part int) (bool, error) {
	stream := eventstore.CampaignStream(l.client, l.campaign, part)
	first, err := l.commands.Log.Store.ReadStream(ctx, stream, 0, 1)
	if err != nil {
		return false, fmt.Errorf("look for %s: %w", stream, err)
	}
	return len(first) > 0, nil
}
