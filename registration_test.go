package kindred

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kindred/domain/event"
)

// unfolded are the types that no aggregate folds, as it decides nothing by them.
const unfolded = `
campaign.engagement_recorded cluster.drift_detected cluster.formed cluster.kept cluster.retired
clustering_run.assigned clustering_run.profiled consent.change_requested consent.granted_to_all consent.of_all_changed
consent.withdrawn_from_all deliveries.ended end_user.traits_changed feed.interaction_recorded match.computed
member.logged_in segments.named trait_schema.inferred webhook_key.made`

// unshown are the types of which the history alone tells, or an aggregate's next decision.
const unshown = `
campaign.spending_closed campaign.spending_opened client.abandoned client.snapshot_taken
clustering_run.judging clustering_run.profiled consent.change_requested consent.granted_to_all consent.of_all_changed
consent.withdrawn_from_all member.logged_in segment.snapshot_taken segments.named webhook.snapshot_taken`

// part is what some folders say of events.
type part struct {
	made   map[string][]string // by event, the functions that make it
	cases  map[string]bool     // events that a switch, or an assertion, asks for
	called map[string]bool     // functions that another names
}

func readPart(t *testing.T, folders ...string) part {
	t.Helper()
	p := part{map[string][]string{}, map[string]bool{}, map[string]bool{}}
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil || files == nil {
			t.Fatal(folder, err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range file.Decls {
				f, ok := d.(*ast.FuncDecl)
				if !ok {
					continue
				}
				ast.Inspect(f, func(n ast.Node) bool { p.see(f.Name, n); return true })
			}
		}
	}
	return p
}

func (p part) see(within *ast.Ident, n ast.Node) {
	switch n := n.(type) {
	case *ast.CompositeLit:
		made := n.Type
		if list, ok := made.(*ast.ArrayType); ok {
			made = list.Elt
		}
		if e := eventOf(made); e != "" {
			p.made[e] = append(p.made[e], within.Name)
		}
	case *ast.CaseClause:
		for _, e := range n.List {
			p.cases[eventOf(e)] = true
		}
	case *ast.TypeAssertExpr:
		p.cases[eventOf(n.Type)] = true
	case *ast.Ident:
		if n != within {
			p.called[n.Name] = true
		}
	}
}

// eventOf is the name of a type of package event, or "".
func eventOf(e ast.Expr) string {
	if s, ok := e.(*ast.SelectorExpr); ok {
		if of, ok := s.X.(*ast.Ident); ok && of.Name == "event" {
			return s.Sel.Name
		}
	}
	return ""
}

