package projections

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/domain/rule"
	"kindred/eventstore"
	"kindred/eventstore/projector"
)

// Segments is the read model of the groups of users that clients name by rules. It
// judges each user anew when something of it changes, or when time passes, which it
// learns from the log alone: so a rebuild finds the same members, and the same changes.
//
// What a change of a rule makes of a segment is a version of it, and of each segment
// that refers to it. A version is judged in slices (Build) while the one before serves;
// it serves from the event on that says it is ready.
type Segments struct {
	Reader
	rules   *rule.Cache[id.Event, *rule.Rule] // by the event that carries them; nil: they are parsed each time
	defined *rule.Cache[string, *definitions] // by their revision; nil: they are read each time
}

// NewSegments is the model with its rules kept ready to judge.
func NewSegments(reader Reader) Segments {
	return Segments{reader, new(rule.Cache[id.Event, *rule.Rule]), new(rule.Cache[string, *definitions])}
}

// Name of the read model.
func (Segments) Name() string { return "segments" }

// Wants says which events the model is made of.
func (Segments) Wants(t string) bool {
	switch t {
	case "consent.granted", "consent.withdrawn", "trait_schema.overridden", "feed.interaction_recorded", "campaign.engagement_recorded",
		"clustering_run.started", "clustering_run.assigned", "clustering_run.cancelled", "clustering.completed", "clustering.failed",
		"client.clock_moved":
		return true
	}
	return strings.HasPrefix(t, "end_user.") || strings.HasPrefix(t, "segment") || strings.HasPrefix(t, "consent_layer.")
}

// Version of the read model's tables.
func (Segments) Version() int { return 7 }

const segmentClocks clocks = "segment_clocks"

// usersPerBlock is how many users a row of segment_blocks tells of, a bit each: 1,000
// segments of a million users take 131 MB.
const usersPerBlock = 8192

// A change of a user rewrites no block: who is in a segment is what the blocks say and what changed
// since they were written (segment_clients.folded). They are written anew after so many events of a
// client, an eighth of its users within these bounds: a block, of 1 KiB, takes several changes at
// once, and what a list of members reads beside the blocks stays short.
const (
	foldLeast = 2_048
	// limit: models | events of a client after which what they changed in its segments goes into the bitmaps of members | an eighth of its users, {foldLeast} to {foldMost}
	foldMost = 32_768
)

