package console

import (
	"cmp"
	"fmt"
	"net/http"
	"time"

	"kindred/console/chart"
	kindred "kindred/sdk/go"
)

// traitTypes are those that can be declared.
var traitTypes = []kindred.TraitType{
	kindred.TraitTypeBool, kindred.TraitTypeNumber, kindred.TraitTypeDate, kindred.TraitTypeGeo, kindred.TraitTypeSet, kindred.TraitTypeCategory,
	kindred.TraitTypeExcluded,
}

func (p *page) traits() error {
	if p.r.FormValue("try") != "" {
		return p.tryTrait()
	}
	return p.showTraits(map[string]any{})
}

// showTraits lists the traits, and shows the one that is asked for, or decided about.
func (p *page) showTraits(data map[string]any) error {
	var read kindred.Answer
	schema, err := p.api.Traits.Get(p.r.Context(), kindred.WithAnswer(&read))
	if err != nil {
		return err
	}
	data["Schema"], data["ETag"] = schema, p.etag(read)
	for i, t := range schema.Traits {
		if t.Path == p.r.FormValue("path") {
			data["Chosen"] = &schema.Traits[i]
			spread, err := p.api.Traits.GetTraitDistribution(p.r.Context(), t.Path)
			if err != nil {
				return err
			}
			data["Spread"] = spread
			if len(spread.Bins) > 0 {
				data["Bins"] = binned(spread)
			}
		}
	}
	return p.show("traits", "Traits", say("common.traits"), data)
}

// binned is a distribution as a picture.
func binned(spread *kindred.TraitDistribution) chart.Data {
	edge := func(v *float64) string {
		switch {
		case v == nil:
			return ""
		case spread.Type == kindred.TraitTypeDate:
			return time.Unix(int64(*v)*24*60*60, 0).UTC().Format("2 Jan 2006")
		}
		return number(*v)
	}
	shown := chart.Data{
		Title: say("traits.values_of", spread.Path), Description: say("traits.the_share_of_those"), Label: say("traits.value"), Places: 1,
		Series: []chart.Series{{Name: say("traits.of_those_who_have2")}},
	}
	for _, b := range spread.Bins {
		label := say("traits.to", edge(b.From), edge(b.To))
		switch {
		case b.From == nil:
			label = say("traits.below", edge(b.To))
		case b.To == nil:
			label = say("traits.and_above", edge(b.From))
		}
		shown.Labels = append(shown.Labels, label)
		shown.Series[0].Values = append(shown.Series[0].Values, 100*b.Share)
	}
	return shown
}

// decided is what a form says of a trait. A weight that it does not say is the default.
func (p *page) decided() (decision kindred.TraitsPreviewTraitsValue, err error) {
	decision = kindred.TraitsPreviewTraitsValue{
		Weight: kindred.Null[float64](), Ignore: kindred.Value(p.form("ignore") != ""), Sensitive: kindred.Value(p.form("sensitive") != ""),
	}
	if text := p.form("weight"); text != "" {
		weight, ok := decimal(text)
		if !ok {
			return decision, invalid("weight", say("traits.this_must_be_a"))
		}
		decision.Weight = kindred.Value(weight)
	}
	return decision, nil
}

func (p *page) changeTrait() error {
	decision, err := p.decided()
	if err != nil {
		return p.again(err, p.traits)
	}
	change := kindred.TraitsChangeTraitsValue{
		Weight: decision.Weight, Ignore: decision.Ignore, Sensitive: decision.Sensitive, Type: kindred.Null[string](),
	}
	if kind := p.form("type"); kind != "" {
		change.Type = kindred.Value(kind)
	}
	if _, err := p.api.Traits.Change(p.r.Context(), kindred.TraitsChange{Traits: map[string]*kindred.TraitsChangeTraitsValue{p.form("path"): &change}}, p.asSeen()...); err != nil {
		return p.again(err, p.traits)
	}
	return p.done(Path+"traits", "saved")
}

// tryTrait shows what a decision would do to the matches of a person. Nothing is recorded.
func (p *page) tryTrait() error {
	list := func() error { return p.showTraits(map[string]any{}) }
	decision, err := p.decided()
	if err != nil {
		return p.again(err, list)
	}
	who := p.form("who")
	if who == "" {
		return p.again(invalid("user_id", say("traits.whose_matches_type_the")), list)
	}
	found, err := p.api.Traits.Preview(p.r.Context(), kindred.TraitsPreview{
		UserID: typedUser(who), Limit: new(int64(8)), Traits: map[string]*kindred.TraitsPreviewTraitsValue{p.form("path"): &decision},
	})
	if err != nil {
		if what := problemOf(err); what.Status == http.StatusNotFound {
			err = invalid("user_id", say("traits.there_is_no_user"))
		}
		return p.again(err, list)
	}
	place := map[string]int{}
	for i, m := range found.Before {
		place[m.MatchedUserID] = i + 1
	}
	type row struct {
		kindred.ComputedMatch
		Place, Before int // 0: it was not among the best
	}
	var after []row
	for i, m := range found.After {
		after = append(after, row{m, i + 1, place[m.MatchedUserID]})
	}
	return p.showTraits(map[string]any{"Before": found.Before, "After": after, "Tried": true})
}

// because says why a trait is read as it is.
func because(why kindred.TraitBecause) string {
	return map[kindred.TraitBecause]string{
		kindred.TraitBecauseDeclared:          say("traits.you_decided_about_the"),
		kindred.TraitBecauseKind:              say("traits.at_least_of_the"),
		kindred.TraitBecauseFormat:            say("traits.at_least_of_the2"),
		kindred.TraitBecauseFewLevels:         say("traits.texts_that_many_users"),
		kindred.TraitBecauseCode:              say("traits.the_path_names_a"),
		kindred.TraitBecauseIdentifier:        say("traits.nearly_all_values_differ"),
		kindred.TraitBecauseEmbedding:         say("traits.arrays_of_many_decimals"),
		kindred.TraitBecauseFreeText:          say("traits.texts_that_few_users"),
		kindred.TraitBecauseMixed:             say("traits.no_kind_holds_of"),
		kindred.TraitBecauseAmbiguousDates:    say("traits.dates_of_which_day"),
		kindred.TraitBecauseNothingButMissing: say("traits.all_that_is_there"),
		kindred.TraitBecauseKept:              say("traits.it_was_learnt_by"),
	}[why]
}

// reason says why a trait takes no part in matches.
func reason(code any) string {
	text := fmt.Sprint(deref(code))
	return cmp.Or(map[string]string{
		"ignored":         say("traits.reason_ignored"),
		"sensitive":       say("traits.reason_sensitive"),
		"not_comparable":  say("traits.reason_not_comparable"),
		"no_weight":       say("traits.reason_no_weight"),
		"always_the_same": say("traits.reason_always_the_same"),
	}[text], text)
}
