package httpapi_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"

	"kindred/domain/event"
	"kindred/httpapi"
	"kindred/testkit"
)

// closedLists says where the code has the words of each list of the contract:
// "directory:name" is the block of constants that holds a name, or what a
// function returns; "=word" adds one that stands in SQL or in no constant, and
// "-word" takes one away. A list without a source is kept by the contract: the
// code has it from the generated constants, or from a standard.
var closedLists = map[string]string{
	"AttentionKind":                  "",
	"AttentionSeverity":              "",
	"Audience":                       "domain:AudienceAll",
	"CampaignAnalytics.interval":     "",
	"CampaignCommand":                "",
	"CampaignStatus":                 "domain:CampaignDraft",
	"ClusterStatus":                  "",
	"ClusterTrait.type":              "domain/traits:TypeBool -excluded",
	"ClusteringRun.error_code":       "domain/clustering:NotEnoughUsers commands/policies:excuse =internal",
	"ConsentFilter":                  "",
	"ConsentStatus":                  "",
	"DeliveryCheckStep.name":         "dispatcher:StepHeaders",
	"DeliveryCheckStep.status":       "dispatcher:StepOK",
	"DeliveryStatus":                 "dispatcher:StatusPending",
	"DriftBaseline":                  "domain/clustering:Previous",
	"DriftCause.kind":                "domain/clustering:CauseTrait",
	"DriftCause.origin":              "domain/clustering:PeopleChanged",
	"DriftSeverity":                  "domain/clustering:Moderate =none",
	"EngagementType":                 "domain:Impression -dismiss",
	"EventType":                      "", // TestSubscribersMayAskForEveryPublicEvent
	"FeedReason":                     "projections/feeds:Reason.String",
	"FeedUser.type":                  "projections/feeds:Kind.String -campaign",
	"Import.mode":                    "",
	"Import.status":                  "",
	"InteractionType":                "domain:Impression",
	"JWK.alg":                        "",
	"JWK.crv":                        "",
	"JWK.kty":                        "",
	"KeyScope":                       "domain:ScopeAdmin -audit",
	"Order":                          "",
	"ProblemCode":                    "", // TestTheContractNamesEveryCode
	"Rebuild.phase":                  "eventstore/projector:Building =waiting =done =failed",
	"RequestMethod":                  "",
	"Role":                           "domain:RoleOwner",
	"RuleTrait.type":                 "domain/traits:TypeBool -excluded",
	"RunProgress.phase":              "domain/clustering:Choosing commands/policies:phaseReading =completed",
	"RunStatus":                      "",
	"RunVerdict.reason":              "domain/clustering:NotEnoughUsers commands/policies:excuse =internal =cancelled =superseded =segment_gone",
	"Scopes[]":                       "domain:ScopeAdmin",
	"SegmentChangeKind":              "projections/segments:entered",
	"SegmentBlockCause":              "",
	"SegmentState":                   "",
	"StateKind":                      "",
	"StatisticInterval":              "",
	"StatisticMetric":                "projections:MetricUsers",
	"Sweep.state":                    "",
	"Trait.reason":                   "projections/populations:whyNot",
	"TraitBecause":                   "domain/traits:BecauseDeclared",
	"TraitType":                      "domain/traits:TypeBool",
	"TraitsChange.traits{}.type":     "domain/traits:TypeBool =<nil>",
	"VerdictKind":                    "domain/clustering:Groups =unknown",
	"Truth":                          "",
	"WebhookStatus":                  "domain:WebhookActive",
	"WebhookUserIDs":                 "",
	"getCampaignAnalytics ?interval": "",
	"importUsers ?mode":              "",
	"listHistory ?personal":          "",
}

func TestTheListsOfTheContractAreThoseOfTheCode(t *testing.T) {
	found := map[string]bool{}
	walkContract(t, func(where string, schema *openapi3.Schema) {
		if len(schema.Enum) < 2 {
			return
		}
		found[where] = true
		if closedLists[where] == "" {
			return
		}
		listed := map[string]bool{}
		for _, word := range schema.Enum {
			listed[fmt.Sprint(word)] = true
		}
		if diff := cmp.Diff(wordsOf(t, closedLists[where]), slices.Sorted(maps.Keys(listed))); diff != "" {
			t.Errorf("%s (-code +contract):\n%s", where, diff)
		}
	})
	if diff := cmp.Diff(slices.Sorted(maps.Keys(closedLists)), slices.Sorted(maps.Keys(found))); diff != "" {
		t.Errorf("lists (-known to this test +in the contract):\n%s", diff)
	}
}

func TestSubscribersMayAskForEveryPublicEvent(t *testing.T) {
	if diff := cmp.Diff(event.PublicTypes(), slices.Sorted(slices.Values(eventTypes(t)))); diff != "" {
		t.Errorf("EventType in httpapi/openapi.yaml lists other events than those that have Data and Example (-public +listed):\n%s", diff)
	}
}

// eventTypes are the types of events in the order of the contract.
func eventTypes(t *testing.T) (listed []string) {
	t.Helper()
	for _, word := range loadContract(t).Components.Schemas["EventType"].Value.Enum {
		listed = append(listed, fmt.Sprint(word))
	}
	return listed
}

