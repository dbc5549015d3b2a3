package console

import (
	"encoding/json"
	"fmt"
	"html/template"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"kindred/console/chart"
	kindred "kindred/sdk/go"
)

// functions are what the templates call.
func (s *Console) functions() template.FuncMap {
	return template.FuncMap{
		"t": tell, "say": say, "mark": func() template.URL { return mark }, "asset": s.assetPath, "rail": rail,
		"num": number, "pct": percent, "share": func(percentile *float64) float64 { return *percentile / 100 }, "score": score,
		"when": when, "hour": hour, "valueOf": valueOf, "stamp": stamp, "input": inputTime, "seconds": seconds, "money": money, "tone": tone, "json": indented, "value": plainValue,
		"deref": deref, "ways": ways, "path": url.PathEscape, "of": func(pairs ...any) map[string]any {
			made := map[string]any{}
			for i := 0; i+1 < len(pairs); i += 2 {
				made[fmt.Sprint(pairs[i])] = pairs[i+1]
			}
			return made
		},
		"short": short, "shortStream": shortStream, "join": func(list any, sep string) string { return strings.Join(texts(list), sep) }, "contains": func(list any, one any) bool {
			for _, text := range texts(list) {
				if text == fmt.Sprint(one) {
					return true
				}
			}
			return false
		},
		"amount": amount, "groups": groups, "bySlash": func(path string) []string { return strings.Split(path, "/")[1:] },
		"days": func(seconds *int64) string { return inUnits(seconds, 24*time.Hour) },
		"hours": func(seconds *int64) string {
			if seconds == nil {
				return "some"
			}
			return inUnits(seconds, time.Hour)
		}, "plus": func(a, b int) int { return a + b },
		"list": func(all ...string) []string { return all }, "last": func(all []kindred.DeliveryAttempt) *kindred.DeliveryAttempt {
			if len(all) == 0 {
				return nil
			}
			return &all[len(all)-1]
		},
		"millis": millis, "statusTone": statusTone, "because": because, "reason": reason, "means": means, "types": func() []kindred.TraitType { return traitTypes }, "chosenAs": chosenAs, "label": label, "allowing": allowing, "trait": brokenAtWords, "clusterIDs": clusterIDs,
		"bars": drawing.Bars, "line": drawing.Line, "spark": chart.Spark, "terms": chart.Terms, "swatch": chart.Swatch, "brief": brief, "moved": moved, "meter": chart.Meter,
	}
}

// drawing is what pictures say.
var drawing = chart.Words{
	Chart: say("chart.chart"), Table: say("common.table"), AsTable: say("chart.as_a_table"), Users: say("common.users"),
	Moved: func(count, from, to string) string { return say("chart.from_to", count, from, to) },
}

// toAllow is how the API says of a rule that a trait is sensitive, and how to allow it by a call.
var toAllow = regexp.MustCompile(`traits\.(\S+) is sensitive\. (To allow it, set .* in the trait schema\.)`)

// allowing is a text of the API which leads to the page of a trait, where that can be allowed.
func allowing(text string) template.HTML {
	said := template.HTMLEscapeString(text)
	if found := toAllow.FindStringSubmatch(text); found != nil {
		link := fmt.Sprintf(`<a href="%straits?path=%s#change">%s</a>`, Path, url.QueryEscape(found[1]), say("traits.allow_it_there"))
		said = strings.Replace(said, template.HTMLEscapeString(found[2]), link, 1)
	}
	return template.HTML(said) //nolint:gosec // escaped
}

// brokenAtWords is the path of a trait, which may be broken between its words: hours_per_week.
func brokenAtWords(path string) template.HTML {
	return template.HTML(wordEnds.Replace(template.HTMLEscapeString(path))) //nolint:gosec // escaped
}

var wordEnds = strings.NewReplacer("_", "_<wbr>", ".", ".<wbr>")

