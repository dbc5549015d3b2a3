package readapi

import (
	"context"
	"encoding/json"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/httpapi"
	"kindred/projections/populations"
)

// GetTraits shows what was learnt about the users' traits.
func (a *API) GetTraits(ctx context.Context, _ httpapi.GetTraitsRequestObject) (httpapi.GetTraitsResponseObject, error) {
	client, _ := asked(ctx)
	body, tag, err := a.TraitSchema(ctx, client)
	if err != nil {
		return nil, err
	}
	return httpapi.GetTraits200JSONResponse{Body: body, Headers: httpapi.GetTraits200ResponseHeaders{ETag: tag}}, nil
}

// GetTraitDistribution shows how the users' values of a trait are spread.
func (a *API) GetTraitDistribution(ctx context.Context, r httpapi.GetTraitDistributionRequestObject) (httpapi.GetTraitDistributionResponseObject, error) {
	client, _ := asked(ctx)
	d, err := a.Populations.Distribution(ctx, client, r.Path)
	if err != nil {
		return nil, err
	}
	return httpapi.GetTraitDistribution200JSONResponse{
		Path: d.Path, Type: httpapi.TraitType(d.Type), Sensitive: d.Sensitive, Coverage: d.Coverage,
		Bins: each(d.Bins, func(b populations.Bin) httpapi.TraitBin {
			return httpapi.TraitBin{From: b.From, To: b.To, Share: b.Share}
		}),
		Values: each(d.Shares, func(s populations.Share) httpapi.TraitValue {
			return httpapi.TraitValue{Value: s.Value, Share: s.Share}
		}),
	}, nil
}

// TraitSchema is a client's schema and its entity tag.
// Faults: building, busy, overloaded, population_too_large, quarantined, stale.
func (a *API) TraitSchema(ctx context.Context, client id.Client) (httpapi.TraitSchema, string, error) {
	s, err := a.Populations.Schema(ctx, client)
	if err != nil {
		return httpapi.TraitSchema{}, "", err
	}
	body := httpapi.TraitSchema{
		Version: s.Version, Users: s.Users, Skipped: s.Skipped, Traits: each(s.Traits, traitBody),
		Overrides: make(map[string]httpapi.TraitOverride, len(s.Overrides)),
	}
	for path, o := range s.Overrides {
		body.Overrides[path] = overrideBody(o)
	}
	return body, httpapi.ETag(int64(s.Version) - 1), nil // versions count from 1, revisions from 0
}

// InferredTraits are those that users would give by themselves, and how many paths too
// many they have.
// Faults: building, busy, overloaded, population_too_large, quarantined, stale.
func (a *API) InferredTraits(ctx context.Context, client id.Client, users map[string]json.RawMessage) ([]httpapi.Trait, int, error) {
	s, err := a.Populations.Inferred(ctx, client, users)
	return each(s.Traits, traitBody), s.Skipped, err
}

func traitBody(t populations.Trait) httpapi.Trait {
	body := httpapi.Trait{
		Path: t.Path, Type: httpapi.TraitType(t.Type), Declared: t.Declared, Weight: t.Weight,
		Ignored: t.Ignored, Sensitive: t.Sensitive, Coverage: t.Coverage, Participates: t.Why == "",
		Reason: httpapi.OrNull(httpapi.TraitReason(t.Why)), Levels: append([]string{}, t.Levels...),
		Because: httpapi.TraitBecause(t.Because), Format: httpapi.OrNull(t.Format), MissingValues: append([]float64{}, t.Missing...),
	}
	if s := t.Suggested; s != nil {
		body.Suggestion = &httpapi.TraitSuggestion{
			Type: httpapi.TraitType(s.Type), Format: httpapi.OrNull(string(s.Format)), MissingValues: append([]float64{}, s.Sentinels...),
			Because: httpapi.TraitBecause(s.Because), Sensitive: s.Sensitive,
		}
	}
	return body
}

func overrideBody(o event.TraitOverride) httpapi.TraitOverride {
	return httpapi.TraitOverride{
		Type: httpapi.OrNull(httpapi.TraitType(o.Type)), Weight: o.Weight, Ignore: o.Ignore, Sensitive: o.Sensitive,
	}
}
