-- Feeds as they were ranked, while their pages are read. What stands here can
-- be ranked anew at any time; nothing is lost with it but the place of readers.
CREATE TABLE feed_snapshots (
	client     text COLLATE "C" NOT NULL,
	id         bytea NOT NULL,
	items      bytea NOT NULL,  -- in order, each of the same length
	expires_at timestamptz NOT NULL,
	PRIMARY KEY (client, id)
);
ALTER TABLE feed_snapshots ALTER COLUMN items SET STORAGE EXTERNAL; -- ids do not compress
CREATE INDEX feed_snapshots_expires_at ON feed_snapshots (expires_at);
