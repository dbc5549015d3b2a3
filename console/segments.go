package console

import (
	"cmp"
	"net/http"
	"net/url"
	"strings"
	"time"

	"kindred/console/chart"
	kindred "kindred/sdk/go"
)

// segments lists the segments, and shows whom a rule that was typed would name.
func (p *page) segments() error {
	asked := p.r.URL.Query()
	found, err := p.api.Segments.ListPage(p.r.Context(), kindred.ListSegmentsParams{Limit: new(int64(pageOf)), Cursor: asked.Get("cursor")})
	if err != nil {
		return err
	}
	layers, _, err := collect(p.api.Consent.ListLayers(p.r.Context(), kindred.ListConsentLayersParams{}), allOf)
	if err != nil {
		return err
	}
	schema, err := p.schema()
	if err != nil {
		return err
	}
	build, built, err := p.build(Path+"segments#add", "rule", schema)
	if err != nil {
		return err
	}
	if built != "" {
		p.r.Form = url.Values{"rule": {built}}
	}
	data := map[string]any{"Segments": found.Data, "Next": next("segments", asked, found.NextCursor), "Build": build, "Layers": layers}
	text := cmp.Or(built, strings.TrimSpace(asked.Get("rule")))
	if built != "" {
		asked = url.Values{"rule": {built}}
	}
	switch drawLater := later("segments", asked, "preview"); {
	case text == "" || p.refused != nil:
	case drawLater != "":
		data["Later"] = drawLater
	default:
		question := kindred.RuleToPreview{Rule: text}
		if layer := asked.Get("layer"); layer != "" {
			question.ConsentLayerID = &layer
		}
		preview, err := p.api.Segments.PreviewRule(p.r.Context(), question)
		refused := problemOf(err)
		switch {
		case err == nil:
			data["Preview"] = preview
		case refused.Field("rule") != "", refused.Code == kindred.CodeConsentLayerUnknown: // it was retired since
			p.refused = refused
		default:
			return err
		}
	}
	return p.show("segments", "Segments", say("common.segments"), data)
}

func (p *page) createSegment() error {
	made, err := p.api.Segments.Create(p.r.Context(), kindred.NewSegment{
		Name: p.form("name"), Rule: p.form("rule"), ConsentLayerID: p.optional("layer"),
	}, p.once())
	if err != nil {
		return p.again(err, p.segments)
	}
	return p.done(Path+"segments/"+url.PathEscape(made.ID), "created")
}

func (p *page) segment() error {
	ctx, asked := p.r.Context(), p.r.URL.Query()
	var read kindred.Answer
	segment, err := p.api.Segments.Get(ctx, p.r.PathValue("id"), kindred.WithAnswer(&read))
	if err != nil {
		return err
	}
	data := map[string]any{"Segment": segment, "ETag": p.etag(read)}
	if segment.ConsentLayerID != nil {
		if data["Layer"], err = there(p.api.Consent.GetLayer(ctx, *segment.ConsentLayerID)); err != nil {
			return err
		}
	}
	if err := p.told(data, segment); err != nil {
		return err
	}
	members, err := p.api.Segments.ListMembersPage(ctx, segment.ID, kindred.ListSegmentMembersParams{Limit: new(int64(pageOf)), Cursor: asked.Get("cursor")})
	if err == nil {
		data["Members"], data["Next"] = members.Data, next("segments/"+url.PathEscape(segment.ID), asked, members.NextCursor)
	} else if data["NoMembers"], err = notNow(err); err != nil {
		return err
	}
	if err := p.oneMember(data, segment); err != nil {
		return err
	}
	return p.show("segment", "Segments", segment.Name, data)
}

// oneMember adds whether somebody whose id was typed is in a segment, and why.
func (p *page) oneMember(data map[string]any, segment *kindred.Segment) error {
	who := strings.TrimSpace(p.r.URL.Query().Get("who"))
	if who == "" {
		return nil
	}
	data["Who"] = who
	one, err := p.api.Segments.GetMember(p.r.Context(), segment.ID, typedUser(who))
	switch what := problemOf(err); {
	case err == nil:
		data["One"] = one
	case what.Status == http.StatusNotFound:
		p.refused = problemOf(invalid("who", say("traits.there_is_no_user")))
	default:
		data["NoOne"], err = notNow(err)
		return err
	}
	return nil
}

