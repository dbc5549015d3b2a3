package traits

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// exported is a column as a database or a spreadsheet exports it, and how it has to
// be read.
type exported struct {
	path  string
	value func(r *rand.Rand, i int) string // JSON; "" leaves it out
	want  Type
	holds func(t Trait) bool // nil: the type is all
}

func text(s string) string { return fmt.Sprintf("%q", s) }

func sometimes(r *rand.Rand, share float64, rare, usual string) string {
	if r.Float64() < share {
		return rare
	}
	return usual
}

func exports() []exported {
	day := func(r *rand.Rand) (y, m, d int) { return 1950 + r.IntN(70), 1 + r.IntN(12), 1 + r.IntN(28) }
	months := []string{"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"}
	date := func(format func(y, m, d int) string) func(*rand.Rand, int) string {
		return func(r *rand.Rand, _ int) string { return text(format(day(r))) }
	}
	some := func(r *rand.Rand, all []string, separator string) string {
		held := make([]string, 1+r.IntN(3))
		for i := range held {
			held[i] = all[r.IntN(len(all))]
		}
		return text(strings.Join(held, separator))
	}
	hobbies := []string{"chess", "hiking", "go", "films", "wine tasting", "travel"}
	max100 := func(t Trait) bool { return t.Numbers.Max <= 120 && t.Numbers.Min >= 0 }
	return []exported{
		// ids and codes
		{"user_id", func(_ *rand.Rand, i int) string { return fmt.Sprint(100_000 + i*7) }, TypeExcluded, nil},
		{"customerId", func(_ *rand.Rand, i int) string { return fmt.Sprint(i + 1) }, TypeExcluded, nil},
		{"row", func(_ *rand.Rand, i int) string { return fmt.Sprint(i) }, TypeExcluded, nil},
		{"phone", func(r *rand.Rand, _ int) string { return fmt.Sprint(4_917_000_000_000 + r.Int64N(1e10)) }, TypeExcluded, nil},
		{"contract", func(r *rand.Rand, _ int) string { return fmt.Sprint(3_000_000_000 + r.Int64N(6e9)) }, TypeExcluded, nil},
		{"uuid", func(r *rand.Rand, _ int) string { return text(fmt.Sprintf("%016x", r.Uint64())) }, TypeExcluded, nil},
		{"email", func(r *rand.Rand, _ int) string { return text(fmt.Sprintf("p%x@example.com", r.Uint64())) }, TypeExcluded, nil},
		{"store_id", func(r *rand.Rand, _ int) string { return fmt.Sprint(100 + r.IntN(12)) }, TypeCategory, nil},
		{"zip", func(r *rand.Rand, _ int) string { return fmt.Sprint(8000 + r.IntN(30)) }, TypeCategory, nil},
		{"postcode", func(r *rand.Rand, _ int) string { return text(fmt.Sprintf("%05d", 1000+r.IntN(30))) }, TypeCategory, nil},
		{"industryCode", func(r *rand.Rand, _ int) string { return fmt.Sprint(62 + r.IntN(9)) }, TypeCategory, nil},
		{"area_code", func(r *rand.Rand, _ int) string { return text(fmt.Sprintf("%03d", 30+r.IntN(20))) }, TypeCategory, nil},
		{"line", func(_ *rand.Rand, i int) string { return fmt.Sprint(70_000 + 3*i) }, TypeExcluded, func(t Trait) bool { return t.Because == BecauseIdentifier }},
		{"kundennummer", func(_ *rand.Rand, i int) string { return fmt.Sprint(1_000_003 * (i + 1) % 9_999_991) }, TypeExcluded, nil},
		{"contact", func(r *rand.Rand, _ int) string { return fmt.Sprint(491_510_000_000 + r.Int64N(1e7)) }, TypeExcluded, nil},
		{"call", func(r *rand.Rand, _ int) string { return text(fmt.Sprintf("+49 151 %07d", r.IntN(1e7))) }, TypeExcluded, func(t Trait) bool { return t.Because == BecauseIdentifier }},
		{"flat", func(r *rand.Rand, _ int) string { return text(fmt.Sprintf("%d%c", 1+r.IntN(9), 'A'+r.IntN(4))) }, TypeCategory, nil},
		{"customerid", func(_ *rand.Rand, i int) string { return fmt.Sprint(1_000_003 * (i + 1) % 9_999_991) }, TypeExcluded, nil},
		{"id_client", func(_ *rand.Rand, i int) string { return fmt.Sprint(1_000_003 * (i + 1) % 9_999_991) }, TypeExcluded, nil},
		{"kundennr", func(_ *rand.Rand, i int) string { return fmt.Sprint(1_000_003 * (i + 1) % 9_999_991) }, TypeExcluded, nil},
		{"storeid", func(r *rand.Rand, _ int) string { return fmt.Sprint(100 + r.IntN(12)) }, TypeCategory, nil},
		{"regioncode", func(r *rand.Rand, _ int) string { return fmt.Sprint(1 + r.IntN(40)) }, TypeCategory, nil},
		{"app_version", func(r *rand.Rand, _ int) string { return []string{"1.1", "1.2", "2.0"}[r.IntN(3)] }, TypeCategory, nil},
		{"paid", func(r *rand.Rand, _ int) string { return fmt.Sprint(1000 + r.IntN(900_000)) }, TypeNumber, nil},
		{"snelheid", func(r *rand.Rand, _ int) string { return fmt.Sprint(1000 + r.IntN(900_000)) }, TypeNumber, nil},
		{"idle", func(r *rand.Rand, _ int) string { return fmt.Sprint(1000 + r.IntN(900_000)) }, TypeNumber, nil},
		// numbers among words
		{"cars", func(r *rand.Rand, _ int) string { return []string{"0", "1", "2", `"3+"`}[r.IntN(4)] }, TypeCategory, func(t Trait) bool { return t.Distinct == 4 }},
		{"clothes", func(r *rand.Rand, _ int) string { return []string{"38", "40", `"S"`, `"M"`}[r.IntN(4)] }, TypeCategory, nil},
		{"income_or_not", func(r *rand.Rand, _ int) string {
			return sometimes(r, 0.2, text("refused"), fmt.Sprint(20_000+r.IntN(90_000)))
		}, TypeExcluded, func(t Trait) bool { return t.Because == BecauseMixed }},
		// sentinels
		{"age", func(r *rand.Rand, _ int) string { return sometimes(r, 0.05, "-1", fmt.Sprint(18+r.IntN(70))) }, TypeNumber, max100},
		{"height_cm", func(r *rand.Rand, _ int) string { return sometimes(r, 0.05, "999", fmt.Sprint(150+r.IntN(50))) }, TypeNumber, func(t Trait) bool { return t.Numbers.Max < 250 }},
		{"children", func(r *rand.Rand, _ int) string { return sometimes(r, 0.08, "99", fmt.Sprint(r.IntN(6))) }, TypeNumber, max100},
		{"visits", func(r *rand.Rand, _ int) string {
			return sometimes(r, 0.05, "-9999", sometimes(r, 0.1, "-999", fmt.Sprint(r.IntN(80))))
		}, TypeNumber, max100},
		{"days_since", func(r *rand.Rand, _ int) string { return sometimes(r, 0.5, "-1", fmt.Sprint(1+r.IntN(100))) }, TypeNumber, max100},
		{"score_9999", func(r *rand.Rand, _ int) string { return sometimes(r, 0.03, "9999", fmt.Sprint(r.Float64()*100)) }, TypeNumber, max100},
		// what only looks like a sentinel
		{"sentiment", func(r *rand.Rand, _ int) string { return fmt.Sprint(r.IntN(3) - 1) }, TypeNumber, func(t Trait) bool { return t.Numbers.Min == -1 }},
		{"balance", func(r *rand.Rand, _ int) string { return fmt.Sprint(r.IntN(2000) - 1000) }, TypeNumber, func(t Trait) bool { return len(t.Sentinels) == 0 }},
		{"percent", func(r *rand.Rand, _ int) string { return fmt.Sprint(r.IntN(101)) }, TypeNumber, func(t Trait) bool { return len(t.Sentinels) == 0 }},
		{"price", func(r *rand.Rand, _ int) string { return []string{"9", "19", "49", "99"}[r.IntN(4)] }, TypeNumber, func(t Trait) bool { return len(t.Sentinels) == 0 }},
		// what stands for nothing
		{"income", func(r *rand.Rand, _ int) string {
			return sometimes(r, 0.2, text("N/A"), fmt.Sprint(20_000+r.IntN(90_000)))
		}, TypeNumber, nil},
		{"city", func(r *rand.Rand, _ int) string {
			return sometimes(r, 0.3, text(""), text([]string{"Rome", "Oslo", "Bern"}[r.IntN(3)]))
		}, TypeCategory, func(t Trait) bool { return t.Distinct == 3 }},
		{"segment", func(r *rand.Rand, _ int) string {
			return sometimes(r, 0.3, text([]string{"?", "NULL", "n/a", "-", "unknown"}[r.IntN(5)]), text([]string{"a", "b"}[r.IntN(2)]))
		}, TypeCategory, func(t Trait) bool { return t.Distinct == 2 }},
		{"country", func(r *rand.Rand, _ int) string { return text([]string{"DE", "FR", "NA", "US"}[r.IntN(4)]) }, TypeCategory, func(t Trait) bool { return t.Distinct == 4 }},
		{"drinks", func(r *rand.Rand, _ int) string { return text([]string{"none", "some", "many"}[r.IntN(3)]) }, TypeCategory, func(t Trait) bool { return t.Distinct == 3 }},
		{"empty", func(*rand.Rand, int) string { return text("") }, TypeExcluded, nil},
		{"born_late", func(r *rand.Rand, _ int) string {
			y, m, d := day(r)
			return sometimes(r, 0.2, text("-"), text(fmt.Sprintf("%d-%02d-%02d", y, m, d)))
		}, TypeDate, nil},
		// dates
		{"d1", date(func(y, m, d int) string { return fmt.Sprintf("%d-%02d-%02d", y, m, d) }), TypeDate, nil},
		{"d2", date(func(y, m, d int) string { return fmt.Sprintf("%d-%02d-%02d 12:30:00", y, m, d) }), TypeDate, nil},
		{"d3", date(func(y, m, d int) string { return fmt.Sprintf("%02d.%02d.%d", d, m, y) }), TypeDate, nil},
		{"d4", date(func(y, m, d int) string { return fmt.Sprintf("%02d/%02d/%d", d, m, y) }), TypeDate, func(t Trait) bool { return t.Format == FormatDayMonth }},
		{"d5", date(func(y, m, d int) string { return fmt.Sprintf("%d/%d/%d", m, d, y) }), TypeDate, func(t Trait) bool { return t.Format == FormatMonthDay }},
		{"d6", date(func(y, m, d int) string { return fmt.Sprintf("%d/%02d/%02d", y, m, d) }), TypeDate, nil},
		{"d7", date(func(y, m, d int) string { return fmt.Sprintf("%d %s %d", d, months[m-1], y) }), TypeDate, nil},
		{"d8", date(func(y, m, d int) string { return fmt.Sprintf("%s %d, %d", months[m-1], d, y) }), TypeDate, nil},
		{"d9", func(r *rand.Rand, _ int) string { y, m, d := day(r); return fmt.Sprintf("%d%02d%02d", y, m, d) }, TypeDate, nil},
		{"created_at", func(r *rand.Rand, _ int) string { return fmt.Sprint(1_500_000_000 + r.IntN(200_000_000)) }, TypeDate, nil},
		{"last_seen", func(r *rand.Rand, _ int) string { return fmt.Sprint(1_500_000_000_000 + r.Int64N(200_000_000_000)) }, TypeDate, nil},
		{"last_login", func(r *rand.Rand, _ int) string { return fmt.Sprint(1_500_000_000_000 + r.Int64N(200_000_000_000)) }, TypeDate, nil},
		{"d10", date(func(y, m, d int) string { return fmt.Sprintf("%02d.%02d.%02d", d, m, y%100) }), TypeDate, nil},
		{"signup", date(func(y, m, _ int) string { return fmt.Sprintf("%d-%02d", y, m) }), TypeDate, nil},
		{"doubtful", date(func(y, m, d int) string { return fmt.Sprintf("%02d/%02d/%d", 1+d%12, m, y) }), TypeExcluded, func(t Trait) bool { return t.Because == BecauseAmbiguous }},
		{"d11", date(func(y, m, d int) string { return fmt.Sprintf("%d/%d/%02d %d:05", m, d, y%100, d%24) }), TypeDate, func(t Trait) bool { return t.Format == FormatMonthDay }},
		{"d12", date(func(y, m, d int) string { return fmt.Sprintf("%02d.%02d.%02d 09:30", d, m, y%100) }), TypeDate, nil},
		{"d13", date(func(y, m, d int) string { return fmt.Sprintf("%02d/%02d/%d 01:30 PM", d, m, y) }), TypeDate, func(t Trait) bool { return t.Format == FormatDayMonth }},
		{"d14", date(func(y, m, d int) string { return fmt.Sprintf("%d-%02d-%02d 12:30:00 +02:00", y, m, d) }), TypeDate, nil},
		{"year", func(r *rand.Rand, _ int) string { return fmt.Sprint(1950 + r.IntN(70)) }, TypeNumber, nil},
		{"earnings", func(r *rand.Rand, _ int) string {
			return sometimes(r, 0.3, text([]string{"PrivacySuppressed", ":", ".."}[r.IntN(3)]), text(fmt.Sprint(20_000+r.IntN(90_000))))
		}, TypeNumber, func(t Trait) bool { return t.Known < 510 }},
		{"ended", func(r *rand.Rand, _ int) string {
			y, m, d := day(r)
			return sometimes(r, 0.2, text("9999-12-31"), text(fmt.Sprintf("%d-%02d-%02d", y, m, d)))
		}, TypeDate, func(t Trait) bool { return t.Known < 570 && t.Numbers.Max < 20_000 }},
		{"ende", func(r *rand.Rand, _ int) string {
			y, m, d := day(r)
			return sometimes(r, 0.2, text("31.12.9999"), text(fmt.Sprintf("%02d.%02d.%d", d, m, y)))
		}, TypeDate, nil},
		{"zero_time", func(r *rand.Rand, _ int) string {
			y, m, d := day(r)
			return sometimes(r, 0.1, text("0001-01-01T00:00:00Z"), text(fmt.Sprintf("%d-%02d-%02dT12:00:00Z", y, m, d)))
		}, TypeDate, nil},
		{"birthday", func(r *rand.Rand, _ int) string {
			y, m, d := day(r)
			return sometimes(r, 0.1, text("1900-01-01"), text(fmt.Sprintf("%d-%02d-%02d", y, m, d)))
		}, TypeDate, func(t Trait) bool { return t.Known < 590 && t.Numbers.Min > daysTo1900 }},
		{"founded", func(r *rand.Rand, _ int) string {
			return text(fmt.Sprintf("%d-01-01", 1880+r.IntN(40)))
		}, TypeDate, func(t Trait) bool { return len(t.Sentinels) == 0 }},
		// numbers as texts
		{"spend", func(r *rand.Rand, _ int) string {
			return text(fmt.Sprintf("$%d,%03d.%02d", 1+r.IntN(9), r.IntN(1000), r.IntN(100)))
		}, TypeNumber, func(t Trait) bool { return t.Numbers.Min >= 1000 }},
		{"umsatz", func(r *rand.Rand, _ int) string {
			return text(fmt.Sprintf("%d.%03d,%02d €", 1+r.IntN(9), r.IntN(1000), r.IntN(100)))
		}, TypeNumber, func(t Trait) bool { return t.Numbers.Min >= 1000 }},
		{"umsatz_ganz", func(r *rand.Rand, _ int) string {
			return text([]string{fmt.Sprint(1 + r.IntN(999)), fmt.Sprintf("%d.%03d", 1+r.IntN(99), r.IntN(1000))}[r.IntN(2)])
		}, TypeNumber, func(t Trait) bool { return t.Format == FormatNumberComma && t.Numbers.Min >= 1 && t.Numbers.Max > 1000 }},
		{"liter", func(r *rand.Rand, _ int) string {
			return text([]string{fmt.Sprint(r.IntN(9)), fmt.Sprintf("%d.%03d", r.IntN(3), r.IntN(1000))}[r.IntN(2)])
		}, TypeNumber, max100},
		{"rate", func(r *rand.Rand, _ int) string { return text(fmt.Sprintf("%.1f%%", r.Float64()*100)) }, TypeNumber, max100},
		{"years", func(r *rand.Rand, _ int) string { return text(fmt.Sprint(r.IntN(40))) }, TypeNumber, nil},
		{"balance_text", func(r *rand.Rand, _ int) string { return text(fmt.Sprintf("(%d.50)", r.IntN(900))) }, TypeNumber, func(t Trait) bool { return t.Numbers.Max <= 0 }},
		{"eur", func(r *rand.Rand, _ int) string { return text(fmt.Sprintf("EUR %d", 10+r.IntN(900))) }, TypeNumber, nil},
		{"version", func(r *rand.Rand, _ int) string { return text(fmt.Sprintf("1.%d.3", r.IntN(9))) }, TypeCategory, nil},
		{"release", func(r *rand.Rand, _ int) string {
			return text(fmt.Sprintf("%d.%d.%d", 8+r.IntN(3), 1+r.IntN(3), 10+r.IntN(3)))
		}, TypeCategory, nil},
		{"length", func(r *rand.Rand, _ int) string { return text(fmt.Sprintf("%d cm", 150+r.IntN(50))) }, TypeNumber, func(t Trait) bool { return t.Numbers.Max < 250 && t.Numbers.Min >= 150 }},
		{"lengths", func(r *rand.Rand, _ int) string { return text([]string{"180 cm", "170 cm", "1.6 m"}[r.IntN(3)]) }, TypeCategory, nil},
		{"gewicht", func(r *rand.Rand, _ int) string { return text(fmt.Sprintf("%d,5 kg", 50+r.IntN(50))) }, TypeNumber, func(t Trait) bool { return t.Format == FormatUnitComma && t.Numbers.Max < 101 }},
		{"fans", func(r *rand.Rand, _ int) string {
			return text([]string{fmt.Sprintf("%.1fk", 1+r.Float64()), fmt.Sprint(r.IntN(1000)), "1.2M"}[r.IntN(3)])
		}, TypeNumber, func(t Trait) bool { return t.Numbers.Max == 1.2e6 && t.Numbers.P50 < 2000 }},
		{"body_mass_index", func(r *rand.Rand, _ int) string { return fmt.Sprint(18 + r.IntN(20)) }, TypeNumber, nil},
		{"number_of_children", func(r *rand.Rand, _ int) string { return fmt.Sprint(r.IntN(6)) }, TypeNumber, nil},
		{"salary", func(r *rand.Rand, _ int) string { return fmt.Sprint(20_000 + r.IntN(2_000_000)) }, TypeNumber, nil},
		// lists
		{"hobbies", func(r *rand.Rand, _ int) string { return some(r, hobbies, ", ") }, TypeSet, func(t Trait) bool { return t.Distinct == len(hobbies) }},
		{"tags", func(r *rand.Rand, _ int) string { return some(r, hobbies, ";") }, TypeSet, nil},
		{"genres", func(r *rand.Rand, _ int) string { return some(r, hobbies, "|") }, TypeSet, nil},
		{"topics", func(r *rand.Rand, _ int) string {
			return []string{fmt.Sprint(10 + r.IntN(9)), text(fmt.Sprintf("%d, %d, %d", 10+r.IntN(3), 13+r.IntN(3), 16+r.IntN(3)))}[r.IntN(2)]
		}, TypeSet, func(t Trait) bool { return t.Distinct == 9 && t.Known == 600 }},
		{"place", func(r *rand.Rand, _ int) string {
			return text([]string{"Berlin, Germany", "Paris, France", "Rome, Italy", "Oslo, Norway"}[r.IntN(4)])
		}, TypeCategory, nil},
		{"bio", func(r *rand.Rand, i int) string {
			return text(fmt.Sprintf("I am %d, like %x, and %x", i, r.Uint32(), r.Uint32()))
		}, TypeExcluded, nil},
		// places
		{"latlon", func(r *rand.Rand, _ int) string {
			return text(fmt.Sprintf("%.4f, %.4f", r.Float64()*90, r.Float64()*180))
		}, TypeGeo, nil},
		{"point", func(r *rand.Rand, _ int) string {
			return text(fmt.Sprintf("POINT(%.4f %.4f)", 91+r.Float64()*80, r.Float64()*90))
		}, TypeGeo, nil},
		// arrays
		{"vector", func(r *rand.Rand, _ int) string {
			parts := make([]string, 32)
			for i := range parts {
				parts[i] = fmt.Sprint(r.NormFloat64())
			}
			return "[" + strings.Join(parts, ",") + "]"
		}, TypeExcluded, func(t Trait) bool { return t.Because == BecauseEmbedding }},
		{"pair", func(r *rand.Rand, _ int) string {
			return fmt.Sprintf("[%.1f, %.1f]", 47+r.Float64()*8, 6+r.Float64()*9)
		}, TypeGeo, func(t Trait) bool { return t.Format == FormatLatLon && t.Expected > 0.5 && t.Expected < 0.9 }},
		{"lonlat", func(r *rand.Rand, _ int) string {
			return fmt.Sprintf("[%.4f, %.4f]", 100+r.Float64()*50, r.Float64()*40)
		}, TypeExcluded, nil},
		{"three", func(r *rand.Rand, _ int) string {
			return fmt.Sprintf("[%.4f, %.4f, %.4f]", r.Float64(), r.Float64(), r.Float64())
		}, TypeExcluded, func(t Trait) bool { return t.Because == BecauseEmbedding }},
		{"shoes", func(r *rand.Rand, _ int) string {
			return fmt.Sprintf("[%d.5, %d.5, %d.5]", 36+r.IntN(3), 39+r.IntN(3), 42+r.IntN(3))
		}, TypeSet, nil},
		{"sizes", func(r *rand.Rand, _ int) string { return fmt.Sprintf("[%d,%d]", 36+r.IntN(8), 36+r.IntN(8)) }, TypeSet, nil},
	}
}

