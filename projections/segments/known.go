package segments

import (
	"context"
	"maps"
	"slices"
	"time"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/domain/rule"
	"kindred/domain/traits"
	"kindred/eventstore"
	"kindred/eventstore/seal"
	"kindred/projections/readmodel"
)

// knownOfUser is what rules ask of a user beside its traits.
type knownOfUser struct {
	granted  map[id.ConsentLayer]bool
	clusters map[id.ConsentLayer][]id.Cluster // of the whole layer, and of segments
	acts     map[string][]time.Time           // the oldest first
}

func newKnown() knownOfUser {
	return knownOfUser{map[id.ConsentLayer]bool{}, map[id.ConsentLayer][]id.Cluster{}, map[string][]time.Time{}}
}

// facts are those of a user with what is known of it.
func (k knownOfUser) facts(of rule.Facts) rule.Facts {
	of.Granted = func(layer string) bool { return k.granted[id.ConsentLayer(layer)] }
	of.Acts = func(what string) []time.Time { return k.acts[what] }
	return of
}

// inCluster asks for clusters of a layer: of no other one is any known under it.
func (k knownOfUser) inCluster(layer id.ConsentLayer) func(string) bool {
	return func(cluster string) bool {
		return layer != "" && slices.Contains(k.clusters[layer], id.Cluster(cluster))
	}
}

type knownRow struct {
	user    id.User
	layer   id.ConsentLayer
	cluster id.Cluster
	what    string
	times   []time.Time
}

func (r *knownRow) columns() []any {
	return []any{readmodel.Text(&r.user), readmodel.Text(&r.layer), readmodel.Text(&r.cluster), readmodel.Text(&r.what), &r.times}
}

const selectKnown = `
SELECT user_id, layer, '' AS cluster, '' AS what, '{}'::timestamptz[] AS times FROM segment_consents WHERE client = $1 AND user_id = ANY($2)
UNION ALL SELECT user_id, layer, cluster, '', '{}' FROM segment_clustered WHERE client = $1 AND counts AND user_id = ANY($2)
UNION ALL SELECT user_id, '', '', what, times FROM segment_acts WHERE client = $1 AND user_id = ANY($2) AND what = ANY($3)`

// knownOf sorts by user what was read.
func knownOf(rows []knownRow) map[id.User]knownOfUser {
	found := map[id.User]knownOfUser{}
	for _, r := range rows {
		k, ok := found[r.user]
		if !ok {
			k = newKnown()
			found[r.user] = k
		}
		switch {
		case r.layer == "":
			k.acts[r.what] = r.times
		case r.cluster == "":
			k.granted[r.layer] = true
		default:
			k.clusters[r.layer] = append(k.clusters[r.layer], r.cluster)
		}
	}
	return found
}

// know reads what the rules of the versions ask of users.
func (c *segmented) know(ctx context.Context, users []*segmentUser) error {
	found := map[id.User]knownOfUser{}
	if c.asked.any && len(users) > 0 {
		var r knownRow
		var read []knownRow
		ids := readmodel.Column(users, func(u *segmentUser) string { return string(u.id) })
		if err := c.each(ctx, "read what is known of users", r.columns(), func() { read = append(read, r) }, selectKnown, ids, readmodel.Texts(c.asked.acts)); err != nil {
			return err
		}
		found = knownOf(read)
	}
	for _, u := range users {
		k, ok := found[u.id]
		if !ok {
			k = newKnown()
		}
		u.known = k
	}
	return nil
}

// touched names what an event changes of a user that rules may read, but for its traits.
func touched(e event.Event) []string {
	switch e := e.(type) {
	case event.ConsentGranted:
		return []string{consentIn(e.Layer)}
	case event.ConsentWithdrawn:
		return []string{consentIn(e.Layer), clustersOf(e.Layer)}
	}
	return readmodel.Column(actsOf(e), act)
}

// touchedTraits names what a change of traits changes that rules may read; ok is false where it
// cannot be told.
func touchedTraits(before, after []byte) (what []string, ok bool) {
	members, err := traits.Differing(before, after)
	return append(readmodel.Column(members, rule.Trait), rule.AllTraits, rule.UpdatedAt), err == nil
}

// actsOf is what a user did by an event: a type of interaction, and what campaign it saw.
func actsOf(e event.Event) []string {
	switch e := e.(type) {
	case event.InteractionRecorded:
		return []string{e.Kind}
	case event.CampaignEngagementRecorded:
		if e.Kind == "impression" {
			return []string{e.Kind, string(e.Campaign)}
		}
		return []string{e.Kind}
	}
	return nil
}

