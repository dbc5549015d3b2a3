// Package segments is the read model of segments: users by rules, judged as events and time come.
package segments

import (
	"strings"

	"kindred/domain/id"
	"kindred/domain/rule"
	"kindred/eventstore/projector"
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
) WITH (fillfactor = 50);
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