// Whoever adds an event has it made by what somebody calls, folded where a decision turns
// on it, and shown; what it is not is said in a list above.
func TestEachEventIsMadeFoldedAndShown(t *testing.T) {
	t.Parallel()
	writes := readPart(t, "domain", "commands", "commands/policies", "commands/writeapi", "dispatcher", "app")
	folds, shows := readPart(t, "domain"), readPart(t, "projections", "projections/segments", "projections/feeds", "projections/auditing", "dispatcher")
	listed := func(list, name string) bool {
		return strings.Contains(list+"\n", name+" ") || strings.Contains(list+"\n", name+"\n")
	}
	files, err := filepath.Glob("domain/event/*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, d := range regexp.MustCompile(`define\[(\w+)\]\("([^"]+)"`).FindAllStringSubmatch(string(text), -1) {
			shape, name := d[1], d[2]
			found++
			called := false
			for _, maker := range writes.made[shape] {
				called = called || writes.called[maker]
			}
			if !called {
				t.Errorf("nothing that is called records %s; these functions make it: %v", name, writes.made[shape])
			}
			if folds.cases[shape] == listed(unfolded, name) {
				t.Errorf("%s is folded by an aggregate of domain: %t; listed in unfolded of registration_test.go: %t; it has to be one of both", name, folds.cases[shape], listed(unfolded, name))
			}
			if shown := shows.cases[shape] || event.IsPublic(name); shown == listed(unshown, name) { // public_events shows all that are public
				t.Errorf("%s is applied by a read model, or public: %t; listed in unshown of registration_test.go: %t; it has to be one of both", name, shown, listed(unshown, name))
			}
		}
	}
	if found < 80 {
		t.Fatalf("only %d events", found)
	}
}

// A stream about a user that StreamsOfUser does not name is missing in the user's timeline.
func TestEachStreamOfAUserIsInItsTimeline(t *testing.T) {
	t.Parallel()
	streams, err := os.ReadFile("eventstore/streams.go")
	if err != nil {
		t.Fatal(err)
	}
	var names string
	for _, pattern := range []string{"projections/*.go", "projections/*/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			names += regexp.MustCompile(`(?s)\nfunc [^\n]*\bStreamsOfUser\(.*?\n}`).FindString(string(text))
		}
	}
	found := regexp.MustCompile(`(?m)^func (\w+)\(.*\bid\.User\b.*\) Stream\b`).FindAllStringSubmatch(string(streams), -1)
	if len(found) < 5 {
		t.Errorf("only %d streams are about users", len(found))
	}
	for _, f := range found {
		if !strings.Contains(names, "."+f[1]+"(") {
			t.Errorf("eventstore/streams.go: %s is about a user, and StreamsOfUser of projections does not name it", f[1])
		}
	}
}

// A read model that is not in projections.All is built by nobody.
func TestEachReadModelIsListed(t *testing.T) {
	t.Parallel()
	all, err := os.ReadFile("projections/projections.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, name := range readModelFiles(t) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^func \((?:\w+ )?\*?(\w+)\) Schema\(\) string`).FindAllStringSubmatch(string(text), -1) {
			found++
			listed := `\b` + m[1] + `{`
			if folder := filepath.Base(filepath.Dir(name)); folder != "projections" {
				listed = `\b` + folder + `\.(New\(|` + m[1] + `{)`
			}
			if !regexp.MustCompile(listed).Match(all) {
				t.Errorf("%s: %s is not listed in All of projections/projections.go", name, m[1])
			}
		}
	}
	if found < 20 {
		t.Fatalf("only %d read models", found)
	}
}

// readModelFiles are those of projections and of its folders.
func readModelFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("projections/*.go")
	if err != nil {
		t.Fatal(err)
	}
	below, err := filepath.Glob("projections/*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(append(files, below...), func(name string) bool { return strings.HasSuffix(name, "_test.go") })
}

// joined are the tables of others that a file's queries read, each as far as its own model
// says: the other one may be ahead or behind, or be built anew in another shape.
var joined = map[string]string{
	"projections/attention.go":         "api_keys cluster_drift cluster_layers_retired cluster_segments_retired clusters runs", // a glance at all
	"projections/auditing/auditing.go": "history_trees",                                                                        // which it signs
	"projections/campaigns_split.go":   "cluster_members clusters",
	"projections/clusters_open.go":     "consent_changes consents users", // who is to be clustered
	"projections/clusters_read.go":     "users",                          // as below: whose rows are left out, and how each is called
	"projections/consent_read.go":      "users",
	"projections/externalids.go":       "users",
	"projections/interactions_read.go": "consents users",
	"projections/matches.go":           "users",
	"projections/matchqueue.go":        "users",
	"projections/timeline.go":          "campaign_users consents history_events interactions", // all of one user
}

// A read model reads its own tables, and writes no other's. What its queries join of
// others is said above.
func TestReadModelsKeepToTheirTables(t *testing.T) {
	t.Parallel()
	of := func(file string) string { // what the files of one model are called, or their folder
		if folder := filepath.Base(filepath.Dir(file)); folder != "projections" {
			return folder
		}
		name, _, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".go"), "_")
		return name
	}
	texts, owner := map[string][]string{}, map[string]string{}
	for _, name := range readModelFiles(t) {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if e, ok := n.(*ast.BasicLit); ok && e.Kind == token.STRING {
				texts[name] = append(texts[name], e.Value)
				for _, table := range regexp.MustCompile(`CREATE TABLE (\w+)`).FindAllStringSubmatch(e.Value, -1) {
					owner[table[1]] = of(name)
				}
			}
			return true
		})
	}
	if len(owner) < 40 {
		t.Fatalf("only %d tables", len(owner))
	}
	for name, all := range texts {
		read := map[string]bool{}
		for _, sql := range all {
			for _, table := range regexp.MustCompile(`\b(FROM|JOIN|USING|UPDATE|INTO|DELETE FROM) (\w+)\b`).FindAllStringSubmatch(sql, -1) {
				switch whose, verb := owner[table[2]], table[1]; {
				case whose == "" || whose == of(name):
				case verb == "FROM" || verb == "JOIN" || verb == "USING":
					read[table[2]] = true
				default:
					t.Errorf("%s writes %s of %s: %s", name, table[2], whose, sql)
				}
			}
		}
		if got := strings.Join(slices.Sorted(maps.Keys(read)), " "); got != joined[name] {
			t.Errorf("%s reads %q of other models, and is said to read %q", name, got, joined[name])
		}
	}
}
