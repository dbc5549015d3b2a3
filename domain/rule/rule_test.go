package rule_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"kindred/domain/rule"
	"kindred/testkit"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// factsOf are of a user with traits written in JSON.
func factsOf(t testing.TB, traits string) *rule.Facts {
	t.Helper()
	facts := &rule.Facts{Client: "cli_1", ID: "usr_1", ExternalID: "ext-1", CreatedAt: now.AddDate(0, -2, 0), UpdatedAt: now.AddDate(0, 0, -1), Now: now}
	if err := json.Unmarshal([]byte(traits), &facts.Traits); err != nil {
		t.Fatal(err)
	}
	return facts
}

func parsed(t testing.TB, text string, scope rule.Scope) *rule.Rule {
	t.Helper()
	r, err := rule.Parse(text, scope)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return r
}

const someone = `{"plan": "pro", "age": 33, "likes": ["jazz", "go"], "active": true, "nothing": null, "email": "ann@example.com",
	"home": {"lat": 52.52, "lon": 13.40, "city": "Berlin"}, "part": {"city": "Berlin"}, "office": "48.85,2.35", "last_seen": "2026-02-10T08:00:00Z", "born": "1993-05-01",
	"trial_ends": "2026-03-03", "odd name": 1, "partly": {"some": [null, 1], "null": null}, "pets": [{"kind": "dog", "age": 3}, {"kind": "cat"}, null], "score": 7.5}`

// As has, size and in say, a member that is null is none. What stands where a list has null, or a
// number that is none, nobody knows.
func TestWhatIsMissingInsideOfAValueIsNotCompared(t *testing.T) {
	facts := factsOf(t, `{"null": {"a": null}, "empty": {}, "one": {"a": 1}, "deep": {"o": {"a": null}}, "deeper": {"o": {}, "b": null},
		"gap": [null, 1], "other": [null, 1], "full": [1, 1], "list": {"l": [null]}, "short": [null]}`)
	for text, want := range map[string]rule.Truth{
		`traits["null"] == traits.empty`:            rule.True,
		`traits.empty == traits["null"]`:            rule.True,
		`traits["null"] != traits.empty`:            rule.False,
		`traits["null"] == traits.one`:              rule.False,
		`traits.one == traits["null"]`:              rule.False,
		`traits.deep == traits.deeper`:              rule.True,
		`traits["null"] in [traits.empty]`:          rule.True,
		`traits.gap == traits.other`:                rule.Unknown,
		`traits.gap != traits.other`:                rule.Unknown,
		`traits.gap == traits.full`:                 rule.Unknown,
		`traits.full == traits.gap`:                 rule.Unknown,
		`traits.gap == [1, 2]`:                      rule.False,
		`traits.gap != [1, 2]`:                      rule.True,
		`traits.gap == traits.short`:                rule.False,
		`traits.list == traits.list`:                rule.Unknown,
		`traits.gap in [traits.other]`:              rule.Unknown,
		`traits.gap in [[2, 2], [3, 3]]`:            rule.False,
		`1 in traits.gap`:                           rule.True,
		`2 in traits.gap`:                           rule.False,
		`[traits.gap] == [traits.other]`:            rule.Unknown,
		`traits.gap == traits.other || 1 == 1`:      rule.True,
		`traits.gap == traits.other ? true : false`: rule.Unknown,
	} {
		if got := parsed(t, text, rule.Users).Judge(facts); got != want {
			t.Errorf("%s: %v, not %v", text, got, want)
		}
	}
}

