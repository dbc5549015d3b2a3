package populations

import (
	"context"
	"fmt"

	"kindred/domain/id"
	"kindred/domain/matching"
	"kindred/domain/rule"
	"kindred/eventstore"
	"kindred/panics"
)

const (
	// maxKept bounds the rules whose answers are kept beside a population.
	// limit: client | parts of filters whose answers are kept in memory | {maxKept} | others are judged anew for each answer
	maxKept = 64
	// keptFrom is how many users make it worth it: fewer are judged as soon.
	keptFrom = 100
)

// asking notes that rules are asked for, and returns those whose answers are kept. It
// queues the others to be kept soon. pop is locked.
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

// keep judges all users by a rule and marks whom it names, while requests go on. Users who
// changed meanwhile are judged again before the marks count.
func (p *Populations) keep(ctx context.Context, w wanted) (err error) {
	defer panics.Catch(&err)
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
	users.Unmark(building)
	if err := p.judgeChanged(ctx, w.client, users, building, parsed, &reached); err != nil {
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
	if err := p.judgeChanged(ctx, w.client, users, building, parsed, &reached); err != nil {
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

// judgeChanged judges the users that have changed since reached by a rule, and marks those
// whom it names. It moves reached on.
func (p *Populations) judgeChanged(ctx context.Context, client id.Client, users *matching.Population, mark string, by *rule.Rule, reached *eventstore.Position) error {
	names := make(map[string]bool, keptAtOnce)
	for change, err := range p.Users.AllChanged(ctx, client, reached) {
		if err != nil {
			return err
		}
		if change.Traits == nil {
			continue
		}
		facts, err := traitFacts(client, change)
		if err != nil {
			return err
		}
		if names[string(change.ID)] = by.Judge(facts) == rule.True; len(names) == keptAtOnce {
			users.Mark(mark, names)
			clear(names)
		}
	}
	users.Mark(mark, names)
	return nil
}