// wordsOf reads the words of a source as closedLists writes it.
func wordsOf(t *testing.T, source string) []string {
	t.Helper()
	words := map[string]bool{}
	for one := range strings.FieldsSeq(source) {
		switch one[0] {
		case '=':
			words[one[1:]] = true
		case '-':
			if !words[one[1:]] {
				t.Errorf("%s: there is none", source)
			}
			delete(words, one[1:])
		default:
			dir, name, _ := strings.Cut(one, ":")
			read := codeWords(t, dir, name)
			if len(read) == 0 {
				t.Fatalf("%s holds no words", one)
			}
			for _, word := range read {
				words[word] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(words))
}

// codeWords reads what a block of constants holds, or a function returns.
func codeWords(t *testing.T, dir, name string) (words []string) {
	t.Helper()
	paths := testkit.Must(filepath.Glob(filepath.Join("..", dir, "*.go")))(t)
	values := map[string]ast.Expr{} // of all constants
	var block []ast.Expr
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file := testkit.Must(parser.ParseFile(gotoken.NewFileSet(), path, nil, parser.SkipObjectResolution))(t)
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if funcName(d) == name || d.Name.Name == name {
					words = append(words, returned(d)...)
				}
			case *ast.GenDecl:
				if constants, named := constantsOf(d, name, values); named {
					block = constants
				}
			}
		}
	}
	for _, value := range block {
		words = append(words, evaluate(value, values))
	}
	return words
}

// constantsOf notes the constants of a declaration and says whether name is one
// of them.
func constantsOf(d *ast.GenDecl, name string, values map[string]ast.Expr) (block []ast.Expr, named bool) {
	if d.Tok != gotoken.CONST {
		return nil, false
	}
	for _, spec := range d.Specs {
		spec, ok := spec.(*ast.ValueSpec)
		if !ok || len(spec.Values) == 0 {
			continue
		}
		values[spec.Names[0].Name] = spec.Values[0]
		block = append(block, spec.Values[0])
		named = named || spec.Names[0].Name == name
	}
	return block, named
}

// evaluate follows names and conversions to the text that they stand for.
func evaluate(value ast.Expr, values map[string]ast.Expr) string {
	switch value := value.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(value.Value)
		if err == nil {
			return text
		}
	case *ast.CallExpr:
		return evaluate(value.Args[0], values)
	case *ast.Ident:
		return evaluate(values[value.Name], values)
	}
	return ""
}

func funcName(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	of, _ := d.Recv.List[0].Type.(*ast.Ident)
	return fmt.Sprint(of, ".", d.Name)
}

// returned lists the words that a function returns.
func returned(d *ast.FuncDecl) (words []string) {
	ast.Inspect(d.Body, func(n ast.Node) bool {
		result, ok := n.(*ast.ReturnStmt)
		if !ok {
			return true
		}
		ast.Inspect(result, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && regexp.MustCompile(`^"[a-z_.]+"$`).MatchString(literal.Value) {
				words = append(words, strings.Trim(literal.Value, `"`))
			}
			return true
		})
		return false
	})
	return words
}

// walkContract visits each schema where it is written down: "User.id" is a
// property, "Scopes[]" the items of a list, "listUsers ?limit" a parameter.
func walkContract(t *testing.T, visit func(where string, schema *openapi3.Schema)) {
	t.Helper()
	doc := loadContract(t)
	var walk func(where string, ref *openapi3.SchemaRef)
	walk = func(where string, ref *openapi3.SchemaRef) {
		if ref == nil || ref.Ref != "" {
			return
		}
		visit(where, ref.Value)
		for _, name := range slices.Sorted(maps.Keys(ref.Value.Properties)) {
			walk(where+"."+name, ref.Value.Properties[name])
		}
		walk(where+"[]", ref.Value.Items)
		walk(where+"{}", ref.Value.AdditionalProperties.Schema)
		for _, branch := range slices.Concat(ref.Value.OneOf, ref.Value.AnyOf, ref.Value.AllOf) {
			walk(where+"|", branch)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(doc.Components.Schemas)) {
		walk(name, doc.Components.Schemas[name])
	}
	for _, name := range slices.Sorted(maps.Keys(doc.Components.Parameters)) {
		walk("?"+name, doc.Components.Parameters[name].Value.Schema)
	}
	for _, op := range contractOperations(doc) {
		for _, p := range op.Parameters {
			if p.Ref == "" {
				walk(op.OperationID+" ?"+p.Value.Name, p.Value.Schema)
			}
		}
	}
}

// loadContract is the contract, read once for all tests, which do not change it.
func loadContract(t *testing.T) *openapi3.T {
	t.Helper()
	return testkit.Must(contract())(t)
}

var contract = sync.OnceValues(func() (*openapi3.T, error) {
	return openapi3.NewLoader().LoadFromData(httpapi.Contract())
})

// contractOperation is an operation and where it stands.
type contractOperation struct {
	method, path string
	shared       openapi3.Parameters // of its path
	*openapi3.Operation
}

func contractOperations(doc *openapi3.T) (all []contractOperation) {
	for _, path := range doc.Paths.InMatchingOrder() {
		item := doc.Paths.Value(path)
		for method, op := range item.Operations() {
			all = append(all, contractOperation{method, path, item.Parameters, op})
		}
	}
	return all
}
