package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kindred/domain/id"
	"kindred/testkit"
)

// moved has been written in three versions: in 1 the place was called city, in
// 2 the note was in capitals, in 3 the note got its mark.
type moved struct {
	fact
	Place string    `json:"place"`
	Note  *Personal `json:"note,omitempty"`
}

func (moved) Subject() string     { return "usr_1" }
func (e moved) Personal() []Field { return []Field{{"note", e.Note}} }

func movedRegistry() *Registry {
	return newRegistry([]definition{define[moved]("test.moved", 3,
		upcast(1, func(old json.RawMessage) (json.RawMessage, error) {
			var v map[string]json.RawMessage
			if err := json.Unmarshal(old, &v); err != nil {
				return nil, err
			}
			v["place"] = v["city"]
			return json.Marshal(v)
		}),
	)})
}

func TestOldShapesAreLifted(t *testing.T) {
	r := movedRegistry()
	for _, old := range []struct {
		version int
		data    string
	}{
		{1, `{"city":"Bern","note":{"key":"k"}}`},
		{2, `{"place":"Bern","note":{"key":"k"}}`},
		{3, `{"place":"Bern","note":{"key":"k"}}`},
	} {
		e := testkit.Must(r.Decode("test.moved", old.version, []byte(old.data)))(t)
		m := e.(moved)
		if m.Place != "Bern" || m.Note.Box.Key != "k" || m.Note.Plain != nil {
			t.Errorf("version %d is read as %+v", old.version, m)
		}
	}
}

func TestAFieldThatIsNotThereIsNotLifted(t *testing.T) {
	for _, data := range []string{`{"city":"Bern"}`, `{"city":"Bern","note":null}`} {
		e, err := movedRegistry().Decode("test.moved", 1, []byte(data))
		if err != nil || e.(moved).Note != nil {
			t.Errorf("%s is read as %+v, %v", data, e, err)
		}
	}
}

func TestALiftThatFailsIsAnError(t *testing.T) {
	r := movedRegistry()
	if _, err := r.Decode("test.moved", 1, []byte(`[]`)); err == nil || errors.Is(err, ErrUnknown) {
		t.Errorf("got %v", err)
	}
}

func TestALiftThatPanicsIsAnError(t *testing.T) {
	r := newRegistry([]definition{define[moved]("test.moved", 2,
		upcast(1, func(json.RawMessage) (json.RawMessage, error) { panic("seven") }))})
	_, err := r.Decode("test.moved", 1, []byte(`null`))
	if err == nil || errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "panic: seven") || !strings.Contains(err.Error(), "test.moved") {
		t.Errorf("got %v", err)
	}
}

func TestWhatANewerReleaseWroteIsUnknown(t *testing.T) {
	for _, r := range []*Registry{All(), movedRegistry()} {
		for name, version := range map[string]int{"test.moved": 4, "client.renamed": 2, "client.dissolved": 1, "": 1} {
			if _, err := r.Decode(name, version, []byte(`{}`)); !errors.Is(err, ErrUnknown) {
				t.Errorf("%s version %d: %v", name, version, err)
			}
		}
	}
	for _, version := range []int{0, -1} {
		if _, err := All().Decode("client.renamed", version, []byte(`{}`)); !errors.Is(err, ErrUnknown) {
			t.Errorf("version %d: %v", version, err)
		}
	}
}

func TestWhatIsDamagedIsNotUnknown(t *testing.T) {
	for _, data := range []string{``, `{`, `{"name":1}`, `[]`} {
		if _, err := All().Decode("client.renamed", 1, []byte(data)); err == nil || errors.Is(err, ErrUnknown) {
			t.Errorf("%q: %v", data, err)
		}
	}
}

func TestWhatIsNotRegisteredHasNoName(t *testing.T) {
	if name, _, err := All().Name(moved{}); err == nil {
		t.Errorf("it is called %s", name)
	}
}

func TestATypeIsDefinedOnce(t *testing.T) {
	for sentence, definitions := range map[string][]definition{
		"one name":  {define[ClientRenamed]("a", 1), define[ClientSignedUp]("a", 1)},
		"one shape": {define[ClientRenamed]("a", 1), define[ClientRenamed]("b", 1)},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s was defined twice", sentence)
				}
			}()
			newRegistry(definitions)
		}()
	}
}

func TestPlaintextIsNeverMarshalled(t *testing.T) {
	open := EndUserTraitsChanged{User: "usr_1", Traits: Private([]byte("secret"))}
	if data, err := json.Marshal(open); err == nil {
		t.Errorf("an open field is written as %s", data)
	}
	open.Traits.Box = &Box{Key: "k", Cipher: []byte{1}}
	data, err := json.Marshal(open)
	if err != nil || strings.Contains(string(data), "secret") || bytes.Contains(data, []byte("c2VjcmV0")) {
		t.Errorf("a sealed field is written as %s, %v", data, err)
	}
	if Private(nil) != nil {
		t.Error("nothing is something private")
	}
}

