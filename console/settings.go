package console

import (
	"cmp"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	kindred "kindred/sdk/go"
)

// roles are those that somebody may give members, the least first.
func (p *page) roles() []kindred.Role {
	all := []kindred.Role{kindred.RoleViewer, kindred.RoleAuditor, kindred.RoleAdmin}
	if p.who.Owner() {
		all = append(all, kindred.RoleOwner)
	}
	return all
}

func (p *page) settings() error {
	ctx := p.r.Context()
	var read kindred.Answer
	client, err := p.api.Client.Get(ctx, kindred.WithAnswer(&read))
	if err != nil {
		return err
	}
	etags := map[string]string{client.ID: read.ETag}
	members, more, err := collect(p.api.Members.List(ctx, kindred.ListMembersParams{}), allOf)
	if err != nil {
		return err
	}
	layers, _, err := collect(p.api.Consent.ListLayers(ctx, kindred.ListConsentLayersParams{}), allOf)
	if err != nil {
		return err
	}
	for i, l := range layers { // a list does not tell their ETags
		one, err := p.api.Consent.GetLayer(ctx, l.ID, kindred.WithAnswer(&read))
		switch {
		case err == nil:
			layers[i], etags[l.ID] = *one, read.ETag
		case problemOf(err).Status != http.StatusNotFound: // it was retired meanwhile
			return err
		}
	}
	changed := cmp.Or(p.changed, client.ID)
	etags[changed] = p.etag(kindred.Answer{ETag: etags[changed]})
	models, err := p.api.Projections.List(ctx)
	if err != nil {
		return err
	}
	sandboxes, err := p.sandboxes()
	if err != nil {
		return err
	}
	schema, err := p.schema()
	if err != nil {
		return err
	}
	return p.show("settings", "Settings", say("titles.settings"), map[string]any{
		"Sandboxes": sandboxes, "Suggested": suggested(schema), "Changed": p.changed, "ETags": etags, "Granted": p.granted,
		"Client": client, "Members": members, "More": more, "Layers": layers, "Projections": models.Data, "Roles": p.roles(),
	})
}

func (p *page) changeSettings() error {
	k, err := p.whole("k")
	if err != nil {
		return p.again(err, p.settings)
	}
	score, ok := decimal(p.form("min_score"))
	if !ok {
		return p.again(invalid("min_score", say("settings.this_must_be_a")), p.settings)
	}
	ids := kindred.WebhookUserIDs(p.form("webhook_user_ids"))
	always := kindred.Null[string]()
	if text := p.form("match_rule"); text != "" {
		always = kindred.Value(text)
	}
	_, err = p.api.Client.Change(p.r.Context(), kindred.ClientChange{
		Name: new(p.form("name")),
		Settings: &kindred.ClientSettingsChange{
			AutomaticMatching:     &kindred.AutomaticMatchingChange{On: new(p.form("on") != ""), K: k, MinScore: &score},
			MatchingRequiresLayer: new(p.form("matching_requires_layer") != ""), WebhookUserIDs: &ids, MatchRule: always,
		},
	}, p.asSeen()...)
	if err != nil {
		return p.again(err, p.settings)
	}
	return p.done(Path+"settings", "saved")
}

func (p *page) addMember() error {
	_, err := p.api.Members.Add(p.r.Context(), kindred.NewMember{
		Email: p.form("email"), Password: p.r.Form.Get("password"), Role: kindred.Role(p.form("role")),
	}, p.once())
	if err != nil {
		return p.again(err, p.settings)
	}
	return p.done(Path+"settings", "created")
}

func (p *page) removeMember() error {
	ctx, id := p.r.Context(), p.r.PathValue("id")
	err := confirmedIn(p, p.api.Members.List(ctx, kindred.ListMembersParams{}), id,
		func(m kindred.Member) (id, email string) { return m.ID, m.Email }, say("settings.type_the_member"))
	if err == nil {
		err = p.api.Members.Remove(ctx, id, kindred.RemoveMemberParams{})
	}
	if err != nil {
		return p.again(err, p.settings)
	}
	return p.done(Path+"settings", "removed")
}

// suggestedTraits is how many traits the form of a layer begins with.
const suggestedTraits = 20

