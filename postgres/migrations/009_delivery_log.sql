-- What clients see of deliveries, and what they ask for by hand.

-- made counts deliveries in the order in which they were queued: claims and
-- lists keep to it. A delivery made by hand stands at the subscription's last
-- pause in the log, so that only a later one cancels it.
DROP INDEX dispatch_queue_fresh;
ALTER TABLE dispatch_queue
	ADD COLUMN made          bigint GENERATED ALWAYS AS IDENTITY,
	ADD COLUMN redelivery_of text COLLATE "C",              -- the delivery that this one repeats
	ADD COLUMN external_ids  boolean NOT NULL DEFAULT false; -- users are named by their client's ids, when it is sent
CREATE INDEX dispatch_queue_fresh ON dispatch_queue (webhook, made) WHERE token = 0;
-- For lists alone: its condition is one that no claim states, so none is ever planned with it.
CREATE INDEX dispatch_queue_tried ON dispatch_queue (client, webhook, made) WHERE abs(token) > 0;

DROP INDEX dispatch_deliveries_client_webhook_ended_at_idx;
DROP INDEX dispatch_deliveries_client_webhook_occurred_at_idx;
ALTER TABLE dispatch_deliveries
	ADD COLUMN made          bigint NOT NULL DEFAULT 0,
	ADD COLUMN redelivery_of text COLLATE "C",
	ADD COLUMN external_ids  boolean NOT NULL DEFAULT false,
	ADD COLUMN recovered     boolean NOT NULL DEFAULT false; -- it did not arrive, and was queued again
CREATE INDEX dispatch_deliveries_listed ON dispatch_deliveries (client, webhook, made);
CREATE INDEX dispatch_deliveries_failed ON dispatch_deliveries (client, webhook, made) WHERE state <> 'delivered';
CREATE INDEX dispatch_deliveries_recoverable ON dispatch_deliveries (client, webhook, occurred_at)
	WHERE state <> 'delivered' AND NOT recovered AND NOT test;

-- Ends that are still to be recorded in the log. They are moved into batches
-- first, so that a batch that is recorded again after a crash is the same one.
CREATE TABLE dispatch_endings (
	id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	client   text COLLATE "C" NOT NULL,
	webhook  text COLLATE "C" NOT NULL,
	delivery text COLLATE "C" NOT NULL,
	event    text COLLATE "C" NOT NULL,
	state    text NOT NULL,
	attempts integer NOT NULL,
	ended_at timestamptz NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE TABLE dispatch_ending_batches (
	id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	client  text COLLATE "C" NOT NULL,
	webhook text COLLATE "C" NOT NULL,
	day     date NOT NULL,
	endings text NOT NULL -- JSON
);

-- Clients that chose how deliveries name users, as of the last event that the
-- dispatcher has applied.
CREATE TABLE dispatch_clients (
	client       text COLLATE "C" PRIMARY KEY,
	external_ids boolean NOT NULL
);

-- How a subscription's receiver answers; written every second or so.
CREATE TABLE dispatch_health (
	webhook         text COLLATE "C" PRIMARY KEY,
	last_success_at timestamptz,
	last_failure_at timestamptz,
	failing_since   timestamptz -- null while the last answer was accepted
) WITH (fillfactor = 50);
CREATE INDEX dispatch_health_failing ON dispatch_health (failing_since) WHERE failing_since IS NOT NULL;

-- Recoveries under an Idempotency-Key, so that a repetition goes on where the
-- first request stopped, and gets its answer.
CREATE TABLE dispatch_recoveries (
	client    text COLLATE "C" NOT NULL,
	request   text COLLATE "C" NOT NULL,
	recovered integer NOT NULL DEFAULT 0,
	more      boolean NOT NULL DEFAULT false,
	done      boolean NOT NULL DEFAULT false,
	at        timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (client, request)
);
