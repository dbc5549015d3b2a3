package requestlog

import "context"

// Write writes what was noted.
func (l *Log) Write(ctx context.Context) error { return l.write(ctx) }

// Maintain makes the partitions.
func (l *Log) Maintain(ctx context.Context) error { return l.maintain(ctx) }
