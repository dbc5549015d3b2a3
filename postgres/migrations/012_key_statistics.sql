-- A key is found by its subject, however many its client has. A client that came, or grew, since the last analysis of
-- this table counts as one with a single key: then each of a page's keys was looked for among all of the client's, which
-- were read for that. Without statistics each client counts as one with a two-hundredth of the table. The type stays what
-- it is: to name it lets go of the statistics that are there.
ALTER TABLE subject_keys ALTER COLUMN client TYPE text COLLATE "C", ALTER COLUMN client SET STATISTICS 0;
