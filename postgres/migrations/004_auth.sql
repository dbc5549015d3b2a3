-- The keys that sign tokens. Whether a key is next, active or retiring follows
-- from its times; a row whose removed_at has passed is deleted by the next rotation.
CREATE TABLE signing_keys (
	kid                text PRIMARY KEY COLLATE "C", -- RFC 7638 thumbprint
	alg                text NOT NULL CHECK (alg IN ('ES256', 'EdDSA')),
	public_jwk         bytea NOT NULL,
	sealed_private_jwk bytea NOT NULL,
	created_at         timestamptz NOT NULL,
	activates_at       timestamptz NOT NULL, -- signs from then on
	retires_at         timestamptz,          -- a successor signs from then on
	removed_at         timestamptz,          -- not published, verifies nothing from then on
	CHECK ((retires_at IS NULL) = (removed_at IS NULL)),
	CHECK (activates_at <= retires_at AND retires_at <= removed_at)
);
