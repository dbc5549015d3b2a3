// Package segments is the read model of segments: users by rules, judged as events and time come.
package segments

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/id"
	"kindred/domain/rule"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/eventstore/seal"
	"kindred/projections/readmodel"
)

// Model is the read model of segments: the groups of users that clients name by rules. It
// judges a user anew when something about the user changes, and when time passes. It learns
// both from the log alone, so a rebuild finds the same members and the same changes.
//
// A change of a rule makes a new version of the segment, and of each segment that refers to
// it. A version is judged in slices (Build) while the one before serves. It serves from the
// event on that says that it is ready.
type Model struct {
	readmodel.Reader
	rules   *rule.Cache[id.Event, *rule.Rule]    // by the event that carries them; nil: they are parsed each time
	defined *rule.Cache[definedBy, *definitions] // that all serve; nil: they are read each time
	often   *folding                             // nil: as often as it should be
	chunk   int                                  // events that are judged until they are written; 0: writtenTogether
}

// New makes the model. It keeps rules parsed, ready to judge.
func New(reader readmodel.Reader) Model {
	return Model{Reader: reader, rules: new(rule.Cache[id.Event, *rule.Rule]), defined: new(rule.Cache[definedBy, *definitions])}
}

// Name of the read model.
func (Model) Name() string { return "segments" }

// Wants says which events the model is made of.
func (Model) Wants(t string) bool {
	switch t {
	case "consent.granted", "consent.withdrawn", "trait_schema.overridden", "feed.interaction_recorded", "campaign.engagement_recorded",
		"clustering_run.started", "clustering_run.assigned", "clustering_run.cancelled", "clustering.completed", "clustering.failed",
		"client.clock_moved":
		return true
	}
	return strings.HasPrefix(t, "end_user.") || strings.HasPrefix(t, "segment") || strings.HasPrefix(t, "consent_layer.")
}

// Version of the read model's tables.
func (Model) Version() int { return 8 }

// Options of the read model.
func (Model) Options() projector.Options { return projector.Options{InProgress: inProgress} }

const segmentClocks readmodel.Clocks = "segment_clocks"

// usersPerBlock is how many users a row of segment_blocks tells of, a bit each: 1,000
// segments of a million users take 131 MB.
const usersPerBlock = 8192

// Schema of the read model. A user has a number, the ordinal of its creation in its
// client, which is never used again.
func (Model) Schema() string {
	return `
CREATE TABLE segment_clients (
	client   text COLLATE "C" PRIMARY KEY,
	now      timestamptz NOT NULL, -- the latest time of its events: that of judgements
	users    bigint NOT NULL,      -- how many there have ever been: the next one's number
	versions int NOT NULL,         -- the same of versions
	folded   log_position NOT NULL, -- changes up to here are in the blocks and deltas
	folds    int NOT NULL DEFAULT 0,           -- that there were,
	folded_users bigint NOT NULL DEFAULT 0,    -- and the users at the last of them
	fold_in  int NOT NULL,         -- so many events
	defined    bigint NOT NULL DEFAULT 0, -- events that may have changed its versions and layers,
	defined_by text NOT NULL DEFAULT '',  -- and the last of them
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
CREATE TABLE segment_deltas (
	client  text COLLATE "C" NOT NULL,
	version int NOT NULL,
	fold    int NOT NULL,
	entered bigint[] NOT NULL, -- numbers of users
	went    bigint[] NOT NULL,
	PRIMARY KEY (client, version, fold)
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
CREATE INDEX segment_changes_of ON segment_changes (client, user_id);` + segmentClocks.Table() + knownSchema
}

// inProgress: how far a version that does not serve yet is built depends on the time that
// there was, and nothing is told of a version that was dropped. The size of a day counts users
// who were erased since, until the model is built anew: nothing else tells that they were there.
var inProgress = projector.InProgress{
	Columns: map[string]string{
		"segment_versions.built": "", "segment_users.due": "", "segment_sizes.members": "",
		"segment_users.versions":  `ARRAY(` + servingOf(`t.versions`) + `)`,
		"segment_changes.entered": `ARRAY(` + servingOf(`t.entered`) + `)`,
		"segment_changes.went":    `ARRAY(` + servingOf(`t.went`) + `)`,
	},
	Completed: map[string]string{
		"segment_blocks":  `t.serves`,
		"segment_changes": `(t.erased OR EXISTS (` + servingOf(`t.entered || t.went`) + `))`,
	},
}

