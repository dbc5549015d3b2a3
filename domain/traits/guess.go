package traits

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Rules number the ways in which the values of a trait are read. A trait keeps the
// rules and the type that it was learnt by, until the client decides about its type.
const (
	Rules        = pairsSince
	formatsSince = 2 // formats, missing values and identifiers are told
	wordsSince   = 3 // and words for what is missing in other languages, quantities, more dates and identifiers
	pairsSince   = 4 // and places in arrays, thousands behind points alone, dates that stand for nothing
)

// Because says why a trait is read as it is.
type Because string

// The reasons.
const (
	BecauseDeclared   Because = "declared"            // the client decided
	BecauseKind       Because = "kind"                // 95 % of the values are of that kind in JSON
	BecauseFormat     Because = "format"              // 95 % of the values are spelled so
	BecauseFewLevels  Because = "few_levels"          // texts that many share
	BecauseCode       Because = "code"                // numbers whose path is that of a code
	BecauseIdentifier Because = "identifier"          // nearly all differ, and path or length is that of an identifier
	BecauseEmbedding  Because = "embedding"           // arrays of decimals
	BecauseFreeText   Because = "free_text"           // texts that few share
	BecauseMixed      Because = "mixed"               // no kind holds 95 % of the values
	BecauseAmbiguous  Because = "ambiguous_dates"     // day and month cannot be told apart
	BecauseNothing    Because = "nothing_but_missing" // what is there stands for nothing
	BecauseKept       Because = "kept"                // as it was learnt before
)

const (
	enough           = 95  // per cent of the values, for a type
	stillEnough      = 80  // per cent, for a type that was learnt before
	firmFrom         = 200 // values from which a type stays
	fewestToJudge    = 20  // values, to tell a list, or an identifier by its length
	longIdentifier   = 1e8 // and above, where all are as long
	embeddingMembers = 8   // of an array of decimals that many share
)

// Suggestion is how a trait that is kept would be read, were it learnt now.
type Suggestion struct {
	Type      Type      `json:"type"`
	Format    Format    `json:"format,omitempty"`
	Sentinels []float64 `json:"sentinels,omitempty"`
	Because   Because   `json:"because"`
	Sensitive bool      `json:"sensitive,omitempty"`
}

// guess finds the type of a trait and how its values are read. Prior is what was
// learnt of it before, if anything was.
func (t *Trait) guess(values []Value, prior *Trait) {
	t.Rules = Rules
	if prior != nil && t.Declared == prior.Declared && (!t.Declared || t.Type == prior.Type) {
		if prior.Rules < Rules || prior.Firm {
			t.keep(values, *prior)
			return
		}
		if !t.Declared && prior.holds(values) {
			t.Type, t.Format, t.Countries, t.Because = prior.Type, prior.Format, prior.Countries, prior.Because
			t.finish(values)
			return
		}
	}
	if t.Declared {
		t.declare(values)
	} else {
		t.fresh(values)
	}
	t.finish(values)
}

func (t *Trait) finish(values []Value) {
	t.Sentinels = nil
	switch t.Type {
	case TypeNumber:
		t.Sentinels = sentinels(t.numbers(values))
	case TypeDate:
		if firstIs1900(t.numbers(values)) {
			t.Sentinels = []float64{daysTo1900}
		}
	}
	t.Firm = t.have(values) >= firmFrom
}

// keep takes over how a trait was read before, and notes how else it would be now.
func (t *Trait) keep(values []Value, prior Trait) {
	t.Type, t.Format, t.Sentinels, t.Countries = prior.Type, prior.Format, prior.Sentinels, prior.Countries
	t.Rules, t.Firm, t.Because = prior.Rules, true, cmp.Or(prior.Because, BecauseKept)
	if t.Declared {
		return
	}
	now := Trait{Path: t.Path, Rules: Rules}
	now.fresh(values)
	now.finish(values)
	sensitive := likelySensitive(t.Path, Rules)
	if now.Type != t.Type || now.Format != t.Format || !slices.Equal(now.Sentinels, t.Sentinels) || sensitive != likelySensitive(t.Path, t.Rules) {
		t.Suggested = &Suggestion{now.Type, now.Format, now.Sentinels, now.Because, sensitive}
	}
}

