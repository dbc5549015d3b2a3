package readapi

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"kindred/domain/event"
	"kindred/domain/id"
	"kindred/domain/rule"
	"kindred/eventstore/audit"
	"kindred/httpapi"
	"kindred/projections"
	"kindred/projections/auditing"
	"kindred/projections/populations"
	"kindred/projections/segments"
	"kindred/testkit"
)

// Of a model in which every field is set, an answer has every property that the contract describes.
func TestAnswersLackNoProperty(t *testing.T) {
	others := []string{ // that other code sets, or that no such model has
		"ConsentLayer.match_rule_blocked_by", "HistoryEvent.personal", "Sandbox.livemode", "Trait.participates", "Webhook.deliveries", "Webhook.secret",
	}
	run, campaign := filled[projections.Run](), filled[projections.Campaign]()
	run.Status, run.Judged.Verdict = string(httpapi.RunRunning), "groups"
	campaign.BudgetMinor = campaign.SpentMinor + 1
	contract := testkit.Must(openapi3.NewLoader().LoadFromData(httpapi.Contract()))(t)
	for schema, body := range map[string]any{
		"AnalyticsCluster": shareBody(filled[projections.ClusterShare]()), "AnalyticsInterval": intervalBody(filled[projections.Interval]()),
		"APIKey": apiKeyBody(filled[projections.APIKey]()), "Campaign": campaignBody(campaign),
		"Cluster": clusterBody(filled[projections.Cluster]()), "ClusterDrift": driftBody(filled[projections.ClusterDrift]()),
		"ClusterMember": clusterMemberBody(filled[projections.ClusterMember]()), "ClusteringRun": runBody(run),
		"ConsentingUser": consentingBody(filled[projections.UserConsent]()), "ConsentLayer": layerBody(filled[projections.ConsentLayer]()),
		"DriftCause": causeBody(filled[event.DriftCause]()), "HistoryEvent": testkit.Must(historyEvent(filled[audit.Event]()))(t),
		"JudgedComparison": judgedBody(filled[rule.Comparison]()), "Match": matchBody(filled[projections.Match]()),
		"Member": memberBody(filled[projections.Member]()), "Pacing": paced(campaign, campaign.StartedAt.Add(time.Hour)),
		"Sandbox": sandboxBody(id.Client("cli_1"), filled[projections.Sandbox]()), "Segment": segmentBody(filled[segments.Segment]()),
		"SegmentMember": segmentMemberBody(filled[segments.Member]()), "TimelineEntry": happeningBody(filled[auditing.Happening]()),
		"Trait": traitBody(filled[populations.Trait]()), "TraitOverride": overrideBody(filled[event.TraitOverride]()),
		"User": userBody(filled[projections.User]()), "Webhook": webhookBody(filled[projections.Webhook]()),
	} {
		described := contract.Components.Schemas[schema]
		if described == nil {
			t.Fatalf("the contract has no %s", schema)
		}
		var value any
		if err := json.Unmarshal(testkit.Must(json.Marshal(body))(t), &value); err != nil {
			t.Fatal(err)
		}
		for _, at := range lacking(described.Value, value, schema) {
			if !slices.Contains(others, at) {
				t.Errorf("%s is left out", at)
			}
		}
	}
}

// lacking names the properties of a schema that a value does not have, or has no value of.
func lacking(schema *openapi3.Schema, value any, at string) (names []string) {
	for _, part := range schema.AllOf {
		names = append(names, lacking(part.Value, value, at)...)
	}
	switch value := value.(type) {
	case []any:
		if len(value) == 0 {
			return append(names, at)
		}
		return append(names, lacking(schema.Items.Value, value[0], at)...)
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
			if v := value[name]; v == nil || reflect.ValueOf(v).IsZero() {
				names = append(names, at+"."+name)
				continue
			}
			names = append(names, lacking(schema.Properties[name].Value, value[name], at+"."+name)...)
		}
	}
	return names
}

// filled is a value of which every field is set.
func filled[T any]() (v T) {
	set(reflect.ValueOf(&v).Elem())
	return v
}

func set(v reflect.Value) {
	switch value := v.Addr().Interface().(type) {
	case *time.Time:
		*value = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
		return
	case *json.RawMessage:
		*value = json.RawMessage(`{"age":31}`)
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(1)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint8:
		v.SetUint(1)
	case reflect.String:
		v.SetString("x")
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		set(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		set(v.Index(0))
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				set(v.Field(i))
			}
		}
	}
}