// mark is the icon of the pages, which takes no request of its own.
const mark template.URL = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24'%3E" +
	"%3Ccircle fill='%230b6b62' cx='9' cy='9.5' r='6.5'/%3E%3Ccircle fill='%23c9661a' cx='16' cy='15.5' r='5.5'/%3E%3C/svg%3E"

// place is an entry of the rail.
type place struct{ Section, Name, Path string }

// rail lists the sections that somebody may see.
func rail(who identity) []place {
	all := []place{
		{"Overview", say("titles.overview"), Path},
		{"Users", say("common.users"), Path + "users"},
		{"Traits", say("common.traits"), Path + "traits"},
		{"Segments", say("common.segments"), Path + "segments"},
		{"Clusters", say("titles.clusters"), Path + "clusters"},
		{"Campaigns", say("titles.campaigns"), Path + "campaigns"},
		{"Webhooks", say("titles.webhooks"), Path + "webhooks"},
	}
	if who.has("admin") {
		all = append(all, place{"Developers", say("common.developers"), Path + "developers"})
	}
	if who.has("audit") || who.has("admin") {
		all = append(all, place{"History", say("titles.history"), Path + "history"})
	}
	if who.has("admin") {
		all = append(all, place{"Settings", say("titles.settings"), Path + "settings"})
	}
	return append(all, place{"Account", say("titles.account"), Path + "account"})
}

// number writes a number with separators, as in 20,412.
func number(v any) string {
	var n int64
	switch v := v.(type) {
	case int:
		n = int64(v)
	case int64:
		n = v
	case *int64:
		if v == nil {
			return "–"
		}
		n = *v
	case float64:
		if v != math.Trunc(v) && math.Abs(v) < 999.95 || math.Abs(v) > 1<<53 {
			return strconv.FormatFloat(v, 'g', 4, 64)
		}
		n = int64(math.Round(v)) // of four digits before the point nothing behind it is shown
	default:
		return fmt.Sprint(v)
	}
	digits := strconv.FormatInt(n, 10)
	sign := ""
	if digits[0] == '-' {
		sign, digits = "−", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// percent writes a share, as in 91 % or 0.4 %, which no line parts.
func percent(share float64) string {
	p := share * 100
	if p != 0 && math.Abs(p) < 10 {
		return strconv.FormatFloat(p, 'f', 1, 64) + "\u00a0%"
	}
	return strconv.FormatFloat(p, 'f', 0, 64) + "\u00a0%"
}

// noDecimals are the currencies whose minor unit is the whole one (ISO 4217).
var noDecimals = map[string]bool{
	"BIF": true, "CLP": true, "DJF": true, "GNF": true, "ISK": true, "JPY": true, "KMF": true, "KRW": true, "PYG": true,
	"RWF": true, "UGX": true, "UYI": true, "VND": true, "VUV": true, "XAF": true, "XOF": true, "XPF": true,
}

// threeDecimals are those with a thousand minor units.
var threeDecimals = map[string]bool{"BHD": true, "IQD": true, "JOD": true, "KWD": true, "LYD": true, "OMR": true, "TND": true}

// decimals is how many digits the minor unit of a currency stands for.
func decimals(currency string) int {
	switch {
	case noDecimals[currency]:
		return 0
	case threeDecimals[currency]:
		return 3
	}
	return 2
}

// money writes an amount in minor units, as in EUR 3,182.50, which no line parts.
func money(minor int64, currency string) string { return currency + "\u00a0" + amount(minor, currency) }

// amount is money beside its currency.
func amount(minor int64, currency string) string {
	d := decimals(currency)
	unit := int64(math.Pow10(d))
	text := number(minor / unit)
	if minor < 0 && minor/unit == 0 {
		text = "−" + text
	}
	if d > 0 {
		text += fmt.Sprintf(".%0*d", d, max(minor%unit, -(minor%unit)))
	}
	return text
}

// groups lets a number break behind its commas alone, where it is too long for its card.
func groups(text string) template.HTML {
	return template.HTML(strings.ReplaceAll(template.HTMLEscapeString(text), ",", ",<wbr>")) //nolint:gosec // escaped
}

// amounts have commas between groups of three digits alone: elsewhere a comma may mean a point.
var amounts = regexp.MustCompile(`^(\d+|[1-9]\d{0,2}(?:,\d{3})+)(?:\.(\d*))?$`)

// minor reads an amount of money as people write it, in minor units.
func minor(text, currency string) (int64, bool) {
	read := amounts.FindStringSubmatch(strings.TrimSpace(text))
	d := decimals(currency)
	if read == nil || len(read[2]) > d {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.ReplaceAll(read[1], ",", "")+read[2]+strings.Repeat("0", d-len(read[2])), 10, 64)
	return n, err == nil
}

// inUnits writes seconds in a larger unit, of which they may be a part.
func inUnits(seconds *int64, unit time.Duration) string {
	return strconv.FormatFloat(math.Round(1000*float64(*seconds)/unit.Seconds())/1000, 'f', -1, 64)
}

// stamp writes a time in the reader's zone, to the second.
func stamp(t time.Time, zone *time.Location) string {
	return t.In(zone).Format("2 Jan 2006, 15:04:05 MST")
}

// typedLayout is how a browser writes a time that was typed.
const typedLayout = "2006-01-02T15:04"

// inputTime is a time as a field of the type datetime-local has it.
func inputTime(t *time.Time, zone *time.Location) string {
	if t == nil {
		return ""
	}
	return t.In(zone).Format(typedLayout)
}

// when writes how long ago a time is, or in how long, with the time itself behind it. Without a now it writes the time.
func when(at any, zone *time.Location, now time.Time) template.HTML {
	var t time.Time
	switch at := at.(type) {
	case time.Time:
		t = at
	case *time.Time:
		if at == nil {
			return "–"
		}
		t = *at
	}
	ago := now.Sub(t)
	text := seconds(ago.Abs())
	switch {
	case now.IsZero():
		text = t.In(zone).Format("2 Jan 2006, 15:04")
	case ago.Abs() > 7*24*time.Hour:
		text = t.In(zone).Format("2 Jan 2006")
	case ago >= 0:
		text = say("times.ago", text)
	default:
		text = say("times.in", seconds(rounded(-ago)))
	}
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s">%s</time>`, //nolint:gosec // times alone
		t.UTC().Format(time.RFC3339Nano), template.HTMLEscapeString(stamp(t, zone)), text))
}