// readAs infers a column from so many users.
func (e exported) readAs(t *testing.T, users int, before Schema) Schema {
	t.Helper()
	random := rand.New(rand.NewPCG(1, uint64(len(e.path))))
	return InferSampled(func(yield func(string, Flat) bool) {
		for i := range users {
			value := e.value(random, i)
			if !yield(fmt.Sprint("u", i), flat(t, `{"`+e.path+`":`+value+`}`)) {
				return
			}
		}
	}, nil, before)
}

func TestColumnsOfExportsAreReadAsTheyAreMeant(t *testing.T) {
	for _, e := range exports() {
		got := e.readAs(t, 600, Schema{}).Traits[0]
		if got.Type != e.want || e.holds != nil && !e.holds(got) {
			got.Levels = got.Levels[:min(3, len(got.Levels))]
			t.Errorf("%s, such as %s: %+v, not %s", e.path, e.value(rand.New(rand.NewPCG(1, 1)), 3), got, e.want)
		}
		if got.Because == "" || got.Rules != Rules {
			t.Errorf("%s: nothing says why: %+v", e.path, got)
		}
	}
}

// What few users made of a path stays as more come, while it is a fair reading.
func TestTypesStayAsUsersCome(t *testing.T) {
	changed := 0
	for _, e := range exports() {
		var before Schema
		var types []Type
		for _, users := range []int{40, 90, 300, 3000} {
			before = e.readAs(t, users, before)
			types = append(types, before.Traits[0].Type)
		}
		if len(slices.Compact(slices.Clone(types))) > 1 {
			changed++
			t.Logf("%s: %v", e.path, types)
		}
	}
	if changed > 2 {
		t.Errorf("%d of %d columns change their type between 40 and 3,000 users", changed, len(exports()))
	}
	// Levels around their bounds, which flip without any memory.
	for n := range 40 {
		e := exported{path: "p", value: func(r *rand.Rand, _ int) string { return text(fmt.Sprint("l", r.IntN(40+n))) }}
		before := e.readAs(t, 220, Schema{})
		for users := 230; users < 330; users += 20 {
			now := e.readAs(t, users, before)
			if now.Traits[0].Type != before.Traits[0].Type {
				t.Errorf("%d levels: %s becomes %s at %d users", 40+n, before.Traits[0].Type, now.Traits[0].Type, users)
			}
			before = now
		}
	}
}