func TestARuleJudges(t *testing.T) {
	facts := factsOf(t, someone)
	for text, want := range map[string]rule.Truth{
		`traits.plan == "pro" && traits.age > 30 && "jazz" in traits.likes`: rule.True,
		`traits.plan == "pro" && traits.age > 40`:                           rule.False,
		`traits.plan in ["team", "pro"]`:                                    rule.True,
		`traits.active`:                                                     rule.True,
		`!traits.active`:                                                    rule.False,
		`traits.age == 33 && traits.age == 33.0 && traits.age >= 33`:        rule.True,
		`traits.age / 2 > 16.4 && traits.age - 3 == 30 && -traits.age < 0`:  rule.True,
		`traits["odd name"] == 1`:                                           rule.True,
		`traits.home["city"] + traits.plan == "Berlinpro"`:                  rule.True,
		`traits.home["lat"] + traits.home["lon"] > 65.9`:                    rule.True,
		`traits.likes[0] == "jazz"`:                                         rule.True,
		`traits.likes[7] == "jazz"`:                                         rule.Unknown,
		`["jazz"] == traits.likes`:                                          rule.False,
		`traits.likes == ["jazz", "go", "soul"]`:                            rule.False,
		`traits.part == traits.home`:                                        rule.False,
		`traits.home == traits.part`:                                        rule.False,
		`size("Köln") == 4`:                                                 rule.True,
		`traits.email.endsWith("@example.com")`:                             rule.True,
		`traits.email.matches("^[a-z]+@")`:                                  rule.True,
		`traits.age.startsWith("3")`:                                        rule.Unknown,
		`size(traits.partly) == 1 && size(traits.partly.some) == 2`:         rule.True, // null is no member
		`size(traits.likes) == 2 && size(traits.plan) == 3`:                 rule.True,
		`traits.likes.size() == 2 && traits["plan"].size() < 2.5`:           rule.False,
		`(traits.age > 30 ? "old" : "young") == "old"`:                      rule.True,

		// What is missing is unknown.
		`traits.agee > 30`:                                 rule.Unknown,
		`traits.agee > 30 || traits.plan == "pro"`:         rule.True,
		`traits.agee > 30 && traits.plan == "free"`:        rule.False,
		`traits.agee > 30 && traits.plan == "pro"`:         rule.Unknown,
		`!(traits.agee > 30)`:                              rule.Unknown,
		`traits.nothing == 1`:                              rule.Unknown,
		`traits.nothing != 1`:                              rule.Unknown,
		`traits.plan > 3`:                                  rule.Unknown,
		`traits.plan == 3`:                                 rule.False,
		`traits.plan != 3`:                                 rule.True,
		`"jazz" in traits.hates`:                           rule.Unknown,
		`"pro" in traits.plan`:                             rule.False,
		`"city" in traits.home`:                            rule.True,
		`has(traits.plan)`:                                 rule.True,
		`has(traits.nothing)`:                              rule.False,
		`has(traits.home.city)`:                            rule.True,
		`has(traits.plan.of.nothing)`:                      rule.False,
		`has(traits.none.city) || !has(traits.none)`:       rule.True,
		`user.external_id == "ext-1"`:                      rule.True,
		`has(user.external_id)`:                            rule.True,
		`user.created_at < timestamp("2026-02-01")`:        rule.True,
		`user.created_at < "2026-02-01"`:                   rule.True,
		`user.created_at < traits.born`:                    rule.False,
		`traits.born < timestamp("1993-05-01T00:00:01Z")`:  rule.True,
		`traits.born == timestamp("1993-05-01T00:00:00Z")`: rule.True,
		`traits.born != timestamp("1993-05-01T00:00:00Z")`: rule.False,
		`traits.plan < user.created_at`:                    rule.Unknown, // it is no date
		`traits.plan == user.created_at`:                   rule.False,
		`traits.age < user.created_at`:                     rule.Unknown,
		`user.created_at in ["2026-01-01T12:00:00Z"]`:      rule.True,
		// All numbers are doubles.
		`traits.age / 2 == 16.5 && traits.age * 2 == 66.0 && (traits.age + 1) * 1.5 > 2`:         rule.True,
		`1 / 2 == 0.5 && 1 == 1.0 && size(traits.likes) * 0.5 == 1 && size(traits.likes) == 2.0`: rule.True,
		`traits.age - 32 in [1.0] && traits.score * 2 == 15 && bucket("a", 1) == 0.0`:            rule.True,
		`traits.age / 0 > 1`:                                         rule.Unknown,
		`!(0 / (traits.age - 33) > 1)`:                               rule.Unknown,
		`traits.age * 1e308 > 1`:                                     rule.Unknown,
		`traits.age + 1.7e308 + 1.7e308 > 1`:                         rule.Unknown,
		"has(traits.`odd name`) || has(traits[\"odd name\"])":        rule.True,
		`has(traits["ключ"])`:                                        rule.False,
		`has(traits.home["city"]) && !has(traits["home"]["street"])`: rule.True,
		`traits.agee > 1 ? traits.active : traits.x`:                 rule.Unknown,
		`traits.pets.exists(p, p.kind == "dog")`:                     rule.True,
		`traits.pets.exists(p, p.age == 4)`:                          rule.Unknown, // the cat's is missing
		`traits.pets.all(p, has(p.kind))`:                            rule.True,
		`traits.pets.all(p, p.kind == "dog")`:                        rule.False,
		`traits.pets.all(p, p.age > 1)`:                              rule.Unknown,
		`traits.pets.exists(p, p.age > 1 && p.age < 10)`:             rule.True,
		`traits.plan.exists(p, true)`:                                rule.Unknown,
		`traits.likes.exists(l, l == traits.likes[1])`:               rule.True,
		`(traits.active && traits.age > 30) == traits.active`:        rule.True,
		`(traits.active && traits.age > 40) == traits.active`:        rule.False,

		`within(traits.last_seen, "30d")`:                 rule.True,
		`within(traits.last_seen, "2w")`:                  rule.False,
		`older(traits.last_seen, "2w")`:                   rule.True,
		`within(traits.trial_ends, "30d")`:                rule.False, // it is to come
		`older(traits.trial_ends, "1m")`:                  rule.False,
		`within(traits.plan, "30d")`:                      rule.Unknown,
		`older(user.created_at, "4w")`:                    rule.True,
		`within("2026-02-28t12:00:00z", "2d")`:            rule.True,
		`within("2026-02-28T12:00:00,5Z", "2d")`:          rule.Unknown,
		`older("2016-12-31T23:59:60Z", "1d")`:             rule.True,
		`older("2016-12-31T15:59:60-08:00", "1d")`:        rule.True,
		`within("2026-02-28T12:00:60.5Z", "2d")`:          rule.True,
		`within("2026-02-28T12:00:60", "2d")`:             rule.Unknown,
		`within("2026-02-28T12:00:00+23:59", "2d")`:       rule.True,
		`within("2026-02-28T12:00:00+24:00", "2d")`:       rule.Unknown,
		`within("2026-02-28T12:00:00-02:60", "2d")`:       rule.Unknown,
		`within("2026-02-28T9:00:00Z", "2d")`:             rule.Unknown,
		`distance_km(traits.home, 52.52, 13.40) < 0.1`:    rule.True,
		`distance_km([52.52, 13.40], 52.52, 13.40) < 0.1`: rule.True,
		`distance_km(traits.office, 52.52, 13.405) < 900`: rule.True,
		`distance_km(traits.office, 52.52, 13.405) < 850`: rule.False,
		`distance_km(traits.plan, 52.52, 13.40) < 850`:    rule.Unknown,
		`bucket("a", 1) == 0`:                             rule.True,
	} {
		if got := parsed(t, text, rule.Users).Judge(facts); got != want {
			t.Errorf("%s: %d, not %d", text, got, want)
		}
	}
}

func TestARuleOfEventsKnowsTheirNamesAlone(t *testing.T) {
	facts := &rule.Facts{EventType: "match.computed", Data: map[string]any{"score": .9}, Now: now}
	if got := parsed(t, `event_type == "match.computed" && data.score > 0.8`, rule.Events).Judge(facts); got != rule.True {
		t.Errorf("%d", got)
	}
	facts.Data["list"] = slices.Repeat([]any{1.0}, 3_000)
	for text, want := range map[string]rule.Truth{`data.list[2999] == 1`: rule.True, `2 in data.list`: rule.Unknown} { // which takes 3,000 steps of 2,000
		if got := parsed(t, text, rule.Events).Judge(facts); got != want {
			t.Errorf("%s is %d", text, got)
		}
	}
	for _, text := range []string{`traits.plan == "pro"`, `user.external_id == "a"`} {
		if _, err := rule.Parse(text, rule.Events); err == nil {
			t.Errorf("%s is taken for events", text)
		}
	}
}

func TestWhatIsWrongIsSaidWhere(t *testing.T) {
	for text, want := range map[string]string{
		``:                                 "line 1, column 1: A rule says whom it means",
		`traits.plan ==`:                   "line 1, column 15: ",
		"traits.plan == 1 &&\n  plan == 2": "line 2, column 3: A rule knows nothing of the name 'plan'",
		`traits.age + 1`:                   "line 1, column 12: A rule is true or false",
		`"pro"`:                            "line 1, column 1: A rule is true or false",
		`traits`:                           "line 1, column 1: A rule is true or false",
		`traits.plan == null`:              "line 1, column 16: There are numbers",
		`user.name == "x"`:                 "line 1, column 5: user has external_id",
		`uuid(traits.x) == "a"`:            "A rule knows nothing of the name 'uuid'",
		`traits.a % 2 == 0`:                "line 1, column 10: There is no function % here",
		`traits.l.map(x, x) == [1]`:        "A rule knows nothing of",
		`traits.l.exists(x, x.exists(y, y == 1))`:         "may not stand in one another",
		`traits.l.exists(traits, traits == 1)`:            "stands for nothing else",
		`within(traits.t, "30")`:                          "line 1, column 18: within takes a window",
		`within(traits.t, traits.u)`:                      "within takes a window",
		`within(traits.t, "200000000w")`:                  "within takes a window",
		`within(traits.t, "0d")`:                          "within takes a window",
		`distance_km(traits.p, 91, 0) < 1`:                "distance_km takes a place",
		`distance_km(traits.p, traits.lat, 0) < 1`:        "distance_km takes a place",
		`distance_km(traits.p, 0, traits.lon) < 1`:        "distance_km takes a place",
		`traits.x.matches("(")`:                           "no regular expression",
		`traits.x.matches(traits.y)`:                      "a regular expression in the rule itself",
		`traits[traits.x] == 1`:                           "in the rule itself",
		`bucket("a", 0) == 1`:                             "bucket takes a text",
		`bucket("a", 1.5) == 0`:                           "bucket takes a text",
		`bucket("a", 1000001) == 0`:                       "bucket takes a text",
		`bucket(traits.salt, 2) == 0`:                     "bucket takes a text",
		`bucket("a", traits.n) == 0`:                      "bucket takes a text",
		`user == user`:                                    "line 1, column 1: user stands for nothing by itself",
		`in_segment("seg_1")`:                             "in_segment takes the id of a segment, which begins",
		`has(traits.pets[0])`:                             "A member stands in has",
		`{"a": 1} == traits.x`:                            "A rule makes no objects",
		`"a" > 3`:                                         "There is no '>' applied to '(text, number)'.",
		strings.Repeat("(", 60) + strings.Repeat(")", 60): "line 1",
		`true` + strings.Repeat(" && true", 600):          "4,096 bytes",
		"traits.a == \"\xff\"":                            "UTF-8",
	} {
		_, err := rule.Parse(text, rule.Users)
		var wrong *rule.Error
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, not %q", text, err, want)
		}
	}
	parsed(t, `traits.a == "`+strings.Repeat("a", rule.MaxText-14)+`"`, rule.Users)
}

