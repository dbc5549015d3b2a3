-- The events of a client that is paused take long; its leader applies them in slices.
ALTER TABLE quarantine ADD COLUMN slow boolean NOT NULL DEFAULT false;
