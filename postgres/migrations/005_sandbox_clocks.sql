-- How far a sandbox's clock is ahead of the machine's, in microseconds: by when its events
-- are said to have been recorded, less that, it is known when they really were.
ALTER TABLE dispatch_clients ADD COLUMN ahead_us bigint NOT NULL DEFAULT 0;