// suggested are the traits that matches use: what a first layer may well use, too.
func suggested(schema *kindred.TraitSchema) (paths []string) {
	if schema == nil {
		return nil
	}
	for _, t := range schema.Traits {
		if t.Participates && len(paths) < suggestedTraits && !strings.ContainsAny(t.Path, ", \r\n") {
			paths = append(paths, t.Path)
		}
	}
	return paths
}

// typedPaths are the paths of traits that were typed, with commas or lines between them.
func (p *page) typedPaths() []string {
	paths := []string{}
	for path := range strings.FieldsFuncSeq(p.form("trait_paths"), func(r rune) bool { return r == ',' || r == '\n' || r == '\r' }) {
		if path = strings.TrimSpace(path); path != "" {
			paths = append(paths, path)
		}
	}
	return paths
}

func (p *page) changeLayer() error {
	p.changed = p.r.PathValue("id")
	always := kindred.Null[string]()
	if text := p.form("match_rule"); text != "" {
		always = kindred.Value(text)
	}
	change := kindred.ConsentLayerChange{Name: new(p.form("name")), MatchRule: always}
	before, err := p.api.Consent.GetLayer(p.r.Context(), p.changed)
	if err != nil {
		return p.again(err, p.settings)
	}
	if p.form("trait_paths") != strings.TrimSpace(strings.Join(before.TraitPaths, ", ")) {
		change.TraitPaths = p.typedPaths() // else it stays: a path may hold a comma, which would part it
	}
	if _, err := p.api.Consent.ChangeLayer(p.r.Context(), p.changed, change, p.asSeen()...); err != nil {
		return p.again(err, p.settings)
	}
	return p.done(Path+"settings", "saved")
}

// grantLayer records that all users who are there have granted a layer.
func (p *page) grantLayer() error {
	p.granted = p.r.PathValue("id")
	switch {
	case p.form("agreed") == "":
		return p.again(invalid("agreed", say("settings.say_that_they_agreed")), p.settings)
	case p.form("source") == "":
		return p.again(invalid("source", say("settings.say_where")), p.settings)
	}
	_, err := p.api.Consent.GrantMany(p.r.Context(), p.granted, kindred.ConsentsChange{All: new(true), Source: p.optional("source")}, p.once())
	switch what := problemOf(err); {
	case err == nil:
		return p.done(Path+"clusters?layer="+url.QueryEscape(p.granted), "granted")
	case what.Code == kindred.CodeNotFinished:
		return p.goOn(what)
	}
	return p.again(err, p.settings)
}

// goOn shows how far work has come that takes more than one request; the form goes on with it.
func (p *page) goOn(what *Problem) error {
	what.Status, what.Title, what.Done = http.StatusAccepted, say("problem.it_is_under_way"), &progress{}
	what.Done.Done, _ = strconv.ParseInt(firstNumber.FindString(what.Detail), 10, 64) // 0 where none is told
	if schema, err := p.schema(); err == nil && schema != nil {
		what.Done.Total = schema.Users
	}
	what.Done.Total = max(what.Done.Total, what.Done.Done)
	what.Detail, what.RequestID, what.Again = say("problem.so_many_are_done", number(what.Done.Done), number(what.Done.Total)), "", p.typed()
	p.problem(what)
	return nil
}

// firstNumber is how many are done, in what the API says of work that is not finished.
var firstNumber = regexp.MustCompile(`\d+`)

func (p *page) createLayer() error {
	if _, err := p.api.Consent.CreateLayer(p.r.Context(), kindred.NewConsentLayer{Name: p.form("name"), TraitPaths: p.typedPaths()}, p.once()); err != nil {
		return p.again(err, p.settings)
	}
	return p.done(Path+"settings", "created")
}

func (p *page) retireLayer() error {
	layer, err := p.api.Consent.GetLayer(p.r.Context(), p.r.PathValue("id"))
	if err != nil {
		return p.again(err, p.settings)
	}
	if err := p.confirmed(layer.ID, layer.Name, say("settings.type_the_layer")); err != nil {
		return p.again(err, p.settings)
	}
	if err := p.api.Consent.RetireLayer(p.r.Context(), layer.ID); err != nil {
		return p.again(err, p.settings)
	}
	return p.done(Path+"settings", "retired")
}

func (p *page) rebuild() error {
	if _, err := p.api.Projections.Rebuild(p.r.Context(), p.r.PathValue("name"), p.once()); err != nil {
		return p.again(err, p.settings)
	}
	return p.done(Path+"settings", "rebuilding")
}