// holds tells whether a type that was learnt before from few is still a good one.
func (t Trait) holds(values []Value) bool {
	known := t.known(values)
	switch {
	case len(known) == 0:
		return true
	case t.Type == TypeExcluded:
		if t.Because != BecauseFreeText {
			return false // another kind is another type
		}
		texts := countKinds(known)[Text]
		distinct := distinctTexts(known)
		return texts*100 >= len(known)*enough && distinct > 25 && distinct*10 > texts
	}
	fitting := 0
	for _, v := range known {
		if _, ok := t.convert(v); ok {
			fitting++
		}
	}
	if fitting*100 < len(known)*stillEnough {
		return false
	}
	distinct := distinctTexts(known)
	return t.Type != TypeCategory || (distinct <= 100 || distinct*5 <= 2*fitting) && (fitting < 50 || distinct*5 <= 4*fitting)
}

// fresh finds type and format from the values alone.
func (t *Trait) fresh(values []Value) {
	t.Countries = areCountries(values)
	known := t.known(values)
	t.Type, t.Format, t.Because = TypeExcluded, "", BecauseMixed
	if len(known) == 0 {
		t.Because = BecauseNothing
		return
	}
	kinds := countKinds(known)
	most := func(n int) bool { return n*100 >= len(known)*enough }
	switch {
	case most(kinds[Bool]):
		t.Type, t.Because = TypeBool, BecauseKind
	case most(kinds[Geo]):
		t.Type, t.Because = TypeGeo, BecauseKind
	case most(kinds[Set]):
		t.Type, t.Because = TypeSet, BecauseKind
		switch {
		case most(readable(known, Value.isPlace)):
			t.Type, t.Format, t.Because = TypeGeo, FormatLatLon, BecauseFormat
		case embeddings(known):
			t.Type, t.Because = TypeExcluded, BecauseEmbedding
		}
	case most(kinds[Number]):
		t.ofNumbers(known)
	case most(kinds[Text] + kinds[Number]):
		t.ofTexts(known)
	}
}

// ofNumbers tells measures from dates, codes and identifiers.
func (t *Trait) ofNumbers(known []Value) {
	numbers := Trait{Type: TypeNumber, Rules: Rules}.numbers(known)
	whole := !slices.ContainsFunc(numbers, func(x float64) bool { return x != math.Trunc(x) })
	distinct := countDistinct(numbers)
	last := lastWord(t.Path)
	t.Type, t.Because = TypeNumber, BecauseKind
	n := len(numbers)
	if whole && namesIdentifier(t.Path, n) && distinct*10 >= n*9 {
		t.Type, t.Because = TypeExcluded, BecauseIdentifier
		return
	}
	for _, f := range []Format{FormatDigits, FormatUnix, FormatUnixMS} {
		if !namesTime(t.Path) && (!whole || f == FormatUnix || f == FormatUnixMS && slices.Min(numbers) < 1000*unixOf2000) {
			continue // a number of that size can be anything, a phone number, too
		}
		if areDates(known, f)*100 >= len(known)*enough {
			t.Type, t.Format, t.Because = TypeDate, f, BecauseFormat
			return
		}
	}
	switch {
	case !whole && !namesCode(last): // version 1.10 is not 1.1, and the sizes of codes mean nothing
	case n >= fewestToJudge && (distinct*100 >= n*98 && equallyLong(numbers) || distinct == n && namesSomebody(last) && dealtOut(numbers)):
		t.Type, t.Because = TypeExcluded, BecauseIdentifier
	case namesKey(t.Path) || namesCode(t.Path):
		t.Type, t.Format, t.Because = TypeCategory, FormatCode, BecauseCode
		if !shared(distinct, n) {
			t.Type, t.Format = TypeExcluded, ""
		}
	}
}

