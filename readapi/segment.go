package readapi

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"time"

	openapi_types "github.com/oapi-codegen/runtime/types"

	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/domain/rule"
	"kindred/eventstore"
	"kindred/httpapi"
	"kindred/projections"
	"kindred/projections/readmodel"
	"kindred/projections/segments"
)

// ListSegments lists the segments of the client.
func (a *API) ListSegments(ctx context.Context, r httpapi.ListSegmentsRequestObject) (httpapi.ListSegmentsResponseObject, error) {
	data, next, err := list(ctx, a, "segments", r.Params.Limit, r.Params.Cursor, segments.Model{Reader: a.Reader}.List,
		func(s segments.Segment) eventstore.Position { return s.CreatedPosition }, segmentBody)
	return httpapi.ListSegments200JSONResponse{Data: data, NextCursor: next}, err
}

// GetSegment shows a segment.
func (a *API) GetSegment(ctx context.Context, r httpapi.GetSegmentRequestObject) (httpapi.GetSegmentResponseObject, error) {
	found, err := get(ctx, r.SegmentID, fault.UnknownSegment, segments.Model{Reader: a.Reader}.Get)
	if err != nil {
		return nil, err
	}
	return httpapi.GetSegment200JSONResponse{
		Body: segmentBody(found), Headers: httpapi.GetSegment200ResponseHeaders{ETag: httpapi.ETag(int64(found.Changed))},
	}, nil
}

// ListSegmentMembers lists the users in a segment.
func (a *API) ListSegmentMembers(ctx context.Context, r httpapi.ListSegmentMembersRequestObject) (httpapi.ListSegmentMembersResponseObject, error) {
	segment, err := httpapi.Named[id.Segment](r.SegmentID, fault.UnknownSegment)
	if err != nil {
		return nil, err
	}
	if httpapi.CallFrom(ctx).Export {
		if r.Params.Limit != nil || r.Params.Cursor != nil {
			return nil, fault.NewInvalid(fault.Field{Detail: "As CSV the answer is all members: it takes no limit or cursor."})
		}
		return httpapi.Export{Now: a.Now, Write: func(w io.Writer) error { return a.writeMembers(ctx, segment, w) }}, nil
	}
	var changes eventstore.Position
	data, next, err := list(ctx, a, filtered("segment_members", string(segment)), r.Params.Limit, r.Params.Cursor,
		func(ctx context.Context, client id.Client, eventual bool, page readmodel.Page) (found []segments.Member, err error) {
			found, changes, err = segments.Model{Reader: a.Reader}.Members(ctx, client, eventual, segment, page)
			return found, err
		}, func(m segments.Member) eventstore.Position { return m.Place }, segmentMemberBody)
	if err != nil {
		return nil, err
	}
	client, _ := asked(ctx)
	return httpapi.ListSegmentMembers200JSONResponse{
		Data: data, NextCursor: next, ChangesCursor: a.Cursors.Encode(client, changesOf(segment), string(changes)),
	}, nil
}

const membersWritten = 1_000 // of a segment, that are read at a time

// writeMembers writes all members of a segment as CSV.
func (a *API) writeMembers(ctx context.Context, segment id.Segment, w io.Writer) error {
	client, eventual := asked(ctx)
	out := csv.NewWriter(w)
	page := readmodel.Page{Limit: membersWritten}
	for {
		var members []segments.Member
		if err := fault.Await(ctx, func(ctx context.Context) (err error) { // the edge repeats no streams
			members, _, err = segments.Model{Reader: a.Reader}.Members(ctx, client, eventual, segment, page)
			return err
		}); err != nil {
			return err
		}
		if page.After == eventstore.Start {
			_ = out.Write([]string{"user_id", "external_id"}) // once it is known that there are members
		}
		for _, m := range members {
			_ = out.Write([]string{string(m.User), m.ExternalID}) // Error tells of all
			page.After = m.Place
		}
		if out.Flush(); out.Error() != nil || len(members) < page.Limit {
			return out.Error()
		}
		eventual = true // what the client was told is there already
	}
}

