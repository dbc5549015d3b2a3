package app

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"kindred/backoff"
	"kindred/postgres"
)

const clocksAgree = time.Minute // within which all clocks are to be

// reached says whether the database answers, and warns where the clock of this process says
// another time than the database's: tokens that it issues are refused by other processes, and
// it ends sandboxes and campaigns too early or too late. Which one is wrong nobody knows.
func reached(pool *pgxpool.Pool, now func() time.Time, logger *slog.Logger) func(context.Context) error {
	var seldom backoff.Seldom
	return func(ctx context.Context) error {
		asked := now()
		theirs, err := postgres.Clock(ctx, pool)
		if err != nil {
			return fmt.Errorf("reach the database: %w", err)
		}
		if asked.Sub(theirs) > clocksAgree || theirs.Sub(now()) > clocksAgree {
			seldom.Do(func() {
				logger.WarnContext(ctx, "the clocks of this process and of the database do not agree, set both by NTP", "ahead", asked.Sub(theirs).Round(time.Second))
			})
		}
		return nil
	}
}