// ofTexts tells what texts spell: numbers, dates, places, lists, levels, or nothing
// that can be compared.
func (t *Trait) ofTexts(known []Value) {
	texts, distinct := countKinds(known)[Text], distinctTexts(known)
	identifies := namesIdentifier(t.Path, len(known))
	if identifies && distinct*10 >= len(known)*9 {
		t.Because = BecauseIdentifier
		return
	}
	dates, format := t.bestDate(known)
	if dates*100 >= len(known)*enough && (format != FormatDots || !areVersions(known)) {
		t.Type, t.Format, t.Because = TypeDate, format, BecauseFormat
		if format == FormatDayMonth && areDates(known, FormatMonthDay) == dates {
			t.Type, t.Format, t.Because = TypeExcluded, "", BecauseAmbiguous
		}
		return
	}
	if f, n := best(known, numberFormats(), TypeNumber); n*100 >= len(known)*enough && !identifies && !namesCode(t.Path) && (f != FormatUnit && f != FormatUnitComma || haveOneUnit(known)) {
		t.Type, t.Format, t.Because = TypeNumber, f, BecauseFormat
		if distinct == len(known) && distinct >= fewestToJudge && equallyLong(t.numbers(known)) {
			t.Type, t.Format, t.Because = TypeExcluded, "", BecauseIdentifier
		}
		return
	}
	if f, n := best(known, quantityFormats(), TypeNumber); n*100 >= len(known)*enough && f != "" && (f != FormatClock || areAlike(known)) {
		t.Type, t.Format, t.Because = TypeNumber, f, BecauseFormat
		return
	}
	if f, n := best(known, placeFormats(), TypeGeo); n*100 >= len(known)*enough {
		t.Type, t.Format, t.Because = TypeGeo, f, BecauseFormat
		return
	}
	for _, f := range listFormats() {
		if f.lists(known, distinct) {
			t.Type, t.Format, t.Because = TypeSet, f, BecauseFormat
			return
		}
	}
	if texts*100 < len(known)*enough {
		switch code := namesKey(t.Path) || namesCode(t.Path); {
		case code && shared(distinct, len(known)):
			t.Type, t.Format, t.Because = TypeCategory, FormatCode, BecauseCode
		case distinct <= fewLevels && distinct*2 <= len(known): // 0, 1, 2 and 3+
			t.Type, t.Format, t.Because = TypeCategory, FormatCode, BecauseFewLevels
		}
		return
	}
	switch {
	case distinct == len(known) && distinct >= fewestToJudge && (!slices.ContainsFunc(known, mayRepeat) || areNumbered(known)):
		t.Because = BecauseIdentifier
	case shared(distinct, texts):
		t.Type, t.Because = TypeCategory, BecauseFewLevels
	default:
		t.Because = BecauseFreeText
	}
}

// declare finds how values spell the type that the client chose.
func (t *Trait) declare(values []Value) {
	t.Because = BecauseDeclared
	t.Countries = areCountries(values)
	known := t.known(values)
	switch t.Type {
	case TypeNumber:
		t.Format, _ = best(known, append(numberFormats(), quantityFormats()...), TypeNumber)
	case TypeDate:
		_, t.Format = t.bestDate(known)
	case TypeGeo:
		t.Format, _ = best(known, placeFormats(), TypeGeo)
	case TypeSet:
		for _, f := range listFormats() {
			if t.Format == "" && f.separates(known) > 0 {
				t.Format = f
			}
		}
	}
}

// judgedFirst are the values by which most formats are out: one that fails at more
// than half of them is not tried on the rest, as failing costs most.
const judgedFirst = 40

// readable counts the values that read accepts, 0 where it is out.
func readable(known []Value, read func(Value) bool) (n int) {
	for i, v := range known {
		if i == judgedFirst && n*2 < judgedFirst {
			return 0
		}
		if read(v) {
			n++
		}
	}
	return n
}

// best is the format that most values are spelled in, the own one of the type where
// no other reads more, and how many that are.
func best(known []Value, formats []Format, of Type) (f Format, most int) {
	count := func(f Format) int {
		t := Trait{Type: of, Format: f, Rules: Rules}
		return readable(known, func(v Value) bool {
			_, ok := t.convert(v)
			return ok
		})
	}
	most = count("")
	for _, other := range formats {
		if n := count(other); n > most {
			f, most = other, n
		}
	}
	if f == FormatNumber && areThousands(known) {
		f = FormatNumberComma
	}
	return f, most
}

// areThousands tells 12.345 beside 950 from decimals: read so, what has a point is a
// thousand and more, and what has none is less.
func areThousands(known []Value) bool {
	count := map[bool]int{}
	for _, v := range known {
		if _, ok := spelledNumber(v.Text, false); !ok {
			continue
		}
		x, ok := spelledNumber(v.Text, true)
		point := strings.Contains(v.Text, ".")
		if !ok || strings.Contains(v.Text, ",") || point != (math.Abs(x) >= 1000) {
			return false
		}
		count[point]++
	}
	return count[true] > 0 && count[false] > 0
}