// usersIn lists the users in a segment.
func (a *API) usersIn(ctx context.Context, p httpapi.ListUsersParams) ([]projections.User, *httpapi.NextCursor, error) {
	if p.ExternalID != nil || p.Ids != nil || p.UpdatedSince != nil || p.Filter != nil {
		return nil, nil, fault.NewInvalid(fault.Field{Pointer: "segment_id", Detail: `stands alone; in_segment("seg_…") in filter goes with the others`})
	}
	segment, err := httpapi.Named[id.Segment](*p.SegmentID, fault.UnknownSegment)
	if err != nil {
		return nil, nil, err
	}
	client, eventual := asked(ctx)
	name := filtered("users", "segment", string(segment))
	page, err := a.page(client, name, p.Limit, p.Cursor)
	if err != nil {
		return nil, nil, err
	}
	members, _, err := segments.Model{Reader: a.Reader}.Members(ctx, client, eventual, segment, page)
	if err != nil {
		return nil, nil, err
	}
	places := make(map[id.User]eventstore.Position, len(members))
	for _, m := range members {
		places[m.User] = m.Place
	}
	members, next := cut(a, client, name, page, members, nil, func(m segments.Member) eventstore.Position { return m.Place })
	found, err := a.Users.List(ctx, client, eventual, projections.UserQuery{
		IDs: each(members, func(m segments.Member) id.User { return m.User }), Page: readmodel.Page{Limit: page.Limit},
	})
	if err != nil {
		return nil, nil, err
	}
	found, sooner := cut(a, client, name, page, found, projections.UserSize, func(u projections.User) eventstore.Position { return places[u.ID] })
	return found, cmp.Or(sooner, next), nil
}

// changesOf names the list of changes of a segment, for its cursors.
func changesOf(segment id.Segment) string { return filtered("segment_changes", string(segment)) }

// ListSegmentChanges lists who entered and left a segment.
func (a *API) ListSegmentChanges(ctx context.Context, r httpapi.ListSegmentChangesRequestObject) (httpapi.ListSegmentChangesResponseObject, error) {
	client, eventual := asked(ctx)
	segment, err := httpapi.Named[id.Segment](r.SegmentID, fault.UnknownSegment)
	if err != nil {
		return nil, err
	}
	list, newest := changesOf(segment), httpapi.Or(r.Params.Order, httpapi.OrderAsc) == httpapi.OrderDesc
	wait := time.Duration(httpapi.Or(r.Params.Wait, 0)) * time.Second
	if newest {
		list = filtered(list, string(httpapi.OrderDesc))
		if wait > 0 {
			return nil, fault.NewInvalid(fault.Field{Pointer: "wait", Detail: "is for changes in their order: none comes behind the oldest"})
		}
	}
	page, err := a.page(client, list, r.Params.Limit, r.Params.After)
	if fault.Is(err, "bad_cursor") {
		err = fault.New(fault.Unreadable, "bad_cursor",
			"after is no place in this list. Pass cursor as it was, with the same order, or changes_cursor of the members.")
	}
	if err != nil {
		return nil, err
	}
	page.Limit-- // the model says itself whether there is more
	read := func() ([]segments.Change, bool, eventstore.Position, error) {
		if wait > 0 { // over the connections of followers: it holds no place of the reads
			return a.Streams.Changes(ctx, client, eventual, segment, page, wait)
		}
		return segments.Model{Reader: a.Reader}.Changes(ctx, client, eventual, segment, newest, page)
	}
	found, more, at, err := read()
	if err != nil && !errors.Is(err, httpapi.ErrStopping) {
		return nil, err
	}
	answer := httpapi.ListSegmentChanges200JSONResponse{HasMore: more}
	answer.Cursor = a.Cursors.Encode(client, list, string(at))
	answer.Changes = each(found, func(c segments.Change) httpapi.SegmentChange {
		return httpapi.SegmentChange{
			UserID: c.User, ExternalID: httpapi.OrNull(c.ExternalID), Change: httpapi.SegmentChangeKind(c.Change), At: httpapi.Time{Time: c.At},
		}
	})
	return answer, nil
}