// A client that has data keeps how it was read, is told what else there is, and
// takes it by deciding so.
func TestWhatWasLearntByOtherRulesStaysUntilTheClientDecides(t *testing.T) {
	for _, c := range []struct {
		path, value string
		was         Type
		now         Suggestion
	}{
		{"born", `"24.12.1999"`, TypeCategory, Suggestion{Type: TypeDate, Format: FormatDots, Because: BecauseFormat}},
		{"user_id", `17`, TypeNumber, Suggestion{Type: TypeCategory, Format: FormatCode, Because: BecauseCode}},
		{"krankheit", `"x"`, TypeCategory, Suggestion{Type: TypeCategory, Because: BecauseFewLevels, Sensitive: true}},
	} {
		users := func(yield func(string, Flat) bool) {
			for i := range 300 {
				if !yield(fmt.Sprint("u", i), flat(t, `{"`+c.path+`":`+c.value+`}`)) {
					return
				}
			}
		}
		before := Schema{Traits: []Trait{{Path: c.path, Type: c.was, Weight: 1}}} // of an edition before
		kept := InferSampled(users, nil, before)
		again := InferSampled(users, nil, kept)
		for _, s := range []Schema{kept, again} {
			got := s.Traits[0]
			if got.Type != c.was || got.Format != "" || got.Sensitive || got.Because != BecauseKept || got.Rules != 0 {
				t.Errorf("%s: %+v", c.path, got)
			}
			if s := got.Suggested; s == nil || s.Type != c.now.Type || s.Format != c.now.Format || s.Because != c.now.Because || s.Sensitive != c.now.Sensitive {
				t.Errorf("%s: suggests %+v, not %+v", c.path, s, c.now)
			}
		}
		decided := InferSampled(users, map[string]Override{c.path: {Type: c.now.Type}}, again).Traits[0]
		if decided.Type != c.now.Type || decided.Rules != Rules || decided.Suggested != nil || decided.Sensitive != c.now.Sensitive || decided.Because != BecauseDeclared {
			t.Errorf("%s: decided, %+v", c.path, decided)
		}
		if v, ok := decided.Read(flat(t, `{"`+c.path+`":`+c.value+`}`)); !ok || decided.Type == TypeDate && v.Number != 10949 {
			t.Errorf("%s: reads %+v, %v", c.path, v, ok)
		}
	}
}