// changesShown is how many changes of a segment a page shows.
const changesShown = 20

// told adds how many were in a segment day by day, and who came and went, the newest first.
func (p *page) told(data map[string]any, segment *kindred.Segment) error {
	ctx, asked := p.r.Context(), p.r.URL.Query()
	sizes, err := p.api.Segments.ListSizes(ctx, segment.ID, kindred.ListSegmentSizesParams{})
	if err != nil {
		if data["NoSizes"], err = notNow(err); err != nil {
			return err
		}
	} else if n := len(sizes.Sizes); n > 0 {
		first, last := sizes.Sizes[0], sizes.Sizes[n-1]
		data["Sizes"] = sized(sizes.Sizes)
		if n > 1 {
			gained := last.Members - first.Members
			data["Delta"], data["Tone"], data["Since"] = signed(gained), rising(gained), plainDay(first.Day)
		}
	}
	changes, err := p.api.Segments.ListChanges(ctx, segment.ID, kindred.ListSegmentChangesParams{
		Order: kindred.OrderDesc, Limit: new(int64(changesShown)), After: asked.Get("after"),
	})
	if err != nil {
		data["NoChanges"], err = notNow(err)
		if what := problemOf(err); err != nil && what.Status == http.StatusGone {
			data["NoChanges"], err = what.Detail, nil
		}
		return err
	}
	data["Changes"] = changes.Changes
	if changes.HasMore {
		asked.Set("after", changes.Cursor)
		asked.Del("done")
		data["Earlier"] = Path + "segments/" + url.PathEscape(segment.ID) + "?" + asked.Encode() + "#changes"
	}
	return nil
}

// sized is how many there were day by day, as a picture.
func sized(sizes []kindred.SegmentSize) chart.Data {
	first, last := sizes[0], sizes[len(sizes)-1]
	shown := chart.Data{
		Title: say("segment.members_by_day"), Label: say("overview.day"), Newest: true, Series: []chart.Series{{Name: say("common.members")}},
		Description: say("segment.from_to", number(first.Members), plainDay(first.Day), number(last.Members), plainDay(last.Day)),
	}
	for _, s := range sizes {
		shown.Labels = append(shown.Labels, plainDay(s.Day))
		shown.Series[0].Values = append(shown.Series[0].Values, float64(s.Members))
	}
	return shown
}

// plainDay writes a day, which is in UTC, as in 2 Jan.
func plainDay(day string) string {
	t, err := time.Parse(time.DateOnly, day)
	if err != nil {
		return day
	}
	return t.Format("2 Jan")
}

// downloadMembers passes on the members of a segment as CSV, in a file of its name.
func (p *page) downloadMembers() error {
	segment, err := p.api.Segments.Get(p.r.Context(), p.r.PathValue("id"))
	if err != nil {
		return err
	}
	return p.download("/api/v1/segments/"+url.PathEscape(segment.ID)+"/members", "text/csv", say("segment.file", segment.Name))
}

func (p *page) changeSegment() error {
	id := p.r.PathValue("id")
	before, err := p.api.Segments.Get(p.r.Context(), id)
	if err != nil {
		return err
	}
	change := kindred.SegmentUpdate{Name: new(p.form("name"))}
	if rule := p.form("rule"); rule != before.Rule {
		change.Rule = &rule // the same one would judge everyone anew for nothing
	}
	if err := p.api.Segments.Change(p.r.Context(), id, change, p.asSeen()...); err != nil {
		return p.again(err, p.segment)
	}
	return p.done(Path+"segments/"+url.PathEscape(id), "saved")
}

func (p *page) retireSegment() error {
	segment, err := p.api.Segments.Get(p.r.Context(), p.r.PathValue("id"))
	if err != nil {
		return p.again(err, p.segment)
	}
	if err := p.confirmed(segment.ID, segment.Name, say("segment.type_the_segment")); err != nil {
		return p.again(err, p.segment)
	}
	if err := p.api.Segments.Retire(p.r.Context(), segment.ID); err != nil {
		return p.again(err, p.segment)
	}
	return p.done(Path+"segments", "retired")
}