// rounded is a duration to the nearest of its largest unit, so that what was asked for in
// 3 days is in 3 days a second later.
func rounded(d time.Duration) time.Duration {
	for _, unit := range []time.Duration{24 * time.Hour, time.Hour, time.Minute} {
		if near := d.Round(unit); near >= unit && (unit < 24*time.Hour || near >= 48*time.Hour) {
			return near
		}
	}
	return d
}

// hour writes a time of which only the hour is known.
func hour(at *time.Time, zone *time.Location, now time.Time) template.HTML {
	if at != nil && !now.IsZero() && now.Sub(*at) < time.Hour {
		return template.HTML(say("developers.this_hour")) //nolint:gosec // our own words
	}
	return when(at, zone, now)
}

// means says in words what a scope or a type of event is.
func means(name any) string {
	return map[string]string{
		string(kindred.KeyScopeRead):     say("developers.means_read"),
		string(kindred.KeyScopeWrite):    say("developers.means_write"),
		string(kindred.KeyScopeWebhooks): say("developers.means_webhooks"),
		string(kindred.KeyScopeErase):    say("developers.means_erase"),
		string(kindred.KeyScopeAdmin):    say("developers.means_admin"),

		string(kindred.EventTypeMatchComputed):           say("webhooks.means_match"),
		string(kindred.EventTypeClusteringCompleted):     say("webhooks.means_run"),
		string(kindred.EventTypeClusteringFailed):        say("webhooks.means_run_failed"),
		string(kindred.EventTypeCampaignBudgetExhausted): say("webhooks.means_budget"),
		string(kindred.EventTypeClusterDriftDetected):    say("webhooks.means_drift"),
	}[fmt.Sprint(name)]
}

