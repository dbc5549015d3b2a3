-- The end of the log when a chunk was first applied: a line that changes nothing
-- in what was then is not applied to what came since.
ALTER TABLE import_chunks ADD COLUMN begun text COLLATE "C";
