-- Which events a subscription is told of, beside their types.
ALTER TABLE dispatch_endpoints
	ADD COLUMN filter   text NOT NULL DEFAULT '', -- a rule; '': all
	ADD COLUMN filtered bigint NOT NULL DEFAULT 0; -- events that it left out
