-- Each import's lines are sealed with a key of its own, among those of subjects, which is
-- destroyed at its end. keyed: it stands, or may. Of an import of an earlier release they
-- are sealed with the service's own key.
ALTER TABLE imports ADD COLUMN keyed boolean NOT NULL DEFAULT false;
CREATE INDEX imports_keyed ON imports (id) WHERE keyed;

-- Who was erased since an import was accepted: what found the user by its external id is
-- forgotten with it, and the import must not bring it back. Kept to the import's end.
CREATE TABLE import_erasures (
	import text COLLATE "C" NOT NULL REFERENCES imports ON DELETE CASCADE,
	lookup bytea NOT NULL, -- what subject_keys.lookup was
	PRIMARY KEY (import, lookup)
);
