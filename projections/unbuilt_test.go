package projections_test

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"kindred/domain/fault"
	"kindred/eventstore/projector"
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

// An operator who lists clients beside an upgrade is told what to wait for.
func TestClientsAreNotListedBeforeTheirModelIsMade(t *testing.T) {
	pool := pgtest.New(t)
	reader := readmodel.Reader{Pool: pool, Progress: projector.NewProgress(pool, slog.New(slog.DiscardHandler))}
	listed, err := (projections.Clients{Reader: reader}).All(t.Context(), "", 10)
	if f, ok := errors.AsType[*fault.Fault](err); !ok || f.Code != "building" {
		t.Errorf("got %v, %v; want building", listed, err)
	}
}