// Also what was learnt before words of other languages stood for nothing, from few users.
func TestWhatWasLearntByTheRulesOfFormatsStays(t *testing.T) {
	e := exported{path: "lohn", value: func(r *rand.Rand, i int) string { return sometimes(r, 0.2, text("keine Angabe"), fmt.Sprint(i+10)) }}
	before := Schema{Traits: []Trait{{Path: "lohn", Type: TypeExcluded, Weight: 1, Rules: formatsSince, Because: BecauseMixed}}}
	for range 2 {
		before = e.readAs(t, 100, before)
		if got := before.Traits[0]; got.Type != TypeExcluded || got.Rules != formatsSince || got.Suggested == nil || got.Suggested.Type != TypeNumber {
			t.Errorf("%+v", got)
		}
	}
}

func TestWhatWasLearntBeforePairsWerePlacesReadsNone(t *testing.T) {
	users := flat(t, `{"a":[52.1, 13.4],"b":"9999-12-31"}`)
	for rules, reads := range map[int]bool{wordsSince: false, pairsSince: true} {
		if _, ok := (Trait{Path: "a", Type: TypeGeo, Format: FormatLatLon, Rules: rules}).Read(users); ok != reads {
			t.Errorf("a place by the rules %d: %v", rules, ok)
		}
		if _, ok := (Trait{Path: "b", Type: TypeDate, Rules: rules}).Read(users); ok == reads {
			t.Errorf("a date by the rules %d: %v", rules, ok)
		}
	}
}