func (c *segmented) readsAny(what []string) bool {
	return slices.ContainsFunc(what, func(one string) bool { return len(c.readers[one]) > 0 })
}

// reading are the versions that read any of what was touched, by way of others, too, in order.
func (c *segmented) reading(what []string) (some []*segmentVersion) {
	var own []*segmentVersion
	for _, one := range what {
		own = append(own, c.readers[one]...)
	}
	for place, is := range c.reached(own, func(v *segmentVersion) []*segmentVersion { return c.refer[v.place] }) {
		if is {
			some = append(some, c.ordered[place])
		}
	}
	return some
}

type (
	consentKey struct {
		user  id.User
		layer id.ConsentLayer
	}
	actKey struct {
		user id.User
		what string
	}
)

// noted is what a batch says of users beside their traits.
type noted struct {
	consents map[consentKey]bool    // granted, or withdrawn
	left     map[consentKey]bool    // withdrawn since, of whose clusters the user is no more
	acts     map[actKey][]time.Time // of those there are events of
	acted    map[actKey]bool        // that are written
}

func newNoted() noted {
	return noted{map[consentKey]bool{}, map[consentKey]bool{}, map[actKey][]time.Time{}, map[actKey]bool{}}
}

const selectActs = `SELECT user_id, what, times FROM segment_acts WHERE client = $1 AND user_id = ANY($2) AND what = ANY($3)`

// readActs reads what users have done of what they do by some events.
func (n noted) readActs(ctx context.Context, c *segmented, events []eventstore.Recorded) error {
	users, whats := map[string]bool{}, map[string]bool{}
	for _, r := range events {
		for _, what := range actsOf(r.Event) {
			users[string(userOf(r.Event))], whats[what] = true, true
		}
	}
	if len(users) == 0 {
		return nil
	}
	var key actKey
	var times []time.Time
	return c.each(ctx, "read what users did", []any{readmodel.Text(&key.user), &key.what, &times}, func() {
		n.acts[key] = times
	}, selectActs, readmodel.SortedKeys(users), readmodel.SortedKeys(whats))
}

// note notes what an event says of a user that is there, which is nil where no version is
// to judge it; changes says whether that may change anything.
func (n noted) note(c *segmented, r eventstore.Recorded, u *segmentUser) (changes bool) {
	said := func(layer id.ConsentLayer, granted bool) bool {
		if of := c.layers[layer]; of == nil || of.retired {
			return false
		}
		key := consentKey{userOf(r.Event), layer}
		if n.consents[key] = granted; !granted {
			n.left[key] = true
		}
		if u != nil && granted {
			u.known.granted[layer] = true
		} else if u != nil {
			delete(u.known.granted, layer)
			delete(u.known.clusters, layer)
		}
		return true
	}
	switch e := r.Event.(type) {
	case event.ConsentGranted:
		return said(e.Layer, true)
	case event.ConsentWithdrawn:
		return said(e.Layer, false)
	}
	for _, what := range actsOf(r.Event) {
		key := actKey{userOf(r.Event), what}
		most := rule.MaxActs
		if !slices.Contains(rule.Kinds(), what) {
			most = 1 // of a campaign the newest says all
		}
		n.acts[key], n.acted[key] = kept(n.acts[key], r.RecordedAt, c.now, most), true
		if u != nil {
			u.known.acts[what] = n.acts[key]
		}
		changes = true
	}
	return changes
}

// kept are the newest times, in order, with one more: those that a window can still reach.
func kept(times []time.Time, at, now time.Time, most int) []time.Time {
	i, _ := slices.BinarySearchFunc(times, at, time.Time.Compare)
	times = slices.Insert(slices.Clone(times), i, at)
	for len(times) > most || len(times) > 1 && times[0].Before(now.Add(-rule.ActsKept)) {
		times = times[1:]
	}
	return times
}

