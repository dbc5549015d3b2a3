-- Epochs: the key of a subject is wrapped once more, under the key of an epoch,
-- which stands in a file and never here (package epochs). subject_keys.client_key is
-- "<epoch>/<client key>", or the client key alone where there is no epoch yet. A
-- tombstone keeps it until its epoch is over, and is empty then.
ALTER TABLE subject_keys ALTER COLUMN client_key TYPE text COLLATE "C";

-- A threshold of 1 is passed by the second dead row only.
ALTER TABLE subject_keys SET (autovacuum_vacuum_threshold = 0);

UPDATE subject_keys SET client_key = '' WHERE wrapped IS NULL;

-- The directory of the files: whoever sees another has other epochs.
CREATE TABLE epoch_directory (
	the_only boolean PRIMARY KEY DEFAULT true CHECK (the_only),
	id       text NOT NULL
);

CREATE TABLE epochs (
	id          text COLLATE "C" PRIMARY KEY,
	fingerprint bytea NOT NULL,            -- SHA-256 of id and key: whether a file holds this key
	keys        integer NOT NULL,          -- of subjects that it has a place for, of 4,096
	made_at     timestamptz NOT NULL DEFAULT now(),
	closing_at  timestamptz,               -- no more places are given away from then on
	retired_at  timestamptz                -- no key is under it, nor can be, from then on
);

CREATE INDEX subject_keys_epoch ON subject_keys (client_key);
CREATE INDEX subject_keys_destroyed ON subject_keys (client_key) WHERE wrapped IS NULL AND client_key <> '';

-- No key comes to stand under an epoch that is over, however late its statement
-- comes: whoever ends an epoch locks its row against this one.
CREATE FUNCTION check_epochs() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	name text;
	last text;
BEGIN
	-- Nearly always all rows name one epoch.
	SELECT min(m.client_key), max(m.client_key) INTO name, last FROM made m WHERE m.client_key >= 'x';
	name := left(name, 17);
	last := left(last, 17);
	WHILE name IS NOT NULL LOOP
		PERFORM FROM public.epochs e WHERE e.id = name AND e.retired_at IS NULL FOR KEY SHARE;
		IF NOT FOUND THEN
			RAISE EXCEPTION 'the epoch of a key is over' USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'subject_keys_epoch';
		END IF;
		EXIT WHEN name = last;
		SELECT left(min(m.client_key), 17) INTO name FROM made m WHERE m.client_key >= name || '0'; -- which is next after the slash
	END LOOP;
	RETURN NULL;
END $$;

CREATE TRIGGER subject_keys_epoch AFTER INSERT ON subject_keys
REFERENCING NEW TABLE AS made FOR EACH STATEMENT EXECUTE FUNCTION check_epochs();
