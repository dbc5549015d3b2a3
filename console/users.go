package console

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	kindred "kindred/sdk/go"
)

// pageOf is how many rows of a list a page shows.
// limit: edge | rows of a list in the console | {pageOf}, then the next page; {allOf} of what is shown whole
const pageOf = 50

// allOf bounds lists that a page shows whole, such as layers.
const allOf = 200

// givenID is an id that the service gives users. One of the client's own may begin like it.
var givenID = regexp.MustCompile(`^usr_[0-9a-v]{26}$`)

// typedUser is how the API is asked for a user whose id was typed.
func typedUser(who string) string {
	if givenID.MatchString(who) || strings.HasPrefix(who, "ext:") {
		return who
	}
	return "ext:" + who
}

func (p *page) users() error { return p.showUsers(nil) }

// showUsers lists users, and what is in a file that was chosen, if one was.
func (p *page) showUsers(preview *looked) error {
	asked := p.r.URL.Query()
	params := kindred.ListUsersParams{Limit: new(int64(pageOf)), Cursor: asked.Get("cursor")}
	find := strings.TrimSpace(asked.Get("find"))
	if givenID.MatchString(find) {
		params.IDs = []string{find}
	} else {
		params.ExternalID = find
	}
	schema, err := p.schema()
	if err != nil {
		return err
	}
	build, built, err := p.build(Path+"users", "filter", schema)
	if err != nil {
		return err
	}
	params.Filter = cmp.Or(built, strings.TrimSpace(asked.Get("filter")))
	found := &kindred.UserList{}
	if p.refused.Field("built") == "" {
		found, err = p.api.Users.ListPage(p.r.Context(), params)
	}
	if err != nil {
		refused := problemOf(err)
		if wrong := refused.Field("external_id"); wrong != "" {
			refused = problemOf(invalid("find", wrong))
		}
		if refused.Field("find") == "" && refused.Field("filter") == "" {
			return err
		}
		p.refused, found = refused, &kindred.UserList{}
	}
	if built != "" {
		asked = url.Values{"filter": {built}}
	}
	var named *kindred.RulePreview
	count := later("users", asked, "count")
	if params.Filter != "" && p.refused == nil && count == "" {
		if named, err = p.api.Segments.PreviewRule(p.r.Context(), kindred.RuleToPreview{Rule: params.Filter}); err != nil {
			if _, err = notNow(err); err != nil {
				return err
			}
			named = nil
		}
	}
	counted, err := p.api.Overview.GetStatistics(p.r.Context(), kindred.GetStatisticsParams{Metric: kindred.StatisticMetricUsers, Interval: kindred.StatisticIntervalHour})
	if err != nil {
		if _, err = notNow(err); err != nil {
			return err
		}
		counted = &kindred.Statistics{}
	}
	return p.show("users", "Users", say("common.users"), map[string]any{
		"Users": found.Data, "Find": find, "Filter": params.Filter, "Total": counted.Total.Users, "Columns": columns(found.Data, schema),
		"Next": next("users", asked, found.NextCursor), "Start": asked.Get("cursor") == "", "Preview": preview, "Build": build, "Named": named, "Later": count,
	})
}

// downloadUsers passes on all users, or those whom a rule names, as CSV.
func (p *page) downloadUsers() error {
	target := "/api/v1/users"
	if rule := strings.TrimSpace(p.r.URL.Query().Get("filter")); rule != "" {
		target += "?" + url.Values{"filter": {rule}}.Encode()
	}
	return p.download(target, "text/csv", "users.csv")
}

// later is the address of a page with a part that takes long, such as a map: without the
// part the page is there at once, and its script asks for the part. "": it is asked for.
func later(at string, asked url.Values, part string) string {
	if asked.Get(part) != "" {
		return ""
	}
	asked = maps.Clone(asked)
	asked.Set(part, "1")
	asked.Del("done")
	return Path + at + "?" + asked.Encode()
}

// schema is what was learnt of traits; nil where that is a moment later.
func (p *page) schema() (*kindred.TraitSchema, error) {
	schema, err := p.api.Traits.Get(p.r.Context())
	if err != nil && problemOf(err).Status == http.StatusServiceUnavailable {
		return nil, nil //nolint:nilnil // it is not known yet
	}
	return schema, err
}

// next is the address of the page after this one.
func next(at string, asked url.Values, cursor *string) string {
	if cursor == nil {
		return ""
	}
	asked = maps.Clone(asked)
	asked.Set("cursor", *cursor)
	asked.Del("done")
	return Path + at + "?" + asked.Encode()
}

// columns are the traits that most users of a page have, at most four, and none that is sensitive, in it or
// below it: before traits were learnt that is not known, and there are none.
func columns(users []kindred.User, schema *kindred.TraitSchema) []string {
	if schema == nil {
		return nil
	}
	count := map[string]int{}
	for _, u := range users {
		for name, v := range u.Traits {
			if _, deep := v.(map[string]any); !deep {
				count[name]++
			}
		}
	}
	for _, t := range schema.Traits {
		if t.Sensitive {
			top, _, _ := strings.Cut(t.Path, ".")
			delete(count, t.Path)
			delete(count, top)
		}
	}
	names := slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		return cmp.Or(count[b]-count[a], strings.Compare(a, b))
	})
	return names[:min(len(names), 4)]
}

func (p *page) createUser() error {
	traits, err := p.typedTraits()
	if err != nil {
		return p.again(err, p.users)
	}
	user, err := p.api.Users.Create(p.r.Context(), kindred.NewUser{ExternalID: p.form("external_id"), Traits: traits}, p.once())
	if err != nil {
		if problemOf(err).Code == kindred.CodeUserExists {
			p.about, err = "ext:"+p.form("external_id"), invalid("external_id", say("users.there_is_one"))
		}
		return p.again(err, p.users)
	}
	return p.done(Path+"users/"+url.PathEscape(user.ID), "created")
}

// typedTraits reads the traits that were typed, as JSON.
func (p *page) typedTraits() (map[string]any, error) {
	text := p.form("traits")
	if text == "" {
		return map[string]any{}, nil
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	var traits kindred.Object // it keeps numbers that no float64 holds
	if err := decoder.Decode(&traits); err != nil || traits == nil {
		return nil, invalid("traits", say("users.this_must_be_a"))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, invalid("traits", say("users.there_is_something_behind"))
	}
	return traits, nil
}

// longestKey bounds what is read of the key of a form with a file, in bytes.
const longestKey = 255