// servingOf is SQL for those of the numbers of versions that serve.
func servingOf(numbers string) string {
	return `SELECT n FROM unnest(` + numbers + `) n WHERE EXISTS (
	SELECT FROM SCHEMA.segment_versions v WHERE v.client = t.client AND v.number = n AND v.serves) ORDER BY n`
}

// segmented is a client whose segments a transaction works on.
type segmented struct {
	Model
	definitions
	tx          pgx.Tx
	client      id.Client
	spend       projector.Spend
	decided     map[string]bool
	steps       int // that judgements took so far
	now         time.Time
	users       int64 // the next one's number
	next        int   // version
	folded      eventstore.Position
	folds       int
	foldedUsers int64 // that there were then
	foldIn      int   // events
	by          definedBy
	redefined   bool // by this transaction
	made        bool // versions, since what follows from them was derived
	builds      bool // it judges by versions that do not serve yet, and not by others
}

// definedBy names definitions by the last event that may have changed them and by the
// number of such events, since one of them may have been left out.
type definedBy struct {
	event  id.Event
	events int64
}

// definitions are a client's layers, and versions with their rules. One transaction at a
// time uses them.
type definitions struct {
	layers   map[id.ConsentLayer]*segmentLayer
	versions map[int]*segmentVersion
	ordered  []*segmentVersion              // by number
	served   map[id.Segment]*segmentVersion // by those that serve
	newest   map[id.Segment]*segmentVersion
	asked    asked                        // by the rules of the versions
	readers  map[string][]*segmentVersion // by what their own rules read, in order; see touched
	refer    [][]*segmentVersion          // by place: those that refer to the version
	set      *rule.Set                    // of all their rules
	wanted   func(member string) bool     // of the traits, which are to be decoded; nil: all
	unnamed  bool                         // no rule reads external ids, which stay sealed
}

// versionSize is about how many bytes a version takes in memory, beside its rule.
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
	sealed     readmodel.Sealed
	refers     []string
	serves     bool
	built      int64
	layer      id.ConsentLayer
	blocked    []string    // why it names nobody; nil: it does not
	rule       *rule.Rule  // nil: the segment was retired since, and the key of the rule is gone
	inSet      *rule.InSet // of its rule
	reads      []string    // not what it reads by way of others; see touched
}

func (v *segmentVersion) isBlocked() bool { return v.blocked != nil }

const (
	makeSegmented = `
INSERT INTO segment_clients (client, now, users, versions, folded, fold_in) VALUES ($1, to_timestamp(0), 0, 0, '', $2) ON CONFLICT DO NOTHING`
	lockSegmented = `SELECT now, users, versions, folded, folds, folded_users, fold_in, decided, defined, defined_by FROM segment_clients WHERE client = $1 FOR UPDATE`
	keepSegmented = `
UPDATE segment_clients SET now = $2, users = $3, versions = $4, fold_in = $5, defined = $6, defined_by = $7 WHERE client = $1`
	selectVersions = `SELECT number, segment, generation, rule, rule_event, refers, serves, built, layer, blocked FROM segment_versions WHERE client = $1`
	subjectKeys    = `SELECT subject, id, client_key, wrapped FROM subject_keys WHERE client = $1 AND subject = ANY($2)`
)

