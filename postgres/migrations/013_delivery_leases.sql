-- Processes that deliver. Each counts up its beats; one whose count stands still
-- while another's goes on is dead, and what it holds is free. No clock is asked.
CREATE TABLE dispatch_workers (
	id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	beat bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- What a claim changes stands in no index, so it rewrites a row within its page
-- and leaves the indexes alone. What has never failed stands in the order in
-- which it was made, the rest by the time at which it is due; a claim reads past
-- what is held just now, which the slots of an endpoint bound.
ALTER TABLE dispatch_queue
	ADD COLUMN holder       bigint,      -- whose claim was the last
	ADD COLUMN leased_until timestamptz; -- null while nobody holds it
UPDATE dispatch_queue SET leased_until = due_at WHERE leased;
ALTER TABLE dispatch_queue DROP COLUMN leased;
ALTER TABLE dispatch_queue SET (fillfactor = 60);
DROP INDEX dispatch_queue_fresh, dispatch_queue_due, dispatch_queue_tried;
CREATE INDEX dispatch_queue_fresh ON dispatch_queue (webhook, made) WHERE failed = 0;
CREATE INDEX dispatch_queue_due ON dispatch_queue (webhook, due_at) WHERE failed > 0;
-- For lists alone: its condition is one that no claim states, so none is ever planned with it.
CREATE INDEX dispatch_queue_tried ON dispatch_queue (client, webhook, made) WHERE abs(failed) > 0;

-- Where the stream of a batch of ends stood before it was first recorded: a
-- repetition finds itself behind that, if at all.
ALTER TABLE dispatch_ending_batches ADD COLUMN after bigint;