// Schema of the read model. A user has a number, the ordinal of its creation in its
// client, which is never used again.
func (Segments) Schema() string {
	return `
CREATE TABLE segment_clients (
	client   text COLLATE "C" PRIMARY KEY,
	now      timestamptz NOT NULL, -- the latest time of its events: that of judgements
	users    bigint NOT NULL,      -- how many there have ever been: the next one's number
	versions int NOT NULL,         -- the same of versions
	folded   log_position NOT NULL, -- changes up to here are in the blocks
	fold_in  int NOT NULL,         -- so many events
	defined  uuid NOT NULL DEFAULT gen_random_uuid(), -- another one whenever its versions or layers change
	decided  text NOT NULL DEFAULT '{}' -- JSON: paths of traits that the client has said are sensitive, or are not
) WITH (fillfactor = 50);
CREATE TABLE segments (
	client           text COLLATE "C" NOT NULL,
	id               text COLLATE "C" NOT NULL,
	created_position log_position NOT NULL,
	name             text NOT NULL,
	rule             bytea,
	rule_event       text,
	changed          bigint NOT NULL, -- revision of the event that changed it last
	changes_from     log_position NOT NULL, -- what changed since then is told
	layer            text COLLATE "C",
	created_at       timestamptz NOT NULL,
	updated_at       timestamptz NOT NULL,
	PRIMARY KEY (client, id)
);
CREATE INDEX segments_listed ON segments (client, created_position);
CREATE TABLE segment_versions (
	client     text COLLATE "C" NOT NULL,
	number     int NOT NULL,
	segment    text COLLATE "C" NOT NULL,
	generation bigint NOT NULL, -- revision of the event that made it
	rule       bytea,
	rule_event text,
	refers     text[] NOT NULL,
	serves     boolean NOT NULL,
	built      bigint NOT NULL, -- users below this number were judged
	layer      text COLLATE "C",
	blocked    text[],          -- why it names nobody; empty: that is over, and it is to be judged anew
	PRIMARY KEY (client, number)
);
CREATE INDEX segment_versions_building ON segment_versions (client, generation) WHERE NOT serves;
-- A judgement writes a row in its page, where there is room, and then in no index.
CREATE TABLE segment_users (
	client         text COLLATE "C" NOT NULL,
	id             text COLLATE "C" NOT NULL,
	number         bigint NOT NULL,
	external       bytea,
	external_event text,
	traits         bytea,
	traits_event   text,
	created_at     timestamptz NOT NULL,
	updated_at     timestamptz NOT NULL,
	versions       int[] NOT NULL, -- that name the user, and maybe some that are no more
	due            timestamptz,    -- when time alone may change that
	PRIMARY KEY (client, id)
) WITH (fillfactor = 75);
CREATE UNIQUE INDEX segment_users_number ON segment_users (client, number);
CREATE INDEX segment_users_due ON segment_users (due) WHERE due IS NOT NULL;
CREATE INDEX segment_users_due_of ON segment_users (client, due, number) WHERE due IS NOT NULL;
CREATE TABLE segment_blocks (
	client  text COLLATE "C" NOT NULL,
	version int NOT NULL,
	block   int NOT NULL,
	members bytea NOT NULL, -- a bit for each of 8,192 numbers, the lowest first
	serves  boolean NOT NULL,
	PRIMARY KEY (client, version, block)
);
-- What an event changed of a user in all segments: versions that serve, and maybe some that are no more.
CREATE TABLE segment_changes (
	client     text COLLATE "C" NOT NULL,
	position   log_position NOT NULL,
	user_id    text COLLATE "C" NOT NULL,
	number     bigint,       -- of the user
	changed_at timestamptz NOT NULL,
	entered    int[] NOT NULL,
	went       int[] NOT NULL,
	erased     boolean NOT NULL, -- which all segments tell
	PRIMARY KEY (client, position, user_id)
);
CREATE TABLE segment_sizes (
	client        text COLLATE "C" NOT NULL,
	segment       text COLLATE "C" NOT NULL,
	day           date NOT NULL, -- in UTC; one on which nothing happened has no row
	members       bigint NOT NULL, -- at its end
	next_position log_position NOT NULL, -- of the first event after it
	PRIMARY KEY (client, segment, day)
);
CREATE INDEX segment_changes_of ON segment_changes (client, user_id);` + segmentClocks.schema() + knownSchema
}

// InProgress implements [projector.InProgress]: a version that does not serve yet may
// be built as far as time allowed, and of one that is no more nothing is told. The size of a day counts
// who was erased since, until it is built anew: nothing else tells that they were there.
func (Segments) InProgress() (columns, completed map[string]string) {
	serving := func(numbers string) string {
		return `SELECT n FROM unnest(` + numbers + `) n WHERE EXISTS (
	SELECT FROM SCHEMA.segment_versions v WHERE v.client = t.client AND v.number = n AND v.serves) ORDER BY n`
	}
	columns = map[string]string{
		"segment_versions.built": "", "segment_users.due": "", "segment_sizes.members": "", "segment_clients.defined": "",
		"segment_users.versions":  `ARRAY(` + serving(`t.versions`) + `)`,
		"segment_changes.entered": `ARRAY(` + serving(`t.entered`) + `)`,
		"segment_changes.went":    `ARRAY(` + serving(`t.went`) + `)`,
	}
	return columns, map[string]string{
		"segment_blocks":  `t.serves`,
		"segment_changes": `(t.erased OR EXISTS (` + serving(`t.entered || t.went`) + `))`,
	}
}

