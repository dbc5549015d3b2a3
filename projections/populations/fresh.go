package populations

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"
	"weak"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/domain/matching"
	"kindred/domain/traits"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/panics"
	"kindred/projections"
	"kindred/projections/readmodel"
)

const (
	// retrainShare: once a fifth of the users has changed, the schema of
	// their traits is inferred again.
	retrainShare = 5
	// waitedFor is how many users can be read anew while a request waits.
	waitedFor = 5_000
	// partitionedFrom is how many users are too many to look at each.
	partitionedFrom = 100_000
	// maxBuild bounds how long a population may take to be read.
	// limit: models | time that a population takes to be read | {maxBuild}
	maxBuild = 10 * time.Minute
	// weighEvery is how many users are read before their population is weighed:
	// of the largest they take 40 kB each.
	weighEvery = 100
	// maxSchemaRaces bounds how often others may learn a schema meanwhile.
	// limit: models | times that a schema is learnt anew since another was | {maxSchemaRaces}
	maxSchemaRaces = 5
)

// current returns a client's users with every change that was acknowledged
// before it was called. Requests that come while changes are taken in share the
// next time that this is done. Marked are those of the rules asked for that are kept. Who comes
// from now on is marked by who has granted a layer, if one is given.
func (p *Populations) current(ctx context.Context, client id.Client, layer *consentSet, traitParts ...string) (now known, marked []string, err error) {
	if err := p.ready(ctx, client); err != nil {
		return known{}, nil, err
	}
	pop := getOrAdd(p.clients, client, &population{lock: newCtxLock()})
	arrived := pop.begun.Load()
	if err := pop.lock.lockSoon(ctx); err != nil {
		return known{}, nil, err
	}
	type taken struct {
		now    known
		marked []string
		err    error
	}
	done := make(chan taken, 1)
	go func() { // a request leaves at its time, and what it began goes on
		defer pop.lock.unlock()
		var t taken
		t.err = panics.Caught(func() (err error) {
			t.now, t.marked, err = p.upToDate(ctx, client, pop, arrived, layer, traitParts)
			return err
		})
		done <- t
	}()
	select {
	case t := <-done:
		return t.now, t.marked, t.err
	case <-ctx.Done():
		return known{}, nil, ctx.Err()
	}
}

// upToDate is current, of a population that is locked.
func (p *Populations) upToDate(ctx context.Context, client id.Client, pop *population, arrived int64, layer *consentSet, traitParts []string,
) (now known, marked []string, err error) {
	if pop.users == nil || pop.done <= arrived {
		n := pop.begun.Add(1)
		if err := p.refresh(ctx, client, pop); err != nil {
			return known{}, nil, err
		}
		pop.done = n
	}
	if pop.distribution == nil {
		d := pop.users.Distribution(pairsSeed, nil)
		pop.distribution = &d
	}
	if layer != nil {
		if pop.layers == nil {
			pop.layers = map[weak.Pointer[consentSet]]struct{}{}
		}
		maps.DeleteFunc(pop.layers, func(held weak.Pointer[consentSet], _ struct{}) bool {
			before := held.Value()
			return before == nil || before.evicted.Load()
		})
		pop.layers[weak.Make(layer)] = struct{}{}
	}
	return pop.known, p.asking(client, pop, traitParts), nil
}

// ready fails where the models are behind, with a fault that says how to wait. What
// is read later holds what they held, also where another request reads it.
func (p *Populations) ready(ctx context.Context, client id.Client) error {
	p.Users.Progress.Ask(projections.TraitSchemas{}, projections.Users{}) // so that the second is not waited for after the first
	reader := p.Users.Reader
	reader.AtOnce = true
	for _, model := range []projector.Projection{projections.TraitSchemas{}, projections.Users{}} {
		if _, err := readmodel.Count(ctx, reader, model, client, false, `SELECT 0 AS n`); err != nil {
			return err
		}
	}
	return nil
}

// takeIn reads what has changed in a layer since the last time.
func (p *Populations) takeIn(ctx context.Context, of layerOf, c *consentSet) error {
	if err := c.lock.lockSoon(ctx); err != nil {
		return err
	}
	defer c.lock.unlock()
	server, into := p.Consent.Progress.Server(), c
	if c.server != server {
		into = newConsentSet() // everything is read anew, beside requests that compare
	}
	consent := p.Consent
	consent.AtOnce = true // while one waits for the first page, others have the lock
	for eventual := false; ; eventual = true {
		page, err := consent.ChangedConsents(ctx, of.client, of.layer, eventual, into.reached, projections.ChangesAtOnce)
		if err != nil {
			return err
		}
		into.apply(page)
		if len(page) < projections.ChangesAtOnce {
			break
		}
	}
	if into != c {
		c.replace(into, server)
	}
	const grant = 80 // bytes
	return p.memory.resize(&c.held, int64(grant*len(c.granted)))
}

