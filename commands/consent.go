package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/seal"
	"kindred/panics"
)

// Directory knows the users of a client and what they have consented to. It
// has seen every write that was acknowledged before it is asked.
type Directory interface {
	// Consenting returns, in order of their ids, at most limit users after one
	// who have granted a layer.
	Consenting(ctx context.Context, client id.Client, layer id.ConsentLayer, after id.User, limit int) ([]id.User, error)
	// NotConsenting returns the others, of those who were created before a
	// position and are still there.
	NotConsenting(ctx context.Context, client id.Client, layer id.ConsentLayer, before eventstore.Position, after id.User, limit int) ([]id.User, error)
	// CountUsers counts the users who were created before a position and are
	// still there.
	CountUsers(ctx context.Context, client id.Client, before eventstore.Position) (int, error)
	// CountChanged counts those who have granted a layer, or withdrawn that,
	// since a position.
	CountChanged(ctx context.Context, client id.Client, layer id.ConsentLayer, granted bool, since eventstore.Position) (int, error)
}

// ConsentLayer is a layer as it is after a command.
type ConsentLayer struct {
	domain.ConsentLayer
	CreatedAt time.Time
	UpdatedAt time.Time
	Outcome   Outcome
}

// DefineConsentLayer makes a consent layer.
// Faults: busy, catching_up, idempotency_key_reused, invalid, overloaded, quarantined, stale.
func (c *Commands) DefineConsentLayer(ctx context.Context, call Call, name string, paths []string, matchRule string) (ConsentLayer, error) {
	layer := id.Next[id.ConsentLayer](c.ids(call, "consent layer"))
	outcome, err := execute[domain.ConsentLayer](ctx, c, call, eventstore.LayerStream(call.Client, layer), call.Seed == nil, c.ends,
		func(l *domain.ConsentLayer, _ []eventstore.Recorded) ([]event.Event, error) {
			if err := c.checkMatchRule(ctx, call.Client, "/match_rule", matchRule, true, paths); err != nil {
				return nil, err
			}
			return l.Define(event.ConsentLayerDefined{Layer: layer, Name: name, TraitPaths: paths, MatchRule: matchRule})
		})
	return layerAfter(outcome), err
}

// ChangeConsentLayer renames a layer, or changes its paths or its match rule; what is nil
// stays. The two have to fit each other.
// Faults: busy, catching_up, consent_layer_unknown, idempotency_key_reused, invalid, overloaded, quarantined,
// stale.
func (c *Commands) ChangeConsentLayer(ctx context.Context, call Call, layer id.ConsentLayer, name *string, paths []string, matchRule *string) (ConsentLayer, error) {
	pointer := "/match_rule"
	if matchRule == nil {
		pointer = "/trait_paths"
	}
	outcome, err := execute[domain.ConsentLayer](ctx, c, call, eventstore.LayerStream(call.Client, layer), false, c.ends,
		func(l *domain.ConsentLayer, _ []eventstore.Recorded) ([]event.Event, error) {
			events, err := l.Change(name, paths, matchRule)
			if paths == nil && matchRule == nil {
				return events, err
			}
			for _, e := range events {
				changed := e.(event.ConsentLayerChanged)
				err = c.checkMatchRule(ctx, call.Client, pointer, changed.MatchRule, true, changed.TraitPaths)
			}
			return events, err
		})
	return layerAfter(outcome), err
}

// RetireConsentLayer ends a layer: the fact is recorded, then the key is
// destroyed that sealed what clustering keeps of the layer's users.
// Faults: busy, catching_up, consent_layer_unknown, idempotency_key_reused, overloaded, quarantined, stale.
func (c *Commands) RetireConsentLayer(ctx context.Context, call Call, layer id.ConsentLayer) (Outcome, error) {
	outcome, err := execute[domain.ConsentLayer](ctx, c, call, eventstore.LayerStream(call.Client, layer), false, c.ends,
		func(l *domain.ConsentLayer, _ []eventstore.Recorded) ([]event.Event, error) { return l.Retire() })
	if err != nil {
		return outcome, err
	}
	return outcome, c.DestroyKey(ctx, call.Client, string(layer))
}