func TestAMatchIsPublishedWithFourFieldsAndFourDecimals(t *testing.T) {
	for score, want := range map[float64]string{
		0.87654321: `0.8765`, 0.99995: `1.0`, 0: `0.0`, 1: `1.0`, 0.00004: `0.0`, 0.0001: `0.0001`, 0.12345: `0.1235`, 0.3: `0.3`,
	} {
		e := MatchComputed{User: "usr_1", MatchedUser: "usr_2", Score: score, Percentile: 3, Coverage: 1, Explanation: []Term{{Trait: "x"}}}
		data := testkit.Must(json.Marshal(e.Data("cli_1")))(t)
		if diff := cmp.Diff(`{"client_id":"cli_1","user_id":"usr_1","matched_user_id":"usr_2","score":`+want+`}`, string(data)); diff != "" {
			t.Error(diff)
		}
		if e.Score != score {
			t.Error("the recorded score was rounded")
		}
	}
}

func TestAnExhaustedBudgetIsPublishedWithTwoFields(t *testing.T) {
	data, err := json.Marshal(CampaignBudgetExhausted{Campaign: "cam_1", BudgetMinor: 5, SpentMinor: 6}.Data("cli_1"))
	if err != nil || string(data) != `{"client_id":"cli_1","campaign_id":"cam_1"}` {
		t.Errorf("published as %s, %v", data, err)
	}
}

func TestClusteringIsPublishedWithTheFieldsOfTheContract(t *testing.T) {
	for want, e := range map[string]Public{
		`{"client_id":"cli_1","consent_layer_id":"lay_1","clustering_run_id":"run_1","clusters":[{"id":"clu_1","size":3,"label":"high age"}]}`: ClusteringCompleted{
			Run: "run_1", Layer: "lay_1", Attempt: 2, Users: 3, Schema: "x", Silhouette: 1,
			Clusters: []ClusterSummary{{ID: "clu_1", Size: 3, Label: "high age"}},
		},
		`{"client_id":"cli_1","consent_layer_id":"lay_1","error_details":"Why."}`: ClusteringFailed{Run: "run_1", Layer: "lay_1", Code: "internal", Details: "Why."},
		`{"client_id":"cli_1","cluster_id":"clu_1"}`: ClusterDriftDetected{
			Cluster: "clu_1", Layer: "lay_1", Run: "run_1", Severity: "major", Causes: []DriftCause{{Kind: "size"}},
		},
	} {
		data, err := json.Marshal(e.Data("cli_1"))
		if err != nil || string(data) != want {
			t.Errorf("published as %s, %v; want %s", data, err, want)
		}
	}
}

// Golden lists say which types are public, and what they publish; an event with one of
// the two methods is no public one, and none of them may be.
func TestAnEventIsPublicAsAWholeOrNotAtAll(t *testing.T) {
	ids := id.Derived("test")
	for _, e := range samples(t) {
		_, data := reflect.TypeOf(e).MethodByName("Data")
		_, example := reflect.TypeOf(e).MethodByName("Example")
		public, ok := e.(Public)
		if data != ok || example != ok {
			t.Errorf("%T has Data: %t, Example: %t, with the types that Public asks for: %t", e, data, example, ok)
		}
		if ok && (public.Data(id.Client("cli_1")) == nil || reflect.TypeOf(public.Example(ids)) != reflect.TypeOf(e)) {
			t.Errorf("%T publishes nothing, or has an example of another type", e)
		}
	}
}

func TestSettingsOfTheFirstVersionAreLifted(t *testing.T) {
	data := testkit.Must(os.ReadFile(sampleFile("client.settings_changed", 1)))(t)
	e := testkit.Must(All().Decode("client.settings_changed", 1, data))(t)
	want := Settings{WebhookUserIDs: "external_id", AutomaticMatching: DefaultAutomaticMatching()}
	if diff := cmp.Diff(want, e.(ClientSettingsChanged).Settings); diff != "" {
		t.Error(diff)
	}
}

func TestEachPublicEventHasAnExampleThatShowsAllOfItsData(t *testing.T) {
	r := All()
	types := PublicTypes()
	if len(types) == 0 {
		t.Fatal("the catalog is empty")
	}
	for _, name := range types {
		e := Example(name, id.Derived("example", name))
		if got, _, err := r.Name(e); err != nil || got != name || !IsPublic(name) {
			t.Errorf("the example of %s is a %s: %v", name, got, err)
		}
		data := reflect.ValueOf(e.Data("cli_04hk8ls48pkqs04hk8ls48pkqs"))
		for i := range data.NumField() {
			// What is told only where there is something to tell, test deliveries have never had.
			if sometimes := strings.Contains(data.Type().Field(i).Tag.Get("json"), ",omitempty"); data.Field(i).IsZero() && !sometimes {
				t.Errorf("the example of %s leaves %s empty", name, data.Type().Field(i).Name)
			}
		}
	}
	if Example("client.renamed", id.Derived("")) != nil || IsPublic("client.renamed") {
		t.Error("what is not public has an example")
	}
}
