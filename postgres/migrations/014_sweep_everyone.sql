-- Who was there before automatic matching was switched on is queued a page at a time, in order of the users' ids.
ALTER TABLE match_sweeps
	ADD COLUMN everyone_before text COLLATE "C", -- position of the switch; NULL once all are queued
	ADD COLUMN everyone_after  text COLLATE "C" NOT NULL DEFAULT '', -- the last user that was queued
	ADD COLUMN everyone_event  text NOT NULL DEFAULT '';
