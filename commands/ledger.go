package commands

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
)

const (
	// limit: commands | campaigns that a process remembers | {maxLedgers}
	maxLedgers = 1_000 // campaigns that a process remembers; more only while they are all at work
	// limit: commands | requests to one campaign that wait | {maxWaiting}
	maxWaiting = 2_000 // requests to one campaign
	// limit: commands | requests to one campaign that share an append | {maxRound}
	maxRound     = 200 // requests that share an append
	roundTimeout = 10 * time.Second
)

// ledger decides, in this process, about one campaign. What is asked for while
// an append is under way waits and shares the next one. Other processes do the
// same; the expected revision tells who was first, and the others look again.
//
// There is no goroutine: one of those who wait leads a round for all, then
// hands the lead on.
type ledger struct {
	commands *Commands
	client   id.Client
	campaign id.Campaign

	mu      sync.Mutex
	waiting []*entry
	busy    bool // somebody leads, or is told to

	account *account // the leader's alone; nil: not known
	server  int64    // that the account was read from
}

// entry is one request to a campaign.
type entry struct {
	call  Call
	spend string // the spend's id, or empty
	// decide says what follows. recorded is the spend that has this id
	// already, or nil.
	decide func(c *domain.Campaign, recorded *event.CampaignSpendRecorded, now time.Time) ([]event.Event, error)

	lead    chan struct{} // closed to make it lead
	leads   bool          // lead is closed
	gone    bool          // its caller has given up
	settled chan struct{} // closed once what follows is set

	err      error
	after    domain.Campaign
	position eventstore.Position // of what was recorded; empty where that was nothing
	recorded eventstore.Recorded // the spend, now or when it was first recorded
}

// do has an entry decided. It returns early when ctx ends; the entry may be
// recorded all the same.
func (l *ledger) do(ctx context.Context, e *entry) error {
	e.lead, e.settled = make(chan struct{}), make(chan struct{})
	leads, err := l.join(e)
	if err != nil {
		return err
	}
	if !leads {
		select {
		case <-e.settled:
			return e.err
		case <-e.lead:
		case <-ctx.Done():
			if l.leave(e) {
				return ctx.Err()
			}
		}
	}
	l.round(ctx)
	<-e.settled // the leader's own entry is the first of its round
	return e.err
}

// join puts an entry in line. It leads where nobody does.
func (l *ledger) join(e *entry) (leads bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == maxWaiting {
		return false, errBusy("requests to this campaign")
	}
	l.waiting = append(l.waiting, e)
	leads = !l.busy
	l.busy = true
	return leads, nil
}

// leave takes an entry out of the line, and keeps one whose round is under way
// out of the next. It fails where the entry has to lead.
func (l *ledger) leave(e *entry) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.leads {
		return false
	}
	e.gone = true
	l.waiting = slices.DeleteFunc(l.waiting, func(w *entry) bool { return w == e })
	return true
}

// round settles the entries at the head of the line, and hands the lead on,
// whatever happens. That the leader's own caller has gone is no reason to let
// down the others.
func (l *ledger) round(ctx context.Context) {
	l.mu.Lock()
	n := min(len(l.waiting), maxRound)
	entries := l.waiting[:n:n]
	l.waiting = l.waiting[n:]
	l.mu.Unlock()

	settled, err := 0, errBrokenOff
	defer func() { l.handOn(entries, settled, err) }()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), roundTimeout)
	defer cancel()
	settled, err = l.settle(ctx, entries)
}

// errBrokenOff: a round has panicked.
var errBrokenOff = errors.New("the round was broken off")

// handOn tells those whose entries are settled, all of them where the round has
// failed, and makes the next in line lead.
func (l *ledger) handOn(entries []*entry, settled int, err error) {
	if err != nil {
		settled = len(entries)
		for _, e := range entries {
			e.err = err
		}
	}
	l.mu.Lock()
	left := slices.DeleteFunc(entries[settled:], func(e *entry) bool { return e.gone })
	l.waiting = append(left, l.waiting...)
	l.busy = len(l.waiting) > 0
	if l.busy {
		l.waiting[0].leads = true
		close(l.waiting[0].lead)
	}
	l.mu.Unlock()
	for _, e := range entries[:settled] {
		close(e.settled)
	}
}

// idle says whether nobody needs the ledger.
func (l *ledger) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.busy
}

// ledgers are the campaigns that this process knows how they stand.
type ledgers struct {
	mu    sync.Mutex
	known map[ledgerKey]*ledger
}

type ledgerKey struct {
	client   id.Client
	campaign id.Campaign
}

// of returns the ledger of a campaign. Where too many are known, some that
// nobody uses are forgotten.
func (l *ledgers) of(c *Commands, client id.Client, campaign id.Campaign) *ledger {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := ledgerKey{client, campaign}
	if found, ok := l.known[key]; ok {
		return found
	}
	if l.known == nil {
		l.known = map[ledgerKey]*ledger{}
	}
	if len(l.known) >= maxLedgers {
		for other, ledger := range l.known { // in no order
			if ledger.idle() {
				delete(l.known, other)
			}
			if len(l.known) < maxLedgers*3/4 {
				break
			}
		}
	}
	fresh := &ledger{commands: c, client: client, campaign: campaign}
	l.known[key] = fresh
	return fresh
}

// forget drops what is known of a campaign that is not there.
func (l *ledgers) forget(client id.Client, campaign id.Campaign) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.known, ledgerKey{client, campaign})
}