// Apply fails: the model is a [projector.Opener].
func (Segments) Apply(context.Context, pgx.Tx, []eventstore.Recorded) error {
	return errors.New("segments are applied with a log that opens traits and rules")
}

// ApplyOpening changes the model by events of a client (projector.Opener).
func (m Segments) ApplyOpening(ctx context.Context, tx pgx.Tx, log *eventstore.Log, client id.Client,
	batch []eventstore.Recorded, spend projector.Spend,
) error {
	var moved pgx.Batch
	batch = slices.DeleteFunc(slices.Clone(batch), func(r eventstore.Recorded) bool {
		e, clock := r.Event.(event.ClockMoved)
		if clock {
			segmentClocks.move(&moved, e)
		}
		return clock || !m.Wants(r.Type)
	})
	if err := send(ctx, tx, "clocks of segments", &moved); err != nil || len(batch) == 0 {
		return err
	}
	m.Vault = log.Vault
	c, err := m.lock(ctx, tx, client, spend)
	if err != nil {
		return err
	}
	return c.apply(ctx, batch)
}

// segmented is a client whose segments a transaction works on.
type segmented struct {
	Segments
	definitions
	tx        pgx.Tx
	client    id.Client
	spend     projector.Spend
	decided   map[string]bool
	steps     int // that judgements took so far
	now       time.Time
	users     int64 // the next one's number
	next      int   // version
	folded    eventstore.Position
	foldIn    int    // events
	revision  string // of the definitions
	redefined bool   // by this transaction
}

// definitions are a client's layers, and versions with their rules. One transaction at a time
// works with them.
type definitions struct {
	layers   map[id.ConsentLayer]*segmentLayer
	versions map[int]*segmentVersion
	ordered  []*segmentVersion              // by number
	served   map[id.Segment]*segmentVersion // by those that serve
	newest   map[id.Segment]*segmentVersion
	asked    asked                        // by the rules of the versions
	readers  map[string][]*segmentVersion // by what they read, in order; see touched
	set      *rule.Set                    // of all their rules
	wanted   func(member string) bool     // of the traits, which are to be decoded; nil: all
	unnamed  bool                         // no rule reads external ids, which stay sealed
}

// versionSize is about what a version takes in memory beside its rule, in bytes.
const versionSize = 1 << 10

// Size implements [rule.Sized].
func (d *definitions) Size() (size int) {
	for _, v := range d.ordered {
		if size += versionSize; v.rule != nil {
			size += v.rule.Size()
		}
	}
	return size
}

// unbounded is how many steps may be taken where all is to be done at once.
const unbounded = math.MaxInt

// freely lets judgements take what they take.
func freely(int) error { return nil }

// segmentVersion is a version of a segment.
type segmentVersion struct {
	number     int
	place      int // among the versions in order
	segment    id.Segment
	generation int64
	sealed     sealed
	refers     []string
	serves     bool
	built      int64
	layer      id.ConsentLayer
	blocked    []string   // why it names nobody; nil: it does not
	rule       *rule.Rule // nil: the segment was retired since, and the key of the rule is gone
	inSet      rule.InSet
	reads      []string // with what it reads by way of others; see touched
}

func (v *segmentVersion) isBlocked() bool { return v.blocked != nil }

// An event judges some users anew whom time alone may have moved; a second later the
// next one goes on. What is due when a version is ready is judged whatever it takes.
const (
	// limit: models | users whom time moves between segments in one event | {maxDue}
	maxDue = 10_000
	// limit: models | steps of the rules that judge them | {maxDueSteps}
	maxDueSteps = 20_000_000
)

