-- Clients that were deleted, whose rows a projection's leader still deletes, a slice at a time.
CREATE TABLE deletions (
	client     text COLLATE "C" NOT NULL,
	projection text NOT NULL,
	PRIMARY KEY (client, projection)
);
CREATE INDEX deletions_of ON deletions (projection);
