-- What waits to be done behind requests: a row for each client and kind of work, for as
-- long as there is some. What there is to do stands in tables of its own.
CREATE TABLE jobs (
	client   text COLLATE "C" NOT NULL,
	kind     text COLLATE "C" NOT NULL, -- imports, rebuilds, matches
	due_at   timestamptz NOT NULL DEFAULT now(), -- whose turn was longest ago is next, and never before it
	attempts int NOT NULL DEFAULT 0,    -- since something went well
	handed   bigint NOT NULL DEFAULT 0, -- counts the turns; only the newest may write
	asked    bigint NOT NULL DEFAULT 0, -- counts what was asked for: a turn that saw less of it leaves the row
	PRIMARY KEY (client, kind)
);
CREATE INDEX jobs_due ON jobs (kind, due_at);

INSERT INTO jobs (client, kind)
SELECT DISTINCT client, 'imports' FROM imports WHERE status IN ('pending', 'running')
UNION ALL SELECT DISTINCT client, 'rebuilds' FROM rebuilds WHERE ended_at IS NULL
UNION ALL SELECT client, 'matches' FROM match_sweeps s
	WHERE enabled AND (everyone_before IS NOT NULL OR EXISTS (SELECT FROM match_queue q WHERE q.client = s.client));

ALTER TABLE imports DROP COLUMN attempts;
ALTER TABLE imports RENAME COLUMN turn_at TO received_at; -- the last of its chunks
ALTER TABLE rebuilds DROP COLUMN attempts;
DROP INDEX rebuilds_turns;
CREATE INDEX rebuilds_ended ON rebuilds (ended_at);
ALTER TABLE match_sweeps DROP COLUMN batch, DROP COLUMN free_at;