const (
	sizesShown = 30 // days, where none is asked for
	// limit: requests | days from `from` to `to` of a segment's sizes | {sizesMost} | 422 `invalid`
	sizesMost = 400
)

// ListSegmentSizes lists how many members a segment had, day by day.
func (a *API) ListSegmentSizes(ctx context.Context, r httpapi.ListSegmentSizesRequestObject) (httpapi.ListSegmentSizesResponseObject, error) {
	client, eventual := asked(ctx)
	segment, err := httpapi.Named[id.Segment](r.SegmentID, fault.UnknownSegment)
	if err != nil {
		return nil, err
	}
	now, _, err := a.Clock(ctx, client)
	if err != nil {
		return nil, err
	}
	to := httpapi.Or(r.Params.To, now)
	from := httpapi.Or(r.Params.From, to.AddDate(0, 0, 1-sizesShown))
	if from.After(to) || from.AddDate(0, 0, sizesMost).Before(to) {
		return nil, fault.NewInvalid(fault.Field{Pointer: "from", Detail: fmt.Sprintf("must be at most %d days before to, and not after it", sizesMost)})
	}
	found, err := segments.Model{Reader: a.Reader}.Sizes(ctx, client, eventual, segment, from, to)
	return httpapi.ListSegmentSizes200JSONResponse{SegmentID: segment, Sizes: each(found, func(s segments.DaySize) httpapi.SegmentSize {
		return httpapi.SegmentSize{Day: openapi_types.Date{Time: s.Day}, Members: s.Members}
	})}, err
}

// ListSegmentsOfUser lists the segments that a user is in.
func (a *API) ListSegmentsOfUser(ctx context.Context, r httpapi.ListSegmentsOfUserRequestObject) (httpapi.ListSegmentsOfUserResponseObject, error) {
	client, eventual := asked(ctx)
	user, err := a.userThere(ctx, r.UserID)
	if err != nil {
		return nil, err
	}
	found, err := segments.Model{Reader: a.Reader}.OfUser(ctx, client, eventual, user)
	if err != nil {
		return nil, err
	}
	return httpapi.ListSegmentsOfUser200JSONResponse{UserID: user, Segments: each(found, func(s segments.SegmentOfUser) httpapi.SegmentOfUser {
		return httpapi.SegmentOfUser{SegmentID: s.ID, Name: s.Name, Why: each(s.Why, judgedBody)}
	})}, nil
}

// GetSegmentMember says whether a user is in a segment, and why.
func (a *API) GetSegmentMember(ctx context.Context, r httpapi.GetSegmentMemberRequestObject) (httpapi.GetSegmentMemberResponseObject, error) {
	client, eventual := asked(ctx)
	segment, err := httpapi.Named[id.Segment](r.SegmentID, fault.UnknownSegment)
	if err != nil {
		return nil, err
	}
	user, err := a.userThere(ctx, r.UserID)
	if err != nil {
		return nil, err
	}
	found, err := segments.Model{Reader: a.Reader}.MemberOf(ctx, client, eventual, user, segment)
	if err != nil {
		return nil, err
	}
	answer := httpapi.GetSegmentMember200JSONResponse{SegmentID: segment, UserID: user, Member: found.Member, Why: each(found.Why, judgedBody)}
	if found.Layer != "" {
		answer.ConsentLayerID, answer.Granted = &found.Layer, &found.Granted
	}
	return answer, nil
}