func layerAfter(outcome Outcome) ConsentLayer {
	after := ConsentLayer{ConsentLayer: *fold[domain.ConsentLayer](outcome.History), Outcome: outcome}
	if n := len(outcome.History); n > 0 {
		after.CreatedAt, after.UpdatedAt = outcome.History[0].RecordedAt, outcome.History[n-1].RecordedAt
	}
	return after
}

// consentLayer loads a layer that is there.
func (c *Commands) consentLayer(ctx context.Context, client id.Client, layer id.ConsentLayer) (*domain.ConsentLayer, error) {
	l, err := latest[domain.ConsentLayer](ctx, c, eventstore.LayerStream(client, layer))
	if err != nil {
		return nil, err
	}
	return l, l.Exists()
}

// CheckConsentLayer fails with the fault consent_layer_unknown where a layer is
// not there, or was retired.
// Faults: consent_layer_unknown.
func (c *Commands) CheckConsentLayer(ctx context.Context, client id.Client, layer id.ConsentLayer) error {
	_, err := c.consentLayer(ctx, client, layer)
	return err
}

// ChangeConsents says that users grant a layer, or withdraw what they granted.
type ChangeConsents struct {
	Layer  id.ConsentLayer
	Grant  bool
	Users  []UserRef // else: every user who is there now
	All    bool
	Source *string // where the users said so
}

// Consents says what became of many consents.
type Consents struct {
	Changed, Unchanged int
	Position           eventstore.Position // of the last change; empty without one
}

const (
	resolveWorkers = 32
	// limit: commands | users of "all" that one statement looks up | {usersAtOnce}
	usersAtOnce = 5_000 // users of "all" that are looked up in one statement
	// limit: requests | wrong references to users that a refusal names | {maxFields} | the rest is left out
	maxFields = 100 // wrong references that a refusal names
)

// ChangeConsent changes the consent of one user.
// Faults: busy, catching_up, consent_layer_unknown, idempotency_key_reused, invalid, overloaded, quarantined,
// stale, user_unknown.
func (c *Commands) ChangeConsent(ctx context.Context, call Call, in ChangeConsents) (Outcome, error) {
	if _, err := c.consentLayer(ctx, call.Client, in.Layer); err != nil {
		return Outcome{}, err
	}
	user, err := c.FindUser(ctx, call.Client, in.Users[0])
	if err != nil {
		return Outcome{}, err
	}
	outcome, err := c.changeConsent(ctx, call, in, user, "")
	if errors.Is(err, seal.ErrErased) {
		return Outcome{}, fault.UnknownUser()
	}
	return outcome, err
}

// ChangeConsents changes the consent of many users before it returns. Users
// who are unknown are refused before anything is changed. Where it breaks off,
// a repetition does what is left, and no more; it answers for the whole, as
// the first would have. What a user has said since the first try stands.
// Faults: building, busy, catching_up, consent_layer_unknown, idempotency_key_reused, invalid, not_finished,
// overloaded, quarantined, stale.
func (c *Commands) ChangeConsents(ctx context.Context, call Call, in ChangeConsents) (Consents, error) {
	if _, err := c.consentLayer(ctx, call.Client, in.Layer); err != nil {
		return Consents{}, err
	}
	work := &consenting{Commands: c, call: call, in: in}
	if !in.All {
		users, err := c.resolve(ctx, call.Client, in.Users)
		if err != nil {
			return Consents{}, err
		}
		if call.Seed != nil {
			requested, err := c.declare(ctx, call, c.declarations(call, in.Layer),
				event.ConsentChangeRequested{Layer: in.Layer, Granted: in.Grant})
			if err != nil {
				return Consents{}, err
			}
			work.declared, work.repeated = requested.Position, requested.Repeated
		}
		err = work.each(ctx, users)
		return work.result(), err
	}
	declared, err := c.declareAll(ctx, call, in)
	if err != nil {
		return Consents{}, err
	}
	work.declared = declared.Position
	if declared.Repeated {
		return c.resumeAll(ctx, work)
	}
	return c.changeAll(ctx, work, 0)
}

