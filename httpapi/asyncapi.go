package httpapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

type object = map[string]any

// asyncContract describes in AsyncAPI 3.0 what the service tells: the messages and
// schemas are those of the contract.
func asyncContract(doc *openapi3.T) ([]byte, error) {
	raw, err := publicContract(doc)
	if err != nil {
		return nil, err
	}
	var contract struct {
		Components struct {
			Schemas map[string]any `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(raw, &contract); err != nil {
		return nil, err
	}
	delivery := doc.Components.Schemas["EventDelivery"].Value
	messages, kinds, schemas := object{}, object{}, object{}
	for _, kind := range slices.Sorted(maps.Keys(delivery.Discriminator.Mapping)) {
		ref := delivery.Discriminator.Mapping[kind].Ref
		name := ref[strings.LastIndex(ref, "/")+1:]
		schema := doc.Components.Schemas[name]
		if schema == nil {
			return nil, fmt.Errorf("there is no schema %s of %s", name, kind)
		}
		messages[kind] = object{
			"name": kind, "title": kind, "summary": schema.Value.Description, "contentType": "application/json",
			"headers": reference("schemas", "DeliveryHeaders"), "payload": reference("schemas", name),
		}
		kinds[kind] = reference("messages", kind)
		closure(contract.Components.Schemas, name, schemas)
	}
	schemas["DeliveryHeaders"] = deliveryHeaders(doc)
	return json.Marshal(object{
		"asyncapi": "3.0.0",
		"info": object{
			"title": doc.Info.Title + ": events", "version": doc.Info.Version,
			"description": "What webhooks are sent, and `GET /api/v1/events/stream` tells. Deliveries are at least once; the event's id is the same in all of them.",
		},
		"defaultContentType": "application/json",
		"channels": object{
			"webhook": object{
				"title": "A subscription's URL", "description": "Each event is sent by POST to the URLs that have subscribed to its type.", "messages": kinds,
			},
			"stream": object{
				"address": "/api/v1/events/stream", "title": "The stream", "messages": kinds,
				"description": "Server-Sent Events: `id` is the event's, `data` the payload. `GET /api/v1/events` pulls the same.",
			},
		},
		"operations": object{
			"deliver": object{"action": "send", "channel": object{"$ref": "#/channels/webhook"}, "summary": "Deliver an event to a subscription"},
			"follow":  object{"action": "send", "channel": object{"$ref": "#/channels/stream"}, "summary": "Tell whoever follows"},
		},
		"components": object{"messages": messages, "schemas": schemas},
	})
}

func reference(kind, name string) object { return object{"$ref": "#/components/" + kind + "/" + name} }

// closure copies a schema with all that it refers to.
func closure(from map[string]any, name string, into object) {
	if into[name] != nil || from[name] == nil {
		return
	}
	into[name] = from[name]
	var walk func(any)
	walk = func(node any) {
		switch node := node.(type) {
		case map[string]any:
			if ref, ok := node["$ref"].(string); ok {
				closure(from, ref[strings.LastIndex(ref, "/")+1:], into)
			}
			for _, child := range node {
				walk(child)
			}
		case []any:
			for _, child := range node {
				walk(child)
			}
		}
	}
	walk(from[name])
}

// deliveryHeaders are those of which the contract tells that a subscription's URL gets them.
func deliveryHeaders(doc *openapi3.T) object {
	headers := object{}
	for _, event := range doc.Paths.Find("/api/v1/clients/{client_id}/webhooks").Post.Callbacks["event"].Value.Map() {
		for _, p := range event.Post.Parameters {
			headers[p.Value.Name] = object{"type": "string", "description": p.Value.Description}
		}
	}
	return object{"type": "object", "description": "Of a webhook; the stream has none of them.", "properties": headers}
}
