-- How far each follower of the log has come (package feed). A name is
-- "<read model>_<version>", the same with "_rebuild" while one is built beside
-- it, or the bare name of what is no read model.
CREATE TABLE checkpoints (
	name        text COLLATE "C" PRIMARY KEY,
	epoch       text NOT NULL,             -- which log it follows
	position    text COLLATE "C" NOT NULL, -- the last event that was applied; '' before the first
	event_id    text NOT NULL,             -- its id, to tell a restored log
	events      bigint NOT NULL,           -- how many were passed
	lease_epoch bigint NOT NULL,           -- the only leader that may write
	updated_at  timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- Who leads, on this database's clock. The epoch grows with each leader.
CREATE TABLE leases (
	name       text COLLATE "C" PRIMARY KEY,
	holder     text NOT NULL,
	epoch      bigint NOT NULL,
	expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Clients whose part of a projection stopped at an event that it cannot apply.
CREATE TABLE quarantine (
	projection text COLLATE "C" NOT NULL, -- a name of checkpoints
	client     text COLLATE "C" NOT NULL, -- '' for events that belong to no client
	position   text COLLATE "C" NOT NULL,
	event_id   text NOT NULL,
	reason     text NOT NULL,
	at         timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (projection, client)
);
