package console

import (
	"strconv"

	kindred "kindred/sdk/go"
)

// traitTypes are those that can be declared.
var traitTypes = []kindred.TraitType{
	kindred.TraitTypeBool, kindred.TraitTypeNumber, kindred.TraitTypeDate, kindred.TraitTypeGeo, kindred.TraitTypeSet, kindred.TraitTypeCategory,
	kindred.TraitTypeExcluded,
}

func (p *page) traits() error {
	schema, err := p.api.Traits.Get(p.r.Context())
	if err != nil {
		return err
	}
	var chosen *kindred.Trait
	for i, t := range schema.Traits {
		if t.Path == p.r.URL.Query().Get("path") {
			chosen = &schema.Traits[i]
		}
	}
	return p.show("traits", "Traits", "Traits", map[string]any{"Schema": schema, "Chosen": chosen})
}

func (p *page) changeTrait() error {
	path := p.form("path")
	change := kindred.TraitsChangeTraitsValue{
		Ignore: kindred.Value(p.form("ignore") != ""), Sensitive: kindred.Value(p.form("sensitive") != ""),
	}
	if text := p.form("weight"); text != "" {
		weight, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return p.again(invalid("weight", "This must be a number."), p.traits)
		}
		change.Weight = kindred.Value(weight)
	} else {
		change.Weight = kindred.Null[float64]()
	}
	change.Type = kindred.Null[string]()
	if kind := p.form("type"); kind != "" {
		change.Type = kindred.Value(kind)
	}
	if _, err := p.api.Traits.Change(p.r.Context(), kindred.TraitsChange{Traits: map[string]*kindred.TraitsChangeTraitsValue{path: &change}}); err != nil {
		return p.again(err, p.traits)
	}
	return p.done(Path+"traits", "saved")
}
