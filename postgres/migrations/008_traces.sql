-- The traceparent of the request that caused a delivery, or made an import; '' where no collector gets that.
ALTER TABLE dispatch_queue ADD COLUMN trace text NOT NULL DEFAULT '';
ALTER TABLE imports ADD COLUMN trace text NOT NULL DEFAULT '';
