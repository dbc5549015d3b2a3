-- The latest requests of each client, partitioned by day. It is operational data: no event tells of it, no read model holds
-- it, and there is neither a path nor a query nor a body in it.
CREATE TABLE request_log (
	client      text COLLATE "C" NOT NULL,
	at          timestamptz NOT NULL,
	request     text COLLATE "C" NOT NULL, -- its name, which may be the caller's own
	method      text NOT NULL,
	route       text NOT NULL,             -- the path as the contract has it
	status      smallint NOT NULL,
	duration_us bigint NOT NULL,
	key         text COLLATE "C" NOT NULL  -- of the API, whose token came with it; '': a member's
) PARTITION BY RANGE (at);
CREATE INDEX request_log_listed ON request_log (client, at, request);

-- How many more there were.
CREATE TABLE request_omissions (
	client  text COLLATE "C" NOT NULL,
	day     date NOT NULL,
	omitted bigint NOT NULL,
	PRIMARY KEY (client, day)
);
CREATE INDEX request_omissions_day ON request_omissions (day);
