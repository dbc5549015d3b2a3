-- What a kindred keeps beside its read models, whose tables their projections make.
-- The functions that work on it stand in functions.sql.

-- The log: everything that happened. Whoever appends holds one advisory lock until its
-- commit is complete, so that positions have no gap and become visible in their order.

-- A position, as text that orders as the log does. Columns of read models that hold
-- positions are declared so: where two databases are compared, it is the events there
-- that have to be the same (package projector).
CREATE DOMAIN log_position AS text COLLATE "C";

CREATE TABLE log (
	epoch text NOT NULL,
	one   boolean PRIMARY KEY DEFAULT true CHECK (one)
);

CREATE TABLE events (
	position    bigint NOT NULL,
	client      text COLLATE "C" NOT NULL, -- '' for events that belong to no client
	stream      text COLLATE "C" NOT NULL,
	revision    bigint NOT NULL,
	event_id    uuid NOT NULL,
	type        text COLLATE "C" NOT NULL,
	version     integer NOT NULL,
	data        bytea NOT NULL,
	meta        bytea NOT NULL,
	recorded_at timestamptz NOT NULL,
	PRIMARY KEY (client, position)
);
CREATE INDEX events_position ON events (position); -- none stands twice: who appends holds the lock
-- That a stream has one event at a revision is kept by an index, so that the beginning
-- of a stream need not be looked for before it is written. A stream is found by a hash
-- of its name: an index of the names is four times as large. Two streams would have to
-- agree in 96 bits to be taken for one.
CREATE UNIQUE INDEX events_stream_once ON events (hashtextextended(stream, 0), revision, hashtext(stream));

-- The position of each client's last event, as text that orders as the log does.
CREATE TABLE heads (
	client   text COLLATE "C" PRIMARY KEY,
	position text COLLATE "C" NOT NULL
) WITH (fillfactor = 50);

-- How far a replay into this database has come: it begins as an empty one.
CREATE TABLE replay (
	source      text NOT NULL,                        -- the epoch of the log that is copied, or the client of an export
	position    text COLLATE "C" NOT NULL DEFAULT '', -- there: everything up to it is copied
	events      bigint NOT NULL DEFAULT 0,
	-- Where the log ends that was replayed: what it holds up to there was another's to
	-- deliver and to match, whenever it is applied.
	through     text COLLATE "C" NOT NULL DEFAULT '',
	finished_at timestamptz,                          -- NULL: nothing serves from it yet
	one         boolean PRIMARY KEY DEFAULT true CHECK (one)
);

-- The key hierarchy of package seal. No key stands here unwrapped: client keys and
-- peppers are wrapped under a master key that the database never sees. The empty client
-- is the service itself.

