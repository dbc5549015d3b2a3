package projections_test

import (
	"testing"
	"time"

	"kindred/postgres/pgtest"
	"kindred/projections"
	"kindred/projections/readmodel"
)

// Who sweeps what the read models hold finds nothing while they are yet to be made.
func TestThereIsNothingToDoBeforeTheModelsAreMade(t *testing.T) {
	reader := readmodel.Reader{Pool: pgtest.New(t)}
	if due, err := (projections.Campaigns{Reader: reader}).Due(t.Context(), time.Now(), 10); err != nil || len(due) > 0 {
		t.Errorf("campaigns are due: %v, %v", due, err)
	}
	if open, err := (projections.Clusters{Reader: reader}).OpenRuns(t.Context(), nil); err != nil || len(open) > 0 {
		t.Errorf("runs are open: %v, %v", open, err)
	}
	if open, err := (projections.Claims{Reader: reader}).OpenSince(t.Context(), time.Now(), 10); err != nil || len(open) > 0 {
		t.Errorf("claims are open: %v, %v", open, err)
	}
}
