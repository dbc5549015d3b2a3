package readapi

import (
	"context"
	"fmt"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/domain/rule"
	"kindred/httpapi"
	"kindred/projections"
	"kindred/projections/feeds"
	"kindred/projections/segments"
)

// GetFeed shows a page of the ranked feed of a user.
func (a *API) GetFeed(ctx context.Context, r httpapi.GetFeedRequestObject) (httpapi.GetFeedResponseObject, error) {
	client, eventual := asked(ctx)
	user, err := a.user(ctx, r.UserID)
	if err != nil {
		return nil, err
	}
	within, err := a.within(ctx, r.Params.ConsentLayerID)
	if err != nil {
		return nil, err
	}
	filter, err := a.feedFilter(ctx, r.Params.Filter, r.Params.SegmentID, within)
	if err != nil {
		return nil, err
	}
	request := feeds.Request{
		Client: client, User: user, Within: within, Filter: filter, Eventual: eventual, Preview: !httpapi.Or(r.Params.Record, true),
		Limit: httpapi.PageSize(r.Params.Limit),
	}
	list := filtered("feed", string(user), string(request.Within.Layer), httpapi.Or(r.Params.Filter, ""))
	if r.Params.SegmentID != nil {
		list = filtered(list, "of", *r.Params.SegmentID)
	}
	if request.Preview {
		list = filtered(list, "preview") // its cursor is for a preview, too
	}
	page, err := a.feedPage(ctx, request, list, r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	answer := httpapi.GetFeed200JSONResponse{
		Data: each(page.Items, func(i feeds.Item) httpapi.FeedItem { return a.feedItem(request, page, i) }),
	}
	if page.Next != nil {
		answer.NextCursor = new(a.Cursors.Encode(client, list, page.Next.String()))
	}
	return answer, nil
}

// feedFilter reads the filter and the segment of a feed, which tell of traits, and under a
// layer may read no more than that permits; beside them the match rule always holds.
func (a *API) feedFilter(ctx context.Context, text, segment *string, within event.Within) (*rule.Filter, error) {
	if (text != nil || segment != nil) && !httpapi.PrincipalFrom(ctx).May("read") {
		return nil, fault.New(fault.Forbidden, "missing_scope", "A filter or a segment tells of traits, so it takes a token with the scope read.")
	}
	of, err := a.segmentReady(ctx, segment, within)
	if err != nil {
		return nil, err
	}
	wanted, layer := rule.Filter{Segment: string(of), Layer: string(within.Layer)}, projections.ConsentLayer{ID: within.Layer, TraitPaths: within.TraitPaths}
	if text != nil {
		if wanted.Rule, err = a.rule(ctx, "filter", *text, rule.Pairs, layer); err != nil {
			return nil, err
		}
	}
	client, _ := asked(ctx)
	filter, err := rule.Among(wanted, within.MatchRule,
		func() (rule.Bounds, error) { return a.bounds(ctx, layer) },
		func(judge func() error) error { return a.Reader.Judging.Do(ctx, client, judge) })
	if filter == nil || err != nil {
		return nil, err
	}
	filter.Now, _, err = a.Clock(ctx, client)
	return filter, err
}

// segmentReady is a segment whose members are asked for, where one is, and stands ready.
func (a *API) segmentReady(ctx context.Context, ref *string, within event.Within) (segment id.Segment, err error) {
	client, eventual := asked(ctx)
	if segment, err = httpapi.NamedIfAny[id.Segment](ref, fault.UnknownSegment); segment == "" || err != nil {
		return "", err
	}
	return segment, segments.Model{Reader: a.Reader}.Ready(ctx, client, eventual, "segment_id", segment, within)
}

// within is what a feed may look at: the users and traits of a layer or, where
// the client's settings allow it, everything.
func (a *API) within(ctx context.Context, layer *string) (event.Within, error) {
	if layer != nil {
		l, err := a.layer(ctx, *layer)
		return event.Within{Layer: l.ID, TraitPaths: l.TraitPaths, MatchRule: l.MatchRule}, err
	}
	client, eventual := asked(ctx)
	c, err := projections.Clients{Reader: a.Reader}.Get(ctx, client, eventual, a.DefaultSettings)
	if err == nil && c.Settings.MatchingRequiresLayer {
		err = fault.NewInvalid(fault.Field{Pointer: "consent_layer_id", Detail: "is required by the client's settings"})
	}
	return event.Within{MatchRule: c.Settings.MatchRule}, err
}

func (a *API) feedPage(ctx context.Context, r feeds.Request, list string, cursor *httpapi.Cursor) (feeds.Page, error) {
	if cursor == nil {
		return a.Feeds.First(ctx, r)
	}
	written, err := a.Cursors.Decode(r.Client, list, *cursor)
	if err != nil {
		return feeds.Page{}, err
	}
	at, err := feeds.ParsePlace(written)
	if err != nil {
		return feeds.Page{}, err
	}
	return a.Feeds.Next(ctx, r, at)
}

// previewed is the impression id of what is shown to nobody.
const previewed = "preview"

func (a *API) feedItem(r feeds.Request, page feeds.Page, i feeds.Item) httpapi.FeedItem {
	out := httpapi.FeedItem{
		Type: httpapi.FeedItemType(i.Kind.String()), Reason: httpapi.FeedReason(i.Reason.String()), Score: i.Score,
	}
	if i.Kind == feeds.Campaign {
		out.CampaignID, out.ImpressionID = new(string(i.Campaign)), string(i.Impression)
	} else {
		out.UserID, out.ExternalID = &i.User, &i.ExternalID
		out.ImpressionID = a.Cursors.EncodeShowing(r.Client, r.User, httpapi.Showing{
			Feed: fmt.Sprintf("%x", page.Snapshot[:]), Position: i.Position, Item: string(i.User),
		})
	}
	if r.Preview {
		out.ImpressionID = previewed
	}
	return out
}
