-- The users whose matches are to be computed automatically: process state, filled together with its checkpoint.
CREATE TABLE match_sweeps (
	client    text COLLATE "C" PRIMARY KEY,
	enabled   boolean NOT NULL,
	k         int NOT NULL,
	min_score double precision NOT NULL,
	turn      bigint NOT NULL DEFAULT 0, -- counts the turns; only the newest may write
	free_at   timestamptz NOT NULL DEFAULT '-infinity', -- when the next turn may begin
	began_at  timestamptz, -- of the sweep under way
	done      bigint NOT NULL DEFAULT 0, -- users of this sweep or the last
	recorded  bigint NOT NULL DEFAULT 0 -- matches of it
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
