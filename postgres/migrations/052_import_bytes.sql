-- What of an import waits to be applied, as sealed.
ALTER TABLE imports ADD COLUMN waiting bigint NOT NULL DEFAULT 0;
UPDATE imports SET waiting = (SELECT coalesce(sum(length(body)), 0) FROM import_chunks WHERE import = id)
WHERE status IN ('receiving', 'pending', 'running');
