package demo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kindred/testkit"

	"github.com/google/go-cmp/cmp"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "people.csv")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func readAll(file table) (people []person, err error) {
	for p, wrong := range file.people() {
		if wrong != nil {
			return people, wrong
		}
		people = append(people, p)
	}
	return people, nil
}

func TestARowBecomesAPerson(t *testing.T) {
	tests := map[string]struct {
		text string
		file table
		want []person
	}{
		"the first line names the columns": {
			"name, age\nada, 36\n",
			table{},
			[]person{{"row-000001", map[string]any{"name": "ada", "age": 36.0}}},
		},
		"unless names are given": {
			"ada,36\n",
			table{header: []string{"name", "age"}},
			[]person{{"row-000001", map[string]any{"name": "ada", "age": 36.0}}},
		},
		"fields may be quoted, and have spaces around them": {
			"name,job\n ada , \"counts, and \"\"notes\"\"\"\n",
			table{},
			[]person{{"row-000001", map[string]any{"name": "ada", "job": `counts, and "notes"`}}},
		},
		"what is missing is left out": {
			"name,age,job\nada,?,\n",
			table{},
			[]person{{"row-000001", map[string]any{"name": "ada"}}},
		},
		"numbers are those that JSON can write": {
			"a,b,c,d,e\n-1.5e2,007,1e999,NaN,<=50K\n",
			table{},
			[]person{{"row-000001", map[string]any{"a": -150.0, "b": "007", "c": "1e999", "d": "NaN", "e": "<=50K"}}},
		},
		"JSON words and texts stay as they are written": {
			"a,b,c\ntrue,null,\"\"\"x\"\"\"\n",
			table{},
			[]person{{"row-000001", map[string]any{"a": "true", "b": "null", "c": `"x"`}}},
		},
		"a column may identify, others be ignored, and rows be limited": {
			"mail,age,weight\na@x,1,2\nb@x,3,4\nc@x,5,6\n",
			table{id: "mail", ignore: []string{"weight"}, limit: 2},
			[]person{{"a@x", map[string]any{"age": 1.0}}, {"b@x", map[string]any{"age": 3.0}}},
		},
		"blank lines, a byte order mark and a missing last newline do no harm": {
			"\ufeffage\r\n\r\n1\r\n2",
			table{},
			[]person{{"row-000001", map[string]any{"age": 1.0}}, {"row-000002", map[string]any{"age": 2.0}}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.file.path = write(t, test.text)
			got := testkit.Must(readAll(test.file))(t)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestAFileThatCannotBeReadIsExplained(t *testing.T) {
	tests := map[string]struct {
		text string
		file table
		want string
	}{
		"too few names":        {"ada,36\nbob,5\n", table{header: []string{"name"}}, "line 1 has 2 fields, the header has 1; see --header"},
		"a row that is short":  {"name,age\nada,36\nbob\n", table{}, "line 3 has 1 fields, the header has 2; see --header"},
		"an empty file":        {"", table{}, "people.csv is empty"},
		"a quote left open":    {"name\n\"ada\n", table{}, "people.csv, line "},
		"a name twice":         {"age,age\n", table{}, `column 2 of the header of people.csv has the name "age", which is empty or taken`},
		"no such column":       {"name,age\n", table{id: "mail"}, `--id names the column "mail", but people.csv has only name, age`},
		"nothing to ignore":    {"name,age\n", table{ignore: []string{"job"}}, `--ignore names the column "job"`},
		"nobody to identify":   {"name,age\nada,1\n?,2\n", table{id: "name"}, "people.csv, line 3: the column name, which is the identifier, has no value"},
		"a file that is not":   {"", table{path: "/nowhere"}, "no such file"},
		"a header with a hole": {"name,,age\n", table{}, `column 2 of the header of people.csv has the name ""`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.file.path == "" {
				test.file.path = write(t, test.text)
			}
			if _, err := readAll(test.file); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, which does not say %q", err, test.want)
			}
		})
	}
}

func TestTheCensusIsRead(t *testing.T) {
	path := os.Getenv("KINDRED_TEST_CENSUS")
	if path == "" {
		t.Skip("KINDRED_TEST_CENSUS does not name the Adult census (adult-train.csv, UCI)")
	}
	people, err := readAll(table{path: path, ignore: []string{"fnlwgt"}, header: strings.Split(
		"age,workclass,fnlwgt,education,education_num,marital_status,occupation,relationship,race,sex,"+
			"capital_gain,capital_loss,hours_per_week,native_country,income", ",")})
	if err != nil {
		t.Fatal(err)
	}
	if len(people) != 32_561 {
		t.Errorf("%d people were read, not 32,561", len(people))
	}
	want := person{"row-000001", map[string]any{
		"age": 39.0, "workclass": "State-gov", "education": "Bachelors", "education_num": 13.0,
		"marital_status": "Never-married", "occupation": "Adm-clerical", "relationship": "Not-in-family",
		"race": "White", "sex": "Male", "capital_gain": 2174.0, "capital_loss": 0.0, "hours_per_week": 40.0,
		"native_country": "United-States", "income": "<=50K",
	}}
	if diff := cmp.Diff(want, people[0]); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