func (t Trait) bestDate(known []Value) (most int, f Format) {
	most = areDates(known, "")
	for _, other := range dateFormats() {
		if (other == FormatUnix || other == FormatUnixMS) && !t.Declared && !namesTime(t.Path) {
			continue
		}
		if n := areDates(known, other); n > most {
			most, f = n, other
		}
	}
	return most, f
}

// areDates counts the values that a format reads, of years that people are asked for.
func areDates(known []Value, f Format) int {
	const earliest, latest = -36_525 * 3, 36_525 * 1.5 // days: from the year 1670 to 2120
	return readable(known, func(v Value) bool {
		days, ok := f.days(v)
		return ok && days > earliest && days < latest
	})
}

// known are the values that do not stand for nothing.
func (t Trait) known(values []Value) []Value {
	known := make([]Value, 0, len(values))
	for _, v := range values {
		if v.Kind == Text && t.Rules >= formatsSince && standsForNothing(v.Text, t.Countries, t.Rules) {
			continue
		}
		known = append(known, v)
	}
	return known
}

// have counts what is known of the trait.
func (t Trait) have(values []Value) (n int) {
	for _, v := range t.known(values) {
		if !t.isSentinel(v) {
			n++
		}
	}
	return n
}

func (t Trait) isSentinel(v Value) bool {
	x, ok := v.Number, v.Kind == Number
	if t.Type == TypeDate && len(t.Sentinels) > 0 {
		x, ok = t.Format.days(v)
	}
	return ok && slices.Contains(t.Sentinels, x)
}

// numbers are the values that are read as numbers.
func (t Trait) numbers(values []Value) []float64 {
	var xs []float64
	for _, raw := range values {
		if v, ok := t.convert(raw); ok && v.Kind == Number {
			xs = append(xs, v.Number)
		}
	}
	return xs
}

// sentinels are numbers that stand for nothing: -1, -9, 99, 999 and the like, at an
// end, far from all others and the number of one user in a hundred at least.
func sentinels(numbers []float64) []float64 {
	xs := slices.Clone(numbers)
	slices.Sort(xs)
	var found []float64
	for range 3 {
		if len(xs) < fewestToJudge {
			break
		}
		low, high := xs[0], xs[len(xs)-1]
		after, _ := slices.BinarySearch(xs, math.Nextafter(low, math.Inf(1)))
		from, _ := slices.BinarySearch(xs, high)
		often := func(n int) bool { return n > 1 && n*100 >= len(xs) }
		switch {
		case often(after) && after < len(xs) && (xs[after] >= 0 || repeatedDigit(-xs[after])) && repeatedDigit(-low) && apart(xs[after:]):
			found, xs = append(found, low), xs[after:]
		case often(len(xs)-from) && from > 0 && high >= 99 && repeatedDigit(high) && xs[from-1] < high*0.6 && apart(xs[:from]):
			found, xs = append(found, high), xs[:from]
		default:
			return found
		}
	}
	return found
}

const daysTo1900 = -25_567 // from 1970-01-01 back to 1900-01-01

// firstIs1900: 1900-01-01 stands for nothing where it is the first date, and that of one user in a
// hundred at least.
func firstIs1900(days []float64) bool {
	n := 0
	for _, d := range days {
		switch {
		case d < daysTo1900:
			return false
		case d == daysTo1900:
			n++
		}
	}
	return len(days) >= fewestToJudge && n > 1 && n*100 >= len(days) && apart(days)
}

// repeatedDigit: 1, or nines alone, or eights.
func repeatedDigit(x float64) bool {
	if x == 1 {
		return true
	}
	text := numberText(x)
	return x > 1 && (strings.Trim(text, "9") == "" || strings.Trim(text, "8") == "" && len(text) > 1)
}

// apart tells a measure from the few answers of a scale, such as -1, 0 and 1.
func apart(sorted []float64) bool {
	return countDistinct(sorted) >= 4
}

func countDistinct(xs []float64) int {
	seen := make(map[float64]struct{}, len(xs))
	for _, x := range xs {
		seen[x] = struct{}{}
	}
	return len(seen)
}

// equallyLong tells identifiers by their many digits.
func equallyLong(xs []float64) bool {
	low, high := slices.Min(xs), slices.Max(xs)
	return low >= longIdentifier && len(numberText(low)) == len(numberText(high))
}

// mayRepeat tells what is short, or words, from identifiers, addresses and phone numbers,
// which have digits or an @.
func mayRepeat(v Value) bool { return len(v.Text) < 8 || !strings.ContainsAny(v.Text, "0123456789@") }

