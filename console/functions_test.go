package console

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	kindred "kindred/sdk/go"
)

func TestAStreamIsShortBesideOthersOfTheClient(t *testing.T) {
	t.Parallel()
	const client = "cli_59imdcjf890r77rp2rr9lubi40"
	for stream, is := range map[string]string{
		"client-" + client: "client",
		"impressions-" + client + "-cam_00hb9dnqr65dvbr4id0skjim98-usr_j56osf3soi2spfe4po8kcb6q08": "impressions-cam_00hb…im98-usr_j56o…6q08",
		"email-f0f98e6323d1f9106b7cbe719718ecfbecafb2c4b90c176f2969ecf674de17106a":                 "email-f0f98e6323d1f910…",
		"deliveries-" + client + "-whk_nibug1dftu6si7ine7pk7bc04c-20261127":                        "deliveries-whk_nibu…c04c-20261127",
		"user-cli_00000000000000000000000000-usr_j56osf3soi2spfe4po8kcb6q08":                       "user-cli_0000…0000-usr_j56o…6q08",
	} {
		if got := shortStream(stream, client); got != is {
			t.Errorf("%s is shown as %s, not %s", stream, got, is)
		}
	}
}

func TestThePathOfATraitIsBrokenBetweenItsWords(t *testing.T) {
	if got := brokenAtWords(`hours_per.week<b>`); got != "hours_<wbr>per.<wbr>week&lt;b&gt;" {
		t.Errorf("%s", got)
	}
}

func TestAPlaceIsItsLatitudeAndLongitude(t *testing.T) {
	for want, value := range map[string]any{
		"38.7568, -9.2822": map[string]any{"lat": 38.7568, "lon": -9.2822},
		`{"lat":1}`:        map[string]any{"lat": 1.0},
	} {
		if got := plainValue(value); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestANumberOfDaysThatIsTooLargeForSecondsIsRefused(t *testing.T) {
	t.Parallel()
	for typed, wrong := range map[string]bool{"1000000000000": false, "213503982334602": true, "-213503982334602": true, "9223372036854775808": true, "a": true} {
		p := &page{r: httptest.NewRequest(http.MethodPost, "/console/", strings.NewReader("days="+typed))}
		p.r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if err := p.r.ParseForm(); err != nil {
			t.Fatal(err)
		}
		if _, err := p.whole("days"); (err != nil) != wrong {
			t.Errorf("%s: %v", typed, err)
		}
	}
}

func TestDriftIsToldInWords(t *testing.T) {
	age, changed := "age", "people_changed"
	by := []kindred.DriftComparison{{Baseline: "previous", ShareBefore: .2, ShareAfter: .3}, {Baseline: "first", ShareBefore: .4, ShareAfter: .3}}
	for said, c := range map[string]kindred.DriftCause{
		"its share of all users rose from 20\u00a0% to 30\u00a0% since the run before":       {Kind: "size", Baseline: "previous", Amount: .5},
		"its share of all users fell from 40\u00a0% to 30\u00a0% since the first run":        {Kind: "size", Baseline: "first", Amount: .25},
		"age fell by 0.40 standard deviations since the run before; the people have changed": {Kind: "trait", Baseline: "previous", Trait: &age, Effect: new(-.4), Amount: .2, Origin: &changed},
		"age is spread otherwise, by 0.90 since the run before":                              {Kind: "trait", Baseline: "previous", Trait: &age, Effect: new(.02), Amount: .9},
		"those without age fell from 12\u00a0% to 2.0\u00a0% since the first run":            {Kind: "trait", Baseline: "first", Trait: &age, Effect: new(-.2), Level: new("(missing)"), ShareBefore: new(.12), ShareAfter: new(.02), Amount: .2},
		"those without age rose from 2.0\u00a0% to 12\u00a0% since the first run":            {Kind: "trait", Baseline: "first", Trait: &age, Effect: new(.2), Level: new("(missing)"), ShareBefore: new(.02), ShareAfter: new(.12), Amount: .2},
	} {
		if got := moved(c, by); got != said {
			t.Errorf("%q, not %q", got, said)
		}
	}
}
