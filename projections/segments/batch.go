package segments

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/eventstore/seal"
	"kindred/panics"
	"kindred/projections/readmodel"
)

// writtenTogether is how many events of users are judged while the database writes what those before
// them changed.
// limit: models | events of users whose changes of segments are written together | {writtenTogether}
const writtenTogether = 250

// applyUsers changes the segments by events of users. Once the users are read, judging asks the
// database nothing.
func (c *segmented) applyUsers(ctx context.Context, events []eventstore.Recorded) error {
	g, err := c.batchOf(ctx, events)
	if err != nil {
		return err
	}
	writing := panics.New()
	for some := range slices.Chunk(events, cmp.Or(c.chunk, writtenTogether)) {
		judged := panics.Caught(func() error { return g.applyAll(ctx, some) })
		if err := cmp.Or(writing.Wait(), judged); err != nil {
			return err
		}
		if err := g.noted.write(ctx, c); err != nil {
			return err
		}
		touched, f := g.take()
		writing = panics.New()
		writing.Go(func() error { return c.write(ctx, touched, f) })
	}
	return writing.Wait()
}

// judgedBatch applies several events of users together.
type judgedBatch struct {
	*segmented
	there   map[id.User]bool         // whether it is, or was erased
	users   map[id.User]*segmentUser // of those to be judged
	keys    map[string]seal.WrappedKey
	opened  *segmentUser // the last: no more than one is in memory
	touched map[id.User]*segmentUser
	flips
	noted
}

func newBatch(c *segmented) *judgedBatch {
	return &judgedBatch{
		segmented: c, there: map[id.User]bool{}, users: map[id.User]*segmentUser{}, touched: map[id.User]*segmentUser{},
		flips: flips{members: members{}}, noted: newNoted(),
	}
}

// batchOf reads the users that events are about. Of users whom no version is to judge it
// reads only whether they are there.
func (c *segmented) batchOf(ctx context.Context, events []eventstore.Recorded) (*judgedBatch, error) {
	g := newBatch(c)
	judged, about := map[string]bool{}, map[string]bool{}
	for _, r := range events {
		user := string(userOf(r.Event))
		about[user] = true
		if strings.HasPrefix(r.Type, "end_user.") || c.readsAny(touched(r.Event)) {
			judged[user] = true
		}
	}
	ids, made := readmodel.SortedKeys(judged), madeBy(events)
	before := slices.DeleteFunc(slices.Clone(ids), func(user string) bool { return made[userKey{c.client, id.User(user)}] })
	var users []*segmentUser
	var err error
	if len(before) > 0 {
		if users, err = c.read(ctx, (*segmentUser).columns, segmentUsersByID, before); err != nil {
			return nil, err
		}
	}
	for _, u := range users {
		g.users[u.id], g.there[u.id] = u, true
	}
	if len(c.versions) > 0 {
		if g.keys, err = c.keys(ctx, ids); err != nil {
			return nil, err
		}
	}
	if err := c.know(ctx, users); err != nil {
		return nil, err
	}
	maps.DeleteFunc(about, func(user string, _ bool) bool { return judged[user] })
	if err := g.find(ctx, readmodel.SortedKeys(about)); err != nil {
		return nil, err
	}
	return g, g.readActs(ctx, c, events)
}

type userKey struct {
	client id.Client
	user   id.User
}

// madeBy are the users that events create: no row is of them yet.
func madeBy(events []eventstore.Recorded) map[userKey]bool {
	made := map[userKey]bool{}
	for _, r := range events {
		if e, is := r.Event.(event.EndUserCreated); is {
			made[userKey{r.Client, e.User}] = true
		}
	}
	return made
}

const segmentUsersThere = `SELECT id FROM segment_users WHERE client = $1 AND id = ANY($2)`

