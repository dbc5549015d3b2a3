-- Keys that callers sent to make their requests repeatable. Keys and bodies are
-- kept as keyed hashes only, answers not at all.
CREATE TABLE idempotency (
    client      text COLLATE "C" NOT NULL,
    route       text COLLATE "C" NOT NULL,  -- method and path as in the contract
    key         bytea            NOT NULL,
    body        bytea            NOT NULL,
    done        boolean          NOT NULL DEFAULT false,
    holder      uuid             NOT NULL DEFAULT gen_random_uuid(),  -- who runs it
    lease_until timestamptz      NOT NULL,  -- then, whoever ran it is taken for dead
    created_at  timestamptz      NOT NULL DEFAULT now(),
    PRIMARY KEY (client, route, key)
);

CREATE INDEX idempotency_created_at ON idempotency (created_at);