// lock takes a client's segments for a transaction, and reads their versions. One that builds judges
// by versions that do not serve yet, and by no others, so it need not parse these.
func (m Model) lock(ctx context.Context, tx pgx.Tx, client id.Client, spend projector.Spend, builds bool) (*segmented, error) {
	c := &segmented{Model: m, tx: tx, client: client, spend: spend, builds: builds}
	lock := func() error {
		return tx.QueryRow(ctx, lockSegmented, string(client)).Scan(&c.now, &c.users, &c.next, readmodel.Text(&c.folded), &c.folds, &c.foldedUsers, &c.foldIn, readmodel.Document(&c.decided), &c.by.events, readmodel.Text(&c.by.event))
	}
	err := lock()
	if errors.Is(err, pgx.ErrNoRows) {
		if err := readmodel.Do(ctx, tx, "make the segments of a client", makeSegmented, string(client), m.folding().least); err != nil {
			return nil, err
		}
		err = lock()
	}
	if err != nil {
		return nil, fmt.Errorf("lock the segments of a client: %w", err)
	}
	if m.defined != nil {
		if kept := m.defined.Take(c.by); kept != nil {
			c.definitions = *kept
			return c, nil
		}
	}
	if err := c.loadLayers(ctx); err != nil {
		return nil, err
	}
	return c, c.load(ctx)
}