// applyAll applies events.
func (g *judgedBatch) applyAll(ctx context.Context, events []eventstore.Recorded) error {
	for _, r := range events {
		if err := g.advance(ctx, r); err != nil {
			return err
		}
		if err := g.apply(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// take takes the users that were touched, as they are now, and what was changed.
func (g *judgedBatch) take() (touched map[id.User]*segmentUser, f flips) {
	touched, f = g.touched, g.flips
	for user, u := range touched {
		now := *u
		touched[user], u.created = &now, false
	}
	g.touched, g.flips = map[id.User]*segmentUser{}, flips{members: members{}}
	return touched, f
}

// find says which of some users are there.
func (g *judgedBatch) find(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	var user id.User
	return g.each(ctx, "find users of segments", readmodel.OneText(&user), func() { g.there[user] = true }, segmentUsersThere, ids)
}

// apply notes what an event says of a user, and judges it by the versions that read that.
func (g *judgedBatch) apply(ctx context.Context, r eventstore.Recorded) (err error) {
	user := userOf(r.Event)
	u := g.users[user]
	var before []byte // its traits; nil: they are not known, or nobody reads them
	switch e := r.Event.(type) {
	case event.EndUserCreated:
		u = &segmentUser{id: user, number: g.segmented.users, createdAt: r.RecordedAt, known: newKnown(), created: true}
		g.segmented.users++
		g.users[user], g.there[user] = u, true
		if u.external, err = readmodel.SealedOf(r, e.ExternalID); err == nil {
			u.traits, err = readmodel.SealedOf(r, e.Traits)
		}
	case event.EndUserTraitsChanged:
		if !g.there[user] {
			return nil
		}
		if before, err = g.traitsOf(ctx, u); err == nil {
			u.traits, err = readmodel.SealedOf(r, e.Traits)
		}
	case event.EndUserErased:
		if !g.there[user] {
			return nil
		}
		g.there[user], u.erased = false, true
	default:
		if !g.there[user] || !g.noted.note(g.segmented, r, u) || u == nil {
			return nil
		}
		return g.rejudge(ctx, u, r, g.reading(touched(r.Event)))
	}
	if err != nil {
		return err
	}
	u.updatedAt, u.changed, g.touched[user], u.facts = r.RecordedAt, true, u, nil
	if len(g.versions) == 0 {
		return nil
	}
	some := g.ordered
	if before != nil {
		if err := g.openAlone(ctx, u); err != nil {
			return err
		}
		if what, ok := touchedTraits(before, u.document); ok && u.facts != nil {
			some = g.reading(what)
		}
	}
	if err := g.rejudge(ctx, u, r, some); err != nil || !u.erased {
		return err
	}
	g.changes = slices.DeleteFunc(g.changes, func(change userChange) bool {
		if change.user == user {
			g.unsay(g.members, change)
		}
		return change.user == user
	})
	g.changes = append(g.changes, userChange{position: r.Position, user: user, at: g.now, entered: []int32{}, went: []int32{}, erased: true})
	return nil
}

// closeOther forgets the opened traits of the user before, unless it is this one.
func (g *judgedBatch) closeOther(u *segmentUser) {
	if g.opened != nil && g.opened != u {
		g.opened.close()
	}
	g.opened = u
}

// traitsOf are a user's traits before they change.
func (g *judgedBatch) traitsOf(ctx context.Context, u *segmentUser) ([]byte, error) {
	if len(g.versions) == 0 {
		return nil, nil
	}
	if g.closeOther(u); u.facts != nil {
		return u.document, nil
	}
	u.wrapped = g.keys[string(u.id)]
	return g.openTraits(ctx, u)
}

// openAlone opens a user, unless it is open.
func (g *judgedBatch) openAlone(ctx context.Context, u *segmentUser) error {
	if g.closeOther(u); u.facts != nil || u.erased {
		return nil
	}
	u.wrapped = g.keys[string(u.id)]
	return g.open(ctx, u)
}

// rejudge opens a user and judges it by some versions.
func (g *judgedBatch) rejudge(ctx context.Context, u *segmentUser, r eventstore.Recorded, some []*segmentVersion) error {
	if err := g.openAlone(ctx, u); err != nil {
		return err
	}
	g.touched[u.id] = u
	return g.segmented.rejudge(u, some, r.Position, &g.flips)
}
