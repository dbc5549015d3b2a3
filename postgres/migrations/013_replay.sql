-- How far a replay into this database has come: it begins as an empty one.
CREATE TABLE replay (
	source      text NOT NULL,                          -- the epoch of the log that is copied, or the client of an export
	position    text COLLATE "C" NOT NULL DEFAULT '',   -- there: everything up to it is copied
	events      bigint NOT NULL DEFAULT 0,
	finished_at timestamptz,                            -- NULL: nothing serves from it yet
	one         boolean PRIMARY KEY DEFAULT true CHECK (one)
);