func TestNumbersAreReadAsPeopleWriteThem(t *testing.T) {
	for _, c := range []struct {
		text  string
		comma bool
		want  float64
	}{
		{"1,234.50", false, 1234.5},
		{"$ 12", false, 12},
		{"-3", false, -3},
		{"(4.5)", false, -4.5},
		{"7 %", false, 7},
		{"1.234,5", true, 1234.5},
		{"1 234,5 €", true, 1234.5},
		{"1'234.5", false, 1234.5},
		{"1e3", false, 1000},
		{"CHF 20", false, 20},
		{"-$5", false, -5},
		{"", false, math.NaN()},
		{"x", false, math.NaN()},
		{"007", false, math.NaN()},
		{"1,23,4", false, math.NaN()},
		{"0x10", false, math.NaN()},
		{"inf", false, math.NaN()},
		{"1.2.3", false, math.NaN()},
		{"12 kg", false, math.NaN()},
		{"1e999", false, math.NaN()},
		{"R$ 1.234,50", true, 1234.5},
		{"US$1,234", false, 1234},
		{"₹ 1,23,456.50", false, 123456.5},
		{"12.50-", false, -12.5},
		{"-€12.50", false, -12.5},
		{"\u22127", false, -7},
		{"+4.5 %", false, 4.5},
		{"+49151123456", false, math.NaN()},
		{"1,2345", false, math.NaN()},
		{"12,34,567", true, math.NaN()},
	} {
		got, ok := spelledNumber(c.text, c.comma)
		if ok == math.IsNaN(c.want) || ok && math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%q: %v, %v", c.text, got, ok)
		}
	}
}

