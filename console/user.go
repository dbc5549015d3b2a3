package console

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"kindred/console/chart"
	kindred "kindred/sdk/go"
)

// alike is somebody who matches, with what each trait adds.
type alike struct {
	kindred.ComputedMatch
	Terms []chart.Part
	Apart []string // what sets the two apart
}

func (p *page) user() error {
	ctx, id := p.r.Context(), p.r.PathValue("id")
	var read kindred.Answer
	user, err := p.api.Users.Get(ctx, id, kindred.WithAnswer(&read))
	if err != nil {
		return err
	}
	schema, err := p.schema()
	if err != nil {
		return err
	}
	data := map[string]any{"User": user, "Traits": typed(flattened(user.Traits), schema), "ETag": p.etag(read)}
	matches, err := p.api.Matches.Compute(ctx, user.ID, kindred.MatchRequest{Limit: new(int64(alikeShown)), Record: new(false)})
	if err == nil {
		data["Alike"] = explained(matches.Data)
	} else if data["NoMatches"], err = notNow(err); err != nil {
		return err
	}
	if err := p.feed(data, user); err != nil {
		return err
	}
	if err := p.layersOfUser(data, user); err != nil {
		return err
	}
	segments, err := p.api.Segments.ListOfUser(ctx, user.ID)
	if err != nil {
		return err
	}
	data["Segments"] = segments.Segments
	if p.who.has("admin") || p.who.has("audit") {
		if err := p.past(data, user); err != nil {
			return err
		}
	}
	if p.who.Admin() {
		if err := p.timeline(data, user); err != nil {
			return err
		}
	}
	return p.show("user", "Users", user.ExternalID, data)
}

// layersOfUser adds what the user has said of each consent layer, and in which cluster it
// is, or would be, under those that it has granted.
func (p *page) layersOfUser(data map[string]any, user *kindred.User) error {
	ctx := p.r.Context()
	layers, _, err := collect(p.api.Consent.ListLayers(ctx, kindred.ListConsentLayersParams{}), 20)
	if err != nil {
		return err
	}
	type consent struct {
		Layer kindred.ConsentLayer
		Said  *kindred.UserConsent
	}
	var consents []consent
	names := map[string]string{}
	for _, layer := range layers {
		said, err := p.api.Consent.Get(ctx, layer.ID, user.ID)
		if err != nil {
			return err
		}
		consents = append(consents, consent{layer, said})
		names[layer.ID] = layer.Name
	}
	data["Consents"], data["LayerNames"] = consents, names
	member, err := p.api.Users.GetMemberships(ctx, user.ID)
	if err != nil {
		return err
	}
	data["Clusters"] = member.Clusters
	in := map[string]bool{}
	for _, c := range member.Clusters {
		in[c.ConsentLayerID] = true
	}
	var would []standing
	for _, c := range consents {
		if c.Said.Status != kindred.ConsentStatusGranted || in[c.Layer.ID] {
			continue
		}
		one := standing{Layer: c.Layer}
		at, err := p.api.Clusters.Assign(ctx, kindred.ClusterQuestion{UserID: user.ID, ConsentLayerID: c.Layer.ID})
		if err == nil {
			one.At = at
		} else if one.Why, err = notNow(err); err != nil {
			return err
		}
		would = append(would, one)
	}
	data["Would"] = would
	return nil
}

// timeline adds a page of what happened to the user.
func (p *page) timeline(data map[string]any, user *kindred.User) error {
	happened, err := p.api.Users.GetTimelinePage(p.r.Context(), user.ID, kindred.GetTimelineParams{Limit: new(int64(20)), Cursor: p.r.URL.Query().Get("cursor")})
	if err == nil {
		data["Timeline"], data["Next"] = happened.Data, next("users/"+url.PathEscape(user.ID), p.r.URL.Query(), happened.NextCursor)
		data["Names"], data["Actors"], err = p.called(happened.Data)
		return err
	}
	data["NoTimeline"], err = notNow(err)
	return err
}

// feed adds what a feed would show, once it is asked for: of many users that takes as long
// as the rest of the page.
func (p *page) feed(data map[string]any, user *kindred.User) error {
	if data["FeedLater"] = later("users/"+url.PathEscape(user.ID), p.r.URL.Query(), "feed"); data["FeedLater"] != "" {
		return nil
	}
	feed, err := p.api.Feed.GetPage(p.r.Context(), user.ID, kindred.GetFeedParams{Limit: new(int64(8)), Record: new(false)})
	if err != nil {
		data["NoFeed"], err = notNow(err)
		return err
	}
	data["Feed"], data["Campaigns"] = feed.Data, p.campaignNames(feed.Data)
	return nil
}

// campaignNames are what the campaigns of a feed are called, as far as that can be asked.
func (p *page) campaignNames(feed []kindred.FeedItem) map[string]string {
	names := map[string]string{}
	for _, item := range feed {
		id := fmt.Sprint(deref(item.CampaignID))
		if _, known := names[id]; known || id == "" {
			continue
		}
		if one, err := p.api.Campaigns.Get(p.r.Context(), id); err == nil {
			names[id] = one.Name
		}
	}
	return names
}

// called are the own ids of those whom a timeline names, and the members of whom some did something.
func (p *page) called(entries []kindred.TimelineEntry) (names map[string]string, actors map[string]*kindred.Member, err error) {
	var users []string
	member := false
	for _, e := range entries {
		if id := fmt.Sprint(deref(e.MatchedUserID)); id != "" {
			users = append(users, id)
		}
		member = member || strings.HasPrefix(e.Actor, "mem_")
	}
	if names, err = p.ownIDs(users); err != nil || !member {
		return names, nil, err
	}
	actors, err = p.members()
	return names, actors, err
}

// was is a trait of a person at a moment of the past, beside what it is now.
type was struct {
	trait
	Now     string
	Changed bool
}

// past adds how the user was at the moment that is asked for. It is built from the log, so
// it comes once the page is there.
func (p *page) past(data map[string]any, user *kindred.User) error {
	asked := p.r.URL.Query()
	text := asked.Get("at")
	if text == "" {
		return nil
	}
	data["At"] = text
	at, err := time.ParseInLocation(typedLayout, text, zoneOf(p.r))
	if err != nil {
		p.refused = problemOf(invalid("at", say("history.this_must_be_a")))
		return nil //nolint:nilerr // the page says so
	}
	data["PastOf"] = stamp(at, zoneOf(p.r))
	if data["Later"] = later("users/"+url.PathEscape(user.ID), asked, "past"); data["Later"] != "" {
		return nil
	}
	found, err := p.api.History.GetStatePage(p.r.Context(), kindred.GetHistoryStateParams{At: at.UTC().Format(time.RFC3339), UserID: user.ID})
	if err != nil {
		if refused := problemOf(err); refused.Field("at") != "" {
			p.refused = refused
			return nil
		}
		data["NoPast"], err = notNow(err)
		return err
	}
	data["Size"] = &found.Size
	if len(found.Data) == 0 || found.Data[0].User == nil {
		return nil
	}
	then := found.Data[0].User
	data["Then"], data["Past"] = then, compared(flattened(then.Traits), flattened(user.Traits))
	return nil
}

// compared are traits of then beside those of now, by path.
func compared(then, now []trait) (all []was) {
	is := map[string]string{}
	for _, t := range now {
		is[t.Path] = t.Value
	}
	for _, t := range then {
		value, there := is[t.Path]
		all = append(all, was{trait: t, Now: value, Changed: !there || value != t.Value})
		delete(is, t.Path)
	}
	for _, t := range now {
		if _, fresh := is[t.Path]; fresh {
			all = append(all, was{trait: trait{Path: t.Path}, Now: t.Value, Changed: true})
		}
	}
	slices.SortFunc(all, func(a, b was) int { return strings.Compare(a.Path, b.Path) })
	return all
}

// standing is the cluster of a layer that somebody would be in who is in none.
type standing struct {
	Layer kindred.ConsentLayer
	At    *kindred.ClusterAssignment
	Why   string // not, where there is none
}

// notNow is why there is nothing to show yet, or the error where it is another.
func notNow(err error) (why string, other error) {
	what := problemOf(err)
	switch what.Status {
	case http.StatusConflict, http.StatusUnprocessableEntity, http.StatusServiceUnavailable:
		return what.Detail, nil
	}
	return "", err
}

// trait is one of a person, by its path.
type trait struct {
	Path, Value string
	Type        kindred.TraitType // "": it was not learnt yet
	Sensitive   bool
	Reason      string // it takes no part in matches for
}

// typed says of traits how they are read.
func typed(all []trait, schema *kindred.TraitSchema) []trait {
	if schema == nil {
		return all
	}
	known := map[string]*kindred.Trait{}
	for i := range schema.Traits {
		known[schema.Traits[i].Path] = &schema.Traits[i]
	}
	for i := range all {
		if t := known[all[i].Path]; t != nil {
			all[i].Type, all[i].Sensitive, all[i].Reason = t.Type, t.Sensitive, fmt.Sprint(deref(t.Reason))
		}
	}
	return all
}

// flattened lists traits by their paths, as they take part in matches.
func flattened(traits map[string]any) (all []trait) {
	var walk func(prefix string, v any)
	walk = func(prefix string, v any) {
		object, deep := v.(map[string]any)
		if !deep || len(object) == 0 || isPlace(object) {
			all = append(all, trait{Path: prefix, Value: plainValue(v)})
			return
		}
		for _, name := range slices.Sorted(maps.Keys(object)) {
			walk(strings.TrimPrefix(prefix+"."+name, "."), object[name])
		}
	}
	if len(traits) > 0 {
		walk("", traits)
	}
	return all
}

// isPlace: latitude and longitude belong together.
func isPlace(object map[string]any) bool {
	_, lat := object["lat"]
	_, lon := object["lon"]
	return len(object) == 2 && lat && lon
}

// explained puts what adds most to a match first.
func explained(matches []kindred.ComputedMatch) (all []alike) {
	for _, m := range matches {
		one := alike{ComputedMatch: m}
		terms := slices.SortedFunc(slices.Values(m.Explanation), func(a, b kindred.Term) int { return cmp.Compare(b.Contribution, a.Contribution) })
		for i, t := range terms {
			switch {
			case i < 5:
				one.Terms = append(one.Terms, chart.Part{Name: termName(t), Value: t.Contribution})
			case i == 5:
				one.Terms = append(one.Terms, chart.Part{Name: say("user.others"), Value: t.Contribution})
			default:
				one.Terms[5].Value += t.Contribution
			}
			if !t.Missing && t.Similarity < .2 && t.Weight > 0 && len(one.Apart) < 3 {
				one.Apart = append(one.Apart, t.Trait)
			}
		}
		all = append(all, one)
	}
	return all
}

// termName says of a trait that one of the two lacks what is taken instead.
func termName(t kindred.Term) string {
	if t.Missing {
		return say("user.missing_taken_as", t.Trait, strconv.FormatFloat(t.Similarity, 'f', 2, 64))
	}
	return t.Trait
}

func (p *page) changeUser() error {
	traits, err := p.typedTraits()
	if err != nil {
		return p.again(err, p.user)
	}
	user, err := p.api.Users.Put(p.r.Context(), p.r.PathValue("id"), kindred.PutUser{Traits: traits}, p.asSeen()...)
	if err != nil {
		return p.again(err, p.user)
	}
	return p.done(Path+"users/"+url.PathEscape(user.ID), "saved")
}

// alikeShown is how many of those who are alike a page shows, and records.
const alikeShown = 8

// matchUser records the matches that the page shows, of which webhooks tell.
func (p *page) matchUser() error {
	id := p.r.PathValue("id")
	if _, err := p.api.Matches.Compute(p.r.Context(), id, kindred.MatchRequest{Limit: new(int64(alikeShown))}, p.once()); err != nil {
		return p.again(err, p.user)
	}
	return p.done(Path+"users/"+url.PathEscape(id), "matched")
}

func (p *page) eraseUser() error {
	user, err := p.api.Users.Get(p.r.Context(), p.r.PathValue("id"))
	if err != nil {
		return err
	}
	if err := p.confirmed(user.ID, user.ExternalID, say("users.type_the_users_own")); err != nil {
		return p.again(err, p.user)
	}
	if err := p.api.Users.Erase(p.r.Context(), user.ID); err != nil {
		return p.again(err, p.user)
	}
	return p.done(Path+"users", "erased")
}

func (p *page) changeConsent() error {
	ctx, id, layer := p.r.Context(), p.r.PathValue("id"), p.form("layer")
	notice := "granted"
	var err error
	switch {
	case layer == "": // the SDK asks for no path with an empty id
		err = &kindred.Error{Status: http.StatusNotFound}
	case p.form("said") == "granted":
		err = p.api.Consent.Grant(ctx, layer, id, kindred.ConsentGrant{Source: new(say("users.recorded_in_the_console"))})
	default:
		notice, err = "withdrawn", p.api.Consent.Withdraw(ctx, layer, id)
	}
	if err != nil {
		return p.again(err, p.user)
	}
	return p.done(Path+"users/"+url.PathEscape(id), notice)
}
