package projectionstest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/testkit"
)

// SegmentIDs are some segments' ids; a rule names those before its own.
var SegmentIDs = func() (ids []id.Segment) {
	source := id.Derived("segments")
	for range 8 {
		ids = append(ids, id.Next[id.Segment](source))
	}
	return ids
}()

// Some of them are found under a consent layer, of which each has a path and two clusters.
var (
	SegmentLayers   = []id.ConsentLayer{id.Next[id.ConsentLayer](id.Derived("layer 0")), id.Next[id.ConsentLayer](id.Derived("layer 1"))}
	SegmentClusters = [][]id.Cluster{
		{id.Next[id.Cluster](id.Derived("cluster 0")), id.Next[id.Cluster](id.Derived("cluster 1"))},
		{id.Next[id.Cluster](id.Derived("cluster 2")), id.Next[id.Cluster](id.Derived("cluster 3"))},
	}
	segmentCampaign = id.Next[id.Campaign](id.Derived("campaign"))
)

// layerOf is the layer that the n-th segment is found under, below 0: none.
func layerOf(n int) int {
	switch {
	case n < 4:
		return -1
	case n < 7:
		return 0
	default:
		return 1
	}
}

func layerID(n int) id.ConsentLayer {
	if layerOf(n) < 0 {
		return ""
	}
	return SegmentLayers[layerOf(n)]
}

// randomParts are some of rules for the n-th segment.
func randomParts(n int) []string {
	parts := []string{
		`traits.n > 20`, `traits.n < 60`, `traits.plan == "a"`, `has(traits.plan)`, `within(traits.seen, "2d")`, `older(traits.seen, "1d")`,
		`!within(traits.seen, "3d")`, `bucket("x", 3) == 1`, `user.external_id.startsWith("person 1")`, `within(user.updated_at, "1d")`,
		`interactions("click", "2d") >= 2`, `interactions("impression", "12h") < 2`, fmt.Sprintf(`seen(%q, "1d")`, segmentCampaign), fmt.Sprintf(`!seen(%q, "90d")`, segmentCampaign),
	}
	if layer := layerOf(n); layer >= 0 {
		parts = []string{`traits.n > 20`, `traits.plan == "a"`, `older(traits.seen, "1d")`, `bucket("y", 2) == 1`, `has(traits.n)`}
		for range 3 {
			parts = append(parts, fmt.Sprintf(`in_cluster(%q)`, SegmentClusters[layer][0]), fmt.Sprintf(`!in_cluster(%q)`, SegmentClusters[layer][1]))
		}
		parts = append(parts, fmt.Sprintf(`!in_cluster(%q)`, SegmentClusters[1-layer][0])) // of another layer none is known
	}
	return append(parts, fmt.Sprintf(`granted(%q)`, SegmentLayers[0]), fmt.Sprintf(`!granted(%q)`, SegmentLayers[1]))
}

// randomRule is one of some parts, which may name segments of its layer before the n-th.
func randomRule(random *rand.Rand, n int, parts []string) (text string, refers []id.Segment) {
	parts = slices.Clone(parts)
	for i, before := range SegmentIDs[:n] {
		if layerOf(i) == layerOf(n) {
			parts = append(parts, fmt.Sprintf(`in_segment(%q)`, before), fmt.Sprintf(`!in_segment(%q)`, before))
		}
	}
	text = parts[random.IntN(len(parts))]
	for range random.IntN(3) {
		text = "(" + text + []string{" && ", " || "}[random.IntN(2)] + parts[random.IntN(len(parts))] + ")"
	}
	for _, before := range SegmentIDs[:n] {
		if strings.Contains(text, string(before)) {
			refers = append(refers, before)
		}
	}
	return text, refers
}

// ChangeSegments records something about the segments of a client that its log allows.
func ChangeSegments(w *Fixture, random *rand.Rand, client id.Client) {
	w.Helper()
	ChangeSegmentsBy(w, random, client, randomParts)
}

// ChangeSegmentsBy is ChangeSegments, with rules of some parts for the n-th segment.
func ChangeSegmentsBy(w *Fixture, random *rand.Rand, client id.Client, parts func(n int) []string) {
	w.Helper()
	var there domain.Segments
	var ruled []int64 // revisions of events that carry a rule
	ready, used := int64(-1), map[id.Segment]bool{}
	for _, r := range testkit.Must(loaded(w, eventstore.SegmentsStream(client)))(w) {
		there.Apply(r.Event)
		switch e := r.Event.(type) {
		case event.SegmentDefined:
			used[e.Segment], ruled = true, append(ruled, int64(r.Revision))
		case event.SegmentChanged:
			if e.Rule != nil {
				ruled = append(ruled, int64(r.Revision))
			}
		case event.SegmentReady:
			ready = e.Revision
		}
	}
	n := random.IntN(len(SegmentIDs))
	segment := SegmentIDs[n]
	text, refers := randomRule(random, n, parts(n))
	var events []event.Event
	switch choice := random.IntN(8); {
	case choice < 3:
		if i := slices.IndexFunc(ruled, func(one int64) bool { return one > ready }); i >= 0 {
			events = there.Ready(ruled[i+random.IntN(len(ruled)-i)])
		}
	case choice < 4:
		w.Record(client, string(eventstore.SegmentTimeStream(client)), AllDue(w.EventLog.Now()))
	case choice < 5 && random.IntN(5) == 0:
		if events, _ = there.Retire(segment); events != nil {
			defer w.Forget(client, id.User(segment))
		}
	case !used[segment]: // an id is never used again
		events, _ = there.Define(event.SegmentDefined{Segment: segment, Name: text, Rule: event.Private([]byte(text)), Refers: refers, Layer: layerID(n)})
	case choice < 6:
		events, _ = there.Change(segment, &text, nil, nil)
	default:
		events, _ = there.Change(segment, nil, event.Private([]byte(text)), refers)
	}
	for _, e := range events { // where it is refused, there are none
		w.Segment(client, e)
	}
}

