package commands

import (
	"bytes"
	"context"
	"encoding/json"

	jsonpatch "github.com/evanphx/json-patch/v5"

	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
)

// OverrideTraits merges a patch (RFC 7396) into what the client has decided
// about its traits, by path; null takes a decision back.
func (c *Commands) OverrideTraits(ctx context.Context, call Call, patch json.RawMessage) (Outcome, error) {
	return execute[domain.TraitSchema](ctx, c, call, eventstore.TraitSchemaStream(call.Client), false,
		func(s *domain.TraitSchema, _ []eventstore.Recorded) ([]event.Event, error) {
			overrides, err := mergeOverrides(s.Overrides, patch)
			if err != nil {
				return nil, err
			}
			return s.Override(overrides)
		})
}

func mergeOverrides(old map[string]event.TraitOverride, patch json.RawMessage) (map[string]event.TraitOverride, error) {
	if old == nil {
		old = map[string]event.TraitOverride{}
	}
	document, err := json.Marshal(old)
	if err != nil {
		return nil, err
	}
	unreadable := fault.NewInvalid(fault.Field{Pointer: "/traits", Detail: "must name a decision, or null, for each path"})
	merged, err := jsonpatch.MergePatch(document, patch)
	if err != nil {
		return nil, unreadable
	}
	var overrides map[string]event.TraitOverride
	decoder := json.NewDecoder(bytes.NewReader(merged))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&overrides); err != nil {
		return nil, unreadable
	}
	for path, o := range overrides {
		if o == (event.TraitOverride{}) {
			delete(overrides, path) // nothing is decided any more
		}
	}
	return overrides, nil
}

// RecordTraitSchema records the schema that was learnt from so many users under
// a version, unless there is a newer version.
func (c *Commands) RecordTraitSchema(ctx context.Context, client id.Client, under, users int, schema []byte) error {
	call := Call{Client: client, Actor: "policy:trait_schema"}
	_, err := execute[domain.TraitSchema](ctx, c, call, eventstore.TraitSchemaStream(client), false,
		func(s *domain.TraitSchema, _ []eventstore.Recorded) ([]event.Event, error) {
			return s.Infer(under, event.TraitSchemaInferred{Client: client, Users: users, Schema: event.Private(schema)}), nil
		})
	return err
}
