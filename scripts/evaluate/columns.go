package main

import (
	"fmt"

	"kindred/domain/splitmix"
	"kindred/domain/traits"
)

// column is one of an export, with what it has to be read as.
type column struct {
	path  string
	value func(r *splitmix.Source, i int) any
	want  traits.Type
}

// exported are columns with the faults that exports have.
func exported() []column {
	whole := func(from, n int) func(*splitmix.Source, int) any {
		return func(r *splitmix.Source, _ int) any { return from + r.IntN(n) }
	}
	printed := func(format string, from, n int) func(*splitmix.Source, int) any {
		return func(r *splitmix.Source, _ int) any { return fmt.Sprintf(format, from+r.IntN(n)) }
	}
	date := func(format string, order ...int) func(*splitmix.Source, int) any {
		return func(r *splitmix.Source, _ int) any {
			day := []any{1960 + r.IntN(60), 1 + r.IntN(12), 1 + r.IntN(28)}
			return fmt.Sprintf(format, day[order[0]], day[order[1]], day[order[2]])
		}
	}
	some := func(words ...string) func(*splitmix.Source, int) any {
		return func(r *splitmix.Source, _ int) any { return words[r.IntN(len(words))] }
	}
	or := func(rare any, usual func(*splitmix.Source, int) any) func(*splitmix.Source, int) any {
		return func(r *splitmix.Source, i int) any {
			if r.IntN(12) == 0 {
				return rare
			}
			return usual(r, i)
		}
	}
	list := func(separator string) func(*splitmix.Source, int) any {
		return func(r *splitmix.Source, _ int) any {
			words := []string{"jazz", "sailing", "chess", "cooking", "opera", "running"}
			first := r.IntN(6)
			return words[first] + separator + words[(first+1+r.IntN(5))%6]
		}
	}
	return []column{
		{"account_id", func(_ *splitmix.Source, i int) any { return 500_000 + 3*i }, traits.TypeExcluded},
		{"line", func(_ *splitmix.Source, i int) any { return i + 1 }, traits.TypeExcluded},
		{"mail", func(r *splitmix.Source, _ int) any { return fmt.Sprintf("m%x@example.org", r.Uint64()) }, traits.TypeExcluded},
		{"token", func(r *splitmix.Source, _ int) any { return fmt.Sprintf("%016x", r.Uint64()) }, traits.TypeExcluded},
		{"note", func(r *splitmix.Source, i int) any { return fmt.Sprintf("called on day %d about %x", i, r.Uint64()) }, traits.TypeExcluded},
		{"vector", func(r *splitmix.Source, _ int) any {
			vector := make([]float64, 32)
			for d := range vector {
				vector[d] = r.Float64()
			}
			return vector
		}, traits.TypeExcluded},
		{"postal_code", whole(10_000, 40), traits.TypeCategory},
		{"branch_code", printed("%04d", 20, 30), traits.TypeCategory},
		{"city", or("", some("Lyon", "Turin", "Porto", "Graz")), traits.TypeCategory},
		{"plan", or("N/A", some("free", "pro", "team")), traits.TypeCategory},
		{"country", some("DE", "FR", "IT", "NA", "PT"), traits.TypeCategory},
		{"age", or(-1, whole(18, 60)), traits.TypeNumber},
		{"height", or(999, whole(150, 45)), traits.TypeNumber},
		{"spent", func(r *splitmix.Source, _ int) any { return fmt.Sprintf("$%d,%03d.50", 1+r.IntN(8), r.IntN(1000)) }, traits.TypeNumber},
		{"weight", printed("%d", 50, 60), traits.TypeNumber},
		{"share", func(r *splitmix.Source, _ int) any { return fmt.Sprintf("%.1f%%", 100*r.Float64()) }, traits.TypeNumber},
		{"rating", func(r *splitmix.Source, _ int) any { return 1 + 4*r.Float64() }, traits.TypeNumber},
		{"born", date("%d-%02d-%02d", 0, 1, 2), traits.TypeDate},
		{"joined", date("%[1]d/%02[2]d/%02[3]d", 0, 1, 2), traits.TypeDate},
		{"renewed", date("%02[3]d.%02[2]d.%[1]d", 0, 1, 2), traits.TypeDate},
		{"seen", date("%02[2]d/%02[3]d/%[1]d", 0, 1, 2), traits.TypeDate},
		{"paid", date("%d-%02d-%02d 12:30:00", 0, 1, 2), traits.TypeDate},
		{"hobbies", list(", "), traits.TypeSet},
		{"tags", list("|"), traits.TypeSet},
		{"place", func(r *splitmix.Source, _ int) any {
			return fmt.Sprintf("%.4f,%.4f", 40+10*r.Float64(), 5+10*r.Float64())
		}, traits.TypeGeo},
		{"subscribed", some("yes", "no"), traits.TypeCategory},
		{"umsatz", func(r *splitmix.Source, _ int) any {
			return fmt.Sprintf("%d.%03d,%02d", 1+r.IntN(8), r.IntN(1000), r.IntN(100))
		}, traits.TypeNumber},
		{"montant", func(r *splitmix.Source, _ int) any {
			return fmt.Sprintf("%d\u202f%03d,50 €", 1+r.IntN(8), r.IntN(1000))
		}, traits.TypeNumber},
		{"rabatt", func(r *splitmix.Source, _ int) any { return fmt.Sprintf("%d,%d %%", r.IntN(40), r.IntN(10)) }, traits.TypeNumber},
		{"note_moyenne", func(r *splitmix.Source, _ int) any { return fmt.Sprintf("%d,%d", 1+r.IntN(5), r.IntN(10)) }, traits.TypeNumber},
		{"lohn", func(r *splitmix.Source, _ int) any { return fmt.Sprintf("CHF %d'%03d.50", 1+r.IntN(8), r.IntN(1000)) }, traits.TypeNumber},
		{"saldo", func(r *splitmix.Source, _ int) any { return fmt.Sprintf("%.2f", 100*r.Float64()-50) }, traits.TypeNumber},
		{"ratio", func(r *splitmix.Source, _ int) any { return fmt.Sprintf("%.3e", r.Float64()) }, traits.TypeNumber},
		{"groesse", printed("%d cm", 150, 45), traits.TypeNumber},
		{"poids", printed("%d kg", 45, 60), traits.TypeNumber},
		{"followers", func(r *splitmix.Source, _ int) any { return fmt.Sprintf("%.1fk", 90*r.Float64()) }, traits.TypeNumber},
		{"year", whole(1950, 60), traits.TypeNumber},
		{"stars", whole(1, 5), traits.TypeNumber},
		{"is_vip", whole(0, 2), traits.TypeNumber},
		{"aktiv", some("ja", "nein"), traits.TypeCategory},
		{"actif", or("", some("oui", "non")), traits.TypeCategory},
		{"optin", some("TRUE", "FALSE"), traits.TypeCategory},
		{"geschlecht", or("k. A.", some("m", "w", "d")), traits.TypeCategory},
		{"band", some("18-24", "25-34", "35-49", "50-64", "65+"), traits.TypeCategory},
		{"income", some("10,000 - 20,000", "20,000 - 40,000", "> 40,000"), traits.TypeCategory},
		{"app", func(r *splitmix.Source, _ int) any {
			return fmt.Sprintf("%d.%d.%d", 8+r.IntN(3), 1+r.IntN(3), 10+r.IntN(3))
		}, traits.TypeCategory},
		{"quarter", func(r *splitmix.Source, _ int) any { return fmt.Sprintf("%d-Q%d", 2020+r.IntN(5), 1+r.IntN(4)) }, traits.TypeCategory},
		{"locale", some("en-US", "de-DE", "fr-FR", "pt-BR"), traits.TypeCategory},
		{"colour", some("#ff0000", "#00ff00", "#0000ff"), traits.TypeCategory},
		{"rated", some("1/5", "2/5", "3/5", "4/5", "5/5"), traits.TypeNumber},
		{"channel", some("web"), traits.TypeCategory},
		{"zip", printed("%05d", 1_060, 40), traits.TypeCategory},
		{"plz", whole(10_000, 40), traits.TypeCategory},
		{"address.city", some("Lyon", "Turin", "Porto", "Graz"), traits.TypeCategory},
		{"store_id", whole(100, 12), traits.TypeCategory},
		{"kunde", func(_ *splitmix.Source, i int) any { return 70_000 + i }, traits.TypeExcluded},
		{"kundennummer", func(_ *splitmix.Source, i int) any { return 1_000_003 * (i + 1) % 9_999_991 }, traits.TypeExcluded},
		{"matricule", func(_ *splitmix.Source, i int) any { return fmt.Sprintf("M-%06d", 7*i) }, traits.TypeExcluded},
		{"kontakt", func(r *splitmix.Source, _ int) any { return fmt.Sprintf("+49 151 %07d", r.IntN(10_000_000)) }, traits.TypeExcluded},
		{"handy", func(r *splitmix.Source, _ int) any { return 491_510_000_000 + r.IntN(10_000_000) }, traits.TypeExcluded},
		{"order", func(r *splitmix.Source, _ int) any {
			return fmt.Sprintf("%08x-0000-4000-8000-%012x", r.Uint64()>>32, r.Uint64()>>16)
		}, traits.TypeExcluded},
		{"ip", func(r *splitmix.Source, _ int) any {
			return fmt.Sprintf("10.%d.%d.%d", r.IntN(256), r.IntN(256), r.IntN(256))
		}, traits.TypeExcluded},
		{"last_login", func(r *splitmix.Source, _ int) any { return 1_600_000_000_000 + r.IntN(100_000_000_000) }, traits.TypeDate},
		{"created_at", func(r *splitmix.Source, _ int) any { return 1_600_000_000 + r.IntN(100_000_000) }, traits.TypeDate},
		{"ordered", date("%d-%02d-%02dT12:30:00.125+02:00", 0, 1, 2), traits.TypeDate},
		{"geboren", date("%[3]d.%[2]d.%[1]d", 0, 1, 2), traits.TypeDate},
		{"naissance", date("%02[3]d-%02[2]d-%[1]d", 0, 1, 2), traits.TypeDate},
		{"since", func(r *splitmix.Source, _ int) any {
			return fmt.Sprintf("%d. %s %d", 1+r.IntN(28), []string{"Januar", "Februar", "März", "Mai", "Oktober", "Dezember"}[r.IntN(6)], 1960+r.IntN(60))
		}, traits.TypeDate},
		{"interests", func(r *splitmix.Source, _ int) any {
			words := []string{"jazz", "sailing", "chess", "cooking", "opera", "running"}
			first := r.IntN(6)
			return fmt.Sprintf("['%s', '%s']", words[first], words[(first+1+r.IntN(5))%6])
		}, traits.TypeSet},
		{"skills", func(r *splitmix.Source, _ int) any {
			words := []string{"jazz", "sailing", "chess", "cooking", "opera", "running"}
			first := r.IntN(6)
			return fmt.Sprintf(`["%s","%s"]`, words[first], words[(first+1+r.IntN(5))%6])
		}, traits.TypeSet},
		{"langs", func(r *splitmix.Source, _ int) any {
			words := []string{"de", "fr", "it", "en", "pt"}
			return []string{words[r.IntN(5)], words[r.IntN(5)]}
		}, traits.TypeSet},
		{"home", func(r *splitmix.Source, _ int) any {
			return map[string]any{"lat": 40 + 10*r.Float64(), "lng": 5 + 10*r.Float64()}
		}, traits.TypeGeo},
		{"active", func(r *splitmix.Source, _ int) any { return r.IntN(2) == 0 }, traits.TypeBool},
	}
}

// columns counts those that are read right without a word, at several sizes of an export.
func (e *evaluation) columns() error {
	if err := e.columnsOf("columns of exports", exported(), 40, 300, 3_000); err != nil {
		return err
	}
	return e.columnsOf("other columns of exports", unseen(), 40, 1_000)
}

func (e *evaluation) columnsOf(what string, columns []column, sizes ...int) error {
	right, all := 0, 0
	for _, n := range sizes {
		random := splitmix.Source(e.seed)
		people := make([]string, n)
		for i := range people {
			said := map[string]any{}
			for _, c := range columns {
				said[c.path] = c.value(&random, i)
			}
			people[i] = document(said)
		}
		p, err := e.population(people)
		if err != nil {
			return err
		}
		read := map[string]traits.Type{}
		for _, t := range p.schema.Traits {
			read[t.Path] = t.Type
		}
		for _, c := range columns {
			all++
			if read[c.path] == c.want {
				right++
			} else {
				fmt.Printf("    %s of %d users is read as %q, not %q\n", c.path, n, read[c.path], c.want)
			}
		}
	}
	e.row(what+" read right", fmt.Sprintf("%d of %d", right, all), ">= 92 %", right*100 >= 92*all)
	return nil
}
