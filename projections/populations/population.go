package populations

import (
	"fmt"
	"sync/atomic"
	"time"
	"weak"

	"kindred/domain/id"
	"kindred/domain/matching"
	"kindred/domain/rule"
	"kindred/domain/traits"
	"kindred/eventstore"
	"kindred/projections"
)

// population is the users of one client.
type population struct {
	lock  ctxLock      // guards the rest
	begun atomic.Int64 // how often changes were taken in
	done  int64        // the last time that this succeeded
	held  holding

	known
	refused refusal
	asked   bool // for a population in place of this one
	askings int  // for kept rules
}

// refusal is that a client has too many users to be compared. Until it is over, and unless the
// client decides otherwise about traits, nobody reads them again: those of others would be
// forgotten each time to make room.
type refusal struct {
	why   error // nil: there is none
	until time.Time
	under int // the decision about traits
}

// refusedFor is how long too many users are not read again.
const refusedFor = time.Minute

// known is a population as it is at some time.
type known struct {
	users        *matching.Population // nil: nothing is known
	server       int64                // that they were read from
	schema       traits.Schema
	overrides    map[string]traits.Override
	learnt       int // version of what was inferred
	reached      eventstore.Position
	trained      int // users when the schema was inferred
	changed      int // changes since then
	distribution *matching.Distribution
	kept         map[string]*keptRule                  // guarded by the population's lock, as are the next
	layers       map[weak.Pointer[consentSet]]struct{} // of which the users are marked, for as long as they are in memory
}

// keptRule is a rule of users whose answers the population holds as marks, under the rule's
// text. Each change of a user brings them up to date.
type keptRule struct {
	*rule.Rule
	used   int // when it was asked for last, in askings
	judged int // users since then
}

// adopt takes over the client's decisions about traits, where what is in memory suffices
// for that; else it is false.
func (pop *population) adopt(recorded projections.RecordedSchema) bool {
	schema, ok := recorded.Schema()
	if !ok || recorded.Learnt != pop.learnt || !pop.users.Reweigh(schema) {
		return false
	}
	pop.schema, pop.overrides, pop.distribution = schema, recorded.Overrides, nil
	return true
}

// judge judges a user that has changed by the kept rules, and marks the layers that it has
// granted. A kept rule is dropped once it has judged more users since it was last asked for
// than it would take to keep it anew. pop is locked.
func (pop *population) judge(client id.Client, change projections.UserChange) error {
	if change.Traits == nil {
		return nil
	}
	for held := range pop.layers {
		if layer := held.Value(); layer != nil {
			layer.isThere(pop.users, string(change.ID))
		}
	}
	if len(pop.kept) == 0 {
		return nil
	}
	facts, err := traitFacts(client, change)
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

// traitFacts are what trait parts of rules read.
func traitFacts(client id.Client, change projections.UserChange) (*rule.Facts, error) {
	said, err := traits.All(change.Traits)
	if err != nil {
		return nil, fmt.Errorf("read the traits of %s: %w", change.ID, err)
	}
	return &rule.Facts{Client: string(client), ID: string(change.ID), Traits: said}, nil
}

func (pop *population) forget(text string) {
	delete(pop.kept, text)
	pop.users.Unmark(text)
}

func (pop *population) leastUsed() (least string) {
	for text, k := range pop.kept {
		if least == "" || k.used < pop.kept[least].used {
			least = text
		}
	}
	return least
}

func put(users *matching.Population, change projections.UserChange) error {
	if change.Traits == nil {
		users.Remove(string(change.ID))
		return nil
	}
	flat, err := projections.Flatten(change.ID, change.Traits)
	if err != nil {
		return err
	}
	users.Put(string(change.ID), flat)
	return nil
}
