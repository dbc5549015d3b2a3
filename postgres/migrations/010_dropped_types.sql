-- Up to which position what is queued of an event type was cancelled: where the subscription
-- last ceased to choose it.
ALTER TABLE dispatch_endpoints ADD COLUMN dropped_types jsonb NOT NULL DEFAULT '{}';
