package console

import (
	"net/http"
	"strconv"
	"strings"
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
	schema, err := p.api.Traits.Get(p.r.Context())
	if err != nil {
		return err
	}
	data["Schema"] = schema
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
	return p.show("traits", "Traits", "Traits", data)
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
		Title: "Values of " + spread.Path, Description: "The share of those who have it, by value.", Label: "Value", Places: 1,
		Series: []chart.Series{{Name: "% of those who have it"}},
	}
	for _, b := range spread.Bins {
		label := edge(b.From) + " to " + edge(b.To)
		switch {
		case b.From == nil:
			label = "below " + edge(b.To)
		case b.To == nil:
			label = edge(b.From) + " and above"
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
		weight, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return decision, invalid("weight", "This must be a number.")
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
	if _, err := p.api.Traits.Change(p.r.Context(), kindred.TraitsChange{Traits: map[string]*kindred.TraitsChangeTraitsValue{p.form("path"): &change}}); err != nil {
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
		return p.again(invalid("user_id", "Whose matches? Type the user's own id."), list)
	}
	if !strings.HasPrefix(who, "usr_") && !strings.HasPrefix(who, "ext:") {
		who = "ext:" + who
	}
	found, err := p.api.Traits.Preview(p.r.Context(), kindred.TraitsPreview{
		UserID: who, Limit: new(int64(8)), Traits: map[string]*kindred.TraitsPreviewTraitsValue{p.form("path"): &decision},
	})
	if err != nil {
		if what := problemOf(err); what.Status == http.StatusNotFound {
			err = invalid("user_id", "There is no user with this id.")
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
		kindred.TraitBecauseDeclared:          "You decided about the type.",
		kindred.TraitBecauseKind:              "At least 95 % of the values are of this kind.",
		kindred.TraitBecauseFormat:            "At least 95 % of the values spell it.",
		kindred.TraitBecauseFewLevels:         "Texts that many users share.",
		kindred.TraitBecauseCode:              "The path names a code or a key: one is no more than another.",
		kindred.TraitBecauseIdentifier:        "Nearly all values differ, and path or length is that of an identifier.",
		kindred.TraitBecauseEmbedding:         "Arrays of many decimals are no sets.",
		kindred.TraitBecauseFreeText:          "Texts that few users share.",
		kindred.TraitBecauseMixed:             "No kind holds 95 % of the values.",
		kindred.TraitBecauseAmbiguousDates:    "Dates of which day and month cannot be told apart.",
		kindred.TraitBecauseNothingButMissing: "All that is there stands for nothing.",
		kindred.TraitBecauseKept:              "It was learnt by a release before, and stays until you decide.",
	}[why]
}