// dealtOut tells whole numbers that were given to one each, from measures: none repeats,
// where of as many that were drawn from their range some would, but for once in a thousand
// times (the birthday problem: n people have n^2/2R pairs of one number of R).
func dealtOut(xs []float64) bool {
	const pairs = 7 // exp(-7) < 0.001
	n := float64(len(xs))
	return float64(n*n) >= 2*pairs*(slices.Max(xs)-slices.Min(xs)+1)
}

// areNumbered tells K-0017 and 000017: a number each, of four digits and more, behind what all
// begin with, dealt out.
func areNumbered(known []Value) bool {
	const fewestDigits = 4
	numbers := make([]float64, 0, len(known))
	for _, v := range known {
		from := strings.IndexAny(v.Text, "0123456789")
		if from < 0 || !strings.HasPrefix(known[0].Text, v.Text[:from]) || !digits(v.Text[from:]) || len(v.Text)-from < fewestDigits {
			return false
		}
		x, err := strconv.ParseFloat(v.Text[from:], 64)
		if err != nil {
			return false
		}
		numbers = append(numbers, x)
	}
	return dealtOut(numbers)
}

// areAlike tells times of hours and minutes alone from some that have seconds, too: then
// those of two parts may be minutes and seconds.
func areAlike(known []Value) bool {
	parts := map[int]bool{}
	for _, v := range known {
		if n := strings.Count(v.Text, ":"); n > 0 {
			parts[n] = true
		}
	}
	return len(parts) == 1
}

// haveOneUnit tells "180 cm" and "12k" from codes such as 12A and 12B, and from lengths in
// centimetres and metres, which cannot be compared.
func haveOneUnit(known []Value) bool {
	units := map[string]bool{}
	for _, v := range known {
		if v.Kind == Text {
			_, unit := unitOf(v.Text)
			if times(unit) != 1 {
				unit = ""
			}
			units[unit] = true
		}
	}
	return len(units) == 1
}

// areVersions tells 8.1.10 from a date: no part of any has a 0 before, or a century.
func areVersions(known []Value) bool {
	return !slices.ContainsFunc(known, func(v Value) bool {
		return len(v.Text) > len("31.12.99") || strings.HasPrefix(v.Text, "0") || strings.Contains(v.Text, ".0")
	})
}

// isPlace tells [52.1, 13.4] from two sizes, which are whole.
func (v Value) isPlace() bool {
	_, ok := PlaceAt(v.Number, v.Lon)
	return v.Pair && ok && (v.Number != math.Trunc(v.Number) || v.Lon != math.Trunc(v.Lon))
}

// embeddings tells arrays of decimals, many or such as hardly anybody shares, which are no sets.
func embeddings(known []Value) bool {
	distinct, held := map[string]struct{}{}, 0
	for _, v := range known {
		for _, member := range v.Set {
			distinct[member] = struct{}{}
		}
		held += len(v.Set)
	}
	fewest := embeddingMembers
	if held < 3*len(distinct) {
		fewest = 2
	}
	arrays := 0
	for _, v := range known {
		decimals := 0
		for _, member := range v.Set {
			if _, ok := spelledNumber(member, false); ok && strings.ContainsAny(member, ".e") {
				decimals++
			}
		}
		if decimals >= fewest && decimals*10 >= len(v.Set)*9 {
			arrays++
		}
	}
	return arrays*100 >= len(known)*enough
}

// lists tells texts that hold several members, which others share, from sentences
// and from names with a comma: there are fewer members than texts.
func (f Format) lists(known []Value, distinct int) bool {
	if len(known) < fewestToJudge || f.separates(known)*5 < len(known) {
		return false
	}
	members, held, long := map[string]struct{}{}, 0, 0
	for _, v := range known {
		for _, member := range f.read(v).Set {
			members[member] = struct{}{}
			held++
			if len(member) > 30 || strings.Count(member, " ") > 3 {
				long++
			}
		}
	}
	return len(members) < distinct && held >= 3*len(members) && long*20 <= held
}

// separates counts the values with a separator.
func (f Format) separates(known []Value) (n int) {
	for _, v := range known {
		if v.Kind == Text && len(f.members(v.Text)) > 1 {
			n++
		}
	}
	return n
}

const fewLevels = 50

// shared tells few levels from free text.
func shared(distinct, n int) bool {
	few := distinct <= fewLevels || distinct*5 <= n
	repeated := n < 50 || distinct*2 <= n
	return few && repeated
}

