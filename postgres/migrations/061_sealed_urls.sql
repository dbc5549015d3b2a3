-- The address of a subscription, sealed: where it was sealed, and the box. NULL where the log has it in the clear, as
-- events of old have; then it stands in url, which is empty else.
ALTER TABLE dispatch_endpoints ADD COLUMN sealed_url jsonb;
