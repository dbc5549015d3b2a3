package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// PartitionDay ends the name of a partition that holds a day, in UTC, behind that of its
// table and an underscore.
const PartitionDay = "20060102"

const partitionAhead = 3 // days

const selectPartitions = `
SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = $1::regclass ORDER BY c.relname`

// MakePartitions makes what is missing of a table's days from yesterday to some days
// ahead. A partition is made apart and then attached, which waits for no reader. Others
// who do so must be kept out.
func MakePartitions(ctx context.Context, tx pgx.Tx, table string, now time.Time) error {
	there, err := partitions(ctx, tx, table)
	if err != nil {
		return err
	}
	for ahead := -1; ahead <= partitionAhead; ahead++ {
		day := now.UTC().AddDate(0, 0, ahead)
		name := table + "_" + day.Format(PartitionDay)
		if slices.Contains(there, name) {
			continue
		}
		// Identifiers and bounds cannot be parameters.
		sql := fmt.Sprintf(`CREATE TABLE public.%[1]s (LIKE %[2]s INCLUDING ALL); ALTER TABLE %[2]s ATTACH PARTITION public.%[1]s FOR VALUES FROM ('%[3]s') TO ('%[4]s')`,
			name, table, day.Format("2006-01-02Z"), day.AddDate(0, 0, 1).Format("2006-01-02Z"))
		if _, err := tx.Exec(ctx, sql); err != nil {
			return fmt.Errorf("make partition %s: %w", name, err)
		}
	}
	return nil
}

// DropPartitions drops a table's days that ended before a time.
func DropPartitions(ctx context.Context, tx pgx.Tx, table string, keepFrom time.Time) error {
	names, err := partitions(ctx, tx, table)
	if err != nil {
		return err
	}
	for _, name := range names {
		day, err := time.Parse(PartitionDay, strings.TrimPrefix(name, table+"_"))
		if err != nil || !day.AddDate(0, 0, 1).Before(keepFrom) {
			continue // not one of ours, or still to be kept
		}
		if _, err := tx.Exec(ctx, "DROP TABLE "+pgx.Identifier{"public", name}.Sanitize()); err != nil {
			return fmt.Errorf("drop partition %s: %w", name, err)
		}
	}
	return nil
}

func partitions(ctx context.Context, tx pgx.Tx, table string) ([]string, error) {
	rows, _ := tx.Query(ctx, selectPartitions, table) // what it fails with, its rows end with
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("list partitions of %s: %w", table, err)
	}
	return names, nil
}
