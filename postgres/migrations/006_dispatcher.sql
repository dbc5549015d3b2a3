-- The webhook dispatcher: its own copy of the subscriptions, the queue of what
-- is still to be delivered, and the log of what was.

-- A subscription as it is after the last event that the dispatcher has applied.
CREATE TABLE dispatch_endpoints (
	webhook           text COLLATE "C" PRIMARY KEY,
	client            text COLLATE "C" NOT NULL,
	url               text NOT NULL,
	event_types       text[] NOT NULL,
	state             text NOT NULL CHECK (state IN ('active', 'paused', 'removed')),
	secrets           jsonb NOT NULL DEFAULT '[]',  -- sealed; the newest first
	-- What is queued of events before this position was cancelled: the place of
	-- the last pause or removal in the log. Pausing costs one row, however much waits.
	cancelled_through text COLLATE "C" NOT NULL DEFAULT '',
	sweeping          boolean NOT NULL DEFAULT false, -- retries that wait are still to be cancelled
	skipped           bigint NOT NULL DEFAULT 0,      -- events that occurred while it was paused
	changed_at        timestamptz NOT NULL
);
CREATE INDEX dispatch_endpoints_client ON dispatch_endpoints (client) WHERE state <> 'removed';
CREATE INDEX dispatch_endpoints_sweeping ON dispatch_endpoints (webhook) WHERE sweeping;
CREATE INDEX dispatch_endpoints_removed ON dispatch_endpoints (changed_at) WHERE state = 'removed';

-- What is still to be delivered. The id of a delivery follows from its event and
-- its webhook, so the primary key queues each pair once. Rows leave when they end.
--
-- A claim never searches: it is given webhooks, and takes the first few entries
-- of each from one of two indexes. Rows that were never claimed (token 0) stand in
-- the order of the log, so all of them are ready; rows that were stand by the time
-- they are due, so the ready ones come first. Neither index holds an entry that a
-- claim would have to read past, so its cost does not depend on the queue's length.
-- Which webhooks have work is read from the same indexes, one probe per webhook.
CREATE TABLE dispatch_queue (
	delivery    text COLLATE "C" PRIMARY KEY,
	client      text COLLATE "C" NOT NULL,
	webhook     text COLLATE "C" NOT NULL,
	event       text COLLATE "C" NOT NULL,
	position    text COLLATE "C" NOT NULL,          -- of the event in the log
	event_type  text NOT NULL,
	body        bytea NOT NULL,                     -- the bytes that are sent and signed, at every attempt
	occurred_at timestamptz NOT NULL,               -- when the event was recorded
	queued_at   timestamptz NOT NULL DEFAULT now(),
	test        boolean NOT NULL DEFAULT false,
	failed      integer NOT NULL DEFAULT 0,         -- attempts that have failed
	token       integer NOT NULL DEFAULT 0,         -- counts claims; only the last claim may complete
	leased      boolean NOT NULL DEFAULT false,
	due_at      timestamptz NOT NULL DEFAULT now()  -- when it may be claimed: the schedule's time, or the lease's end
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX dispatch_queue_fresh ON dispatch_queue (webhook, position) WHERE token = 0;
CREATE INDEX dispatch_queue_due ON dispatch_queue (webhook, due_at) WHERE token > 0;

-- Deliveries that have ended, and every attempt. Both are partitioned by day; the
-- dispatcher makes partitions ahead and drops those past their retention.
CREATE TABLE dispatch_deliveries (
	delivery    text COLLATE "C" NOT NULL,
	client      text COLLATE "C" NOT NULL,
	webhook     text COLLATE "C" NOT NULL,
	event       text COLLATE "C" NOT NULL,
	event_type  text NOT NULL,
	body        bytea NOT NULL,
	occurred_at timestamptz NOT NULL,
	queued_at   timestamptz NOT NULL,
	test        boolean NOT NULL,
	attempts    integer NOT NULL,
	state       text NOT NULL CHECK (state IN ('delivered', 'dropped', 'cancelled')),
	ended_at    timestamptz NOT NULL
) PARTITION BY RANGE (ended_at);
CREATE INDEX ON dispatch_deliveries (delivery);
CREATE INDEX ON dispatch_deliveries (client, webhook, ended_at);
CREATE INDEX ON dispatch_deliveries (client, webhook, occurred_at) WHERE state <> 'delivered';

CREATE TABLE dispatch_attempts (
	delivery   text COLLATE "C" NOT NULL,
	attempt    integer NOT NULL,  -- 1 is the first
	at         timestamptz NOT NULL,
	latency_us bigint NOT NULL,
	status     integer,           -- of the answer; null where there was none
	error      text,              -- null where it was accepted
	answer     bytea              -- the first 4 KiB of the answer's body
) PARTITION BY RANGE (at);
CREATE INDEX ON dispatch_attempts (delivery, at);