// PreviewRule says whom a rule would name.
func (a *API) PreviewRule(ctx context.Context, r httpapi.PreviewRuleRequestObject) (httpapi.PreviewRuleResponseObject, error) {
	client, eventual := asked(ctx)
	var layer projections.ConsentLayer
	var err error
	if r.Body.ConsentLayerID != nil {
		if layer, err = a.layer(ctx, *r.Body.ConsentLayerID); err != nil {
			return nil, err
		}
	}
	parsed, err := a.userRule(ctx, "/rule", r.Body.Rule, layer)
	if err != nil {
		return nil, err
	}
	model := segments.Model{Reader: a.Reader}
	var now time.Time // of a moment of the past, that of its last event
	if r.Body.At == nil {
		if now, _, err = a.Clock(ctx, client); err != nil {
			return nil, err
		}
	} else {
		if who := httpapi.PrincipalFrom(ctx); !who.May("admin") && !who.May("audit") {
			return nil, fault.New(fault.Forbidden, "missing_scope", "What was in the past takes a token with the scope admin or audit.")
		}
		state, done, err := a.stateAt(ctx, "/at", *r.Body.At)
		if err != nil {
			return nil, err
		}
		defer done()
		model.Reader, eventual = state.Reader, true
	}
	recorded, err := projections.TraitSchemas{Reader: a.Reader}.Recorded(ctx, client, eventual)
	if err != nil {
		return nil, err
	}
	schema, _ := recorded.Inferred.Decide(recorded.Overrides)
	if len(schema.Traits) == 0 { // a rule is often the first thing that is asked for after an import
		if schema, err = model.Inferred(ctx, client, eventual, recorded.Overrides); err != nil {
			return nil, err
		}
	}
	p, err := model.Preview(ctx, client, eventual, parsed, event.Within{Layer: layer.ID, TraitPaths: layer.TraitPaths}, schema, now)
	if err != nil {
		return nil, err
	}
	return httpapi.PreviewRule200JSONResponse{
		Users: p.Users, Judged: p.Judged, Members: p.Members, Share: p.Share, Margin: p.Margin, Sample: each(p.Sample, segmentMemberBody),
		Apart: each(p.Apart, func(d segments.Distinction) httpapi.RuleTrait {
			return httpapi.RuleTrait{
				Path: d.Path, Type: string(d.Type), Level: httpapi.OrNull(d.Level), Effect: d.Effect, NamedValue: d.Here, OverallValue: d.All,
			}
		}),
		Warnings: each(parsed.Warnings(schema, p.Unknown), func(w *rule.Error) httpapi.RuleWarning {
			return httpapi.RuleWarning{Line: w.Line, Column: w.Column, Detail: w.Detail}
		}),
	}, nil
}

func segmentBody(s segments.Segment) httpapi.Segment {
	body := httpapi.Segment{
		ID: s.ID, Name: s.Name, Rule: s.Rule, State: httpapi.SegmentReady, Members: s.Members,
		CreatedAt: httpapi.Time{Time: s.CreatedAt}, UpdatedAt: httpapi.Time{Time: s.UpdatedAt},
	}
	body.ConsentLayerID = httpapi.OrNull(s.Layer)
	if s.Blocked {
		body.BlockedBy = each(s.BlockedBy, func(b segments.BlockedBy) httpapi.SegmentBlock {
			return httpapi.SegmentBlock{Cause: httpapi.SegmentBlockCause(b.Cause), Name: b.Name}
		})
	}
	switch {
	case s.Blocked:
		body.State = httpapi.SegmentBlocked
	case !s.Ready:
		body.State = httpapi.SegmentBuilding
	case s.Building:
		body.State = httpapi.SegmentRebuilding
	}
	return body
}

func segmentMemberBody(m segments.Member) httpapi.SegmentMember {
	return httpapi.SegmentMember{UserID: m.User, ExternalID: m.ExternalID}
}

func judgedBody(c rule.Comparison) httpapi.JudgedComparison {
	body := httpapi.JudgedComparison{Comparison: c.Text, Truth: httpapi.TruthUnknown}
	switch c.Truth {
	case rule.True:
		body.Truth = httpapi.TruthTrue
	case rule.False:
		body.Truth = httpapi.TruthFalse
	}
	if !c.FlipsAt.IsZero() {
		body.FlipsAt = &httpapi.Time{Time: c.FlipsAt}
	}
	return body
}