// keep notes how far the client is. It keeps the definitions for the next transaction,
// unless this one changes them or a version is still being built: no event changes how far
// that is.
func (c *segmented) keep(ctx context.Context) error {
	err := readmodel.Do(ctx, c.tx, "keep the segments of a client", keepSegmented, string(c.client), c.now, c.users, c.next, c.foldIn, c.by.events, string(c.by.event))
	if err == nil && !c.redefined && c.defined != nil && !slices.ContainsFunc(c.ordered, func(v *segmentVersion) bool { return !v.serves }) {
		kept := c.definitions // and nothing of the transaction
		c.defined.Add(c.by, &kept)
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
	_, err = pgx.ForEachRow(rows, []any{&v.number, readmodel.Text(&v.segment), &v.generation, &v.sealed.Box, readmodel.Text(&v.sealed.Event), &v.refers, &v.serves, &v.built, readmodel.Text(&v.layer), &v.blocked}, func() error {
		one := v
		c.versions[v.number] = &one
		return nil
	})
	if err != nil {
		return fmt.Errorf("read versions of segments: %w", err)
	}
	return c.derive(ctx)
}

// derive brings what follows from the versions up to date with them.
func (c *segmented) derive(ctx context.Context) error {
	c.ordered, c.served, c.newest = readmodel.SortedValues(c.versions), map[id.Segment]*segmentVersion{}, map[id.Segment]*segmentVersion{}
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
	return c.spend(c.Size() / notedInAStep)
}

// notedInAStep is how many bytes of rules are noted in the time of a step.
const notedInAStep = 16

// needed are the versions, by their places, whose rules the transaction may judge by.
func (c *segmented) needed() []bool {
	some := c.ordered
	if c.builds {
		some = slices.DeleteFunc(slices.Clone(some), func(v *segmentVersion) bool { return v.serves })
	}
	return c.reached(some, c.referredBy)
}

// parseSteps is what it takes to parse a rule, for each byte that it takes in memory.
const parseSteps = 6

// parse makes the rules of the versions ready to judge.
func (c *segmented) parse(ctx context.Context) error {
	unknown := map[id.Event]*segmentVersion{}
	needed := c.needed()
	for _, v := range c.versions {
		if !needed[v.place] {
			continue
		}
		if v.rule == nil {
			v.rule = c.known(v.sealed.Event)
		}
		if v.rule == nil {
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
		s, err := c.Subject(ctx, keys[string(v.segment)], c.client, string(v.segment), eventstore.SegmentsStream(c.client))
		if err != nil {
			return projector.Transient(err) // the keys are out of reach, not wrong
		}
		text, err := s.Open("rule", v.sealed)
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

const day = 24 * time.Hour

func dayOf(t time.Time) time.Time { return t.UTC().Truncate(day) }

// unfolded is how many more members versions have than their blocks and deltas say.
const unfolded = `
WITH unfolded AS MATERIALIZED (
	SELECT f.number, sum(f.change) AS members
	FROM segment_clients s JOIN segment_changes c ON c.client = s.client AND c.position > s.folded
		CROSS JOIN LATERAL (SELECT unnest(c.entered), 1 UNION ALL SELECT unnest(c.went), -1) f (number, change)
	WHERE s.client = $1 GROUP BY f.number)`

// folded is SQL for how many members a version v has by its blocks and deltas. membersOf
// adds what is not folded yet, from unfolded. membersOfOne does the same for one version,
// without adding up all others: for 10,000 changes of 40 versions each that would take 30
// ms.
const (
	folded = `coalesce((SELECT sum(bit_count(b.members)) FROM segment_blocks b WHERE b.client = v.client AND b.version = v.number), 0)
	+ coalesce((SELECT sum(cardinality(d.entered) - cardinality(d.went)) FROM segment_deltas d WHERE d.client = v.client AND d.version = v.number), 0)`
	membersOf = `(` + folded + ` + coalesce((SELECT u.members FROM unfolded u WHERE u.number = v.number), 0))::bigint`

	membersOfOne = `(` + folded + ` + coalesce((
	SELECT sum((v.number = ANY(c.entered))::int - (v.number = ANY(c.went))::int)
	FROM segment_clients s JOIN segment_changes c ON c.client = s.client AND c.position > s.folded WHERE s.client = v.client), 0))::bigint`
)

// numbers are those of the versions of a kind, in order.
func (c *segmented) numbers(which func(*segmentVersion) bool) (numbers []int) {
	for number, v := range c.versions {
		if which(v) {
			numbers = append(numbers, number)
		}
	}
	slices.Sort(numbers)
	return numbers
}

// knownSchema is what rules ask of users beside their traits. Of a run that has not
// completed, who is in its clusters does not count yet.
const knownSchema = `
CREATE INDEX segment_versions_restored ON segment_versions (client) WHERE serves AND blocked = '{}';
CREATE TABLE segment_layers (
	client      text COLLATE "C" NOT NULL,
	id          text COLLATE "C" NOT NULL,
	trait_paths text[] NOT NULL,
	retired     boolean NOT NULL DEFAULT false,
	PRIMARY KEY (client, id)
);
CREATE TABLE segment_consents (
	client  text COLLATE "C" NOT NULL,
	user_id text COLLATE "C" NOT NULL,
	layer   text COLLATE "C" NOT NULL,
	PRIMARY KEY (client, user_id, layer)
);
CREATE INDEX segment_consents_of_layer ON segment_consents (client, layer);
CREATE TABLE segment_clustered (
	client  text COLLATE "C" NOT NULL,
	layer   text COLLATE "C" NOT NULL,
	segment text COLLATE "C" NOT NULL, -- that the run is kept to; empty: to none
	user_id text COLLATE "C" NOT NULL,
	run     text COLLATE "C" NOT NULL,
	attempt int NOT NULL,
	cluster text COLLATE "C" NOT NULL,
	counts  boolean NOT NULL,
	PRIMARY KEY (client, layer, user_id, run, attempt)
);
CREATE INDEX segment_clustered_of_user ON segment_clustered (client, user_id);
CREATE TABLE segment_acts (
	client  text COLLATE "C" NOT NULL,
	user_id text COLLATE "C" NOT NULL,
	what    text COLLATE "C" NOT NULL, -- a type of interactions, or a campaign that was seen
	newest  timestamptz NOT NULL,
	times   timestamptz[] NOT NULL,
	PRIMARY KEY (client, user_id, what)
);
CREATE INDEX segment_acts_old ON segment_acts (client, newest);`

// asked is what rules ask of users beside their traits.
type asked struct {
	any      bool
	acts     []string
	clusters []string
}

func (a *asked) by(r *rule.Rule) {
	a.acts, a.clusters = append(a.acts, r.Acts()...), append(a.clusters, r.Clusters()...)
	a.any = a.any || len(a.acts) > 0 || len(a.clusters) > 0 || len(r.Layers()) > 0
}

func consentIn(layer id.ConsentLayer) string { return "consent " + string(layer) }

func clustersOf(layer id.ConsentLayer) string { return "clusters " + string(layer) }

func act(what string) string { return "act " + what }

// note notes what the versions read. What one reads by way of others is not written down: segments
// that refer to all before them would have twice as much of it each.
func (c *segmented) note() {
	c.asked, c.readers, c.unnamed, c.set = asked{}, map[string][]*segmentVersion{}, true, rule.NewSet()
	c.refer = make([][]*segmentVersion, len(c.ordered))
	for _, v := range c.ordered {
		if v.rule != nil {
			v.inSet = c.set.Add(v.rule)
			c.asked.by(v.rule)
			c.unnamed = c.unnamed && !v.rule.ReadsExternalID()
		}
		c.asked.any = c.asked.any || v.layer != ""
		for _, what := range v.readsOf() {
			c.readers[what] = append(c.readers[what], v)
		}
		for _, to := range c.referredBy(v) {
			c.refer[to.place] = append(c.refer[to.place], v)
		}
	}
	c.wanted = c.wants(c.ordered)
}

// readsOf is what the rule of a version reads of a user.
func (v *segmentVersion) readsOf() []string {
	if v.reads != nil || v.rule == nil {
		return v.reads
	}
	v.reads = slices.Clip(v.rule.Touched())
	if v.layer != "" {
		v.reads = append(v.reads, consentIn(v.layer))
	}
	for _, layer := range v.rule.Layers() {
		v.reads = append(v.reads, consentIn(id.ConsentLayer(layer)))
	}
	for _, what := range v.rule.Acts() {
		v.reads = append(v.reads, act(what))
	}
	if len(v.rule.Clusters()) > 0 {
		v.reads = append(v.reads, clustersOf(v.layer))
	}
	return v.reads
}

// referredBy are the versions that one refers to, not those by way of others.
func (c *segmented) referredBy(v *segmentVersion) (found []*segmentVersion) {
	for _, segment := range v.refers {
		if to := c.referred(v, id.Segment(segment)); to != nil {
			found = append(found, to)
		}
	}
	return found
}

// reached are some versions, and those to which others lead from them, each once, by their places.
func (c *segmented) reached(some []*segmentVersion, others func(*segmentVersion) []*segmentVersion) []bool {
	is := make([]bool, len(c.ordered))
	for next := slices.Clone(some); len(next) > 0; {
		v := next[len(next)-1]
		if next = next[:len(next)-1]; !is[v.place] {
			is[v.place] = true
			next = append(next, others(v)...)
		}
	}
	return is
}

// wants are the members of the traits that some versions read, and those that they refer to; nil: all.
func (c *segmented) wants(some []*segmentVersion) func(member string) bool {
	var reads []string
	for place, is := range c.reached(some, c.referredBy) {
		if is {
			reads = append(reads, c.ordered[place].readsOf()...)
		}
	}
	return rule.Members(reads)
}

// segmentLayer is a consent layer, as far as rules stand in it.
type segmentLayer struct {
	paths   []string
	retired bool
}

const selectLayers = `SELECT id, trait_paths, retired FROM segment_layers WHERE client = $1`

func (c *segmented) loadLayers(ctx context.Context) error {
	c.layers = map[id.ConsentLayer]*segmentLayer{}
	rows, _ := c.tx.Query(ctx, selectLayers, string(c.client)) // what it fails with, its rows end with
	var layer id.ConsentLayer
	var l segmentLayer
	_, err := pgx.ForEachRow(rows, []any{readmodel.Text(&layer), &l.paths, &l.retired}, func() error {
		one := l
		c.layers[layer] = &one
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the layers of segments: %w", err)
	}
	return nil
}

// judges are versions of some that name anybody.
func (c *segmented) judges(numbers []int) func(*segmentVersion) bool {
	return func(v *segmentVersion) bool { return !v.isBlocked() && slices.Contains(numbers, v.number) }
}

// keys reads the keys of subjects of the client.
func (c *segmented) keys(ctx context.Context, subjects []string) (map[string]seal.WrappedKey, error) {
	rows, err := c.tx.Query(ctx, subjectKeys, string(c.client), subjects)
	if err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	found := map[string]seal.WrappedKey{}
	var subject string
	var key seal.WrappedKey
	_, err = pgx.ForEachRow(rows, []any{&subject, readmodel.Text(&key.ID), readmodel.Text(&key.Under), &key.Wrapped}, func() error {
		found[subject] = key
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	return found, nil
}

// referred is the version that another one means by a segment: the one that serves
// where it serves itself, else the newest.
func (c *segmented) referred(by *segmentVersion, segment id.Segment) *segmentVersion {
	if !by.serves {
		return c.newest[segment]
	}
	return c.served[segment]
}
