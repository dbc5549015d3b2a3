-- How far clustering runs under way have come. What they find is in the log;
-- this is for those who watch.
CREATE TABLE clustering_progress (
    client      text COLLATE "C" NOT NULL,
    run         text COLLATE "C" NOT NULL,
    phase       text             NOT NULL,
    share       double precision NOT NULL,  -- done, 0 to 1
    eta_seconds integer,                    -- NULL: not known yet
    updated_at  timestamptz      NOT NULL DEFAULT now(),
    PRIMARY KEY (client, run)
);
