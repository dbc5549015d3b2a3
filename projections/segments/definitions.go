package segments

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/id"
	"kindred/domain/rule"
	"kindred/eventstore"
	"kindred/eventstore/projector"
	"kindred/eventstore/seal"
	"kindred/projections/readmodel"
)

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
	redefined   bool              // by this transaction
	made        bool              // versions, since what follows from them was derived
	builds      bool              // it judges by versions that do not serve yet, and not by others
	building    []*segmentVersion // where it builds: those of the next slice
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
// by versions that do not serve yet, and by no others, so it need not parse these. It fails with
// pgx.ErrNoRows where there is no such client.
func (m Model) lock(ctx context.Context, tx pgx.Tx, client id.Client, spend projector.Spend, builds bool) (*segmented, error) {
	c := &segmented{Model: m, tx: tx, client: client, spend: spend, builds: builds}
	lock := func() error {
		return tx.QueryRow(ctx, lockSegmented, string(client)).Scan(&c.now, &c.users, &c.next, readmodel.Text(&c.folded), &c.folds, &c.foldedUsers, &c.foldIn, readmodel.Document(&c.decided), &c.by.events, readmodel.Text(&c.by.event))
	}
	err := lock()
	if errors.Is(err, pgx.ErrNoRows) && !builds {
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

// each reads what a statement finds of the client, $1, row by row into columns, and calls do after each.
func (c *segmented) each(ctx context.Context, what string, columns []any, do func(), sql string, args ...any) error {
	rows, _ := c.tx.Query(ctx, sql, append([]any{string(c.client)}, args...)...) // what it fails with, its rows end with
	if _, err := pgx.ForEachRow(rows, columns, func() error { do(); return nil }); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// load reads the versions and their rules.
func (c *segmented) load(ctx context.Context) error {
	c.versions = map[int]*segmentVersion{}
	var v segmentVersion
	columns := []any{&v.number, readmodel.Text(&v.segment), &v.generation, &v.sealed.Box, readmodel.Text(&v.sealed.Event), &v.refers, &v.serves, &v.built, readmodel.Text(&v.layer), &v.blocked}
	if err := c.each(ctx, "read versions of segments", columns, func() {
		one := v
		c.versions[v.number] = &one
	}, selectVersions); err != nil {
		return err
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
		c.building = c.toBuild()
		some = c.building
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
	var layer id.ConsentLayer
	var l segmentLayer
	return c.each(ctx, "read the layers of segments", []any{readmodel.Text(&layer), &l.paths, &l.retired}, func() {
		one := l
		c.layers[layer] = &one
	}, selectLayers)
}

// judges are versions of some that name anybody.
func (c *segmented) judges(numbers []int) func(*segmentVersion) bool {
	return func(v *segmentVersion) bool { return !v.isBlocked() && slices.Contains(numbers, v.number) }
}

// keys reads the keys of subjects of the client.
func (c *segmented) keys(ctx context.Context, subjects []string) (map[string]seal.WrappedKey, error) {
	found := map[string]seal.WrappedKey{}
	var subject string
	var key seal.WrappedKey
	columns := []any{&subject, readmodel.Text(&key.ID), readmodel.Text(&key.Under), &key.Wrapped}
	err := c.each(ctx, "read keys", columns, func() { found[subject] = key }, subjectKeys, subjects)
	return found, err
}

// referred is the version that another one means by a segment: the one that serves
// where it serves itself, else the newest.
func (c *segmented) referred(by *segmentVersion, segment id.Segment) *segmentVersion {
	if !by.serves {
		return c.newest[segment]
	}
	return c.served[segment]
}