func TestQuantitiesAndDatesAreReadAsPeopleWriteThem(t *testing.T) {
	const day = 18690 // 2021-03-04
	for _, c := range []struct {
		format Format
		text   string
		want   float64
	}{
		{FormatUnit, "4.5/5", 4.5},
		{FormatUnit, "87 / 100", 87},
		{FormatUnit, "120 km/h", 120},
		{FormatClock, "9:30", 9.5},
		{FormatClock, "12:15 am", 0.25},
		{FormatClock, "9:30 PM", 21.5},
		{FormatClock, "1:30:36", 1.51},
		{FormatClock, "16:9", math.NaN()},
		{FormatClock, "9:75", math.NaN()},
		{FormatClock, "13:00 PM", math.NaN()},
		{FormatDuration, "2h 15m", 2.25},
		{FormatDuration, "90 min", 1.5},
		{FormatDuration, "1 day, 2 hours", 26},
		{FormatDuration, "PT1H30M", 1.5},
		{FormatDuration, "P1DT12H", 36},
		{FormatDuration, "P1M", math.NaN()},
		{FormatDuration, "2 kg", math.NaN()},
		{FormatFeet, "5'6\"", 5.5},
		{FormatFeet, "6 ft 3 in", 6.25},
		{FormatNamed, "4. März 2021", day},
		{FormatNamed, "Mar 4th, 2021 at 6:00 PM", day + 0.75},
		{FormatNamed, "4 de marzo de 2021", day},
		{FormatNamed, "4 mars 2021", day},
		{FormatNamed, "04-mrt-21", day},
		{FormatNamed, "Thu Mar 04 2021 13:00:00 GMT+0100 (CET)", day + 0.5},
		{FormatNamed, "March 2021", day - 3},
		{FormatNamed, "4 jui 2021", math.NaN()},
		{FormatNamed, "31 Feb 2021", math.NaN()},
		{FormatNamed, "4 March", math.NaN()},
		{FormatWeek, "2021-W09", day - 3},
		{FormatWeek, "2021-W54", math.NaN()},
		{FormatMonth, "03/2021", day - 3},
		{FormatDayTime, "2021-03-04 06:00:00.5+00", day + 0.25 + 0.5/86400},
		{FormatMonthDay, "3/4/21 18:00", day + 0.75},
		{FormatMonthDay, "3/4/68", day - 19_358},
		{FormatDots, "4.3.50", day - 25_933},
		{FormatDayMonth, "4/3/49", day + 10_227},
		{FormatDayMonth, "4/3/2068", day + 17_167},
		{FormatNamed, "4-Mar-68", day - 19_358},
		{FormatDayMonth, "04/03/2021 06:00 PM", day + 0.75},
		{FormatDots, "4. 3. 2021", day},
		{FormatDayTime, "2021-03-04 06:00:00 +02:00", day + 4.0/24},
		{FormatUnix, "1614816000", day},
	} {
		v, ok := Trait{Type: TypeNumber, Format: c.format, Rules: Rules}.convert(Value{Kind: Text, Text: c.text})
		if slices.Contains(dateFormats(), c.format) {
			v, ok = Trait{Type: TypeDate, Format: c.format, Rules: Rules}.convert(Value{Kind: Text, Text: c.text})
		}
		if ok == math.IsNaN(c.want) || ok && math.Abs(v.Number-c.want) > 1e-9 {
			t.Errorf("%s %q: %v, %v", c.format, c.text, v.Number, ok)
		}
	}
	for _, text := range []string{`['jazz', 'go']`, `["jazz", "go"]`, `{jazz,go}`, "jazz, go,"} {
		if got := FormatCommas.members(text); !slices.Equal(got, []string{"go", "jazz"}) {
			t.Errorf("%s: %q", text, got)
		}
	}
	for _, text := range []string{"48.13 11.57", "48.13;11.57", "(48.13, 11.57)"} {
		if lat, lon, ok := FormatLatLon.place(text); lat != 48.13 || lon != 11.57 || !ok {
			t.Errorf("%s: %v, %v", text, lat, lon)
		}
	}
}

