-- The end of the log when an import was accepted: who was erased since is not
-- brought back. What was accepted before this is not held to it.
ALTER TABLE imports ADD COLUMN log_end text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE imports ALTER COLUMN log_end DROP DEFAULT;
