-- The key hierarchy of package seal. No key stands here unwrapped: client keys
-- and peppers are wrapped under a master key that the database never sees.
-- The empty client is the service itself.
CREATE TABLE client_keys (
	client     text COLLATE "C" PRIMARY KEY,
	id         text NOT NULL,
	master     text NOT NULL,
	wrapped    bytea NOT NULL,
	created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE peppers (
	client     text COLLATE "C" PRIMARY KEY,
	id         text NOT NULL,
	master     text NOT NULL,
	wrapped    bytea NOT NULL,
	created_at timestamptz NOT NULL DEFAULT now()
);

-- A destroyed key stays as a tombstone, so that it is never made again. The
-- table is vacuumed as soon as there is anything to vacuum, which overwrites
-- the bytes of destroyed keys.
CREATE TABLE subject_keys (
	client       text COLLATE "C" NOT NULL,
	subject      text COLLATE "C" NOT NULL, -- a user, a member or a webhook
	id           text NOT NULL,
	client_key   text NOT NULL,
	wrapped      bytea,                     -- NULL: destroyed
	created_at   timestamptz NOT NULL DEFAULT now(),
	destroyed_at timestamptz,
	PRIMARY KEY (subject, client), -- the subject first: a join stays cheap before there are statistics
	CHECK ((wrapped IS NULL) = (destroyed_at IS NOT NULL))
) WITH (autovacuum_vacuum_threshold = 1, autovacuum_vacuum_scale_factor = 0);