func loaded(w *Fixture, stream eventstore.Stream) ([]eventstore.Recorded, error) {
	history, _, err := w.EventLog.Load(w.Context(), stream)
	return history, err
}

// ChangeKnown records something that rules ask of users beside their traits.
func ChangeKnown(w *Fixture, random *rand.Rand, client id.Client, pick func() id.User) {
	w.Helper()
	n := random.IntN(len(SegmentLayers))
	layer := SegmentLayers[n]
	which := random.IntN(3)
	run := event.RunAttempt{Run: id.Next[id.Run](id.Derived(fmt.Sprint("run ", which))), Attempt: 1 + random.IntN(2)}
	of := event.RunScope{Layer: layer, Segment: []id.Segment{"", "", SegmentIDs[0]}[which]}
	runs := string(eventstore.RunsStream(client, of))
	switch random.IntN(18) {
	case 0, 1, 2:
		user := pick()
		w.Record(client, string(eventstore.ConsentStream(client, layer, user)), event.ConsentGranted{Layer: layer, User: user})
	case 3, 4:
		user := pick()
		w.Record(client, string(eventstore.ConsentStream(client, layer, user)), event.ConsentWithdrawn{Layer: layer, User: user})
	case 5, 6:
		w.Record(client, "did", event.InteractionRecorded{User: pick(), Item: "usr_x", Kind: []string{"click", "impression", "dismiss"}[random.IntN(3)]})
	case 7, 8:
		w.Record(client, "did", event.CampaignEngagementRecorded{
			Campaign: segmentCampaign, User: pick(), Impression: id.Next[id.Impression](w.IDs), Kind: []string{"click", "impression"}[random.IntN(2)],
		})
	case 9, 10, 11: // of one and the same cluster, so that not all moves with a run
		for i, cluster := range SegmentClusters[n] {
			w.Record(client, string(eventstore.AssignedStream(client, run)), event.ClusteringAssigned{
				Run: run.Run, Layer: layer, Segment: of.Segment, Attempt: run.Attempt, Cluster: cluster, Users: slices.DeleteFunc([]id.User{pick(), pick(), pick()}, func(user id.User) bool {
					return (user[len(user)-1]%2 == 0) == (i == 0)
				}),
			})
		}
	case 12, 13:
		completed := event.ClusteringCompleted{Run: run.Run, Layer: layer, Segment: of.Segment, Attempt: run.Attempt}
		before := testkit.Must(loaded(w, eventstore.Stream(runs)))(w)
		if !slices.ContainsFunc(before, func(r eventstore.Recorded) bool {
			e, is := r.Event.(event.ClusteringCompleted)
			return is && e.Run == run.Run && e.Attempt == run.Attempt // which happens once
		}) {
			w.Record(client, runs, completed)
		}
	case 14:
		w.Record(client, runs, []event.Event{
			event.ClusteringStarted{Run: run.Run, Layer: layer, Attempt: run.Attempt},
			event.ClusteringCancelled{Run: run.Run, Layer: layer},
			event.ClusteringFailed{Run: run.Run, Layer: layer},
		}[random.IntN(3)])
	default:
		changeBounds(w, random, client, layer)
	}
}

// changeBounds records that rules may read something else.
func changeBounds(w *Fixture, random *rand.Rand, client id.Client, layer id.ConsentLayer) {
	w.Helper()
	switch random.IntN(8) {
	case 0, 1:
		overrides := map[string]event.TraitOverride{"plan": {Sensitive: new(random.IntN(3) == 0)}, "other": {Sensitive: new(true)}}
		w.Record(client, string(eventstore.TraitSchemaStream(client)), event.TraitSchemaOverridden{Overrides: overrides})
	case 2:
		if random.IntN(4) == 0 {
			w.Layer(client, layer, event.ConsentLayerRetired{Layer: layer})
		}
	default:
		paths := [][]string{{"n", "plan", "seen"}, {"n", "plan", "seen"}, {"n", "seen"}, {"plan"}}[random.IntN(4)]
		w.Layer(client, layer, event.ConsentLayerChanged{Layer: layer, TraitPaths: paths})
	}
}

// DefineLayers defines the layers of segments.
func DefineLayers(w *Fixture, client id.Client) {
	w.Helper()
	for _, layer := range SegmentLayers {
		w.Layer(client, layer, event.ConsentLayerDefined{Layer: layer, TraitPaths: []string{"n", "plan", "seen"}})
	}
}

// AllDue lets time come to a moment for all users who are due by then.
func AllDue(at time.Time) event.SegmentsTimePassed {
	return event.SegmentsTimePassed{AsOf: at, Due: at, Number: math.MaxInt64}
}