const (
	makeSegmented = `
INSERT INTO segment_clients (client, now, users, versions, folded, fold_in) VALUES ($1, to_timestamp(0), 0, 0, '', $2) ON CONFLICT DO NOTHING`
	lockSegmented = `SELECT now, users, versions, folded, fold_in, decided, defined::text FROM segment_clients WHERE client = $1 FOR UPDATE`
	keepSegmented = `
UPDATE segment_clients SET now = $2, users = $3, versions = $4, fold_in = $5, defined = CASE WHEN $6 THEN gen_random_uuid() ELSE defined END
WHERE client = $1`
	redefine       = `UPDATE segment_clients SET defined = gen_random_uuid() WHERE client = $1`
	keepFolded     = `UPDATE segment_clients SET folded = $2 WHERE client = $1`
	selectVersions = `SELECT number, segment, generation, rule, rule_event, refers, serves, built, layer, blocked FROM segment_versions WHERE client = $1`
	subjectKeys    = `SELECT subject, id, client_key, wrapped FROM subject_keys WHERE client = $1 AND subject = ANY($2)`
)

// lock takes a client's segments for a transaction, and reads their versions.
func (m Segments) lock(ctx context.Context, tx pgx.Tx, client id.Client, spend projector.Spend) (*segmented, error) {
	c := &segmented{Segments: m, tx: tx, client: client, spend: spend}
	lock := func() error {
		return tx.QueryRow(ctx, lockSegmented, string(client)).Scan(&c.now, &c.users, &c.next, text(&c.folded), &c.foldIn, document(&c.decided), &c.revision)
	}
	err := lock()
	if errors.Is(err, pgx.ErrNoRows) {
		if err := do(ctx, tx, "make the segments of a client", makeSegmented, string(client), foldLeast); err != nil {
			return nil, err
		}
		err = lock()
	}
	if err != nil {
		return nil, fmt.Errorf("lock the segments of a client: %w", err)
	}
	if m.defined != nil {
		if kept := m.defined.Take(c.revision); kept != nil {
			c.definitions = *kept
			return c, nil
		}
	}
	if err := c.loadLayers(ctx); err != nil {
		return nil, err
	}
	return c, c.load(ctx)
}

// keep notes how far the client is. Its definitions are kept for the next transaction, unless
// this one changes them: then they are its own until it is committed.
func (c *segmented) keep(ctx context.Context) error {
	err := do(ctx, c.tx, "keep the segments of a client", keepSegmented, string(c.client), c.now, c.users, c.next, c.foldIn, c.redefined)
	if err == nil && !c.redefined && c.defined != nil {
		c.defined.Add(c.revision, &c.definitions)
	}
	return err
}

// load reads the versions and their rules.
func (c *segmented) load(ctx context.Context) error {
	c.versions = map[int]*segmentVersion{}
	rows, err := c.tx.Query(ctx, selectVersions, string(c.client))
	if err != nil {
		return fmt.Errorf("read versions of segments: %w", err)
	}
	var v segmentVersion
	_, err = pgx.ForEachRow(rows, []any{&v.number, text(&v.segment), &v.generation, &v.sealed.Box, text(&v.sealed.Event), &v.refers, &v.serves, &v.built, text(&v.layer), &v.blocked}, func() error {
		one := v
		c.versions[v.number] = &one
		return nil
	})
	if err != nil {
		return fmt.Errorf("read versions of segments: %w", err)
	}
	c.ordered, c.served, c.newest = sortedValues(c.versions), map[id.Segment]*segmentVersion{}, map[id.Segment]*segmentVersion{}
	for i, v := range c.ordered {
		v.place = i
		if c.newest[v.segment] == nil || !v.serves {
			c.newest[v.segment] = v
		}
		if v.serves {
			c.served[v.segment] = v
		}
	}
	if err := c.parse(ctx); err != nil {
		return err
	}
	c.note()
	return nil
}

// parseSteps is what it takes to parse a rule, for each byte that it takes in memory.
const parseSteps = 6

