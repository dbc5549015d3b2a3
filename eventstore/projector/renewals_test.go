package projector_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/eventstore/projector"
	"kindred/testkit"
)

// TestLeasesOfAProcessAreRenewedTogether has twenty leases last for twice their length: the row of
// one is locked meanwhile, and another one is taken.
func TestLeasesOfAProcessAreRenewedTogether(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	var together, alone atomic.Int64
	config := w.pool.Config()
	config.ConnConfig.Tracer = &before{sends: func(sql string) {
		switch {
		case strings.HasPrefix(sql, "WITH held AS"):
			together.Add(1)
		case strings.HasPrefix(sql, "UPDATE leases SET expires_at = clock_timestamp() + "):
			alone.Add(1)
		}
	}}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	r := w.runner("holder")
	r.Leases, r.Renewals, r.Lease = pool, projector.NewRenewals(pool), 1500*time.Millisecond

	const leases = 20
	var leading sync.WaitGroup
	var lost [leases]atomic.Int64
	leading.Add(leases)
	for i := range leases {
		background(t, func(ctx context.Context) error {
			led := sync.OnceFunc(leading.Done)
			return r.Lead(ctx, fmt.Sprintf("work_%02d", i), func(ctx context.Context) error {
				led()
				<-ctx.Done()
				lost[i].Add(1)
				return nil
			})
		})
	}
	leading.Wait()
	w.exec(t, `UPDATE leases SET holder = 'another', epoch = epoch + 1, expires_at = clock_timestamp() + interval '59 seconds' WHERE name = 'work_01'`)
	locked, err := w.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locked.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := locked.Exec(t.Context(), `SELECT FROM leases WHERE name = 'work_00' FOR SHARE`); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	testkit.Eventually(t, "leases would have run out twice", func() bool { return time.Since(began) > 2*r.Lease })
	for i := range leases {
		switch n := lost[i].Load(); {
		case i == 1 && n != 1:
			t.Errorf("the lease that was taken was lost %d times", n)
		case i > 1 && n != 0:
			t.Errorf("lease %d was lost %d times", i, n)
		}
	}
	if n := w.one(t, `SELECT count(*) FROM leases WHERE holder = 'holder' AND expires_at > clock_timestamp()`); n < leases-2 {
		t.Errorf("%d leases stand", n)
	}
	w.exec(t, `UPDATE leases SET expires_at = clock_timestamp() WHERE name = 'work_02'`)
	before := alone.Load()
	testkit.Eventually(t, "a lease that has ended, and that nobody took, is renewed alone", func() bool {
		return alone.Load() > before && w.one(t, `SELECT count(*) FROM leases WHERE name = 'work_02' AND holder = 'holder' AND expires_at > clock_timestamp()`) == 1
	})
	if rounds, single := together.Load(), alone.Load(); single > rounds {
		t.Errorf("%d statements for all leases, %d for one", rounds, single)
	}
}
