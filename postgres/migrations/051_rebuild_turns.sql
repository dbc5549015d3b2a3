-- Clients take turns at rebuilds: when the latest of each was begun.
CREATE INDEX rebuilds_turns ON rebuilds (client, tried_at);