// refresh takes in what has changed since the last time. What the client has
// decided counts at once. What many new users have to say is learnt while the
// request waits where they are few, else in the background.
func (p *Populations) refresh(ctx context.Context, client id.Client, pop *population) error {
	recorded, err := p.Schemas.Recorded(ctx, client, true)
	if err != nil {
		return err
	}
	decided := recorded.Overridden > pop.schema.Version
	if pop.users == nil || pop.server != p.Users.Progress.Server() || decided && !pop.adopt(recorded) {
		return p.rebuild(ctx, client, pop, recorded)
	}
	if decided && pop.users.Len() > partitionedFrom {
		p.ask(client, pop) // its cells were made for other weights
	}
	defer func() {
		if pop.users == nil {
			p.memory.assign(&pop.held, 0)
		}
	}()
	behind := recorded.Learnt > pop.learnt
	for change, err := range p.Users.AllChanged(ctx, client, &pop.reached) {
		if err != nil {
			return err // those before are taken in: the next time goes on behind them
		}
		if err = put(pop.users, change); err == nil {
			err = pop.judge(client, change)
		}
		if err != nil {
			pop.users = nil // the change may be taken in by some, and not by others: all are read again
			return err
		}
		pop.changed++
		behind = behind || pop.changed*retrainShare > pop.trained
		if behind && pop.users.Len() <= waitedFor {
			return p.rebuild(ctx, client, pop, recorded)
		}
	}
	if behind && pop.users.Len() <= waitedFor {
		return p.rebuild(ctx, client, pop, recorded)
	}
	if behind {
		p.ask(client, pop)
	}
	if err := p.memory.resize(&pop.held, pop.users.Bytes()); err != nil {
		pop.users = nil
		return err
	}
	return nil
}

// rebuild reads everyone, and goes on when the request has left: the next one
// finds what was read. A large population is partitioned behind its readers.
func (p *Populations) rebuild(ctx context.Context, client id.Client, pop *population, recorded projections.RecordedSchema) error {
	now := time.Now() //nolint:forbidigo // how long a refusal stands
	if r := pop.refused; r.why != nil && now.Before(r.until) && r.under == recorded.Overridden {
		return r.why
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxBuild)
	defer cancel()
	pop.known = known{} // what it took is free for what is built
	p.memory.assign(&pop.held, 0)
	built, taken, err := p.build(ctx, client, recorded, &pop.held)
	if fault.Is(err, "population_too_large") {
		pop.refused = refusal{err, now.Add(refusedFor), recorded.Overridden}
	}
	if err != nil {
		return err
	}
	pop.known, pop.refused = built, refusal{}
	p.memory.assign(&pop.held, taken)
	if pop.users.Len() > partitionedFrom {
		p.ask(client, pop)
	}
	return nil
}

// ask has a population built in place of this one, once.
func (p *Populations) ask(client id.Client, pop *population) {
	if pop.asked {
		return
	}
	select {
	case p.behind <- client:
		pop.asked = true
	default: // there is much to do; the next request asks again
	}
}

// Run builds populations anew that have changed a lot, while the old ones are
// still asked, until ctx ends.
func (p *Populations) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case client := <-p.behind:
			if err := p.replace(ctx, client); err != nil && ctx.Err() == nil {
				p.Logger.WarnContext(ctx, "population not built anew", "client", client, "error", err)
			}
		case owner := <-p.wanted.owners:
			w := p.wanted.take(owner)
			if err := p.keep(ctx, w); err != nil && ctx.Err() == nil {
				p.Logger.WarnContext(ctx, "part of a filter not kept", "client", w.client, "error", err)
			}
		}
	}
}

// replace builds a population beside the one that is in use and puts it in its
// place.
func (p *Populations) replace(ctx context.Context, client id.Client) error {
	pop, found := p.clients.Peek(client)
	if !found {
		return nil // nobody has asked for long
	}
	built, taken, err := p.buildPartitioned(ctx, client, &pop.held)
	if err := pop.lock.lock(ctx); err != nil {
		p.memory.used.Add(-taken)
		return err
	}
	defer pop.lock.unlock()
	pop.asked = false
	if err != nil {
		return err
	}
	pop.known = built // the next request takes in what has changed since
	p.memory.assign(&pop.held, taken)
	return nil
}

// buildPartitioned is build, and partitions a population that is large. What panics is
// asked for again, and takes nothing of the budget.
func (p *Populations) buildPartitioned(ctx context.Context, client id.Client, of *holding) (k known, taken int64, err error) {
	defer func() {
		if err != nil {
			p.memory.used.Add(-taken)
			taken = 0
		}
	}()
	defer panics.Catch(&err)
	recorded, err := p.Schemas.Recorded(ctx, client, false)
	if err != nil {
		return known{}, 0, err
	}
	k, taken, err = p.build(ctx, client, recorded, of)
	if err == nil && k.users.Len() > partitionedFrom {
		k.users.Partition(pairsSeed)
	}
	return k, taken, err
}