const (
	writeConsented = `
INSERT INTO segment_consents (client, user_id, layer) SELECT $1, * FROM unnest($2::text[], $3::text[]) ON CONFLICT DO NOTHING`
	dropConsents = `
DELETE FROM segment_consents c USING unnest($2::text[], $3::text[]) AS n (user_id, layer)
WHERE c.client = $1 AND c.user_id = n.user_id AND c.layer = n.layer`
	leaveClusters = `
DELETE FROM segment_clustered c USING unnest($2::text[], $3::text[]) AS n (user_id, layer)
WHERE c.client = $1 AND c.user_id = n.user_id AND c.layer = n.layer`
	// The times of all rows come as one array, and each row takes its part.
	writeActs = `
INSERT INTO segment_acts (client, user_id, what, newest, times)
SELECT $1, n.user_id, n.what, n.newest, ($7::timestamptz[])[n.first + 1 : n.last]
FROM unnest($2::text[], $3::text[], $4::timestamptz[], $5::integer[], $6::integer[]) AS n (user_id, what, newest, first, last)
ON CONFLICT (client, user_id, what) DO UPDATE SET newest = excluded.newest, times = excluded.times`
	dropOldActs = `DELETE FROM segment_acts WHERE client = $1 AND newest < $2`
)

// eraseKnown forgets users.
var eraseKnown = []string{
	`DELETE FROM segment_consents WHERE client = $1 AND user_id = ANY($2)`,
	`DELETE FROM segment_clustered WHERE client = $1 AND user_id = ANY($2)`,
	`DELETE FROM segment_acts WHERE client = $1 AND user_id = ANY($2)`,
}

// write writes what was noted, once.
func (n noted) write(ctx context.Context, c *segmented) error {
	var granted, withdrawn []consentKey
	for key, is := range n.consents {
		if is {
			granted = append(granted, key)
		} else {
			withdrawn = append(withdrawn, key)
		}
	}
	for _, step := range []struct {
		sql  string
		keys []consentKey
	}{{writeConsented, granted}, {dropConsents, withdrawn}, {leaveClusters, slices.Collect(maps.Keys(n.left))}} {
		if len(step.keys) == 0 {
			continue
		}
		if err := readmodel.Do(ctx, c.tx, "write consents of segments", step.sql, string(c.client),
			readmodel.Column(step.keys, func(k consentKey) string { return string(k.user) }),
			readmodel.Column(step.keys, func(k consentKey) string { return string(k.layer) }),
		); err != nil {
			return err
		}
	}
	acted := slices.Collect(maps.Keys(n.acted))
	clear(n.consents)
	clear(n.left)
	clear(n.acted)
	if len(acted) == 0 {
		return nil
	}
	all := []time.Time{}
	first, last := make([]int, len(acted)), make([]int, len(acted))
	for i, key := range acted {
		first[i] = len(all)
		all = append(all, n.acts[key]...)
		last[i] = len(all)
	}
	return readmodel.Do(ctx, c.tx, "write what users did", writeActs, string(c.client),
		readmodel.Column(acted, func(k actKey) string { return string(k.user) }),
		readmodel.Column(acted, func(k actKey) string { return k.what }),
		readmodel.Column(acted, func(k actKey) time.Time { return n.acts[k][len(n.acts[k])-1] }), first, last, all)
}

// segmentUser is a user as rules judge it.
type segmentUser struct {
	id                   id.User
	number               int64
	external, traits     readmodel.Sealed
	createdAt, updatedAt time.Time
	versions             []int32 // that name it, in order
	due                  *time.Time
	changed, erased      bool // by an event of the batch
	created              bool // and has no row yet
	wrapped              seal.WrappedKey
	key                  *readmodel.Subject // nil: not asked for yet
	document             []byte             // its traits, once opened
	facts                *rule.Facts        // nil: not opened yet
	known                knownOfUser
}

func (u *segmentUser) columns() []any {
	return []any{
		readmodel.Text(&u.id), &u.number, &u.external.Box, readmodel.Text(&u.external.Event), &u.traits.Box, readmodel.Text(&u.traits.Event),
		&u.createdAt, &u.updatedAt, &u.versions, &u.due,
	}
}

// openable are its columns and those of its key.
func (u *segmentUser) openable() []any {
	return append(u.columns(), readmodel.Text(&u.wrapped.ID), readmodel.Text(&u.wrapped.Under), &u.wrapped.Wrapped)
}

// userOf is the user that an event is about.
func userOf(e event.Event) id.User {
	switch e := e.(type) {
	case event.EndUserCreated:
		return e.User
	case event.EndUserTraitsChanged:
		return e.User
	case event.EndUserErased:
		return e.User
	case event.ConsentGranted:
		return e.User
	case event.ConsentWithdrawn:
		return e.User
	case event.InteractionRecorded:
		return e.User
	case event.CampaignEngagementRecorded:
		return e.User
	}
	return ""
}