// Whatever is hostile is refused soon: each within a second here, where a machine is
// busy, and in 10 ms at the most on an idle one (BenchmarkHostile).
var hostile = []string{
	strings.Repeat("(", 2000) + "true" + strings.Repeat(")", 2000),
	strings.Repeat("!", 4000) + "true",
	"traits.a" + strings.Repeat("[0]", 1300) + " == 1",
	"traits" + strings.Repeat(".a", 2000) + " == 1",
	strings.Repeat("[", 2000) + strings.Repeat("]", 2000),
	"1" + strings.Repeat("+1", 2000) + " == 1",
	strings.Repeat("true?", 800) + "true" + strings.Repeat(":true", 640),
	`traits.a.matches("` + strings.Repeat("(a*)*", 700) + `")`,
	"[" + strings.Repeat("1,", 2000) + "1] == traits.a",
	strings.Repeat("a==", 1300) + "a",
	strings.Repeat("\"\\", 2000),
	strings.Repeat("{", 4096),
	strings.Repeat("traits.a.exists(x,", 200) + "true" + strings.Repeat(")", 200),
}

func TestTheHostileIsRefused(t *testing.T) {
	for _, text := range hostile {
		_, err := rule.Parse(text, rule.Users)
		var wrong *rule.Error
		if err != nil && !errors.As(err, &wrong) {
			t.Errorf("%.30s…: %v", text, err)
		}
	}
}

// large are traits of 256 KiB, as many as a user may have.
func large(t testing.TB) *rule.Facts {
	t.Helper()
	elements := strings.Repeat("1,", 40_000)
	return factsOf(t, fmt.Sprintf(`{"text": %q, "list": [%s1], "same": [%[2]s1]}`, strings.Repeat("ab", 48<<10), elements))
}

func exhausting() []string {
	return []string{
		strings.TrimSuffix(strings.Repeat(`traits.text.matches("(a|b)*c") || `, 100), " || "),
		`traits.text.matches("((a?){20}(b?){20}){10}c")`,
		strings.TrimSuffix(strings.Repeat(`traits.list == traits.same && `, 100), " && ") + ` && traits.none == 1`,
		strings.TrimSuffix(strings.Repeat(`2 in traits.list || `, 150), " || "),
		strings.TrimSuffix(strings.Repeat(`traits.list.all(x, x == 1 && x < 2 && x > 0) && `, 20), " && "),
		`size(` + strings.TrimSuffix(strings.Repeat(`traits.text + `, 40), " + ") + `) > 1`,
		`!(` + strings.TrimSuffix(strings.Repeat(`size(traits.text) == 1 || `, 60), " || ") + `)`,
	}
}

func TestAJudgementThatTakesTooManyStepsNamesNobody(t *testing.T) {
	facts := large(t)
	for _, text := range exhausting() {
		truth, until, steps := parsed(t, text, rule.Users).JudgeUntil(facts)
		if truth != rule.Unknown || !until.IsZero() || steps != 100_000 {
			t.Errorf("%.40s…: %v until %v after %d steps, want unknown after 100,000", text, truth, until, steps)
		}
	}
	for text, most := range map[string]int{
		`traits.plan == "pro" && traits.age > 30 && "jazz" in traits.likes`:               20,
		`traits.list.exists(x, x == 1)`:                                                   10,
		`2 in traits.list`:                                                                41_000,
		`traits.bio.matches("(?i)jazz|blues|rock .* roll")`:                               60_000,
		`traits.bio.contains("jazz") || traits.bio.contains("blues") || has(traits.text)`: 300,
	} {
		facts.Traits["bio"] = strings.Repeat("I like rock and ", 100)
		if truth, _, steps := parsed(t, text, rule.Users).JudgeUntil(facts); steps > most || text[:12] == "traits.list." && truth != rule.True {
			t.Errorf("%s: %v after %d steps, want at most %d", text, truth, steps, most)
		}
	}
}

// However a text is read, that takes steps by its length: a list may ask for it thousands of times.
func TestATextTakesStepsByItsLength(t *testing.T) {
	text := strings.Repeat("long", 1000)
	facts := factsOf(t, fmt.Sprintf(`{"text": %q}`, text))
	for _, part := range []string{
		`within(traits.text, "1d")`, `older(traits.text, "1d")`, `distance_km(traits.text, 52.52, 13.4) < 1`,
		`traits.text < timestamp("2026-01-31T12:00:00Z")`, `traits.text == "short"`, `size(traits.text) == 1`,
		fmt.Sprintf(`bucket(%q, 10) == 0`, text),
	} {
		if _, _, steps := parsed(t, part, rule.Users).JudgeUntil(facts); steps < len(text)/32 {
			t.Errorf("%.40s took %d steps for a text of %d bytes", part, steps, len(text))
		}
	}
}

// A failed parse takes a microsecond and makes an error, while an element of a list takes some steps of 10 ns.
func TestATextThatIsNoTimeAndNoPlaceIsNotParsed(t *testing.T) {
	facts := large(t)
	judging := func(text string) float64 {
		r := parsed(t, text, rule.Users)
		return testing.AllocsPerRun(10, func() { r.Judge(facts) })
	}
	want := judging(`traits.text == "x"`)
	for _, value := range []any{facts.Traits["text"], "2026-13-31T12:00:00Z", "2026-02-30T12:00:00Z", "2026-01-31T12:00:00+25:00", "POINT(a.b b.c)", "Berlin, Mitte"} {
		facts.Traits["text"] = value
		for _, text := range []string{`within(traits.text, "1d")`, `older(traits.text, "1d")`, `distance_km(traits.text, 52.52, 13.4) < 1`} {
			if got := judging(text); got > want {
				t.Errorf("of %.40q %s makes %v objects, and a comparison %v", value, text, got, want)
			}
		}
	}
}

