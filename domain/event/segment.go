package event

import (
	"encoding/json"
	"math"
	"time"

	"kindred/domain/id"
)

type (
	// SegmentDefined: the client names a group of users by a rule. The rule may name
	// people, so a key of the segment's own seals it.
	SegmentDefined struct {
		fact
		Segment id.Segment   `json:"segment_id"`
		Name    string       `json:"name"`
		Rule    *Personal    `json:"rule"`
		Refers  []id.Segment `json:"refers,omitempty"` // the segments that the rule names
		// Layer is the consent layer that the segment is found under, of those who grant it.
		Layer id.ConsentLayer `json:"consent_layer_id,omitempty"`
	}
	// SegmentChanged carries the name and the rule as they are from now on.
	SegmentChanged struct {
		fact
		Segment id.Segment   `json:"segment_id"`
		Name    string       `json:"name"`
		Rule    *Personal    `json:"rule,omitempty"` // nil: as it was
		Refers  []id.Segment `json:"refers,omitempty"`
	}
	// SegmentRetired: the segment is no more.
	SegmentRetired struct {
		fact
		Segment id.Segment `json:"segment_id"`
	}
	// SegmentsNamed: a campaign names segments from now on, which stands here too: an
	// append is atomic to one stream, and a segment that is retired is not named.
	SegmentsNamed struct {
		fact
		Campaign id.Campaign     `json:"campaign_id"`
		Segments SegmentAudience `json:"segments"`
	}
	// SegmentReady: all users were judged by what this stream defined up to one of its
	// events, which counts from now on.
	SegmentReady struct {
		fact
		Revision int64 `json:"revision"` // of that event
	}
	// SegmentsSnapshotTaken says which segments there were when it was recorded, but
	// for their rules: a reader that comes backwards can stop here.
	SegmentsSnapshotTaken struct {
		fact
		Revision int64             `json:"revision"` // of this event
		Ready    int64             `json:"ready"`    // what was defined up to this revision counts
		Segments []SegmentStanding `json:"segments"` // by their ids
	}
	// SegmentsTimePassed: time has come to a moment at which rules may judge users
	// otherwise. Those are judged who are due up to the place of a user, in the order in
	// which they are due and of their numbers: a rebuild, which knows nothing of whoever
	// was erased since, judges the same. It stands in a stream of its own.
	SegmentsTimePassed struct {
		fact
		AsOf   time.Time `json:"as_of"`
		Due    time.Time `json:"due"`
		Number int64     `json:"number"`
	}
)

// SegmentStanding is a segment as a snapshot shows it.
type SegmentStanding struct {
	Segment id.Segment   `json:"segment_id"`
	Name    string       `json:"name"`
	Refers  []id.Segment `json:"refers,omitempty"`
	Held    []id.Segment `json:"held,omitempty"` // that earlier rules name, of which one may still count
	Changed int64        `json:"changed"`        // revision of the event that changed it last
	Ruled   int64        `json:"ruled"`          // revision of the event that carries its rule

	Layer id.ConsentLayer `json:"consent_layer_id,omitempty"`
}

func (e SegmentDefined) Subject() string   { return string(e.Segment) }
func (e SegmentDefined) Personal() []Field { return []Field{{"rule", e.Rule}} }
func (e SegmentChanged) Subject() string   { return string(e.Segment) }
func (e SegmentChanged) Personal() []Field { return []Field{{"rule", e.Rule}} }

var segmentEvents = []definition{
	define[SegmentDefined]("segment.defined", 2),
	define[SegmentChanged]("segment.changed", 1),
	define[SegmentRetired]("segment.retired", 1),
	define[SegmentsNamed]("segments.named", 1),
	define[SegmentReady]("segment.ready", 1),
	define[SegmentsSnapshotTaken]("segment.snapshot_taken", 2),
	define[SegmentsTimePassed]("segments.time_passed", 2, upcast(1, upcastTimePassed1)),
}

// upcastTimePassed1: version 1 named nobody, so all are judged who are due.
func upcastTimePassed1(data json.RawMessage) (json.RawMessage, error) {
	var e SegmentsTimePassed
	if err := json.Unmarshal(data, &e); err != nil {
		return nil, err
	}
	e.Due, e.Number = e.AsOf, math.MaxInt64
	return json.Marshal(e)
}