func countKinds(values []Value) (count [Other + 1]int) {
	for _, v := range values {
		count[v.Kind]++
	}
	return count
}

// distinctTexts counts the different texts and numbers.
func distinctTexts(values []Value) int {
	levels := make(map[string]struct{})
	for _, v := range values {
		switch v.Kind {
		case Text:
			levels[v.Text] = struct{}{}
		case Number:
			levels[numberText(v.Number)] = struct{}{}
		}
	}
	return len(levels)
}

// areCountries: texts of two capitals each.
func areCountries(values []Value) bool {
	texts, codes := 0, 0
	for _, v := range values {
		if v.Kind != Text || v.Text == "NA" || standsForNothing(v.Text, true, Rules) {
			continue
		}
		texts++
		if len(v.Text) == 2 && v.Text == strings.ToUpper(v.Text) && strings.Trim(v.Text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" {
			codes++
		}
	}
	return codes > 1 && codes*10 >= texts*8
}

func lastWord(path string) string {
	named := words(path)
	if len(named) == 0 {
		return ""
	}
	return named[len(named)-1]
}

// namesKey: what the last word of a path names is a key, of something else where it
// is repeated. customerid and id_client are keys; other words end so, too: paid, snelheid.
func namesKey(path string) bool {
	last := lastWord(path)
	if slices.Contains([]string{"id", "ids", "uid", "uuid", "guid", "identifier", "key"}, last) {
		return true
	}
	before, glued := strings.CutSuffix(last, "id")
	if !glued {
		before, glued = strings.CutPrefix(strings.Join(words(path), ""), "id")
	}
	return glued && (namesSomebody(before) || slices.Contains([]string{
		"account", "article", "artikel", "brand", "campaign", "category", "city", "company", "contact", "country", "cust", "department", "device", "emp", "event",
		"group", "item", "lead", "location", "owner", "parent", "payment", "place", "post", "product", "produit", "producto", "produto", "produkt", "region",
		"school", "session", "shop", "site", "state", "store", "supplier", "team", "transaction", "vendor", "visitor",
	}, before))
}

// namesIdentifier: what the last word of a path names is an identifier where nearly
// all differ. Some words have other meanings and need many values; last_login is a time.
func namesIdentifier(path string, values int) bool {
	word := lastWord(path)
	if namesKey(path) || slices.Contains([]string{
		"isbn", "ean", "upc", "gtin", "sku", "imei", "iban", "bic", "ssn", "vat", "phone", "telephone", "telefon", "tel", "mobile", "handy", "fax", "msisdn",
		"serial", "hash", "token", "email", "url", "username", "matricule",
	}, word) {
		return true
	}
	return values >= fewestToJudge && !namesTime(path) && (strings.HasSuffix(word, "nummer") || strings.HasSuffix(word, "number") || strings.HasSuffix(word, "nr") || slices.Contains([]string{
		"ref", "reference", "no", "num", "numero", "index", "row", "account", "login", "seq", "sequence", "unnamed",
	}, word))
}

// namesSomebody: what never repeats is the number of whom or what the word names.
func namesSomebody(word string) bool {
	return slices.Contains([]string{
		"customer", "client", "user", "member", "person", "patient", "employee", "student", "subject", "participant", "respondent", "applicant",
		"case", "record", "entry", "line", "position", "order", "invoice", "ticket", "contract", "policy", "kunde", "mitglied", "zeile", "fall",
		"auftrag", "rechnung", "vertrag", "cliente", "utilisateur", "adherent", "ligne", "commande", "facture", "socio", "pedido", "factura", "klient",
	}, word)
}

// namesCode: numbers of such a name are codes, of which one is no more than another.
func namesCode(path string) bool {
	return slices.ContainsFunc(words(path), func(w string) bool {
		return strings.HasSuffix(w, "code") || slices.Contains([]string{"zip", "postal", "plz", "postleitzahl", "codes", "codigo", "código", "codice", "version", "release", "nace", "naics", "sic", "fips", "mcc", "icd"}, w)
	})
}

func namesTime(path string) bool {
	return slices.ContainsFunc(words(path), func(w string) bool {
		return slices.Contains([]string{"at", "time", "date", "timestamp", "ts", "created", "updated", "modified", "seen", "login", "since", "epoch", "unix", "joined", "registered", "on"}, w)
	})
}