// declareAll writes down that all users are meant, and when. A repetition
// finds that moment, so that it does not speak for users who came since.
func (c *Commands) declareAll(ctx context.Context, call Call, in ChangeConsents) (Outcome, error) {
	stream := c.declarations(call, in.Layer)
	if in.Grant {
		return c.declare(ctx, call, stream, event.ConsentGrantedToAll{Layer: in.Layer})
	}
	return c.declare(ctx, call, stream, event.ConsentWithdrawnFromAll{Layer: in.Layer})
}

// declarations is where a request is declared: one that may be repeated has a
// stream of its own, and the others of a layer share one.
func (c *Commands) declarations(call Call, layer id.ConsentLayer) eventstore.Stream {
	if call.Seed == nil {
		return eventstore.AllConsentsStream(call.Client, layer)
	}
	return eventstore.ConsentRequestStream(call.Client, layer, id.Next[id.Request](c.ids(call, "consents")))
}

// declare reads no more of a stream than what a repetition may have recorded.
func (c *Commands) declare(ctx context.Context, call Call, stream eventstore.Stream, events ...event.Event) (Outcome, error) {
	load := c.whole // a stream of its own
	if call.Seed == nil {
		load = func(ctx context.Context, stream eventstore.Stream, _ eventstore.Revision) (loaded, error) {
			end, err := c.Log.Version(ctx, stream)
			return loaded{version: end}, err
		}
	}
	return execute[nothing](ctx, c, call, stream, false, load,
		func(*nothing, []eventstore.Recorded) ([]event.Event, error) { return events, nil })
}

// resumeAll answers what came of an earlier try, or does what that has left.
func (c *Commands) resumeAll(ctx context.Context, work *consenting) (Consents, error) {
	ended, err := c.endAll(ctx, work, nil)
	if err != nil || len(ended.Recorded) > 0 {
		return consentsAfter(ended), err
	}
	before, err := c.Directory.CountChanged(ctx, work.call.Client, work.in.Layer, work.in.Grant, work.declared)
	if err != nil {
		return Consents{}, err
	}
	return c.changeAll(ctx, work, before)
}

// changeAll changes the consents of all who were there when that was declared;
// so many had been changed before.
func (c *Commands) changeAll(ctx context.Context, work *consenting, before int) (Consents, error) {
	client, layer := work.call.Client, work.in.Layer
	for after := id.User(""); ; {
		var users []id.User
		var err error
		if work.in.Grant {
			users, err = c.Directory.NotConsenting(ctx, client, layer, work.declared, after, usersAtOnce)
		} else {
			users, err = c.Directory.Consenting(ctx, client, layer, after, usersAtOnce)
		}
		if err == nil {
			err = work.each(ctx, users)
		}
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
			return Consents{}, fault.New(fault.Unavailable, "not_finished",
				"There was no time for all users; %d are done. Repeat the request to go on from there.",
				before+int(work.changed.Load())).After(time.Second)
		}
		if err != nil {
			return Consents{}, err
		}
		if len(users) < usersAtOnce {
			break
		}
		after = users[len(users)-1]
	}
	there, err := c.Directory.CountUsers(ctx, client, work.declared)
	if err != nil {
		return Consents{}, err
	}
	changed := before + int(work.changed.Load())
	ended, err := c.endAll(ctx, work, []event.Event{event.ConsentOfAllChanged{
		Layer: layer, Granted: work.in.Grant, Changed: changed, Unchanged: max(0, there-changed),
	}})
	return consentsAfter(ended), err
}

// endAll writes down what came of it, unless an earlier try has: then it
// returns what that one wrote.
func (c *Commands) endAll(ctx context.Context, work *consenting, events []event.Event) (Outcome, error) {
	call, stream := work.call, c.declarations(work.call, work.in.Layer)
	if call.Seed != nil {
		call.Seed = append(slices.Clone(call.Seed), "ended")
	}
	return c.declare(ctx, call, stream, events...)
}

