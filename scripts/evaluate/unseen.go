package main

import (
	"fmt"
	"strings"
	"time"

	"kindred/domain/splitmix"
	"kindred/domain/traits"
)

// unseen are columns as customer relations, shops and spreadsheets export them. What each has to be read
// as was written down before any was read.
func unseen() []column {
	type draw = func(*splitmix.Source, int) any
	some := func(words ...string) draw {
		return func(r *splitmix.Source, _ int) any { return words[r.IntN(len(words))] }
	}
	number := func(format string, low, high float64) draw {
		return func(r *splitmix.Source, _ int) any { return fmt.Sprintf(format, low+(high-low)*r.Float64()) }
	}
	whole := func(format string, from, n int) draw {
		return func(r *splitmix.Source, _ int) any { return fmt.Sprintf(format, from+r.IntN(n)) }
	}
	at := func(r *splitmix.Source) time.Time {
		return time.Unix(1_300_000_000+int64(r.IntN(400_000_000)), 0).UTC()
	}
	date := func(layout string) draw {
		return func(r *splitmix.Source, _ int) any { return at(r).Format(layout) }
	}
	months := func(format string, names string) draw {
		return func(r *splitmix.Source, _ int) any {
			t := at(r)
			return fmt.Sprintf(format, t.Day(), strings.Fields(names)[t.Month()-1], t.Year())
		}
	}
	or := func(percent int, usual draw, rare ...string) draw {
		return func(r *splitmix.Source, i int) any {
			if r.IntN(100) < percent {
				return rare[r.IntN(len(rare))]
			}
			return usual(r, i)
		}
	}
	list := func(separator string, words ...string) draw {
		return func(r *splitmix.Source, _ int) any {
			var held []string
			for _, w := range words {
				if r.IntN(3) == 0 {
					held = append(held, w)
				}
			}
			return strings.Join(held, separator)
		}
	}
	money := func(format, group, point string) draw {
		return func(r *splitmix.Source, _ int) any {
			return fmt.Sprintf(format, fmt.Sprintf("%d%s%03d%s%02d", 1+r.IntN(9), group, r.IntN(1000), point, r.IntN(100)))
		}
	}
	sign := func(positive, negative draw) draw {
		return func(r *splitmix.Source, i int) any {
			if r.IntN(3) == 0 {
				return negative(r, i)
			}
			return positive(r, i)
		}
	}
	return []column{
		// Phone numbers, codes and identifiers.
		{"work_phone", whole("+1 (555) 012-%04d", 1000, 9000), traits.TypeExcluded},
		{"rufnummer", whole("0151/%07d", 1_000_000, 8_000_000), traits.TypeExcluded},
		{"shipping_zip", whole("%05d", 1_000, 60), traits.TypeCategory},
		{"postcode", some("SW1A 1AA", "M1 1AE", "B33 8TH", "EC1A 1BB"), traits.TypeCategory},
		{"employee", func(_ *splitmix.Source, i int) any { return fmt.Sprintf("%06d", 100+i) }, traits.TypeExcluded},
		{"customer_code", func(_ *splitmix.Source, i int) any { return fmt.Sprintf("C-%d", 10_023+i) }, traits.TypeExcluded},
		{"sf_account", func(r *splitmix.Source, _ int) any { return fmt.Sprintf("0015g%013X", r.Uint64()>>12) }, traits.TypeExcluded},
		{"md5", func(r *splitmix.Source, _ int) any { return fmt.Sprintf("%016x%016x", r.Uint64(), r.Uint64()) }, traits.TypeExcluded},
		{"bank", func(r *splitmix.Source, _ int) any {
			return fmt.Sprintf("DE89 3704 %04d %04d 00", r.IntN(10_000), r.IntN(10_000))
		}, traits.TypeExcluded},
		{"contact", func(r *splitmix.Source, _ int) any { return fmt.Sprintf("p.%x@example.com", r.Uint64()) }, traits.TypeExcluded},
		{"website", func(r *splitmix.Source, _ int) any { return fmt.Sprintf("https://www.site%x.example", r.Uint64()) }, traits.TypeExcluded},
		{"referrer", some("https://google.com", "https://bing.com/", "(direct)", "https://example.org/a"), traits.TypeCategory},
		{"comment", func(r *splitmix.Source, i int) any {
			return fmt.Sprintf("Customer asked about item %d, will call back on day %d.", r.IntN(1e6), i)
		}, traits.TypeExcluded},
		// Money, per cent, signs.
		{"total_spent", money("€ %s", ".", ","), traits.TypeNumber},
		{"mrr", money("%s USD", ",", "."), traits.TypeNumber},
		{"receita", money("R$ %s", ".", ","), traits.TypeNumber},
		{"kwota", money("%s zł", " ", ","), traits.TypeNumber},
		{"ltv", money("US$%s", ",", "."), traits.TypeNumber},
		{"gross", money("EUR %s", ",", "."), traits.TypeNumber},
		{"lakhs", func(r *splitmix.Source, _ int) any {
			return fmt.Sprintf("₹ %d,%02d,%03d.00", 1+r.IntN(9), r.IntN(100), r.IntN(1000))
		}, traits.TypeNumber},
		{"balance", sign(number("%.2f", 0, 500), number("(%.2f)", 0, 500)), traits.TypeNumber},
		{"net", sign(number("€%.2f", 0, 500), number("-€%.2f", 0, 500)), traits.TypeNumber},
		{"sap_amount", sign(number("%.2f", 0, 500), number("%.2f-", 0, 500)), traits.TypeNumber},
		{"change", sign(number("+%.1f%%", 0, 50), number("-%.1f%%", 0, 50)), traits.TypeNumber},
		{"delta", sign(number("%.1f", 0, 50), number("\u2212%.1f", 0, 50)), traits.TypeNumber},
		{"volume", number("%.2E", 10, 1e6), traits.TypeNumber},
		{"funding", number("$%.1fM", 1, 90), traits.TypeNumber},
		{"open_rate", number("%.1f %%", 0, 100), traits.TypeNumber},
		{"visits", whole("%d", 0, 300), traits.TypeNumber},
		// Yes and no.
		{"newsletter", some("Y", "N"), traits.TypeCategory},
		{"suscrito", or(20, some("sí", "no"), ""), traits.TypeCategory},
		{"ativo", some("sim", "não"), traits.TypeCategory},
		{"actief", some("ja", "nee"), traits.TypeCategory},
		{"flag", some("0", "1"), traits.TypeNumber},
		{"verified", or(10, some("TRUE", "FALSE"), "#N/A"), traits.TypeCategory},
		{"checked", some("x", ""), traits.TypeCategory},
		// Dates.
		{"birthdate", date("1/2/06"), traits.TypeDate},
		{"opened", date("02/01/2006 15:04"), traits.TypeDate},
		{"modified", date("2006-01-02T15:04:05-0700"), traits.TypeDate},
		{"inserted", date("2006-01-02 15:04:05.123456-07"), traits.TypeDate},
		{"synced", date("2006-01-02 15:04:05 UTC"), traits.TypeDate},
		{"invited", date("Jan 2, 2006 3:04 PM"), traits.TypeDate},
		{"inscrit", months("%d %s %d", "janvier février mars avril mai juin juillet août septembre octobre novembre décembre"), traits.TypeDate},
		{"alta", months("%d de %s de %d", "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre"), traits.TypeDate},
		{"cadastro", months("%d de %s de %d", "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro"), traits.TypeDate},
		{"iscritto", months("%d %s %d", "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre"), traits.TypeDate},
		{"lid_sinds", months("%d %s %d", "januari februari maart april mei juni juli augustus september oktober november december"), traits.TypeDate},
		{"eintritt", months("%d. %s %d", "Jan. Feb. März Apr. Mai Juni Juli Aug. Sept. Okt. Nov. Dez."), traits.TypeDate},
		{"shipped", date("02-Jan-2006"), traits.TypeDate},
		{"week", func(r *splitmix.Source, _ int) any {
			year, week := at(r).ISOWeek()
			return fmt.Sprintf("%d-W%02d", year, week)
		}, traits.TypeDate},
		{"created_at", func(r *splitmix.Source, _ int) any { return fmt.Sprint(at(r).Unix()) }, traits.TypeDate},
		{"ts", func(r *splitmix.Source, _ int) any { return float64(at(r).Unix()) + r.Float64() }, traits.TypeDate},
		{"updated", func(r *splitmix.Source, _ int) any { return fmt.Sprint(at(r).UnixMilli()) }, traits.TypeDate},
		{"card_expiry", date("01/2006"), traits.TypeDate},
		{"cohort", date("Jan 2006"), traits.TypeDate},
		{"dotnet", date("2006-01-02T15:04:05.1234567"), traits.TypeDate},
		{"compact", date("20060102"), traits.TypeDate},
		{"js_date", date("Mon Jan 02 2006"), traits.TypeDate},
		{"js_time", date("Mon Jan 02 2006 15:04:05 GMT-0700 (UTC)"), traits.TypeDate},
		{"last_order", or(20, date("2006-01-02"), "", "never", "0000-00-00"), traits.TypeDate},
		// Durations, sizes, ranges, ratings.
		{"call_duration", func(r *splitmix.Source, _ int) any {
			return fmt.Sprintf("%d:%02d:%02d", r.IntN(3), r.IntN(60), r.IntN(60))
		}, traits.TypeNumber},
		{"pace", func(r *splitmix.Source, _ int) any { return fmt.Sprintf("%02d:%02d", 3+r.IntN(5), r.IntN(60)) }, traits.TypeNumber},
		{"call_me_at", func(r *splitmix.Source, _ int) any {
			return fmt.Sprintf("%d:%02d %s", 1+r.IntN(12), r.IntN(60), []string{"AM", "PM"}[r.IntN(2)])
		}, traits.TypeNumber},
		{"listened", func(r *splitmix.Source, _ int) any { return fmt.Sprintf("%dh %dm", r.IntN(9), r.IntN(60)) }, traits.TypeNumber},
		{"trial", whole("PT%dM", 1, 59), traits.TypeNumber},
		{"tenure", whole("%d days", 2, 900), traits.TypeNumber},
		{"height_ft", func(r *splitmix.Source, _ int) any { return fmt.Sprintf("%d'%d\"", 5+r.IntN(2), r.IntN(12)) }, traits.TypeNumber},
		{"flat_size", whole("%d m²", 30, 120), traits.TypeNumber},
		{"temperature", number("%.1f °C", -5, 30), traits.TypeNumber},
		{"waist", number("%.1f\"", 25, 45), traits.TypeNumber},
		{"age_group", some("18-24", "25-34", "35-44", "45+"), traits.TypeCategory},
		{"employees", some("1-10", "11-50", "51-200", "201-500"), traits.TypeCategory},
		{"review", number("%.1f/5", 1, 5), traits.TypeNumber},
		{"points", whole("%d / 100", 0, 100), traits.TypeNumber},
		{"rating_stars", some("★☆☆☆☆", "★★★☆☆", "★★★★☆", "★★★★★"), traits.TypeCategory},
		{"agree", some("Strongly agree", "Agree", "Neither agree nor disagree", "Disagree", "Strongly disagree"), traits.TypeCategory},
		{"satisfied", some("1 - Very dissatisfied", "2 - Dissatisfied", "3 - Neutral", "4 - Satisfied", "5 - Very satisfied"), traits.TypeCategory},
		{"place", some("1st", "2nd", "3rd", "4th"), traits.TypeCategory},
		{"shirt", some("S", "M", "L", "XL"), traits.TypeCategory},
		{"founded", whole("%d", 1950, 70), traits.TypeNumber},
		{"version", some("2.1", "2.2", "2.10", "3.0"), traits.TypeCategory},
		{"build", some("10.2.1", "10.2.3", "10.3.0", "11.0.1"), traits.TypeCategory},
		{"os", some("iOS 17.2", "iOS 16.1", "Android 14", "Windows 11"), traits.TypeCategory},
		// Lists.
		{"channels", list(";", "Email", "SMS", "Phone", "Post"), traits.TypeSet},
		{"genres", list(",", "rock", "pop", "soul", "folk", "metal"), traits.TypeSet},
		{"lines", list("\n", "rock", "pop", "soul", "folk", "metal"), traits.TypeSet},
		{"roles", func(r *splitmix.Source, i int) any {
			return "{" + list(",", "admin", "owner", "guest", "editor")(r, i).(string) + "}"
		}, traits.TypeSet},
		{"topics", func(r *splitmix.Source, i int) any {
			return `["` + list(`", "`, "news", "sport", "art", "money", "law")(r, i).(string) + `"]`
		}, traits.TypeSet},
		{"diet", list(" | ", "vegan", "halal", "gluten free", "no nuts"), traits.TypeSet},
		// Places.
		{"coords", func(r *splitmix.Source, _ int) any {
			return fmt.Sprintf("(%.6f, %.6f)", 48+r.Float64(), 11+r.Float64())
		}, traits.TypeGeo},
		{"latlong", func(r *splitmix.Source, _ int) any { return fmt.Sprintf("%.6f %.6f", 48+r.Float64(), 11+r.Float64()) }, traits.TypeGeo},
		{"position", func(r *splitmix.Source, _ int) any { return fmt.Sprintf("%.4f;%.4f", 48+r.Float64(), 11+r.Float64()) }, traits.TypeGeo},
		{"latitude", func(r *splitmix.Source, _ int) any { return 48 + r.Float64() }, traits.TypeNumber},
		// What is missing, and garbage.
		{"income", or(20, whole("%d", 20_000, 80_000), "-", "n/a", "null", "#N/A", "unknown"), traits.TypeNumber},
		{"einkommen", or(20, number("%.2f", 900, 8_000), "k. A.", "keine Angabe", "unbekannt"), traits.TypeNumber},
		{"ancienneté", or(20, whole("%d", 0, 40), "inconnu", "non renseigné", "N/D"), traits.TypeNumber},
		{"kpi", or(12, number("%.2f", 0, 9), "#DIV/0!", "#VALUE!", "#REF!"), traits.TypeNumber},
		{"campaign", or(30, some("spring", "summer", "brand"), "(not set)", "(none)", "None"), traits.TypeCategory},
		{"clicks", or(2, whole("%d", 0, 500), "see note", "abc"), traits.TypeNumber},
		{"birthday", or(2, date("02.01.2006"), "??.??", "im Mai"), traits.TypeDate},
		{"segment", or(2, some("A", "B", "C"), "a very long remark that somebody typed into the wrong cell"), traits.TypeCategory},
	}
}