// A text is the time that Go takes it for.
func TestATextIsTheTimeThatGoReads(t *testing.T) {
	r := parsed(t, `within(traits.at, "1m")`, rule.Users)
	judged := map[bool]int{}
	rapid.Check(t, func(t *rapid.T) {
		part := func(name string, most, beyond int) int {
			of := rapid.IntRange(1, most).Draw(t, name)
			return rapid.SampledFrom([]int{0, 1, most - 1, most, beyond, of, of, of, of, of}).Draw(t, name+" or a bound")
		}
		fraction := rapid.SampledFrom([]string{"", "", ".", ".5", ".123456", ".123456789", ".9999999999", ".x"}).Draw(t, "fraction")
		zone := rapid.SampledFrom([]string{"Z", "Z", "Z", "", "+", fmt.Sprintf("+%02d:%02d", part("zone", 23, 25), part("of the zone", 59, 61)), fmt.Sprintf("-%02d:%02d", part("zone", 23, 25), part("of the zone", 59, 61))}).Draw(t, "written zone")
		text := fmt.Sprintf("%04d-%02d-%02dT%02d:%02d:%02d%s%s", part("year", 9998, 9997), part("month", 12, 13), part("day", 31, 32),
			part("hour", 23, 24), part("minute", 59, 60), part("second", 59, 61), fraction, zone)
		want, err := time.Parse(time.RFC3339, text)
		if judged[err == nil]++; err != nil {
			if got := r.Judge(&rule.Facts{Traits: map[string]any{"at": text}}); got != rule.Unknown {
				t.Fatalf("%s is a time: %d", text, got)
			}
			return
		}
		for now, truth := range map[time.Time]rule.Truth{want: rule.True, want.Add(-1): rule.False} {
			if got := r.Judge(&rule.Facts{Traits: map[string]any{"at": text}, Now: now}); got != truth {
				t.Fatalf("%s is not %v: at %v it is %d", text, want, now, got)
			}
		}
	})
	if !t.Failed() && (judged[true] < 5 || judged[false] < 5) {
		t.Errorf("the texts are of one kind: %v", judged)
	}
}

// Times and places of a list's elements.
func BenchmarkElements(b *testing.B) {
	elements := strings.Repeat(`{"at": "2026-01-31T12:00:00.123456+01:00", "never": "2026-13-31T12:00:00Z", "place": {"lat": 48.1, "lon": 11.5}, "point": "POINT(11.5 48.1)"},`, 1_000)
	facts := factsOf(b, fmt.Sprintf(`{"list": [%s]}`, strings.TrimSuffix(elements, ",")))
	for _, text := range []string{
		`within(x.at, "1m")`, `within(x.never, "1m")`, `x.at < timestamp("2020-01-01T00:00:00Z")`, `distance_km(x.place, 52.52, 13.4) < 1`,
		`distance_km(x.point, 52.52, 13.4) < 1`, `distance_km(x.never, 52.52, 13.4) < 1`, `bucket("salt", 10) == 10`,
	} {
		r := parsed(b, `traits.list.exists(x, `+text+`)`, rule.Users)
		b.Run(text, func(b *testing.B) {
			steps := 0
			for b.Loop() {
				_, _, took := r.JudgeUntil(facts)
				steps += took
			}
			b.ReportMetric(float64(b.Elapsed())/float64(steps), "ns/step")
		})
	}
}

func BenchmarkExhausting(b *testing.B) {
	facts := large(b)
	for i, text := range exhausting() {
		r := parsed(b, text, rule.Users)
		b.Run(fmt.Sprint(i), func(b *testing.B) {
			for b.Loop() {
				r.Judge(facts)
			}
		})
	}
}

func BenchmarkHostile(b *testing.B) {
	for i, text := range hostile {
		b.Run(fmt.Sprint(i), func(b *testing.B) {
			for b.Loop() {
				_, _ = rule.Parse(text, rule.Users)
			}
		})
	}
}

func BenchmarkJudge(b *testing.B) {
	r, facts := parsed(b, `traits.plan == "pro" && traits.age > 30 && "jazz" in traits.likes`, rule.Users), factsOf(b, someone)
	for b.Loop() {
		r.Judge(facts)
	}
}

func TestPathsAreThoseThatAreRead(t *testing.T) {
	r := parsed(t, `traits.home.city == "x" && has(traits.age) && traits["odd"].name > 1 && traits.home.city != "y" && traits.pets.exists(p, p.kind == "dog")`, rule.Users)
	if got := strings.Join(r.Paths(), " "); got != "home.city age odd.name pets" {
		t.Error(got)
	}
	// What goes on from a path takes nothing from it.
	r = parsed(t, `size(traits.home) > 1 && traits.home.city == "x" && within(user.updated_at, "1d") && size(traits) > 1`, rule.Users)
	if got := strings.Join(r.Paths(), " "); got != "home home.city" {
		t.Error(got)
	}
	if got := strings.Join(r.Touched(), " "); got != "traits.home user.updated_at traits" {
		t.Error(got)
	}
}

// What a rule asks beside traits is true or false, and unknown where nothing is known.
func TestARuleAsksForConsentClustersAndBehaviour(t *testing.T) {
	facts := factsOf(t, someone)
	facts.Granted = func(layer string) bool { return layer == "lay_04hk8ls48pkqs04hk8ls48pkqs" }
	facts.InCluster = func(cluster string) bool { return cluster == "clu_04hk8ls48pkqs04hk8ls48pkqs" }
	facts.Acts = func(what string) []time.Time {
		return map[string][]time.Time{
			"click": {now.AddDate(0, 0, -8), now.AddDate(0, 0, -6), now.Add(-time.Hour)}, "cam_04hk8ls48pkqs04hk8ls48pkqs": {now.AddDate(0, 0, -20)},
		}[what]
	}
	for text, want := range map[string]rule.Truth{
		`granted("lay_04hk8ls48pkqs04hk8ls48pkqs")`:                                       rule.True,
		`granted("lay_14hk8ls48pkqs04hk8ls48pkqs")`:                                       rule.False,
		`in_cluster("clu_04hk8ls48pkqs04hk8ls48pkqs")`:                                    rule.True,
		`!in_cluster("clu_14hk8ls48pkqs04hk8ls48pkqs")`:                                   rule.True,
		`interactions("click", "7d") == 2`:                                                rule.True,
		`2 < interactions("click", "2w")`:                                                 rule.True,
		`interactions("click", "30m") >= 1`:                                               rule.False,
		`interactions("dismiss", "90d") < 256`:                                            rule.True,
		`interactions("click", "90d") > 255`:                                              rule.False,
		`seen("cam_04hk8ls48pkqs04hk8ls48pkqs", "3w")`:                                    rule.True,
		`seen("cam_04hk8ls48pkqs04hk8ls48pkqs", "19d")`:                                   rule.False,
		`seen("cam_14hk8ls48pkqs04hk8ls48pkqs", "90d")`:                                   rule.False,
		`(interactions("click", "7d") >= 2) == granted("lay_04hk8ls48pkqs04hk8ls48pkqs")`: rule.True,
	} {
		r := parsed(t, text, rule.Users)
		if got := r.Judge(facts); got != want {
			t.Errorf("%s: %d, not %d", text, got, want)
		}
		if got := r.Judge(factsOf(t, someone)); got != rule.Unknown {
			t.Errorf("%s, of which nothing is known: %d", text, got)
		}
	}
	if _, until, _ := parsed(t, `interactions("click", "7d") >= 2`, rule.Users).JudgeUntil(facts); !until.Equal(now.AddDate(0, 0, 1)) {
		t.Errorf("a click leaves its window at %s", until)
	}
}

