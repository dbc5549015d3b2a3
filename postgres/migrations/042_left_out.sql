-- Events that a projection cannot apply. A client goes on without them; beyond
-- a number of them its part stops (table quarantine).
CREATE TABLE left_out (
	projection text COLLATE "C" NOT NULL, -- a name of checkpoints
	client     text COLLATE "C" NOT NULL, -- '' for events that belong to no client
	position   text COLLATE "C" NOT NULL,
	event_id   text NOT NULL,
	type       text NOT NULL,
	reason     text NOT NULL,
	at         timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (projection, client, position)
);
