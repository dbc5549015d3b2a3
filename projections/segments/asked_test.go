package segments_test

import (
	"fmt"
	"testing"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/domain/rule"
	"kindred/projections/projectionstest"
	"kindred/testkit"
)

// What was found under a layer is asked for under it alone; what was found under none, under
// a layer that permits what its rule reads.
func TestASegmentIsReadyWhereItMayBeAskedFor(t *testing.T) {
	t.Parallel()
	w := newSegmentFixture(t)
	random := testkit.Random(t)
	projectionstest.DefineLayers(w.Fixture, w.Acme)
	define := func(n int, layer id.ConsentLayer, rule string) id.Segment {
		w.Segment(w.Acme, event.SegmentDefined{Segment: projectionstest.SegmentIDs[n], Name: "S", Rule: event.Private([]byte(rule)), Refers: []id.Segment{}, Layer: layer})
		return projectionstest.SegmentIDs[n]
	}
	free, beyond, acting := define(0, "", `traits.n > 20`), define(1, "", `traits.n > 20 && traits.other == 1`), define(2, "", `seen("cam_00000000000000000000000000", "1d")`)
	layered := define(4, projectionstest.SegmentLayers[0], `traits.n > 20`)
	w.Segment(w.Acme, event.SegmentReady{Revision: 3})
	building := define(5, projectionstest.SegmentLayers[0], `traits.n > 20`)
	none := event.Within{}
	in := func(n int) event.Within {
		return event.Within{Layer: projectionstest.SegmentLayers[n], TraitPaths: []string{"n", "plan"}}
	}
	wants := func(what string, client id.Client, segment id.Segment, within event.Within, code string) {
		t.Helper()
		err := w.model.Ready(t.Context(), client, true, "/here", segment, within)
		if code == "" && err != nil || code != "" && !fault.Is(err, code) {
			t.Errorf("%s: %v, not %q", what, err, code)
		}
		if f := fault.As(err); code == "invalid" && (f == nil || len(f.Fields) != 1 || f.Fields[0].Pointer != "/here") {
			t.Errorf("%s: %+v", what, f)
		}
	}
	names := func(what string, segment id.Segment, layer id.ConsentLayer, code string) {
		t.Helper()
		naming, err := rule.Parse(fmt.Sprintf(`!in_segment(%q)`, segment), rule.Users)
		if err != nil {
			t.Fatal(err)
		}
		if err = w.model.CheckNamed(t.Context(), w.Acme, true, "/here", naming, layer); code == "" && err != nil || code != "" && !fault.Is(err, code) {
			t.Errorf("a filter that names one %s: %v, not %q", what, err, code)
		}
	}
	w.catchUp(random)
	names("that counts", layered, projectionstest.SegmentLayers[0], "")
	names("with no members yet", building, projectionstest.SegmentLayers[0], "segment_building")
	names("of another layer with no members yet", building, "", "invalid")
	wants("of no layer, and asked so", w.Acme, free, none, "")
	wants("of no layer, whatever it reads", w.Acme, beyond, none, "")
	wants("of no layer, under one that permits what it reads", w.Acme, free, in(0), "")
	wants("of no layer, under one that does not", w.Acme, beyond, in(0), "invalid")
	wants("of no layer, asking what users did", w.Acme, acting, in(0), "invalid")
	wants("of the layer", w.Acme, layered, in(0), "")
	wants("of another layer", w.Acme, layered, in(1), "invalid")
	wants("of a layer, and asked for without", w.Acme, layered, none, "invalid")
	wants("with no members yet", w.Acme, building, in(0), "segment_building")
	wants("one that is not there", w.Acme, projectionstest.SegmentIDs[6], in(0), "segment_unknown")
	wants("another client's", w.Bolt, free, none, "segment_unknown")

	// Under a layer its newest rule is looked at, so that has to count.
	w.Segment(w.Acme, event.SegmentChanged{Segment: beyond, Name: "S", Rule: event.Private([]byte(`traits.n > 30`)), Refers: []id.Segment{}})
	w.catchUp(random)
	wants("one whose new rule does not count yet", w.Acme, beyond, in(0), "segment_building")
	wants("one whose old rule counts", w.Acme, beyond, none, "")
	names("whose old rule counts", beyond, "", "")
	w.Segment(w.Acme, event.SegmentReady{Revision: 6}) // of that change, behind four rules, a ready and another one
	w.catchUp(random)
	wants("one whose new rule counts", w.Acme, beyond, in(0), "")
	wants("one that is ready now", w.Acme, building, in(0), "")

	// A layer that does not permit any more what it reads leaves it blocked: it has no members.
	w.traits[w.Create(w.Acme, "ada", `{"n":30}`)] = `{"n":30}`
	w.Layer(w.Acme, projectionstest.SegmentLayers[0], event.ConsentLayerChanged{Layer: projectionstest.SegmentLayers[0], TraitPaths: []string{"plan"}})
	w.catchUp(random)
	wants("one that is blocked", w.Acme, layered, in(0), "")
	names("that is blocked", layered, projectionstest.SegmentLayers[0], "invalid")
	if got := fmt.Sprint(w.stored()[layered]); got != "[]" {
		t.Errorf("its members are %s", got)
	}
	w.Layer(w.Acme, projectionstest.SegmentLayers[0], event.ConsentLayerChanged{Layer: projectionstest.SegmentLayers[0], TraitPaths: []string{"n", "plan"}})
	w.catchUp(random)
	names("that is not blocked any more, and has no members again yet", layered, projectionstest.SegmentLayers[0], "segment_building")
}