// seconds writes a duration in its largest unit.
func seconds(d time.Duration) string {
	switch {
	case d < time.Minute:
		return say("times.s", int(math.Ceil(d.Seconds())))
	case d < time.Hour:
		return say("times.min", int(d.Minutes()))
	case d < 48*time.Hour:
		return say("times.h", int(d.Hours()))
	}
	return say("times.days", int(d.Hours()/24))
}

// millis writes a time that something took.
func millis(ms float64) string {
	if ms < 10 {
		return say("times.ms", strconv.FormatFloat(ms, 'f', 1, 64))
	}
	return say("times.ms", number(math.Round(ms)))
}

// statusTone says whether a status of HTTP is good news.
func statusTone(status int64) string {
	switch {
	case status >= 500:
		return "bad"
	case status >= 400:
		return "warn"
	}
	return "good"
}

// tones say whether a state is good news.
var tones = map[string]string{
	"active": "good", "running": "good", "completed": "good", "delivered": "good", "granted": "good", "done": "good", "ready": "good", "none": "good", "ok": "good",
	"paused": "warn", "pending": "warn", "scheduled": "warn", "moderate": "warn", "waiting": "warn", "building": "warn", "rebuilding": "warn", "blocked": "bad", "replacing": "warn",
	"failed": "bad", "dropped": "bad", "major": "bad", "quarantined": "bad", "revoked": "bad", "withdrawn": "bad",
}

func tone(state any) string { return tones[fmt.Sprint(state)] }

func indented(v any) string {
	if text, ok := v.(string); ok {
		var parsed any
		if json.Unmarshal([]byte(text), &parsed) != nil {
			return text
		}
		v = parsed
	}
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false) // the page does, where it is shown
	encoder.SetIndent("", "  ")
	if encoder.Encode(v) != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// plainValue writes a value of a trait as people read it.
func plainValue(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case []any:
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = plainValue(v[i])
		}
		return strings.Join(parts, ", ")
	case map[string]any:
		if isPlace(v) {
			return plainValue([]any{v["lat"], v["lon"]})
		}
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	}
	out, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(out)
}

// valueOf is a trait as people read it, false and 0 too; "": it is not there.
func valueOf(traits map[string]any, path string) string {
	if v, there := traits[path]; there {
		return plainValue(v)
	}
	return ""
}

func deref(v any) any {
	switch v := v.(type) {
	case *string:
		if v != nil {
			return *v
		}
		return ""
	case *int64:
		if v != nil {
			return *v
		}
		return int64(0)
	case *float64:
		if v != nil {
			return *v
		}
		return 0.0
	case *bool:
		return v != nil && *v
	}
	return v
}

// texts are the members of a list as text.
func texts(list any) []string {
	raw, err := json.Marshal(list)
	if err != nil {
		return nil
	}
	var all []string
	if json.Unmarshal(raw, &all) != nil {
		return nil
	}
	return all
}

// hashShown is how much of a hash, in the name of a stream, tells it apart.
const hashShown = 16

// short is the part of an id that tells it apart.
func short(id string) string {
	kind, rest, found := strings.Cut(id, "_")
	if !found || len(rest) < 10 {
		return id
	}
	return kind + "_" + rest[:4] + "…" + rest[len(rest)-4:]
}

// shortStream is the name of a stream beside others of the client, with short ids and without the client's.
func shortStream(stream, client string) string {
	parts := slices.DeleteFunc(strings.Split(stream, "-"), func(part string) bool { return part == client })
	for i, part := range parts {
		if parts[i] = short(part); len(parts[i]) > hashShown {
			parts[i] = part[:hashShown] + "…"
		}
	}
	return strings.Join(parts, "-")
}

func score(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }
