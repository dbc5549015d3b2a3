-- A client whose part of a read model is being replaced is held: the leader
-- passes the client's events over, and the position is that of the part.
ALTER TABLE quarantine ADD COLUMN held boolean NOT NULL DEFAULT false;

-- Rebuilds of one client's part of a read model that were asked for over the
-- API, carried out one after the other by whoever leads.
CREATE TABLE rebuilds (
	id           text COLLATE "C" PRIMARY KEY,
	client       text COLLATE "C" NOT NULL,
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
	ended_at     timestamptz
);
CREATE UNIQUE INDEX rebuilds_open ON rebuilds (client, model) WHERE ended_at IS NULL;
CREATE INDEX rebuilds_newest ON rebuilds (client, model, requested_at);
