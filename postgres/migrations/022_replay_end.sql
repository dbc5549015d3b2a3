-- Where the log ends that was replayed into this database: what it holds up to
-- there was another's to deliver and to match, whenever it is applied.
ALTER TABLE replay ADD COLUMN through text COLLATE "C" NOT NULL DEFAULT '';
