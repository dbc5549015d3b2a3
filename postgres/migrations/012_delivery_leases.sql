-- Processes that deliver. Each counts up its beats; one whose count stands still
-- while another's goes on is dead, and what it holds is free. No clock is asked.
CREATE TABLE dispatch_workers (
	id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	beat bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
ALTER TABLE dispatch_queue ADD COLUMN holder bigint; -- whose claim was the last

-- Where the stream of a batch of ends stood before it was first recorded: a
-- repetition finds itself behind that, if at all.
ALTER TABLE dispatch_ending_batches ADD COLUMN after bigint;
