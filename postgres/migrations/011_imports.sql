-- Imports that were accepted and are applied behind the request: process state. What they hold of people is sealed, and
-- goes away as it is applied.
CREATE TABLE imports (
	id          text PRIMARY KEY COLLATE "C",
	client      text COLLATE "C" NOT NULL,
	accepted    bigint GENERATED ALWAYS AS IDENTITY, -- the order in which a client's imports are applied
	status      text COLLATE "C" NOT NULL CHECK (status IN ('receiving', 'pending', 'running', 'completed', 'failed')),
	mode        text NOT NULL,
	actor       text NOT NULL,
	member      text NOT NULL,
	correlation text NOT NULL,
	chunks      int NOT NULL DEFAULT 0,
	lines       bigint NOT NULL DEFAULT 0, -- of all chunks
	applied     int NOT NULL DEFAULT 0,    -- chunks
	lines_done  bigint NOT NULL DEFAULT 0, -- of those
	attempts    int NOT NULL DEFAULT 0,    -- of the next chunk
	created     bigint NOT NULL DEFAULT 0,
	updated     bigint NOT NULL DEFAULT 0,
	failed      bigint NOT NULL DEFAULT 0,
	errors      text NOT NULL DEFAULT '[]', -- the first 1,000
	created_at  timestamptz NOT NULL DEFAULT now(),
	turn_at     timestamptz NOT NULL DEFAULT now(), -- whose turn was longest ago is next, and never before it
	ended_at    timestamptz
);
CREATE INDEX imports_open ON imports (client, accepted) WHERE status IN ('receiving', 'pending', 'running');
CREATE INDEX imports_ended ON imports (ended_at);

CREATE TABLE import_chunks (
	import text COLLATE "C" NOT NULL REFERENCES imports ON DELETE CASCADE,
	chunk  int NOT NULL,
	lines  bigint NOT NULL,
	body   bytea NOT NULL, -- whole lines, sealed
	PRIMARY KEY (import, chunk)
);
