package projections_test

import (
	"fmt"
	"testing"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/domain/rule"
	"kindred/testkit"
)

// What was found under a layer is asked for under it alone; what was found under none, under
// a layer that permits what its rule reads.
func TestASegmentIsReadyWhereItMayBeAskedFor(t *testing.T) {
	t.Parallel()
	w := newSegmentFixture(t)
	random := testkit.Random(t)
	defineLayers(w.fixture, w.acme)
	define := func(n int, layer id.ConsentLayer, rule string) id.Segment {
		w.segment(w.acme, event.SegmentDefined{Segment: segmentIDs[n], Name: "S", Rule: event.Private([]byte(rule)), Refers: []id.Segment{}, Layer: layer})
		return segmentIDs[n]
	}
	free, beyond, acting := define(0, "", `traits.n > 20`), define(1, "", `traits.n > 20 && traits.other == 1`), define(2, "", `seen("cam_00000000000000000000000000", "1d")`)
	layered := define(4, segmentLayers[0], `traits.n > 20`)
	w.segment(w.acme, event.SegmentReady{Revision: 3})
	building := define(5, segmentLayers[0], `traits.n > 20`)
	none := event.Within{}
	in := func(n int) event.Within {
		return event.Within{Layer: segmentLayers[n], TraitPaths: []string{"n", "plan"}}
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
		if err = w.model.CheckNamed(t.Context(), w.acme, true, "/here", naming, layer); code == "" && err != nil || code != "" && !fault.Is(err, code) {
			t.Errorf("a filter that names one %s: %v, not %q", what, err, code)
		}
	}
	w.catchUp(random)
	names("that counts", layered, segmentLayers[0], "")
	names("with no members yet", building, segmentLayers[0], "segment_building")
	names("of another layer with no members yet", building, "", "invalid")
	wants("of no layer, and asked so", w.acme, free, none, "")
	wants("of no layer, whatever it reads", w.acme, beyond, none, "")
	wants("of no layer, under one that permits what it reads", w.acme, free, in(0), "")
	wants("of no layer, under one that does not", w.acme, beyond, in(0), "invalid")
	wants("of no layer, asking what users did", w.acme, acting, in(0), "invalid")
	wants("of the layer", w.acme, layered, in(0), "")
	wants("of another layer", w.acme, layered, in(1), "invalid")
	wants("of a layer, and asked for without", w.acme, layered, none, "invalid")
	wants("with no members yet", w.acme, building, in(0), "segment_building")
	wants("one that is not there", w.acme, segmentIDs[6], in(0), "segment_unknown")
	wants("another client's", w.bolt, free, none, "segment_unknown")

	// Under a layer its newest rule is looked at, so that has to count.
	w.segment(w.acme, event.SegmentChanged{Segment: beyond, Name: "S", Rule: event.Private([]byte(`traits.n > 30`)), Refers: []id.Segment{}})
	w.catchUp(random)
	wants("one whose new rule does not count yet", w.acme, beyond, in(0), "segment_building")
	wants("one whose old rule counts", w.acme, beyond, none, "")
	names("whose old rule counts", beyond, "", "")
	w.segment(w.acme, event.SegmentReady{Revision: 6}) // of that change, behind four rules, a ready and another one
	w.catchUp(random)
	wants("one whose new rule counts", w.acme, beyond, in(0), "")
	wants("one that is ready now", w.acme, building, in(0), "")

	// A layer that does not permit any more what it reads leaves it blocked: it has no members.
	w.traits[w.create(w.acme, "ada", `{"n":30}`)] = `{"n":30}`
	w.layer(w.acme, segmentLayers[0], event.ConsentLayerChanged{Layer: segmentLayers[0], TraitPaths: []string{"plan"}})
	w.catchUp(random)
	wants("one that is blocked", w.acme, layered, in(0), "")
	names("that is blocked", layered, segmentLayers[0], "invalid")
	if got := fmt.Sprint(w.stored()[layered]); got != "[]" {
		t.Errorf("its members are %s", got)
	}
	w.layer(w.acme, segmentLayers[0], event.ConsentLayerChanged{Layer: segmentLayers[0], TraitPaths: []string{"n", "plan"}})
	w.catchUp(random)
	names("that is not blocked any more, and has no members again yet", layered, segmentLayers[0], "segment_building")
}
