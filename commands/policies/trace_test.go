package policies

import (
	"testing"
	"testing/synctest"
)

// All that a run records is in the trace of the request for it, where a collector gets that;
// else nothing looks for one.
func TestARunIsInTheTraceOfItsRequest(t *testing.T) {
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for _, traces := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			o := newClusteringFixture(t)
			call, layer := o.populate("acme", 150, kinds)
			call.Trace = trace
			requested := o.request(call, layer, 3).Position
			c := o.process(o.store, 1)
			c.Commands.Traces = traces
			o.until(c, o.ends(1))
			after := 0
			for _, r := range o.records() {
				if r.Position <= requested {
					continue
				}
				if after++; (r.Trace() == trace) != traces {
					t.Errorf("%s is in the trace %q", r.Type, r.Trace())
				}
			}
			if after < 5 {
				t.Errorf("%d events", after)
			}
		})
	}
}
