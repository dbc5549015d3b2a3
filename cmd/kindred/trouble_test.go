package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

func TestTroubleOfTheDatabasePasses(t *testing.T) {
	t.Parallel()
	for code, passes := range map[string]bool{
		"25006": true, // read only, amid a failover
		"08006": true, "40P01": true, "53300": true, "55P03": true, "57014": true, "57P01": true, "58030": true,
		"23505": false, "22P02": false, "42P01": false, "25001": false, "": false,
	} {
		err := fmt.Errorf("reserve: %w", &pgconn.PgError{Code: code})
		if isUnavailable(err) != passes || (classify(err) != nil) != passes {
			t.Errorf("%s passes: %v; want %v", code, !passes, passes)
		}
	}
	if isUnavailable(errors.New("other")) {
		t.Error("anything passes")
	}
}
