package segments

import (
	"context"
	"runtime"
	"testing"

	"kindred/domain/fault"
	"kindred/projections/readmodel"
)

func TestNobodyIsJudgedWithoutAPlace(t *testing.T) {
	m := Model{Reader: readmodel.Reader{Judging: readmodel.NewJudging()}}
	ctx, cancel := context.WithCancel(t.Context())
	var within func(taken int) error
	within = func(taken int) error {
		if taken == (runtime.GOMAXPROCS(0)+1)/2 { // all that one client may have
			cancel()
			return m.judged(ctx, "a", true, nil, nil, judgedByID, nil, nil)
		}
		return m.Judging.Do(t.Context(), "a", func() error { return within(taken + 1) })
	}
	if err := within(0); !fault.Is(err, "overloaded") {
		t.Errorf("users are judged without a place: %v", err)
	}
}
