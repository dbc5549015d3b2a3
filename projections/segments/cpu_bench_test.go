package segments_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"kindred/testkit"

	"github.com/jackc/pgx/v5/pgxpool"
)

// processors is how much processor's time this process has taken, and the backends of a pool.
func processors(b *testing.B, pool *pgxpool.Pool) (own, postgres time.Duration) {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	rows, err := pool.Query(b.Context(), `SELECT pid FROM pg_stat_activity WHERE datname = current_database()`)
	if err != nil {
		b.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var pid int
		if err := rows.Scan(&pid); err != nil {
			b.Fatal(err)
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+2:]))
		for _, ticks := range fields[11:13] { // its own, and the system's for it
			postgres += time.Duration(testkit.Must(strconv.Atoi(ticks))(b)) * 10 * time.Millisecond
		}
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()), postgres
}
