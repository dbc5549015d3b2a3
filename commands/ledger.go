package commands

import (
	"context"
	"errors"
	"sync"
	"time"

	"kindred/coalesce"
	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
)

const (
	// limit: commands | campaigns that a process remembers | {maxLedgers}
	maxLedgers = 1_000 // campaigns that a process remembers; more only while they are all at work
	// limit: client | requests to one campaign that wait, on one process | {maxWaiting} | 503 `busy`
	maxWaiting = 2_000 // requests to one campaign
	// limit: commands | requests to one campaign that share an append | {maxRound}
	maxRound     = 200 // requests that share an append
	roundTimeout = 10 * time.Second
)

// ledger decides, in this process, about one campaign, by how that stands (account). What is
// asked for while an append is under way waits and shares the next one. Other processes do
// the same; the expected revision tells who was first, and the others look again.
type ledger struct {
	ledgerKey
	commands *Commands
	rounds   *coalesce.Coalescer[*entry, struct{}]

	account *account // the round's alone; nil: not known
	server  int64    // that the account was read from
}

// entry is one request to a campaign.
type entry struct {
	call  Call
	spend string // the spend's id, or empty
	// decide says what follows. recorded is the spend that has this id
	// already, or nil.
	decide func(c *domain.Campaign, recorded *event.CampaignSpendRecorded, now time.Time) ([]event.Event, error)

	err      error
	after    domain.Campaign
	position eventstore.Position // of what was recorded; empty where that was nothing
	recorded eventstore.Recorded // the spend, now or when it was first recorded
}

// do has an entry decided. It returns early when ctx ends; the entry may be
// recorded all the same.
func (l *ledger) do(ctx context.Context, e *entry) error {
	if _, err := l.rounds.Ask(ctx, e); err != nil {
		if errors.Is(err, coalesce.ErrBusy) {
			return errBusy("requests to this campaign")
		}
		return err
	}
	return e.err
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
			if ledger.rounds.Idle() {
				delete(l.known, other)
			}
			if len(l.known) < maxLedgers*3/4 {
				break
			}
		}
	}
	fresh := &ledger{ledgerKey: key, commands: c}
	fresh.rounds = &coalesce.Coalescer[*entry, struct{}]{Answer: fresh.decide, Most: maxRound, Waiting: maxWaiting, Timeout: roundTimeout}
	l.known[key] = fresh
	return fresh
}

// forget drops what is known of a campaign that is not there.
func (l *ledgers) forget(key ledgerKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.known, key)
}