func TestWhatCountsCannotTellIsRefused(t *testing.T) {
	for text, where := range map[string]string{
		`interactions("click", "7d") >= 257`:                                         "column 32",
		`interactions("click", "7d") > 256`:                                          "column 31",
		`256 == interactions("click", "7d")`:                                         "column 1:",
		`256 < interactions("click", "7d")`:                                          "column 1:",
		`257 <= interactions("click", "7d")`:                                         "column 1:",
		`interactions("click", "7d") >= traits.n`:                                    "column 38",
		`interactions("click", "7d") + 1 > 2`:                                        "column 13",
		`size([interactions("click", "7d")]) > 0`:                                    "column 19",
		`(interactions("click", "7d") >= 2 ? interactions("click", "7d") : 0) > 300`: "column 49",
		`interactions("clicks", "7d") > 2`:                                           "column 14",
		`interactions("click", "91d") > 2`:                                           "column 23",
		`seen("cmp_04hk8ls48pkqs04hk8ls48pkqs", "7d")`:                               "column 6",
		`seen("cam_04hk8ls48pkqs04hk8ls48pkqs", "13w")`:                              "column 40",
		`granted("seg_04hk8ls48pkqs04hk8ls48pkqs")`:                                  "column 9",
		"traits.a == 1 &&\n  in_cluster(traits.cluster)":                             "line 2, column 20",
	} {
		if _, err := rule.Parse(text, rule.Users); err == nil || !strings.Contains(err.Error(), where) {
			t.Errorf("%s: %v, and not at %s", text, err, where)
		}
	}
	parsed(t, `256 <= interactions("click", "7d") || 256 > interactions("click", "7d")`, rule.Users)
	if _, err := rule.Parse(`in_cluster("clu_04hk8ls48pkqs04hk8ls48pkqs")`, rule.Events); err == nil {
		t.Error("a filter of events asks for clusters")
	}
}

// A rule reads what its place permits, and is told where it does not.
func TestARuleStaysWithinItsBounds(t *testing.T) {
	var free rule.Bounds
	layer := rule.Bounds{Layered: true, Paths: []string{"plan", "home", "pets"}, Decided: map[string]bool{"home.floor": true}}
	allowed := rule.Bounds{Decided: map[string]bool{"religion": false, "religion.church": true}}
	for _, c := range []struct {
		text   string
		bounds rule.Bounds
		wrong  string
	}{
		{`traits.plan == "pro" && user.external_id == "a" && interactions("click", "7d") >= 2`, free, ""},
		{`traits.plan == "pro" &&  traits.religion == "x"`, free, "line 1, column 32: traits.religion is sensitive"},
		{"traits.plan == \"pro\" ||\n traits.pets.exists(p, p.religion == \"x\")", free, "line 2, column 25: traits.pets.religion"},
		{`"religion" in traits`, free, "column 1: traits.religion"},
		// However it is come by.
		{`traits.pets[0].religion == "x"`, free, "column 15: traits.pets.religion"},
		{`[traits][0].religion == "x"`, free, "traits.religion is sensitive"},
		{`[traits.my].exists(m, m.religion == "x")`, free, "traits.my.religion is sensitive"},
		{`[traits.pets][0].exists(p, has(p.religion))`, free, "traits.pets.religion is sensitive"},
		{`dyn(traits).religion == "x"`, free, "traits.religion is sensitive"},
		{`dyn(dyn(traits).my)["religion"].since > 3`, free, "traits.my.religion.since is sensitive"},
		{`(true ? traits : traits).religion == "x"`, free, "traits.religion is sensitive"},
		{`(traits.plan == "pro" ? traits.a : traits.b).c.religion == "x"`, free, "traits.a.c.religion is sensitive"},
		{`(traits.pets + [])[0].religion == "x"`, free, "traits.pets.religion is sensitive"},
		{`(traits.a + (traits.b + [traits.c])).all(p, p.religion == "x")`, free, "traits.a.religion is sensitive"},
		{`([] + [traits.c]).all(p, p.religion == "x")`, free, "traits.c.religion is sensitive"},
		{`traits.x == (traits.religion == "x")`, free, "traits.religion is sensitive"},
		{`"reli" + "gion" in traits`, free, `a text in the rule itself`},
		{`traits.name in [traits, traits][1]`, free, `a text in the rule itself`},
		{`traits == [traits][0]`, free, "column 1: traits as a whole"},
		{`traits.religion in traits.likes`, free, "traits.religion is sensitive"},
		{`within(traits.my.religion, "3d") || distance_km(traits.religion, 1, 2) < 3`, free, "traits.my.religion is sensitive"},
		{`size(traits.religion) > 1`, free, "traits.religion is sensitive"},
		{`traits.religion.size() > 1`, free, "traits.religion is sensitive"},
		{`traits.religion.startsWith("x")`, free, "traits.religion is sensitive"},
		{`traits.religion.exists(x, true)`, free, "traits.religion is sensitive"},
		{`traits.religion ? true : false`, free, "traits.religion is sensitive"},
		{`traits.home == traits.plan`, layer, "traits.home.floor is sensitive"},
		{`traits.home != traits.plan`, layer, "traits.home.floor is sensitive"},
		{`traits.home == traits.plan`, rule.Bounds{Decided: map[string]bool{"home.floor": false}}, ""},
		{`[traits.home] == [traits.plan]`, layer, "traits.home.floor is sensitive"},
		{`"floor" in traits.home`, layer, "traits.home.floor is sensitive"},
		{`traits.home == "x" && traits.home in ["x"] && size(traits.home) > 1 && has(traits.home)`, layer, "traits.home.floor is sensitive"},
		{`traits.home == "x" && size(traits.home) > 1 && has(traits.home)`, layer, ""},
		{`in_cluster("clu_04hk8ls48pkqs04hk8ls48pkqs")`, free, "column 11: Who is in a cluster"},
		{`traits.plan == "pro" && within(traits.home.since, "3d") && distance_km(traits.home, 1, 2) < 3 && bucket("a", 2) == 1`, layer, ""},
		{`granted("lay_04hk8ls48pkqs04hk8ls48pkqs") && in_cluster("clu_04hk8ls48pkqs04hk8ls48pkqs") && in_segment("seg_04hk8ls48pkqs04hk8ls48pkqs")`, layer, ""},
		{`traits.plan == "pro" && traits.age > 3`, layer, "column 31: traits.age is none of the paths"},
		{`traits.religion == "x" && traits.religion.since > 3`, allowed, ""},
		{`traits.religion.church.name == "x"`, allowed, "traits.religion.church.name is sensitive"},
		{`traits.home.floor == 2`, layer, "traits.home.floor is sensitive"},
		{`traits.home.religion == "x"`, layer, "traits.home.religion is sensitive"},
		{`size(traits.work) > 0 && traits.work.city == "x"`, rule.Bounds{Layered: true, Paths: []string{"work.city"}}, "traits.work is none of the paths"},
		{`traits[""] == "x"`, layer, "traits is none of these"},
		{`older(user.created_at, "1d")`, layer, "column 11: Under a consent layer"},
		{`size(traits) > 2`, layer, "traits is none of these"},
		{`traits.size() > 2`, layer, "traits is none of these"},
		{`traits.pets.exists(p, p == "dog") && traits.home.traits == "x"`, layer, ""},
		{`traits.traits == "x"`, rule.Bounds{Layered: true, Paths: []string{"traits"}}, ""},
		{`interactions("click", "7d") >= 2`, layer, "interactions is none of these"},
		{`seen("cam_04hk8ls48pkqs04hk8ls48pkqs", "7d")`, layer, "seen is none of these"},
	} {
		r, err := rule.Parse(c.text, rule.Users)
		if err == nil {
			err = r.Check(c.bounds)
		}
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %v, not %s", c.text, err, c.wrong)
		}
	}
}