// build reads everyone under the newest schema, and returns what it has taken of
// the budget for that. It holds no more than the population itself, a page of
// users and a sample. It reads the models as they stand: ready has made sure that
// they hold what was acknowledged before, and the next request takes in what came
// since. Where each of its statements waited for that, 400 users beside four writers
// took 4 to 14 s.
func (p *Populations) build(ctx context.Context, client id.Client, recorded projections.RecordedSchema, of *holding) (_ known, taken int64, err error) {
	defer func() {
		if err != nil {
			p.memory.used.Add(-taken)
			taken = 0
		}
	}()
	defer panics.Catch(&err)
	server := p.Users.Progress.Server()
	recorded, changed, err := p.learn(ctx, client, recorded)
	if err != nil {
		return known{}, taken, err
	}
	schema, _ := recorded.Schema()
	k := known{
		users: matching.New(schema), server: server, schema: schema, overrides: recorded.Overrides, learnt: recorded.Learnt,
		trained: recorded.Users, changed: changed,
	}
	n := 0
	for change, err := range p.Users.AllChanged(ctx, client, &k.reached) {
		if err == nil {
			err = put(k.users, change)
		}
		if n++; err == nil && n%weighEvery == 0 {
			err = p.memory.grow(&taken, k.users.Bytes(), of)
		}
		if err != nil {
			return known{}, taken, err
		}
	}
	if err := p.memory.grow(&taken, k.users.Bytes(), of); err != nil {
		return known{}, taken, err
	}
	d := k.users.Distribution(pairsSeed, nil)
	k.distribution = &d
	return k, taken, nil
}

// learn makes sure that what is recorded is recent: it returns that, and how
// many users have changed since. What the users say still is not recorded again.
func (p *Populations) learn(ctx context.Context, client id.Client, recorded projections.RecordedSchema) (projections.RecordedSchema, int, error) {
	for range maxSchemaRaces {
		before, ok := recorded.Schema()
		if ok && before.Edition == traits.Edition {
			changed, err := p.Users.CountChanged(ctx, client, recorded.LearntAt, recorded.Users/retrainShare+1)
			if err != nil || changed*retrainShare <= recorded.Users {
				return recorded, changed, err
			}
		}
		schema, users, err := p.infer(ctx, client, recorded)
		if err != nil || users == 0 {
			recorded.Users = 0
			return recorded, 0, err
		}
		document, err := json.Marshal(schema.Recorded())
		if err != nil {
			return recorded, 0, fmt.Errorf("encode a trait schema: %w", err)
		}
		before.Version = schema.Version
		known, err := json.Marshal(before)
		if err != nil || ok && bytes.Equal(known, document) {
			return recorded, 0, err
		}
		if err := p.Record(ctx, client, recorded.Version, users, document); err != nil {
			return recorded, 0, fmt.Errorf("record a trait schema: %w", err)
		}
		if recorded, err = p.Schemas.Recorded(ctx, client, false); err != nil {
			return recorded, 0, err
		}
	}
	return recorded, 0, fault.New(fault.Unavailable, "busy", "The users change too fast to be compared. Please try again.")
}

// infer learns the schema of the users that are there now, and counts them.
func (p *Populations) infer(ctx context.Context, client id.Client, recorded projections.RecordedSchema) (traits.Schema, int, error) {
	var sample traits.Sample
	users := 0
	for after := eventstore.Start; ; {
		page, err := p.Users.Present(ctx, client, after, projections.ChangesAtOnce)
		if err != nil {
			return traits.Schema{}, 0, err
		}
		for _, u := range page {
			sample.Add(string(u.ID))
			after = u.At
		}
		users += len(page)
		if len(page) < projections.ChangesAtOnce {
			break
		}
	}
	var failed error
	schema := traits.InferSampled(p.flats(ctx, client, sample.IDs(), &failed), recorded.Overrides, recorded.Inferred)
	return schema, users, failed
}

// flats reads the traits of users, in the order of their ids as they are given. It
// passes over those who are not there any more, and ends early where failed is set.
func (p *Populations) flats(ctx context.Context, client id.Client, ids []string, failed *error) iter.Seq2[string, traits.Flat] {
	return func(yield func(string, traits.Flat) bool) {
		for some := range slices.Chunk(ids, projections.SampledAtOnce) {
			found, err := p.Users.Stored(ctx, client, len(some), projections.SelectUsers(projections.UsersAmong), some)
			if err != nil {
				*failed = err
				return
			}
			documents := map[string]json.RawMessage{}
			for _, u := range projections.Readable(found) {
				documents[string(u.ID)] = u.Traits
			}
			for _, user := range some {
				document, found := documents[user]
				if !found {
					continue
				}
				flat, err := projections.Flatten(id.User(user), document)
				if err != nil {
					*failed = err
					return
				}
				if !yield(user, flat) {
					return
				}
			}
		}
	}
}
