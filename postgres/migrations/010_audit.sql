-- What proves the history of clients. Neither table loses a row: a head that
-- somebody kept must be verifiable for ever.

-- The newest key signs; all are published.
CREATE TABLE audit_keys (
	kid         text PRIMARY KEY COLLATE "C", -- RFC 7638 thumbprint
	public_jwk  bytea NOT NULL,
	sealed_seed bytea NOT NULL,
	created_at  timestamptz NOT NULL
);

-- Signed heads of the clients' Merkle trees.
CREATE TABLE audit_heads (
	client    text COLLATE "C" NOT NULL,
	size      bigint NOT NULL,
	root      bytea NOT NULL,
	signed_at timestamptz NOT NULL,
	jws       text NOT NULL,
	PRIMARY KEY (client, size)
);