// What is sensitive of the viewer is refused, too.
func TestARuleOfPairsReadsNothingSensitiveOfTheViewer(t *testing.T) {
	t.Parallel()
	for text, wrong := range map[string]string{
		`viewer.traits.religion == traits.x`:         "traits.religion is sensitive",
		`[viewer.traits][0].religion == traits.x`:    "traits.religion is sensitive",
		`traits.x in dyn(viewer.traits).my.religion`: "traits.my.religion is sensitive",
		`viewer.traits == traits`:                    "traits as a whole",
		`traits.my == viewer.traits.my`:              "traits.my.diet is sensitive",
		`traits.mine == viewer.traits.mine`:          "",
		`viewer.name == traits.x`:                    "viewer has traits, external_id",
	} {
		r, err := rule.Parse(text, rule.Pairs)
		if err == nil {
			err = r.Check(rule.Bounds{Decided: map[string]bool{"my.diet": true}})
		}
		if (err == nil) != (wrong == "") || err != nil && !strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: %v, not %s", text, err, wrong)
		}
	}
}

func TestAnExplanationNamesEveryComparison(t *testing.T) {
	r := parsed(t, `traits.plan == "pro" && (within(traits.last_seen, "30d") || traits.agee > 3) && traits.pets.exists(p, p.kind == "dog")`, rule.Users)
	var got []string
	comparisons, steps := r.Explain(factsOf(t, someone))
	if steps <= len(comparisons) {
		t.Errorf("it took %d steps", steps)
	}
	for _, c := range comparisons {
		flips := ""
		if !c.FlipsAt.IsZero() {
			flips = c.FlipsAt.Format(time.RFC3339)
		}
		got = append(got, fmt.Sprintf("%s=%d %s", c.Text, c.Truth, flips))
	}
	want := []string{
		`traits.plan == "pro"=2 `, `within(traits.last_seen, "30d")=2 2026-03-12T08:00:00Z`, `traits.agee > 3=0 `,
		`traits.pets.exists(p, p.kind == "dog")=2 `,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s\n\nnot\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A window flips when it is said to, and not before.
func TestAWindowFlipsWhenItIsSaidTo(t *testing.T) {
	first := func(r *rule.Rule, facts *rule.Facts) rule.Comparison {
		all, _ := r.Explain(facts)
		return all[0]
	}
	for _, text := range []string{`within(traits.last_seen, "30d")`, `older(traits.last_seen, "30d")`, `within(traits.trial_ends, "3d")`, `older(traits.trial_ends, "2d")`} {
		r, facts := parsed(t, text, rule.Users), factsOf(t, someone)
		for range 3 {
			before := first(r, facts)
			if before.FlipsAt.IsZero() {
				break
			}
			facts.Now = before.FlipsAt.Add(-time.Nanosecond)
			if got := r.Judge(facts); got != before.Truth {
				t.Errorf("%s is %d a moment before it flips, not %d", text, got, before.Truth)
			}
			facts.Now = before.FlipsAt
			if got := r.Judge(facts); got == before.Truth {
				t.Errorf("%s has not flipped at %s", text, facts.Now)
			}
		}
		if !first(r, facts).FlipsAt.IsZero() {
			t.Errorf("%s flips for ever", text)
		}
	}
	// Of several, the first to flip counts.
	for _, text := range []string{`older(traits.last_seen, "90d") || older(traits.last_seen, "30d")`, `older(traits.last_seen, "30d") || older(traits.last_seen, "90d")`} {
		if _, until, _ := parsed(t, text, rule.Users).JudgeUntil(factsOf(t, someone)); !until.Equal(time.Date(2026, 3, 12, 8, 0, 0, 0, time.UTC)) {
			t.Errorf("%s flips at %s", text, until)
		}
	}
}

// A judgement that takes too many steps is another one once a window decides before it does.
func TestAWindowFlipsAlsoWhereStepsEnd(t *testing.T) {
	facts := large(t)
	facts.Traits["soon"] = facts.Now.Add(time.Hour).Format(time.RFC3339)
	r := parsed(t, `within(traits.soon, "1d") || `+exhausting()[0], rule.Users)
	for _, want := range []rule.Truth{rule.Unknown, rule.True} {
		truth, until, _ := r.JudgeUntil(facts)
		if truth != want || until.IsZero() {
			t.Errorf("it is %d at %v until %v, want %d for some time", truth, facts.Now, until, want)
		}
		facts.Now = until
	}
	if truth, until, _ := r.JudgeUntil(facts); truth != rule.Unknown || !until.IsZero() {
		t.Errorf("it is %d in the end, until %v", truth, until)
	}
}

// A time in a year of five digits could not be told, and never comes.
func TestAWindowThatEndsAfterAllTimesNeverFlips(t *testing.T) {
	for text, flips := range map[string]bool{
		`older(traits.until, "30d")`: false, `within(traits.until, "1d")`: true, `within(traits.leap, "1d")`: false,
		`older(traits.until, "30d") || older(traits.last, "1h")`: true,
	} {
		r, facts := parsed(t, text, rule.Users), factsOf(t, `{"until": "9999-12-31", "leap": "9999-12-31T23:59:60Z", "last": "9999-12-31T22:59:59Z"}`)
		if _, until, _ := r.JudgeUntil(facts); until.IsZero() == flips || until.Year() > 9999 {
			t.Errorf("%s flips at %v", text, until)
		}
	}
}

// Every rule of the documentation is one, and its recipes name somebody.
func TestTheDocumentedRulesAreRules(t *testing.T) {
	page := testkit.Must(os.ReadFile("../../docs/rules.md"))(t)
	facts := factsOf(t, `{"plan": "pro", "age": 33, "likes": ["jazz"], "last_seen": "2026-02-10", "trial_ends": "2026-03-03", "orders": 2,
		"spent": 50, "email": "ann@example.com", "home": "52.52,13.41", "pets": [{"kind": "dog"}]}`)
	blocks := strings.Split(string(page), "```cel\n")[1:]
	for _, block := range blocks {
		text, _, _ := strings.Cut(block, "\n```")
		r := parsed(t, text, rule.Users)
		named := 0
		for i := range 100 { // of whom a bucket has some
			facts.ID = fmt.Sprintf("usr_%d", i)
			if r.Judge(facts) == rule.True {
				named++
			}
		}
		if named == 0 {
			t.Errorf("%s names nobody", text)
		}
	}
	for _, block := range strings.Split(string(page), "```cel pairs\n")[1:] {
		text, _, _ := strings.Cut(block, "\n```")
		viewer := factsOf(t, `{"sex": "f", "seeks": ["m"]}`)
		candidate := factsOf(t, `{"sex": "m", "seeks": ["f"]}`)
		candidate.Viewer = viewer
		if parsed(t, text, rule.Pairs).Judge(candidate) != rule.True {
			t.Errorf("%s names nobody", text)
		}
	}
	if len(blocks) < 6 {
		t.Errorf("%d rules were found", len(blocks))
	}
	inline := regexp.MustCompile("(?s)```.*?```").ReplaceAllString(string(page), "")
	for _, example := range regexp.MustCompile("`([^`|…\n]*(?:traits|user)[.\\[][^`|…\n]*)`").FindAllStringSubmatch(inline, -1) {
		text := strings.TrimSuffix(example[1], " == 1")
		if _, err := rule.Parse("dyn("+text+") == 1", rule.Users); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Users fall into all buckets alike, and otherwise with another salt.
func TestBucketsAreEven(t *testing.T) {
	a, b := parsed(t, `bucket("a", 10) == 3`, rule.Users), parsed(t, `bucket("b", 10) == 3`, rule.Users)
	const users = 20_000
	var inA, inBoth int
	for i := range users {
		facts := &rule.Facts{Client: "cli_1", ID: fmt.Sprintf("usr_%d", i)}
		if a.Judge(facts) == rule.True {
			inA++
			if b.Judge(facts) == rule.True {
				inBoth++
			}
		}
	}
	if inA < users/10*9/10 || inA > users/10*11/10 || inBoth < users/100*7/10 || inBoth > users/100*13/10 {
		t.Errorf("%d of %d, %d in both", inA, users, inBoth)
	}
}

// A rule of pairs reads of both, and says what it reads.
func TestARuleOfPairsReadsTheViewerToo(t *testing.T) {
	candidate, viewer := factsOf(t, `{"sex": "f", "seeks": ["m"], "age": 30}`), factsOf(t, `{"sex": "m", "seeks": ["f"], "home": {"city": "Rome"}}`)
	viewer.ExternalID = "v1"
	candidate.Viewer = viewer
	for text, want := range map[string]struct {
		truth rule.Truth
		reads string
	}{
		`traits.sex in viewer.traits.seeks && viewer.traits.sex in traits.seeks`: {rule.True, "sex seeks;"},
		`viewer.external_id == "v1" && traits.age > 20`:                          {rule.True, "age; viewer.external_id"},
		`viewer.traits["home"].city == "Rome"`:                                   {rule.True, "home.city;"},
		`viewer.traits.age > 1`:                                                  {rule.Unknown, "age;"},
		`has(viewer.traits.home) && !has(traits.home)`:                           {rule.True, "home;"},
		`"home" in viewer.traits && size(traits) == 3`:                           {rule.True, "; traits"},
	} {
		r := parsed(t, text, rule.Pairs)
		if got := r.Judge(candidate); got != want.truth {
			t.Errorf("%s is %d", text, got)
		}
		if got := strings.TrimSpace(strings.Join(r.Paths(), " ") + "; " + r.Beyond(r.Paths())); got != want.reads {
			t.Errorf("%s reads %s, not %s", text, got, want.reads)
		}
		if got := r.Beyond([]string{"sex", "home"}); len(r.Paths()) > 0 && got == "" && text != `viewer.traits["home"].city == "Rome"` && text != `has(viewer.traits.home) && !has(traits.home)` {
			t.Errorf("%s stays within sex and home", text)
		}
		candidate.Viewer = nil
		if got := r.Judge(candidate); got == rule.True {
			t.Errorf("%s is true without a viewer", text)
		}
		candidate.Viewer = viewer
		if _, err := rule.Parse(text, rule.Users); err == nil {
			t.Errorf("%s is a rule of users", text)
		}
	}
}

// A match rule holds of both, each as the other sees it, beside what was asked for.
func TestAMatchRuleHoldsBothWays(t *testing.T) {
	person := func(sex string, seeks ...any) *rule.Facts {
		return &rule.Facts{Traits: map[string]any{"sex": sex, "seeks": seeks}}
	}
	asked := testkit.Must(rule.Parse(`traits.sex != "x"`, rule.Pairs))(t)
	for _, pair := range []struct {
		viewer, candidate *rule.Facts
		named             bool
	}{
		{person("f", "m"), person("m", "f"), true},
		{person("f", "m"), person("m", "m"), false}, // who would not be sought
		{person("m", "m"), person("f", "m"), false}, // who is not sought
		{person("f", "x"), person("x", "f"), false}, // whom the request leaves out
		{person("f", "m"), &rule.Facts{}, false},    // of whom nothing is known
	} {
		filter := testkit.Must(among(rule.Filter{Rule: asked}, `traits.sex in viewer.traits.seeks`))(t)
		pair.candidate.Viewer = pair.viewer
		if filter.Names(pair.candidate, 0) != pair.named {
			t.Errorf("%v for %v: not %v", pair.candidate.Traits, pair.viewer.Traits, pair.named)
		}
	}
	if none, err := among(rule.Filter{}, ""); none != nil || err != nil {
		t.Errorf("of no rules there is a filter: %v, %v", none, err)
	}
	// So does a segment, with rules or without.
	for _, always := range []string{"", `traits.sex in viewer.traits.seeks`} {
		for _, of := range []*rule.Rule{nil, asked} {
			filter := testkit.Must(among(rule.Filter{Rule: of, Segment: "seg_1"}, always))(t)
			for _, segment := range []string{"seg_1", "seg_2"} {
				candidate := person("m", "f")
				candidate.Viewer, candidate.InSegment = person("f", "m"), func(asked string) bool { return asked == segment }
				if filter.Names(candidate, 0) != (segment == "seg_1") {
					t.Errorf("one of %s, beside %q", segment, always)
				}
			}
		}
	}
}

// among is a filter whose match rule may read everything.
func among(asked rule.Filter, matchRule string) (*rule.Filter, error) {
	return rule.Among(asked, matchRule, func() (rule.Bounds, error) { return rule.Bounds{}, nil }, func(judge func() error) error { return judge() })
}

// Facts may be of a moment long ago, and a filter is of now: for both of a pair.
func TestAFilterGoesByItsOwnTime(t *testing.T) {
	for _, always := range []string{"", `within(traits.seen, "1d")`} {
		filter := testkit.Must(among(rule.Filter{Rule: parsed(t, `within(traits.seen, "1d")`, rule.Pairs), Now: now}, always))(t)
		long, short := func() *rule.Facts {
			return &rule.Facts{Traits: map[string]any{"seen": "2026-02-27"}, Now: now.AddDate(0, 0, -2)}
		}, func() *rule.Facts {
			return &rule.Facts{Traits: map[string]any{"seen": "2026-03-01"}, Now: now.AddDate(0, 0, -2)}
		}
		for _, pair := range []struct {
			candidate, viewer *rule.Facts
			named             bool
		}{{short(), short(), true}, {long(), short(), false}, {short(), long(), always == ""}} {
			pair.candidate.Viewer = pair.viewer
			if filter.Names(pair.candidate, 0) != pair.named {
				t.Errorf("who was seen on %s, for one of %s, beside %q: not %v", pair.candidate.Traits["seen"], pair.viewer.Traits["seen"], always, pair.named)
			}
		}
	}
}

// Where all candidates were looked at no more can be named; of those that are not looked at some may.
func TestAFilterTellsWhetherMoreMayBeNamed(t *testing.T) {
	for there, want := range map[int]bool{30: false, 49_999: false, 50_000: true, 1_000_000: true} {
		looked := 0
		truncated, err := (&rule.Filter{}).Widen(10, func(best int) (int, int, error) {
			looked = best
			return min(there, best), 3, nil
		})
		if truncated != want || err != nil || looked < min(there, 50_000) {
			t.Errorf("of %d candidates: truncated %v, after a look at %d: %v", there, truncated, looked, err)
		}
	}
	if truncated, err := (&rule.Filter{}).Widen(10, func(best int) (int, int, error) { return best, 10, nil }); truncated || err != nil {
		t.Errorf("there were enough: %v, %v", truncated, err)
	}
	if _, err := (&rule.Filter{}).Widen(10, func(int) (int, int, error) { return 3, 0, os.ErrClosed }); !errors.Is(err, os.ErrClosed) {
		t.Errorf("what a look fails with is %v", err)
	}
}

// What reads users and judges them ends a filter, which then says that more may be named.
func TestAFilterEndsAfterItsSteps(t *testing.T) {
	const most = 300_000_000
	facts := factsOf(t, someone)
	for _, c := range []struct {
		filter    rule.Filter
		read      int
		truncated bool
	}{
		{rule.Filter{}, most - 1, false},
		{rule.Filter{}, most, true},
		{rule.Filter{Rule: parsed(t, `traits.age > 30`, rule.Users)}, most - 1, true},
	} {
		truncated, err := c.filter.Widen(10, func(best int) (int, int, error) {
			c.filter.Names(facts, c.read)
			return 3, 1, nil
		})
		if truncated != c.truncated || err != nil {
			t.Errorf("after %d steps to read one: truncated %v, %v", c.read, truncated, err)
		}
	}
}

// Whom the trait parts name, a match rule, a segment or other parts may leave out.
func TestAFilterIsItsTraitPartsWhereItAsksForNothingElse(t *testing.T) {
	asked := func(text string) *rule.Rule { return parsed(t, text, rule.Pairs) }
	for _, of := range []struct {
		filter rule.Filter
		always string
		only   bool
	}{
		{rule.Filter{Rule: asked(`traits.a == 1 && traits.b == 2`)}, "", true},
		{rule.Filter{Rule: asked(`traits.a == 1 && traits.b == 2`)}, `traits.c == 3`, false},
		{rule.Filter{Rule: asked(`traits.a == 1`), Segment: "seg_1"}, "", false},
		{rule.Filter{Segment: "seg_1"}, "", false},
		{rule.Filter{Rule: asked(`within(traits.a, "1d") && traits.b == 2`)}, "", false},
	} {
		filter, err := among(of.filter, of.always)
		if err != nil || filter.OnlyTraitParts() != of.only {
			t.Errorf("%q beside %q: %v, %v", filter.TraitParts(), of.always, filter.OnlyTraitParts(), err)
		}
	}
}

// Of a rule of pairs, what reads the candidate's traits alone, or its bucket, is a trait part; windows, segments and
// the viewer are not, and neither is a part of which not all must hold. The first is nothing else.
func TestTheTraitPartsOfARule(t *testing.T) {
	for text, want := range map[string][]string{
		`traits.plan == "pro" && (traits.age > 30 && "jazz" in traits.likes)`:                                               {`traits.plan == "pro"`, `traits.age > 30.0`, `"jazz" in traits.likes`},
		`traits.sex in viewer.traits.seeks && bucket("x", 2) == 0`:                                                          {`bucket("x", 2) == 0`},
		`traits.sex in viewer.traits.seeks && 1 == 1`:                                                                       nil,
		`traits.plan == "pro" || viewer.traits.age > 3`:                                                                     nil,
		`within(traits.seen, "30d") && has(traits.city)`:                                                                    {`has(traits.city)`},
		`user.external_id != "" && user.created_at > timestamp("2026-01-01T00:00:00Z") && traits.pets.exists(p, p.age > 1)`: {`traits.pets.exists(p, p.age > 1)`},
	} {
		parsed := testkit.Must(rule.Parse(text, rule.Pairs))(t)
		filter := &rule.Filter{Rule: parsed}
		if filter.OnlyTraitParts() != (len(want) == 3) {
			t.Errorf("%s: nothing but trait parts: %v", text, filter.OnlyTraitParts())
		}
		got := filter.TraitParts()
		slices.Sort(got)
		slices.Sort(want)
		if strings.ReplaceAll(strings.Join(got, " & "), ".0", "") != strings.ReplaceAll(strings.Join(want, " & "), ".0", "") {
			t.Errorf("%s: %q, not %q", text, got, want)
		}
		for _, part := range got {
			if _, err := rule.Parse(part, rule.Users); err != nil {
				t.Errorf("%s is no rule of users: %v", part, err)
			}
		}
	}
}

// A trait part is written with spaces: it is a rule again only where it is not too long by them.
func TestATraitPartIsARuleAgain(t *testing.T) {
	cities := make([]string, 580)
	for i := range cities {
		cities[i] = fmt.Sprintf(`"%04d"`, i)
	}
	for text, parts := range map[string]int{
		`traits.a == 1 && traits.city in [` + strings.Join(cities[:500], ",") + `]`: 2,
		`traits.a == 1 && traits.city in [` + strings.Join(cities, ",") + `]`:       1,
	} {
		parsed := testkit.Must(rule.Parse(text, rule.Users))(t)
		filter := rule.Filter{Rule: parsed}
		if got := filter.TraitParts(); len(got) != parts || filter.OnlyTraitParts() != (parts == 2) {
			t.Errorf("of %d bytes %d trait parts, and nothing else: %v", len(text), len(got), filter.OnlyTraitParts())
		}
		for _, part := range filter.TraitParts() {
			if _, err := rule.Parse(part, rule.Users); err != nil {
				t.Errorf("a part of %d bytes of one of %d: %v", len(part), len(text), err)
			}
		}
	}
}
