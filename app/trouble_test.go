package app

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"kindred/domain/fault"
	"kindred/eventstore"
	"kindred/eventstore/seal"
	"kindred/postgres/pgtest"
)

func TestTroubleOfTheDatabasePasses(t *testing.T) {
	t.Parallel()
	for code, passes := range map[string]bool{
		"25006": true, // read only, amid a failover
		"08006": true, "40P01": true, "53300": true, "55P03": true, "57014": true, "57P01": true, "58030": true,
		"23505": false, "22P02": false, "42P01": false, "25001": false, "": false,
	} {
		err := fmt.Errorf("reserve: %w", &pgconn.PgError{Code: code})
		if isUnavailable(err) != passes || (classify(t.Context(), err) != nil) != passes {
			t.Errorf("%s passes: %v; want %v", code, !passes, passes)
		}
	}
	if isUnavailable(errors.New("other")) {
		t.Error("anything passes")
	}
}

func TestAMasterKeyThatIsMissingPasses(t *testing.T) {
	t.Parallel()
	f := classify(t.Context(), fmt.Errorf("seal: %w", seal.ErrMaster))
	if f == nil || f.Code != "unavailable" {
		t.Errorf("got %+v", f)
	}
}

func TestAServerThatLetsNobodyInPasses(t *testing.T) {
	t.Parallel()
	config, err := pgconn.ParseConfig(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	config.User = "somebody_unknown"
	_, err = pgconn.ConnectConfig(t.Context(), config)
	if f := classify(t.Context(), fmt.Errorf("read users: %w", err)); err == nil || f == nil || f.Code != "unavailable" {
		t.Errorf("%v is answered with %+v", err, f)
	}
}

func TestAReadThatTakesTooLongIsTellingSo(t *testing.T) {
	t.Parallel()
	f := classify(t.Context(), fmt.Errorf("read history: %w", &pgconn.PgError{Code: "57014"}))
	if f == nil || f.Code != "read_too_slow" || f.Kind != fault.Unavailable || f.RetryAfter == 0 {
		t.Errorf("got %+v", f)
	}
}

// Another process finds out by the keys that a sandbox was deleted, and is not to answer 500.
func TestWhoeverMeetsTheKeysOfADeletedClientIsTold(t *testing.T) {
	t.Parallel()
	for _, err := range []error{eventstore.ErrDeleted, seal.ErrDeleted} {
		if f := classify(t.Context(), fmt.Errorf("find a user: %w", err)); f == nil || f.Code != "invalid_token" || f.Kind != fault.Unauthenticated {
			t.Errorf("%v is answered with %+v", err, f)
		}
	}
	if f := classify(t.Context(), seal.ErrErased); f != nil {
		t.Errorf("that a user was erased is answered with %+v", f)
	}
}
