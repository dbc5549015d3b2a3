-- How many tests a client has sent of late is counted before another is sent.
CREATE INDEX dispatch_queue_tests ON dispatch_queue (client, queued_at) WHERE test;
CREATE INDEX dispatch_deliveries_tests ON dispatch_deliveries (client, queued_at) WHERE test;