// parse makes the rules of the versions ready to judge.
func (c *segmented) parse(ctx context.Context) error {
	unknown := map[id.Event]*segmentVersion{}
	for _, v := range c.versions {
		if v.rule = c.known(v.sealed.Event); v.rule == nil {
			unknown[v.sealed.Event] = v
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	subjects := make([]string, 0, len(unknown))
	for _, v := range unknown {
		subjects = append(subjects, string(v.segment))
	}
	keys, err := c.keys(ctx, subjects)
	if err != nil {
		return err
	}
	opened := map[id.Event]*rule.Rule{}
	for by, v := range unknown {
		s, err := c.subject(ctx, keys[string(v.segment)], c.client, string(v.segment), eventstore.SegmentsStream(c.client))
		if err != nil {
			return projector.Transient(err) // the keys are out of reach, not wrong
		}
		text, err := s.open("rule", v.sealed)
		if err != nil {
			return err
		}
		if text == nil {
			continue
		}
		parsed, err := rule.Parse(string(text), rule.Users)
		if _, wrong := errors.AsType[*rule.Error](err); wrong {
			continue // it was written before it would have been refused: it names nobody
		}
		if err != nil {
			return fmt.Errorf("the rule of %s: %w", v.segment, err)
		}
		opened[by] = parsed
		if c.rules != nil {
			c.rules.Add(by, parsed)
		}
		if err := c.spend(parsed.Size() * parseSteps); err != nil {
			return err
		}
	}
	for _, v := range c.versions {
		if v.rule == nil {
			v.rule = opened[v.sealed.Event]
		}
	}
	return nil
}

func (c *segmented) known(by id.Event) *rule.Rule {
	if c.rules == nil {
		return nil
	}
	return c.rules.Get(by)
}

// apply changes the segments of a client by its events, those of users together.
func (c *segmented) apply(ctx context.Context, events []eventstore.Recorded) error {
	isUser := func(r eventstore.Recorded) bool { return userOf(r.Event) != "" }
	for len(events) > 0 {
		if err := c.advance(ctx, events[0]); err != nil {
			return err
		}
		n := slices.IndexFunc(events, func(r eventstore.Recorded) bool { return !isUser(r) || dayOf(r.RecordedAt).After(dayOf(c.now)) })
		if n < 0 {
			n = len(events)
		}
		var err error
		if n = min(n, c.foldIn); n > 0 {
			err = c.applyUsers(ctx, events[:n])
			c.foldIn -= n
		} else {
			n = 1
			c.redefined = true
			err = c.applySegment(ctx, events[0])
			c.foldIn -= foldedAs(events[0].Event)
		}
		if err == nil && c.foldIn <= 0 {
			err = c.fold(ctx, events[n-1].Position)
		}
		if err != nil {
			return err
		}
		events = events[n:]
	}
	return c.keep(ctx)
}

// foldedAs is for how many events of single users one counts that may change many.
func foldedAs(e event.Event) int {
	switch e.(type) {
	case event.SegmentsTimePassed, event.ClusteringCompleted, event.ConsentLayerRetired:
		return foldLeast / 2
	}
	return 1
}

const selectUnfolded = `
SELECT number, entered, went FROM segment_changes WHERE client = $1 AND position > $2 AND NOT erased ORDER BY position, user_id`

// fold writes into the blocks what changed up to a position. It is the log that says when, so that
// a rebuild makes the same blocks.
func (c *segmented) fold(ctx context.Context, at eventstore.Position) error {
	rows, _ := c.tx.Query(ctx, selectUnfolded, string(c.client), string(c.folded)) // what it fails with, its rows end with
	changed := members{}
	var u userChange
	if _, err := pgx.ForEachRow(rows, []any{&u.number, &u.entered, &u.went}, func() error {
		c.change(changed, u)
		return nil
	}); err != nil {
		return fmt.Errorf("read what changed in segments: %w", err)
	}
	c.folded, c.foldIn = at, int(min(max(c.users/8, foldLeast), foldMost))
	if err := do(ctx, c.tx, "note how far changes are folded", keepFolded, string(c.client), string(at)); err != nil {
		return err
	}
	return c.writeMembers(ctx, changed)
}

// change adds to the members of the versions that there are what changed of a user.
func (c *segmented) change(of members, u userChange) {
	for in, numbers := range map[bool][]int32{true: u.entered, false: u.went} {
		for _, number := range numbers {
			if c.versions[int(number)] != nil {
				of.set(int(number), u.number, in)
			}
		}
	}
}

// changesKept is how long changes are told.
// limit: requests | changes of a segment's members that are told | 30 days | 410 `cursor_expired`
const changesKept = 30 * 24 * time.Hour

// Where changes begin follows from the days alone: rows of those who were erased since are
// in no rebuild.
const (
	dropOldChanges = `
DELETE FROM segment_changes WHERE client = $1 AND position <= $3 AND position < coalesce(
	(SELECT c.position FROM segment_changes c WHERE c.client = $1 AND c.changed_at >= $2 ORDER BY c.position LIMIT 1), $4)`
	beginLater = `
WITH old AS (SELECT segment, max(next_position::text) AS next FROM segment_sizes WHERE client = $1 AND day < $2 GROUP BY segment)
UPDATE segments SET changes_from = greatest(changes_from, old.next) FROM old
WHERE segments.client = $1 AND segments.id = old.segment`
)

// sizesKept is how long the sizes of past days are told.
// limit: kept | the size of a segment at the end of a day | {sizesKept}
const sizesKept = 400 * 24 * time.Hour

const day = 24 * time.Hour

func dayOf(t time.Time) time.Time { return t.UTC().Truncate(day) }

// unfolded is how many more members versions have than their blocks say.
const unfolded = `
WITH unfolded AS MATERIALIZED (
	SELECT f.number, sum(f.change) AS members
	FROM segment_clients s JOIN segment_changes c ON c.client = s.client AND c.position > s.folded
		CROSS JOIN LATERAL (SELECT unnest(c.entered), 1 UNION ALL SELECT unnest(c.went), -1) f (number, change)
	WHERE s.client = $1 GROUP BY f.number)`

// membersOf is how many members a version v has, beside unfolded.
const membersOf = `(coalesce((SELECT sum(bit_count(b.members)) FROM segment_blocks b WHERE b.client = v.client AND b.version = v.number), 0)
	+ coalesce((SELECT u.members FROM unfolded u WHERE u.number = v.number), 0))::bigint`

const (
	noteSizes = unfolded + `
INSERT INTO segment_sizes (client, segment, day, members, next_position)
SELECT $1, v.segment, $2, ` + membersOf + `, $3 FROM segment_versions v WHERE v.client = $1 AND v.serves`
	dropOldSizes = `DELETE FROM segment_sizes WHERE client = $1 AND day < $2`
)

// advance lets the client's time come to that of an event; no judgement is yet to be
// written. At midnight the sizes are noted of the last day on which something happened,
// and what is too old to be told goes.
func (c *segmented) advance(ctx context.Context, r eventstore.Recorded) error {
	to := r.RecordedAt
	if passed, ok := r.Event.(event.SegmentsTimePassed); ok && passed.AsOf.After(to) {
		to = passed.AsOf
	}
	if !to.After(c.now) {
		return nil
	}
	last, today := dayOf(c.now), dayOf(to)
	c.now = to
	if !today.After(last) {
		return nil
	}
	var b pgx.Batch
	c.foldIn = 1 // what is old by the next midnight goes then
	b.Queue(dropOldActs, string(c.client), today.Add(-rule.ActsKept))
	b.Queue(dropOldChanges, string(c.client), today.Add(-changesKept), string(c.folded), string(r.Position))
	if len(c.versions) > 0 {
		b.Queue(noteSizes, string(c.client), last, string(r.Position))
		b.Queue(dropOldSizes, string(c.client), today.Add(-sizesKept))
		b.Queue(beginLater, string(c.client), today.Add(-changesKept))
	}
	return send(ctx, c.tx, "segments at midnight", &b)
}

const (
	insertSegment = `
INSERT INTO segments (client, id, created_position, name, rule, rule_event, changed, changes_from, created_at, updated_at, layer)
VALUES ($1, $2, $3, $4, $5, $6, $7, $3, $8, $8, $9) ON CONFLICT DO NOTHING`
	renameSegment = `UPDATE segments SET name = $3, changed = $4, updated_at = $5 WHERE client = $1 AND id = $2`
	ruleSegment   = `UPDATE segments SET rule = $3, rule_event = $4 WHERE client = $1 AND id = $2`
	insertVersion = `
INSERT INTO segment_versions (client, number, segment, generation, rule, rule_event, refers, layer, serves, built)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, false, 0)`
	absorbVersions = `UPDATE segment_versions SET generation = $2 WHERE client = $1 AND generation = $3 AND NOT serves`
	dropVersions   = `DELETE FROM segment_versions WHERE client = $1 AND number = ANY($2)`
	dropBlocks     = `DELETE FROM segment_blocks WHERE client = $1 AND version = ANY($2)`
	serveVersions  = `UPDATE segment_versions SET serves = true WHERE client = $1 AND number = ANY($2)`
	serveBlocks    = `UPDATE segment_blocks SET serves = true WHERE client = $1 AND version = ANY($2)`
	beginChanges   = `UPDATE segments SET changes_from = $3 WHERE client = $1 AND id = ANY($2)`
	dropSizes      = `DELETE FROM segment_sizes WHERE client = $1 AND segment = $2`
	dropSegment    = `DELETE FROM segments WHERE client = $1 AND id = $2`
)

// applySegment changes the segments by an event about them.
func (c *segmented) applySegment(ctx context.Context, r eventstore.Recorded) error {
	var b pgx.Batch
	queue := func(sql string, args ...any) { b.Queue(sql, append([]any{string(c.client)}, args...)...) }
	switch e := r.Event.(type) {
	case event.SegmentDefined:
		box, err := sealedOf(r, e.Rule)
		if err != nil {
			return err
		}
		queue(insertSegment, string(e.Segment), string(r.Position), e.Name, box.Box, string(box.Event), int64(r.Revision), r.RecordedAt, string(e.Layer))
		c.make(queue, e.Segment, int64(r.Revision), box, texts(e.Refers), e.Layer)
	case event.SegmentChanged:
		queue(renameSegment, string(e.Segment), e.Name, int64(r.Revision), r.RecordedAt)
		if e.Rule == nil {
			break
		}
		box, err := sealedOf(r, e.Rule)
		if err != nil {
			return err
		}
		queue(ruleSegment, string(e.Segment), box.Box, string(box.Event))
		dependents := c.dependents(e.Segment)
		replaced := append(slices.Clone(dependents), c.newest[e.Segment])
		c.absorb(queue, int64(r.Revision), append(replaced, c.awaited(replaced)...))
		if before := c.newest[e.Segment]; before != nil {
			c.make(queue, e.Segment, int64(r.Revision), box, texts(e.Refers), before.layer)
		}
		for _, v := range dependents {
			c.make(queue, v.segment, int64(r.Revision), v.sealed, v.refers, v.layer)
		}
	case event.SegmentRetired:
		c.drop(queue, func(v *segmentVersion) bool { return v.segment == e.Segment })
		queue(dropSegment, string(e.Segment))
		queue(dropSizes, string(e.Segment))
	case event.SegmentReady:
		return c.ready(ctx, r, e.Revision)
	case event.SegmentsTimePassed:
		_, err := c.judgeDue(ctx, r, maxDue, maxDueSteps)
		return err
	default:
		return c.applyKnown(ctx, r)
	}
	if err := send(ctx, c.tx, "segments", &b); err != nil {
		return err
	}
	if err := c.load(ctx); err != nil {
		return err
	}
	return c.blockNew(ctx)
}

// make makes a version of a segment, in place of one that does not serve yet.
func (c *segmented) make(queue func(string, ...any), segment id.Segment, generation int64, box sealed, refers []string, layer id.ConsentLayer) {
	c.drop(queue, func(v *segmentVersion) bool { return v.segment == segment && !v.serves })
	queue(insertVersion, c.next, string(segment), generation, box.Box, string(box.Event), refers, string(layer))
	c.next++
}

// absorb takes over generations of which versions are to be replaced: what was to serve
// together with these serves together with what takes their place.
func (c *segmented) absorb(queue func(string, ...any), generation int64, replaced []*segmentVersion) {
	for _, v := range replaced {
		if v != nil && !v.serves {
			queue(absorbVersions, generation, v.generation)
		}
	}
}

// awaited are the versions that do not serve yet of the segments to which those that serve in
// place of others refer, directly or by way of others: they may not serve before the others
// do, as these were judged by what serves now.
func (c *segmented) awaited(others []*segmentVersion) (found []*segmentVersion) {
	reached := map[id.Segment]bool{}
	var reach func(id.Segment)
	reach = func(segment id.Segment) {
		serving := c.served[segment]
		if reached[segment] || serving == nil {
			return
		}
		reached[segment] = true
		for _, to := range serving.refers {
			found = append(found, c.newest[id.Segment(to)])
			reach(id.Segment(to))
		}
	}
	for _, v := range others {
		if v != nil {
			reach(v.segment)
		}
	}
	return found
}

// drop drops versions.
func (c *segmented) drop(queue func(string, ...any), which func(*segmentVersion) bool) {
	if gone := c.numbers(which); len(gone) > 0 {
		queue(dropVersions, gone)
		queue(dropBlocks, gone)
	}
}

// numbers are those of the versions of a kind, in order.
func (c *segmented) numbers(which func(*segmentVersion) bool) (numbers []int) {
	for _, number := range sortedKeys(c.versions) {
		if which(c.versions[number]) {
			numbers = append(numbers, number)
		}
	}
	return numbers
}

// dependents are the newest versions of the segments that refer to one, directly or by
// way of others, in the order of their ids.
func (c *segmented) dependents(on id.Segment) (found []*segmentVersion) {
	reached := map[string]bool{string(on): true}
	for grown := true; grown; {
		grown = false
		for segment, v := range c.newest {
			if !reached[string(segment)] && slices.ContainsFunc(v.refers, func(of string) bool { return reached[of] }) {
				reached[string(segment)], grown = true, true
			}
		}
	}
	for _, segment := range sortedKeys(c.newest) {
		if reached[string(segment)] && segment != on {
			found = append(found, c.newest[segment])
		}
	}
	return found
}

// ready lets the versions of generations up to one serve. What no slice has judged yet is judged
// now: a rebuild has none.
func (c *segmented) ready(ctx context.Context, r eventstore.Recorded, generation int64) error {
	made := c.numbers(func(v *segmentVersion) bool { return v.generation <= generation && !v.serves })
	if len(made) == 0 {
		return nil
	}
	for more := true; more; {
		var err error
		if more, err = c.judgeDue(ctx, r, maxDue, unbounded); err != nil {
			return err
		}
	}
	for more := true; more; {
		var err error
		if more, err = c.build(ctx, c.numbers(c.judges(made)), unbounded); err != nil {
			return err
		}
	}
	var b pgx.Batch
	queue := func(sql string, args ...any) { b.Queue(sql, append([]any{string(c.client)}, args...)...) }
	var segments []string
	for _, number := range made {
		segments = append(segments, string(c.versions[number].segment))
	}
	c.drop(queue, func(v *segmentVersion) bool { return v.serves && slices.Contains(segments, string(v.segment)) })
	queue(serveVersions, made)
	queue(serveBlocks, made)
	queue(beginChanges, segments, string(r.Position))
	if err := send(ctx, c.tx, "segments", &b); err != nil {
		return err
	}
	return c.load(ctx)
}