CREATE TABLE client_keys (
	client     text COLLATE "C" PRIMARY KEY,
	id         text NOT NULL,
	master     text NOT NULL,
	wrapped    bytea NOT NULL,
	created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE peppers (
	client     text COLLATE "C" PRIMARY KEY,
	id         text NOT NULL,
	master     text NOT NULL,
	wrapped    bytea NOT NULL,
	created_at timestamptz NOT NULL DEFAULT now()
);

-- A destroyed key stays as a tombstone, so that it is never made again. Any dead row is
-- enough for a vacuum, which overwrites the bytes of destroyed keys.
CREATE TABLE subject_keys (
	client       text COLLATE "C" NOT NULL,
	subject      text COLLATE "C" NOT NULL, -- a user, a member, a webhook or an import
	id           text NOT NULL,
	-- "<epoch>/<client key>", or the client key alone where there was no epoch yet. A
	-- tombstone keeps it until its epoch is over, and is empty then.
	client_key   text COLLATE "C" NOT NULL,
	wrapped      bytea,                     -- NULL: destroyed
	created_at   timestamptz NOT NULL DEFAULT now(),
	destroyed_at timestamptz,
	-- How a user is found by what its client calls it: a hash of that, keyed by the
	-- client's pepper, which keeps clients apart. It goes with an erasure, so that
	-- nothing that stays says who a random id was.
	lookup       bytea,
	-- The subject first, and every statement names both: with the client first, a join
	-- within one client may be planned to read all of its keys.
	PRIMARY KEY (subject, client),
	CHECK ((wrapped IS NULL) = (destroyed_at IS NOT NULL))
) WITH (autovacuum_vacuum_threshold = 0, autovacuum_vacuum_scale_factor = 0);
CREATE UNIQUE INDEX subject_keys_lookup ON subject_keys (client, lookup) WHERE lookup IS NOT NULL;
CREATE INDEX subject_keys_unfound ON subject_keys (subject, client) -- of whom it is yet to be made from the log
	WHERE lookup IS NULL AND wrapped IS NOT NULL AND left(subject, 4) = 'usr_';
CREATE INDEX subject_keys_epoch ON subject_keys (client_key);
CREATE INDEX subject_keys_destroyed ON subject_keys (client_key) WHERE wrapped IS NULL AND client_key <> '';

-- Epochs: the key of a subject is wrapped once more, under the key of an epoch, which
-- stands in a file and never here (package epochs). The directory of the files: whoever
-- sees another has other epochs.
CREATE TABLE epoch_directory (
	the_only boolean PRIMARY KEY DEFAULT true CHECK (the_only),
	id       text NOT NULL
);

CREATE TABLE epochs (
	id          text COLLATE "C" PRIMARY KEY,
	fingerprint bytea NOT NULL,            -- SHA-256 of id and key: whether a file holds this key
	keys        integer NOT NULL,          -- of subjects that it has a place for, of 4,096
	made_at     timestamptz NOT NULL DEFAULT now(),
	closing_at  timestamptz,               -- no more places are given away from then on
	retired_at  timestamptz                -- no key is under it, nor can be, from then on
);

-- What proves the history of clients. Neither table loses a row: a head that somebody
-- kept must be verifiable for ever.

-- The newest key signs; all are published.
CREATE TABLE audit_keys (
	kid         text PRIMARY KEY COLLATE "C", -- RFC 7638 thumbprint
	public_jwk  bytea NOT NULL,
	sealed_seed bytea NOT NULL,
	created_at  timestamptz NOT NULL
);

-- Signed heads of the clients' Merkle trees.
CREATE TABLE audit_heads (
	client    text COLLATE "C" NOT NULL,
	size      bigint NOT NULL,
	root      bytea NOT NULL,
	signed_at timestamptz NOT NULL,
	jws       text NOT NULL,
	PRIMARY KEY (client, size)
);

-- How far each follower of the log has come (package projector). A name is
-- "<read model>_<version>", the same with "_rebuild" while one is built beside it, or
-- the bare name of what is no read model.
CREATE TABLE checkpoints (
	name        text COLLATE "C" PRIMARY KEY,
	epoch       text NOT NULL,             -- which log it follows
	position    text COLLATE "C" NOT NULL, -- the last event that was applied; '' before the first
	event_id    text NOT NULL,             -- its id, to tell a restored log
	events      bigint NOT NULL,           -- how many were passed
	lease_epoch bigint NOT NULL,           -- the only leader that may write
	updated_at  timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- Who leads, on this database's clock. The epoch grows with each leader.
CREATE TABLE leases (
	name       text COLLATE "C" PRIMARY KEY,
	holder     text NOT NULL,
	epoch      bigint NOT NULL,
	expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Clients whose part of a projection stands still: at an event that it cannot apply, or
-- paused while the part is being replaced.
CREATE TABLE quarantine (
	projection text COLLATE "C" NOT NULL, -- a name of checkpoints
	client     text COLLATE "C" NOT NULL, -- '' for events that belong to no client
	position   text COLLATE "C" NOT NULL,
	event_id   text NOT NULL,
	reason     text NOT NULL,
	at         timestamptz NOT NULL DEFAULT now(),
	paused     boolean NOT NULL DEFAULT false, -- the leader passes its events over; the position is that of the part
	PRIMARY KEY (client, projection)
);
CREATE INDEX quarantine_projection ON quarantine (projection);

-- Events that a projection cannot apply. A client goes on without them; beyond a number
-- of them its part stops (table quarantine).
CREATE TABLE left_out (
	projection text COLLATE "C" NOT NULL, -- a name of checkpoints
	client     text COLLATE "C" NOT NULL, -- '' for events that belong to no client
	position   text COLLATE "C" NOT NULL,
	event_id   text NOT NULL,
	type       text NOT NULL,
	reason     text NOT NULL,
	at         timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (client, projection, position)
);
CREATE INDEX left_out_projection ON left_out (projection);

-- Rebuilds of one client's part of a read model that were asked for over the API,
-- carried out one after the other by whoever leads. Clients take turns.
CREATE TABLE rebuilds (
	client       text COLLATE "C" NOT NULL,
	id           text COLLATE "C" NOT NULL,
	model        text COLLATE "C" NOT NULL,
	requested_by text NOT NULL,
	requested_at timestamptz NOT NULL DEFAULT now(),
	phase        text NOT NULL DEFAULT 'waiting', -- waiting, building, replacing, done, failed
	done         bigint NOT NULL DEFAULT 0,       -- events
	total        bigint NOT NULL DEFAULT 0,       -- 0: not known yet
	rate         double precision NOT NULL DEFAULT 0, -- events per second
	seconds_left double precision NOT NULL DEFAULT 0,
	attempts     integer NOT NULL DEFAULT 0,
	error        text,
	tried_at     timestamptz NOT NULL DEFAULT now(),
	ended_at     timestamptz,
	PRIMARY KEY (client, id)
);
CREATE UNIQUE INDEX rebuilds_open ON rebuilds (client, model) WHERE ended_at IS NULL;
CREATE INDEX rebuilds_newest ON rebuilds (client, model, requested_at);
CREATE INDEX rebuilds_turns ON rebuilds (client, tried_at);

-- The keys that sign tokens. Whether a key is next, active or retiring follows from its
-- times; a row whose removed_at has passed is deleted by the next rotation.
CREATE TABLE signing_keys (
	kid                text PRIMARY KEY COLLATE "C", -- RFC 7638 thumbprint
	alg                text NOT NULL CHECK (alg IN ('ES256', 'EdDSA')),
	public_jwk         bytea NOT NULL,
	sealed_private_jwk bytea NOT NULL,
	created_at         timestamptz NOT NULL,
	activates_at       timestamptz NOT NULL, -- signs from then on
	retires_at         timestamptz,          -- a successor signs from then on
	removed_at         timestamptz,          -- not published, verifies nothing from then on
	CHECK ((retires_at IS NULL) = (removed_at IS NULL)),
	CHECK (activates_at <= retires_at AND retires_at <= removed_at)
);

-- When revocations came to be known here, which the log does not say and so their read
-- model cannot hold: who looks for what is new must also find what was noted long after
-- it happened. Every process polls them. Beyond a bound, a note stands for the client as
-- a whole, whose tokens are looked up one by one in the read model.
CREATE TABLE revocation_notes (
	client     text COLLATE "C" NOT NULL,
	subject    text COLLATE "C" NOT NULL,
	revoked_at timestamptz NOT NULL,
	noted_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
	PRIMARY KEY (client, subject)
);
CREATE INDEX revocation_notes_recent ON revocation_notes (noted_at);
CREATE INDEX revocation_notes_client ON revocation_notes (client, noted_at);

-- The hour in which an API key was last exchanged.
CREATE TABLE api_key_uses (
	client  text COLLATE "C" NOT NULL,
	key     text COLLATE "C" NOT NULL,
	used_at timestamptz      NOT NULL,
	PRIMARY KEY (client, key)
) WITH (fillfactor = 70);

-- When a session was last used, to 5 minutes.
CREATE TABLE session_uses (
	client  text COLLATE "C" NOT NULL,
	session text COLLATE "C" NOT NULL,
	seen_at timestamptz      NOT NULL,
	PRIMARY KEY (client, session)
);
CREATE INDEX session_uses_seen_at ON session_uses (seen_at);

-- Who keeps trying, counted over all processes. Subjects are keyed hashes. What a crash
-- loses is forgiven, so the log of the database does not hold it.
CREATE UNLOGGED TABLE throttles (
	subject  bytea PRIMARY KEY,
	attempts integer     NOT NULL,
	until    timestamptz NOT NULL -- the end of the pause, or the last attempt
);
CREATE INDEX throttles_until ON throttles (until);

-- Keys that callers sent to make their requests repeatable. Keys and bodies are kept as
-- keyed hashes only, answers not at all.
CREATE TABLE idempotency (
	client      text COLLATE "C" NOT NULL,
	route       text COLLATE "C" NOT NULL, -- method and path as in the contract
	key         bytea       NOT NULL,
	body        bytea       NOT NULL,
	done        boolean     NOT NULL DEFAULT false,
	holder      uuid        NOT NULL DEFAULT gen_random_uuid(), -- the request that carries it out
	lease_until timestamptz NOT NULL, -- then that is taken for dead
	created_at  timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (client, route, key)
);
CREATE INDEX idempotency_created_at ON idempotency (created_at);

-- Feeds as they were ranked, while their pages are read. What stands here can be ranked
-- anew at any time; nothing is lost with it but the place of readers.
CREATE TABLE feed_snapshots (
	client     text COLLATE "C" NOT NULL,
	id         bytea NOT NULL,
	items      bytea NOT NULL,  -- in order, each of the same length
	expires_at timestamptz NOT NULL,
	PRIMARY KEY (client, id)
);
ALTER TABLE feed_snapshots ALTER COLUMN items SET STORAGE EXTERNAL; -- ids do not compress
CREATE INDEX feed_snapshots_expires_at ON feed_snapshots (expires_at);

-- How far clustering runs under way have come. What they find is in the log; this is for
-- those who watch.
CREATE TABLE clustering_progress (
	client      text COLLATE "C" NOT NULL,
	run         text COLLATE "C" NOT NULL,
	phase       text             NOT NULL,
	share       double precision NOT NULL,  -- done, 0 to 1
	eta_seconds integer,                    -- NULL: not known yet
	updated_at  timestamptz      NOT NULL DEFAULT now(),
	PRIMARY KEY (client, run)
);

-- Automatic matching: process state, filled together with its checkpoint.

CREATE TABLE match_sweeps (
	client    text COLLATE "C" PRIMARY KEY,
	enabled   boolean NOT NULL,
	k         int NOT NULL,
	min_score double precision NOT NULL,
	batch     bigint NOT NULL DEFAULT 0, -- counts the batches; only the newest may write
	free_at   timestamptz NOT NULL DEFAULT '-infinity', -- when the next batch may begin
	began_at  timestamptz, -- of the sweep under way
	done      bigint NOT NULL DEFAULT 0, -- users of this sweep or the last
	recorded  bigint NOT NULL DEFAULT 0, -- matches of it
	-- Who was there before it was switched on is queued a page at a time, in order of
	-- the users' ids.
	everyone_before text COLLATE "C", -- position of the switch; NULL once all are queued
	everyone_after  text COLLATE "C" NOT NULL DEFAULT '', -- the last user that was queued
	everyone_event  text NOT NULL DEFAULT ''
);

CREATE TABLE match_queue (
	client   text COLLATE "C" NOT NULL,
	user_id  text COLLATE "C" NOT NULL,
	position text COLLATE "C" NOT NULL, -- of the newest event that calls for it
	event    text NOT NULL,
	attempts int NOT NULL DEFAULT 0,
	PRIMARY KEY (client, user_id)
);
CREATE INDEX match_queue_order ON match_queue (client, attempts, position);

-- Imports that were accepted and are applied behind the request: process state. What
-- they hold of people is sealed, and goes away as it is applied.

CREATE TABLE imports (
	client      text COLLATE "C" NOT NULL,
	id          text COLLATE "C" NOT NULL,
	accepted    bigint GENERATED ALWAYS AS IDENTITY, -- the order in which a client's imports are applied
	-- The end of the log when it was accepted: who was erased since is not brought back.
	log_end     text COLLATE "C" NOT NULL,
	status      text COLLATE "C" NOT NULL CHECK (status IN ('receiving', 'pending', 'running', 'completed', 'failed')),
	mode        text NOT NULL,
	actor       text NOT NULL,
	member      text NOT NULL,
	correlation text NOT NULL,
	-- Its lines are sealed with a key of its own, among those of subjects, which is
	-- destroyed at its end. keyed: the key stands, or may.
	keyed       boolean NOT NULL DEFAULT false,
	chunks      int NOT NULL DEFAULT 0,
	lines       bigint NOT NULL DEFAULT 0, -- of all chunks
	waiting     bigint NOT NULL DEFAULT 0, -- bytes that wait to be applied, as sealed
	applied     int NOT NULL DEFAULT 0,    -- chunks
	lines_done  bigint NOT NULL DEFAULT 0, -- of those
	attempts    int NOT NULL DEFAULT 0,    -- of the next chunk
	created     bigint NOT NULL DEFAULT 0,
	updated     bigint NOT NULL DEFAULT 0,
	failed      bigint NOT NULL DEFAULT 0,
	errors      text NOT NULL DEFAULT '[]', -- the first 1,000
	created_at  timestamptz NOT NULL DEFAULT now(),
	turn_at     timestamptz NOT NULL DEFAULT now(), -- whose turn was longest ago is next, and never before it
	ended_at    timestamptz,
	PRIMARY KEY (client, id)
);
CREATE INDEX imports_open ON imports (client, accepted) WHERE status IN ('receiving', 'pending', 'running');
CREATE INDEX imports_ended ON imports (ended_at);
CREATE INDEX imports_keyed ON imports (client, id) WHERE keyed;

CREATE TABLE import_chunks (
	client text COLLATE "C" NOT NULL,
	import text COLLATE "C" NOT NULL,
	chunk  int NOT NULL,
	lines  bigint NOT NULL,
	body   bytea NOT NULL, -- whole lines, sealed
	-- The end of the log when it was first applied: a line that changes nothing in what
	-- was then is not applied to what came since.
	begun  text COLLATE "C",
	PRIMARY KEY (client, import, chunk),
	FOREIGN KEY (client, import) REFERENCES imports ON DELETE CASCADE
);

-- Who was erased since an import was accepted: what found the user by its external id is
-- forgotten with it, and the import must not bring it back. Kept to the import's end.
CREATE TABLE import_erasures (
	client text COLLATE "C" NOT NULL,
	import text COLLATE "C" NOT NULL,
	lookup bytea NOT NULL, -- what subject_keys.lookup was
	PRIMARY KEY (client, import, lookup),
	FOREIGN KEY (client, import) REFERENCES imports ON DELETE CASCADE
);

-- The webhook dispatcher: its own copy of the subscriptions, the queue of what is still
-- to be delivered, and the log of what was.

-- Processes that deliver. Each counts up its heartbeats; one whose count stands still while
-- another's goes on is dead, and what it holds is free. No clock is asked.
CREATE TABLE dispatch_workers (
	id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	heartbeats bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- Clients that chose how deliveries name users, or that sign with key pairs, as of the last
-- event that the dispatcher has applied.
CREATE TABLE dispatch_clients (
	client       text COLLATE "C" PRIMARY KEY,
	external_ids boolean NOT NULL DEFAULT false,
	keys         jsonb NOT NULL DEFAULT '[]' -- pairs, with the private one sealed; the newest first
);

-- A subscription as it is after the last event that the dispatcher has applied.
CREATE TABLE dispatch_endpoints (
	client            text COLLATE "C" NOT NULL,
	webhook           text COLLATE "C" NOT NULL,
	url               text NOT NULL,           -- in the clear, as events of old have it; empty where sealed_url is
	sealed_url        jsonb,                   -- where it was sealed, and the box
	event_types       text[] NOT NULL,
	state             text NOT NULL CHECK (state IN ('active', 'paused', 'removed')),
	secrets           jsonb NOT NULL DEFAULT '[]',  -- sealed; the newest first
	headers           jsonb,                   -- its own headers: where they were sealed, and the box; null: none
	respect_retry_after   boolean NOT NULL DEFAULT false,
	disable_after_seconds integer NOT NULL DEFAULT 0, -- of failing, until it is paused; 0: never
	max_per_second    integer NOT NULL DEFAULT 0, -- attempts; 0: no bound
	ordered           boolean NOT NULL DEFAULT false,
	ed25519           boolean NOT NULL DEFAULT false, -- the client's key pairs sign, too
	owner             bigint,                  -- the worker that alone claims, where either of those two is chosen
	held_until        timestamptz,             -- nothing is claimed until then: its receiver asked for it
	-- What is queued of events before this position was cancelled: the place of
	-- the last pause or removal in the log. Pausing costs one row, however much waits.
	cancelled_through text COLLATE "C" NOT NULL DEFAULT '',
	sweeping          boolean NOT NULL DEFAULT false, -- retries that wait are still to be cancelled
	skipped           bigint NOT NULL DEFAULT 0,      -- events that occurred while it was paused
	changed_at        timestamptz NOT NULL,
	PRIMARY KEY (client, webhook)
);
CREATE INDEX dispatch_endpoints_client ON dispatch_endpoints (client) WHERE state <> 'removed';
CREATE INDEX dispatch_endpoints_sweeping ON dispatch_endpoints (client, webhook) WHERE sweeping;
CREATE INDEX dispatch_endpoints_removed ON dispatch_endpoints (changed_at) WHERE state = 'removed';

-- How a subscription's receiver answers; written every second or so.
CREATE TABLE dispatch_health (
	client          text COLLATE "C" NOT NULL,
	webhook         text COLLATE "C" NOT NULL,
	last_success_at timestamptz,
	last_failure_at timestamptz,
	failing_since   timestamptz, -- null while the last answer was accepted
	PRIMARY KEY (client, webhook)
) WITH (fillfactor = 50);
CREATE INDEX dispatch_health_failing ON dispatch_health (failing_since) WHERE failing_since IS NOT NULL;

-- What is still to be delivered. The id of a delivery follows from its event and its
-- webhook, so the primary key queues each pair once. Rows leave when they end.
--
-- A claim never searches: it is given webhooks, and takes the first few entries of each
-- from one of two indexes. What has never failed stands in the order in which it was
-- made, the rest by the time at which it is due; a claim reads past what is held just
-- now, which the slots of an endpoint bound. What a claim changes stands in no index, so
-- it rewrites a row within its page and leaves the indexes alone. Which webhooks have
-- work is read from the same indexes, one probe per webhook.
CREATE TABLE dispatch_queue (
	client        text COLLATE "C" NOT NULL,
	delivery      text COLLATE "C" NOT NULL,
	webhook       text COLLATE "C" NOT NULL,
	-- The order in which they were queued: claims and lists keep to it. A delivery made
	-- by hand stands at the subscription's last pause in the log, so that only a later
	-- one cancels it.
	made          bigint GENERATED ALWAYS AS IDENTITY,
	event         text COLLATE "C" NOT NULL,
	position      text COLLATE "C" NOT NULL,          -- of the event in the log
	event_type    text NOT NULL,
	body          bytea NOT NULL,                     -- the bytes that are sent and signed, at every attempt
	occurred_at   timestamptz NOT NULL,               -- when the event was recorded
	queued_at     timestamptz NOT NULL DEFAULT now(),
	test          boolean NOT NULL DEFAULT false,
	redelivery_of text COLLATE "C",                   -- the delivery that this one repeats
	external_ids  boolean NOT NULL DEFAULT false,     -- users are named by their client's ids, when it is sent
	failed        integer NOT NULL DEFAULT 0,         -- attempts that have failed
	token         integer NOT NULL DEFAULT 0,         -- counts claims; only the last claim may complete
	holder        bigint,                             -- whose claim was the last
	leased_until  timestamptz,                        -- null while nobody holds it
	due_at        timestamptz NOT NULL DEFAULT now(), -- when it may be claimed: the schedule's time, or the lease's end
	PRIMARY KEY (client, delivery)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX dispatch_queue_fresh ON dispatch_queue (webhook, made) WHERE failed = 0;
CREATE INDEX dispatch_queue_due ON dispatch_queue (webhook, due_at) WHERE failed > 0;
-- For lists alone: its condition is one that no claim states, so none is ever planned with it.
CREATE INDEX dispatch_queue_tried ON dispatch_queue (client, webhook, made) WHERE abs(failed) > 0;
-- How many tests a client has sent of late is counted before another is sent.
CREATE INDEX dispatch_queue_tests ON dispatch_queue (client, queued_at) WHERE test;

-- Deliveries that have ended, and every attempt. Both are partitioned by day; the
-- dispatcher makes partitions ahead and drops those past their retention.
CREATE TABLE dispatch_deliveries (
	delivery      text COLLATE "C" NOT NULL,
	client        text COLLATE "C" NOT NULL,
	webhook       text COLLATE "C" NOT NULL,
	made          bigint NOT NULL,
	event         text COLLATE "C" NOT NULL,
	event_type    text NOT NULL,
	body          bytea NOT NULL,
	occurred_at   timestamptz NOT NULL,
	queued_at     timestamptz NOT NULL,
	test          boolean NOT NULL,
	redelivery_of text COLLATE "C",
	external_ids  boolean NOT NULL DEFAULT false,
	attempts      integer NOT NULL,
	state         text NOT NULL CHECK (state IN ('delivered', 'dropped', 'cancelled')),
	recovered     boolean NOT NULL DEFAULT false, -- it did not arrive, and was queued again
	ended_at      timestamptz NOT NULL
) PARTITION BY RANGE (ended_at);
CREATE INDEX ON dispatch_deliveries (client, delivery);
CREATE INDEX dispatch_deliveries_listed ON dispatch_deliveries (client, webhook, made);
CREATE INDEX dispatch_deliveries_failed ON dispatch_deliveries (client, webhook, made) WHERE state <> 'delivered';
CREATE INDEX dispatch_deliveries_recoverable ON dispatch_deliveries (client, webhook, occurred_at)
	WHERE state <> 'delivered' AND NOT recovered AND NOT test;
CREATE INDEX dispatch_deliveries_tests ON dispatch_deliveries (client, queued_at) WHERE test;

CREATE TABLE dispatch_attempts (
	client     text COLLATE "C" NOT NULL,
	delivery   text COLLATE "C" NOT NULL,
	attempt    integer NOT NULL,  -- 1 is the first
	at         timestamptz NOT NULL,
	latency_us bigint NOT NULL,
	status     integer,           -- of the answer; null where there was none
	error      text,              -- null where it was accepted
	answer     bytea              -- the first 4 KiB of the answer's body
) PARTITION BY RANGE (at);
CREATE INDEX ON dispatch_attempts (client, delivery, at);

-- Ends that are still to be recorded in the log. They are moved into batches first, so
-- that a batch that is recorded again after a crash is the same one.
CREATE TABLE dispatch_endings (
	client   text COLLATE "C" NOT NULL,
	id       bigint GENERATED ALWAYS AS IDENTITY,
	webhook  text COLLATE "C" NOT NULL,
	delivery text COLLATE "C" NOT NULL,
	event    text COLLATE "C" NOT NULL,
	state    text NOT NULL,
	attempts integer NOT NULL,
	ended_at timestamptz NOT NULL,
	PRIMARY KEY (client, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE INDEX dispatch_endings_order ON dispatch_endings (id);

CREATE TABLE dispatch_ending_batches (
	client  text COLLATE "C" NOT NULL,
	id      bigint GENERATED ALWAYS AS IDENTITY,
	webhook text COLLATE "C" NOT NULL,
	day     date NOT NULL,
	-- Where the stream stood before the batch was first recorded: a repetition finds
	-- itself behind that, if at all.
	after   bigint,
	endings text NOT NULL, -- JSON
	PRIMARY KEY (client, id)
);
CREATE INDEX dispatch_ending_batches_order ON dispatch_ending_batches (id);

-- Recoveries under an Idempotency-Key, so that a repetition goes on where the first
-- request stopped, and gets its answer.
CREATE TABLE dispatch_recoveries (
	client    text COLLATE "C" NOT NULL,
	request   text COLLATE "C" NOT NULL,
	recovered integer NOT NULL DEFAULT 0,
	more      boolean NOT NULL DEFAULT false,
	done      boolean NOT NULL DEFAULT false,
	at        timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (client, request)
);