func consentsAfter(ended Outcome) Consents {
	if len(ended.Recorded) == 0 {
		return Consents{}
	}
	total := ended.Recorded[0].Event.(event.ConsentOfAllChanged)
	return Consents{total.Changed, total.Unchanged, ended.Position}
}

// resolve finds users, each once, or fails with a fault that names all who are
// unknown, up to a bound.
func (c *Commands) resolve(ctx context.Context, client id.Client, refs []UserRef) ([]id.User, error) {
	users := make([]id.User, len(refs))
	unknown := make([]bool, len(refs))
	group, ctx := panics.WithContext(ctx)
	group.SetLimit(resolveWorkers)
	for i, ref := range refs {
		group.Go(func() (err error) {
			users[i], err = c.FindUser(ctx, client, ref)
			if fault.Is(err, "user_unknown") {
				unknown[i], err = true, nil
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var wrong []fault.Field
	for i := range refs {
		if unknown[i] && len(wrong) < maxFields {
			wrong = append(wrong, fault.Field{Pointer: fmt.Sprintf("/user_ids/%d", i), Detail: "is not a user, by its id or as ext: and your own"})
		}
	}
	if len(wrong) > 0 {
		return nil, fault.NewInvalid(wrong...)
	}
	slices.Sort(users)
	return slices.Compact(users), nil
}

// consenting changes many consents.
type consenting struct {
	*Commands
	call               Call
	in                 ChangeConsents
	declared           eventstore.Position // when it was first asked for; empty: now
	repeated           bool                // users are named again, and may have come since
	changed, unchanged atomic.Int64
	mu                 sync.Mutex
	position           eventstore.Position
	head               eventstore.Position // of the client, as far as it was met
}

func (w *consenting) result() Consents {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Consents{int(w.changed.Load()), int(w.unchanged.Load()), w.position}
}

func (w *consenting) each(ctx context.Context, users []id.User) error {
	group, working := panics.WithContext(ctx)
	group.SetLimit(w.Log.AtOnce())
	for _, user := range users {
		group.Go(func() error {
			outcome, err := w.change(working, user)
			switch {
			case errors.Is(err, seal.ErrErased):
				return nil // since the user was looked up
			case err != nil:
				return err
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.head = max(w.head, outcome.Position)
			if len(outcome.Recorded) == 0 {
				w.unchanged.Add(1)
				return nil
			}
			w.changed.Add(1)
			w.position = max(w.position, outcome.Position)
			return nil
		})
	}
	err := group.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return cmp.Or(err, w.Log.NoteHead(ctx, w.call.Client, w.head))
}

// change changes the consent of a user, but not of one who has taken the place
// of whom the first try meant.
func (w *consenting) change(ctx context.Context, user id.User) (Outcome, error) {
	if w.repeated {
		ends, _, err := w.Log.LoadEnds(ctx, eventstore.UserStream(w.call.Client, user))
		if err != nil || len(ends) > 0 && ends[0].Position > w.declared {
			return Outcome{}, err
		}
	}
	call := w.call
	call.unnoted = true
	return w.changeConsent(ctx, call, w.in, user, w.declared)
}

// changeConsent changes the consent of a user who has said nothing since a
// position; empty: whatever was said.
func (c *Commands) changeConsent(ctx context.Context, call Call, in ChangeConsents, user id.User, since eventstore.Position) (Outcome, error) {
	return execute[domain.Consent](ctx, c, call, eventstore.ConsentStream(call.Client, in.Layer, user), in.Grant, c.last(call),
		func(consent *domain.Consent, history []eventstore.Recorded) ([]event.Event, error) {
			if n := len(history); n > 0 && since != "" && history[n-1].Position > since {
				return nil, nil
			}
			if in.Grant {
				return consent.Grant(event.ConsentGranted{Layer: in.Layer, User: user, Source: secret(in.Source)}), nil
			}
			return consent.Withdraw(event.ConsentWithdrawn{Layer: in.Layer, User: user, Source: secret(in.Source)}), nil
		})
}
