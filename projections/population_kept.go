package projections

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"kindred/domain/id"
	"kindred/domain/rule"
	"kindred/eventstore"
)

const (
	// maxKept bounds the rules whose answers are kept beside a population.
	// limit: client | parts of filters whose answers are kept in memory | {maxKept} | others are judged anew for each answer
	maxKept = 64
	// keptAtOnce is how many users are judged before others may search.
	// limit: models | users that are judged at once for a part of a filter to be kept | {keptAtOnce}
	keptAtOnce = 1_000
	// keptFrom is how many users make it worth it: fewer are judged as soon.
	keptFrom = 100
)

// keptRule is a rule of users whose answers the population holds as marks, by its text. It is
// brought up to date with the population.
type keptRule struct {
	*rule.Rule
	used   int // when it was asked for last, in askings
	judged int // users since then
}

// wanted is a rule that is to be kept.
type wanted struct {
	client id.Client
	text   string
}

// wantedQueue holds the rules that are to be kept: of a client and its sandboxes one at a time,
// however many they ask for, in the order of asking. Any goroutine may use it.
type wantedQueue struct {
	mu     sync.Mutex
	of     map[string]wanted // by owner
	owners chan string
}

func newWantedQueue() *wantedQueue {
	return &wantedQueue{of: map[string]wanted{}, owners: make(chan string, maxPopulations)}
}

// put puts a rule in the queue, unless its owner waits for one, or too many do: the next request asks
// again.
func (w *wantedQueue) put(rule wanted) {
	w.mu.Lock()
	defer w.mu.Unlock()
	owner := rule.client.Owner()
	if _, waits := w.of[owner]; waits {
		return
	}
	select {
	case w.owners <- owner:
		w.of[owner] = rule
	default:
	}
}

// take takes what an owner asked for.
func (w *wantedQueue) take(owner string) wanted {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer delete(w.of, owner)
	return w.of[owner]
}

// asking notes that rules are asked for, returns those that are kept, and has the others
// kept from soon on. pop is locked.
func (p *Populations) asking(client id.Client, pop *population, texts []string) (marked []string) {
	for _, text := range texts {
		pop.askings++
		if k := pop.kept[text]; k != nil {
			k.used, k.judged = pop.askings, 0
			marked = append(marked, text)
		} else if pop.users.Len() > keptFrom {
			p.wanted.put(wanted{client, text})
		}
	}
	return marked
}

// judge lets the kept rules judge a user that has changed, and marks what it has granted. One that has judged more users
// since it was asked for than it would take to keep it anew is forgotten. pop is locked.
func (pop *population) judge(client id.Client, change UserChange) error {
	if change.Traits == nil {
		return nil
	}
	for layer := range pop.layers {
		layer.isThere(pop.users, string(change.ID))
	}
	if len(pop.kept) == 0 {
		return nil
	}
	facts, err := lastingFacts(client, change)
	if err != nil {
		return err
	}
	for text, k := range pop.kept {
		pop.users.Mark(text, map[string]bool{string(change.ID): k.Judge(facts) == rule.True})
		if k.judged++; k.judged > pop.users.Len()+keptAtOnce {
			pop.forget(text)
		}
	}
	return nil
}

// lastingFacts are what the lasting parts of rules read.
func lastingFacts(client id.Client, change UserChange) (*rule.Facts, error) {
	facts := rule.Facts{Client: string(client), ID: string(change.ID)}
	if err := json.Unmarshal(change.Traits, &facts.Traits); err != nil {
		return nil, fmt.Errorf("read the traits of %s: %w", change.ID, err)
	}
	return &facts, nil
}

func (pop *population) forget(text string) {
	delete(pop.kept, text)
	pop.users.Unmark(text)
}

// keep judges all users by a rule and marks whom it names, beside requests. Who changes
// meanwhile is judged again before anybody asks.
func (p *Populations) keep(ctx context.Context, w wanted) error {
	pop, found := p.clients.Peek(w.client)
	if !found {
		return nil // nobody has asked for long
	}
	if err := pop.lock.lock(ctx); err != nil {
		return err
	}
	users := pop.users
	_, already := pop.kept[w.text]
	pop.lock.unlock()
	if users == nil || already {
		return nil
	}
	parsed, err := rule.Parse(w.text, rule.Users)
	if err != nil {
		return fmt.Errorf("read a part of a filter: %w", err)
	}
	building, reached := w.text+" …", eventstore.Start
	names := make(map[string]bool, keptAtOnce)
	judge := func(eventual bool) error {
		for change, err := range p.Users.allChanged(ctx, w.client, eventual, &reached) {
			if err != nil {
				return err
			}
			if change.Traits == nil {
				continue
			}
			facts, err := lastingFacts(w.client, change)
			if err != nil {
				return err
			}
			if names[string(change.ID)] = parsed.Judge(facts) == rule.True; len(names) == keptAtOnce {
				users.Mark(building, names)
				clear(names)
			}
		}
		users.Mark(building, names)
		clear(names)
		return nil
	}
	users.Unmark(building)
	if err := judge(false); err != nil {
		users.Unmark(building)
		return err
	}
	if err := pop.lock.lock(ctx); err != nil {
		return err
	}
	defer pop.lock.unlock()
	if pop.users != users {
		return nil // it was replaced; its marks go with it
	}
	if err := judge(true); err != nil {
		users.Unmark(building)
		return err
	}
	if len(pop.kept) >= maxKept {
		pop.forget(pop.leastUsed())
	}
	if pop.kept == nil {
		pop.kept = map[string]*keptRule{}
	}
	users.Rename(building, w.text)
	pop.kept[w.text] = &keptRule{Rule: parsed, used: pop.askings}
	if err := p.memory.resize(&pop.held, users.Bytes()); err != nil {
		pop.forget(w.text)
		return err
	}
	return nil
}

func (pop *population) leastUsed() (least string) {
	for text, k := range pop.kept {
		if least == "" || k.used < pop.kept[least].used {
			least = text
		}
	}
	return least
}
