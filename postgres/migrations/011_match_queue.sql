-- A client is planned for as a hundredth of the queue, as of each table of a read model: statements are planned once for
-- all clients, and among very many that have a user each waiting, all of a large one's would be read for some by their ids.
ALTER TABLE match_queue ALTER COLUMN client SET (n_distinct = 100);