// A zone that has letters alone is none: which one CET is would follow from the zone of the machine.
func TestTimesAreTheSameOnMachinesOfOtherZones(t *testing.T) {
	local := time.Local
	defer func() { time.Local = local }()
	for _, zone := range []*time.Location{time.UTC, time.FixedZone("CET", 3600)} {
		time.Local = zone
		for text, f := range map[string]Format{"2021-03-04 12:00:00 CET": FormatDayTime, "4 March 2021 12:00:00 CET": FormatNamed} {
			if days, ok := f.days(Value{Kind: Text, Text: text}); !ok || days != 18_690.5 {
				t.Errorf("%s is day %v where the machine's zone is %s", text, days, zone)
			}
		}
	}
}

func TestSpecialCategoriesAreKnownInTheLanguagesOfTheUnion(t *testing.T) {
	flagged := strings.Fields(`gesundheitszustand krankheiten Schwangerschaft religionszugehörigkeit konfession politischeEinstellung gewerkschaft
		ethnischeHerkunft sexuelleOrientierung vorstrafen santé maladies appartenance_syndicale.syndicat opinionsPolitiques origine_ethnique enfermedad salud discapacidad religión
		orientaciónSexual malattie salute.stato origine_etnica saúde doenças convicções_políticas gezondheid geloofsovertuiging vakbond choroby wyznanie pochodzenie_etniczne hälsa sjukdomar
		religiøs_overbevisning sygdom terveydentila uskonto sairaudet zdravotní_stav náboženství odborová zdravie egészség vallás betegségek sănătate dizabilitate здраве религия zdravlje vjeroispovijest bolezen
		tervis haigused veselība ticība sveikata tikėjimas_tikyba υγεία θρησκεία πολιτικά_φρονήματα sláinte saħħa genetikai biometrische_daten`)
	missed := 0
	for _, path := range flagged {
		if !likelySensitive(path, Rules) {
			missed++
			t.Errorf("%s is not flagged", path)
		}
	}
	for path := range strings.FieldsSeq("age city metropolitan policy_number partition verified heritage sextant rasterize company.sector interests spend favourite_colour created_at") {
		if likelySensitive(path, Rules) {
			t.Errorf("%s is flagged", path)
		}
	}
}
