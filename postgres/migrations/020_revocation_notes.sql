-- When revocations came to be known here, which the log does not say and so their
-- read model cannot hold: who looks for what is new must also find what was noted
-- long after it happened.
CREATE TABLE revocation_notes (
	subject    text COLLATE "C" PRIMARY KEY,
	revoked_at timestamptz NOT NULL,
	noted_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX revocation_notes_recent ON revocation_notes (noted_at);
