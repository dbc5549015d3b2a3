package pgtest

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Tenancy tells which statements read or change rows of clients, and whether they say whose.
type Tenancy struct{ touched, used *regexp.Regexp }

const selectTables = `
SELECT DISTINCT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND a.attname = 'client' AND n.nspname NOT LIKE 'pg\_%'`

// TenancyOf is that of the tables of a database.
func TenancyOf(ctx context.Context, t testing.TB, pool *pgxpool.Pool) Tenancy {
	t.Helper()
	rows, _ := pool.Query(ctx, selectTables) // what it fails with, its rows end with
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	tables := strings.Join(names, "|")
	return Tenancy{
		touched: regexp.MustCompile(`\b(?:FROM|JOIN|UPDATE|INTO)\s+(?:\w+\.)?(?:` + tables + `)\b`),
		used:    regexp.MustCompile(`\b(?:FROM|JOIN|UPDATE|USING)\s+(?:\w+\.)?(` + tables + `)\b(?:\s+(?:AS\s+)?([a-z]\w*))?`),
	}
}

// asked is what a read model's statement asks after how fresh the model is, which names the client too; any other is whole.
func asked(statement string) string {
	if _, rest, ok := strings.Cut(statement, "FROM fresh LEFT JOIN"); ok {
		return rest
	}
	return statement
}

var namesClient = regexp.MustCompile(`\bclients?\b`)

// Unbound says whether a statement touches tables of clients, and whether it uses one more often
// than it names the client of its rows: of is then how the statement calls that table.
func (c Tenancy) Unbound(statement string) (of string, touches, unbound bool) {
	statement = asked(statement)
	if !c.touched.MatchString(statement) {
		return "", false, false
	}
	used, owner := map[string]int{}, map[string]string{}
	for _, use := range c.used.FindAllStringSubmatch(statement, -1) {
		used[use[2]]++
		owner[use[2]] = `\b` + use[2] + `\.`
		if use[2] == "" {
			owner[""] = `(?:^|[^.\w]|\b` + use[1] + `\.)`
		}
	}
	for name, uses := range used {
		if len(regexp.MustCompile(owner[name]+`client\b`).FindAllString(statement, -1)) < uses {
			return name, true, true
		}
	}
	return "", true, !namesClient.MatchString(statement)
}

var sameClient = regexp.MustCompile(`(\w+)\.client\s*=\s*(?:(\w+)\.client\b)?`)

// Untied returns how a statement calls a table of clients whose rows it ties to those of other such
// tables alone, where it ties one so: such a statement is of all clients.
func (c Tenancy) Untied(statement string) (of string, untied bool) {
	statement = asked(statement)
	tables := map[string]bool{}
	for _, use := range c.used.FindAllStringSubmatch(statement, -1) {
		tables[use[2]] = use[2] != ""
	}
	same := sameClient.FindAllStringSubmatch(statement, -1)
	tied := map[string]bool{}
	for range tables { // a table after the other
		for _, s := range same {
			if !tables[s[2]] || tied[s[2]] {
				tied[s[1]] = true
			}
			if s[2] != "" && (!tables[s[1]] || tied[s[1]]) {
				tied[s[2]] = true
			}
		}
	}
	for name, named := range tables {
		if named && !tied[name] {
			return name, true
		}
	}
	return "", false
}
