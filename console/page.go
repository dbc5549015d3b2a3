package console

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	kindred "kindred/sdk/go"
)

// page is one request for a page by somebody who is signed in.
type page struct {
	home bool // of the client that was signed in to, whatever sandbox is open
	gone bool // the sandbox that was open is not there any more: this is of the client beside it
	*Console
	w     http.ResponseWriter
	r     *http.Request
	calls *calls
	conn  *connection // of the browser
	who   identity
	token string
	api   *kindred.Client

	refused          *Problem // of the form that this page answers
	changed, granted string   // the layer whose form this is
	about            string   // what a form that is refused was to end, or to make and is there
}

// view is what the layout shows of a page.
type view struct {
	Title   string
	Section string // of the rail that is current
	Who     identity
	Problem *Problem
	About   string // what a form that was refused was to end, or to make and is there
	Notice  string // what was done
	Form    url.Values
	Key     string // of the forms of this page: sent twice, it takes effect once
	Calls   []Call
	Zone    *time.Location
	Now     time.Time // zero where times are written out
	Path    string
	Data    any
}

// Problem is what was refused, and where.
type Problem struct {
	Status     int
	Title      string
	Detail     string
	RequestID  string
	Fields     []kindred.FieldError
	RetryAfter time.Duration
	Code       kindred.ProblemCode

	Again url.Values // the form that was refused only for now: sent again, it takes effect once
	Anew  bool       // who sent it signs in first
	Look  bool       // the page that was asked for may be there by now
	Done  *progress  // of what the form asked for, where that is under way
}

// progress is how much of some work is done.
type progress struct{ Done, Total int64 }

// Share is the part of the work that is done, 0 to 1.
func (p progress) Share() float64 { return min(float64(p.Done)/float64(max(p.Total, 1)), 1) }

// Field is what is wrong with a field, by the end of its pointer, or with a part of it, such as a trait.
func (p *Problem) Field(name string) string {
	if p == nil {
		return ""
	}
	for _, f := range p.Fields {
		if fieldOf(f) == name {
			return f.Detail
		}
		if part, inside := strings.CutPrefix(f.Pointer, "/"+name+"/"); inside {
			return part + " " + f.Detail
		}
	}
	return ""
}

// fieldOf is the field that a pointer ends with, without its place in a list.
func fieldOf(f kindred.FieldError) string {
	pointer := strings.TrimRight(f.Pointer, "/0123456789")
	return pointer[strings.LastIndexByte(pointer, '/')+1:]
}

// labels are what forms call the fields of the API.
var labels = map[string]string{
	"name": say("common.name"), "company_name": say("common.company"), "email": say("common.e_mail"), "password": say("common.password"), "role": say("settings.role"),
	"budget_minor": say("common.budget"), "currency": say("parts.currency"), "starts_at": say("parts.starts"), "ends_at": say("common.ends"),
	"frequency_cap": say("parts.shown_to_one_user"), "frequency_window_seconds": say("parts.within_days"), "segments": say("parts.audience"), "cluster_ids": say("parts.audience"),
	"external_id": say("users.your_own_id"), "find": say("users.by_id"), "stream": say("common.stream"), "actor": say("history.by_whom"), "traits": say("common.traits"), "weight": say("traits.weight"), "type": say("traits.type"), "trait_paths": say("settings.traits_that_it_may"),
	"rule": say("common.rule"), "filter": say("common.rule"), "match_rule": say("common.rule"), "min_score": say("settings.from_this_score"), "source": say("settings.where_they_said_so"),
	"url": say("common.url"), "secret": say("webhooks.secret"), "event_types": say("common.events"), "max_per_second": say("webhook.attempts_a_second_at"),
	"disable_after_seconds": say("webhook.pause_after_hours_of"), "headers": say("webhook.headers_of_your_own"), "got_headers": say("webhook.its_headers"), "body": say("webhook.its_body"), "scopes": say("developers.it_may"), "expires_in": say("settings.days_until"),
	"at": say("history_at.on"), "from": say("history.from"), "to": say("common.before"), "current": say("account.password_now"), "new": say("account.new_password"), "/k": say("clusters.how_many_groups"), "/settings/automatic_matching/k": say("settings.at_most"),
}

// label is what the form of a page calls a field, and the part of it that is wrong. What says by itself what is wrong needs
// none.
func label(f kindred.FieldError) string {
	text := cmp.Or(labels[fieldOf(f)], labels[f.Pointer])
	if field, part, inside := strings.Cut(strings.TrimPrefix(f.Pointer, "/"), "/"); text == "" && inside && labels[field] != "" {
		text = labels[field] + ", " + part
	}
	if text != "" || unicode.IsUpper([]rune(f.Detail + " ")[0]) {
		return text
	}
	return f.Pointer
}

// titles say in words what a status means to a reader of the console.
var titles = map[int]string{
	http.StatusForbidden:             say("problem.your_role_does_not"),
	http.StatusNotFound:              say("problem.this_does_not_exist"),
	http.StatusGone:                  say("problem.this_is_not_there"),
	http.StatusConflict:              say("problem.this_cannot_be_done"),
	http.StatusRequestEntityTooLarge: say("problem.what_was_sent_is"),
	http.StatusPreconditionFailed:    say("problem.it_has_changed_in"),
	http.StatusTooManyRequests:       say("problem.too_much_at_once"),
	http.StatusServiceUnavailable:    say("problem.the_service_cannot_answer"),
	http.StatusUnprocessableEntity:   say("problem.some_of_this_is"),
	http.StatusBadRequest:            say("problem.this_cannot_be_read"),
}

// problemOf says in words what an error of the API means.
func problemOf(err error) *Problem {
	var refused *kindred.Error
	if !errors.As(err, &refused) {
		return &Problem{Status: http.StatusBadGateway, Title: say("problem.the_service_did_not"), Detail: say("problem.please_try_again_in")}
	}
	title := titles[refused.Status]
	if title == "" {
		title = say("problem.this_failed")
	}
	detail := refused.Detail
	if len(refused.Errors) > 0 && refused.Code == kindred.CodeInvalid { // which says no more than the title
		detail = say("problem.please_correct_what_is")
	}
	return &Problem{
		Status: refused.Status, Title: title, Detail: detail, RequestID: refused.RequestID,
		Fields: asLabelled(refused.Errors), RetryAfter: refused.RetryAfter, Code: refused.Code,
	}
}

// apiNames are those of fields of the API in what it says of another field.
var apiNames = regexp.MustCompile(`\b[a-z]+(?:_[a-z]+)+\b`)

// asLabelled are mistakes that name other fields as forms do.
func asLabelled(wrong []kindred.FieldError) []kindred.FieldError {
	wrong = slices.Clone(wrong)
	for i := range wrong {
		wrong[i].Detail = apiNames.ReplaceAllStringFunc(wrong[i].Detail, func(name string) string {
			if text := labels[name]; text != "" {
				return "“" + text + "”"
			}
			return name
		})
	}
	return wrong
}

// handle serves a page to those who are signed in; others sign in first. What a page
// returns as an error is shown as one.
func (s *Console) handle(do func(*page) error) http.HandlerFunc {
	made := func(w http.ResponseWriter, r *http.Request) {
		p, err := s.serve(w, r, do) //nolint:contextcheck // a page has its request's
		if err != nil && p.token != "" && problemOf(err).Status == http.StatusUnauthorized {
			// A new password has ended the token, or a sandbox that was deleted: the session may go on. The call that was refused
			// took no effect.
			p, err = s.serve(w, r, do) //nolint:contextcheck // as above
		}
		if err != nil {
			p.fail(err)
		}
	}
	formed := s.withForm(largestForm, made)
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && !strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/form-data") {
			formed(w, r)
			return
		}
		made(w, r)
	}
}

// withForm serves a page once its form is read. A large one is held in memory several times over, until the page is sent, so
// that only so many may come at a time.
func (s *Console) withForm(most int64, serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, most)
		if err := s.Forms(w, r, func() {
			if err := r.ParseForm(); err != nil || !carried(r.Form) {
				s.unreadable(w, r)
				return
			}
			serve(w, r)
		}); err != nil {
			_, _ = io.CopyN(io.Discard, r.Body, most) // else the browser is cut off while it sends
			w.Header().Set("Retry-After", "1")
			s.refuse(w, r, http.StatusServiceUnavailable, titles[http.StatusServiceUnavailable], say("problem.please_try_again_in"))
		}
	}
}

// carried says whether calls to the API can carry a form: bodies are UTF-8, and headers, for which key and etag are,
// printable ASCII. Browsers send our pages' forms so.
func carried(form url.Values) bool {
	for name, values := range form {
		for _, value := range values {
			unprintable := strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' })
			if !utf8.ValidString(value) || unprintable && (name == "key" || name == "etag") {
				return false
			}
		}
	}
	return true
}

// serve finds who asks for a page, and makes it.
func (s *Console) serve(w http.ResponseWriter, r *http.Request, do func(*page) error) (*page, error) {
	p := &page{Console: s, w: w, r: r, calls: &calls{}, conn: &connection{of: http.NewResponseController(w)}}
	defer p.conn.end()
	err := p.identify()
	if err == nil {
		err = p.ofThisClient(p.form("key"))
	}
	if err == nil {
		err = do(p)
	}
	return p, err
}

// errOfAnother: a form was shown for another client than the one that its sender is in by now.
var errOfAnother = errors.New("the form is of another client")

// errGone: the sandbox that a form is of was deleted.
var errGone = errors.New("the sandbox of the form was deleted")

// ofThisClient refuses a form whose key is of another client, or of another sandbox: in another tab its sender has signed
// in elsewhere, or left the sandbox. The paths of most forms name what they change by an id, and that no other client has.
func (p *page) ofThisClient(key string) error {
	switch client, _, found := strings.Cut(key, "."); {
	case found && client == p.who.Client:
		return nil
	case p.gone && p.r.Method == http.MethodPost && p.r.URL.Path != Path+"sign-out":
		return errGone
	case found:
		return errOfAnother
	}
	return nil
}

// fail shows an error in the place of a page. Who is signed in no more signs in again; what
// was typed is kept, but for a form of a sandbox, which would be sent to what is live.
func (p *page) fail(err error) {
	what := problemOf(err)
	switch {
	case errors.Is(err, errGone), p.gone && what.Status == http.StatusNotFound:
		what = &Problem{Status: http.StatusGone, Title: say("problem.the_sandbox_was_deleted"), Detail: say("problem.what_was_in_it", p.who.ClientName)}
	case errors.Is(err, errOfAnother):
		what = &Problem{Status: http.StatusConflict, Title: say("problem.this_form_is_of"), Detail: say("problem.go_back_there"), Again: p.typed()}
	}
	if what.Status != http.StatusUnauthorized && !errors.Is(err, errSignedOut) {
		p.problem(what)
		return
	}
	again := p.typed()
	if _, err := p.r.Cookie(sandboxCookie); err == nil {
		again = nil
	}
	p.signOut()
	if len(again) == 0 {
		p.signIn()
		return
	}
	p.who = identity{}
	p.problem(&Problem{
		Status: http.StatusUnauthorized, Title: say("problem.your_session_has_ended"), Detail: say("problem.nothing_is_lost"),
		Again: again, Anew: true,
	})
}

func (p *page) problem(what *Problem) {
	switch what.Status {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		what.Again = p.typed()
		fallthrough
	case http.StatusBadGateway:
		what.Look = p.r.Method == http.MethodGet
	}
	if what.Code == kindred.CodeUnavailable && what.RetryAfter > 0 { // the title, and when to try again, say all of it
		what.Detail = ""
	}
	if what.RetryAfter > 0 {
		p.w.Header().Set("Retry-After", strconv.Itoa(int(what.RetryAfter/time.Second)))
	}
	p.write(what.Status, "problem", view{Title: what.Title, Problem: what})
}

// typed is the form that this page answers, to be sent again as it is; nil where there is none,
// or one with a file or a password.
func (p *page) typed() url.Values {
	if slices.ContainsFunc([]string{"password", "current", "new"}, p.r.PostForm.Has) {
		return nil
	}
	return p.r.PostForm
}

// show answers with a page.
func (p *page) show(name, section, title string, data any) error {
	notice := notices[p.r.URL.Query().Get("done")]
	if p.gone {
		notice = say("problem.you_are_out_of_it", p.who.ClientName)
	}
	p.write(http.StatusOK, name, view{Title: title, Section: section, Notice: notice, Data: data})
	return nil
}

// again shows a page with what was refused of its form, which keeps what was typed.
func (p *page) again(refused error, show func() error) error {
	what := problemOf(refused)
	if what.Status == http.StatusUnauthorized || what.Status >= http.StatusInternalServerError {
		return refused
	}
	if what.Code == kindred.CodeStale && what.Status == http.StatusPreconditionFailed {
		p.r.Form.Del("etag") // to send it once more is to have seen what was changed
		what = problemOf(invalid("etag", say("problem.changed_since")))
	}
	if what.Code == kindred.CodeIdempotencyKeyReused || what.Code == kindred.CodeSecretAlreadyShown {
		p.r.Form.Del("key") // the page names its form anew, so that it can be sent once more
	}
	if what.Code == kindred.CodeIdempotencyKeyReused {
		what.Title, what.Detail = say("problem.this_form_was_sent"), say("problem.to_send_it_once")
	}
	p.refused = what
	return show()
}

// etag is of the state that the form of a page changes: as it was read now, or as it was
// when the form that came back was first shown.
func (p *page) etag(read kindred.Answer) string { return cmp.Or(p.form("etag"), read.ETag) }

// asSeen refuses a change of what is no longer as its form has shown it, where it says how.
func (p *page) asSeen() []kindred.Option {
	if etag := p.form("etag"); etag != "" {
		return []kindred.Option{kindred.WithIfMatch(etag)}
	}
	return nil
}

func (p *page) write(status int, name string, v view) {
	v.Who, v.Calls, v.Zone, v.Path = p.who, p.calls.made, zoneOf(p.r), p.r.URL.RequestURI()
	if !p.who.Sandbox { // whose clock dates what is recorded, and the service's the rest
		v.Now = p.Now()
	}
	if v.Problem == nil {
		v.Problem = p.refused
	}
	if v.Problem != nil {
		status = v.Problem.Status
	}
	v.About, v.Form = p.about, p.r.Form
	if v.Form == nil {
		v.Form = p.r.URL.Query()
	}
	if v.Key = v.Form.Get("key"); v.Key == "" || v.Problem == nil {
		v.Key = p.who.Client + "." + p.NewKey()
	}
	p.render(p.w, p.r, status, name, v)
}

// render draws a page whole before a byte of it is sent.
func (s *Console) render(w http.ResponseWriter, r *http.Request, status int, name string, v view) {
	var out bytes.Buffer
	if err := s.pages[name].ExecuteTemplate(&out, "layout", v); err != nil {
		s.Logger.ErrorContext(r.Context(), "a page cannot be drawn", "page", name, "error", err)
		http.Error(w, say("problem.this_page_cannot_be"), http.StatusInternalServerError)
		return
	}
	text := legible(out.Bytes())
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(text) // the reader has gone
	}
}

// refuse answers with a page for an error that needs nobody to be signed in.
func (s *Console) refuse(w http.ResponseWriter, r *http.Request, status int, title, detail string) {
	s.render(w, r, status, "problem", view{
		Title: title, Problem: &Problem{Status: status, Title: title, Detail: detail}, Zone: time.UTC, Now: s.Now(), Path: r.URL.Path,
	})
}

// unreadable refuses a form.
func (s *Console) unreadable(w http.ResponseWriter, r *http.Request) {
	s.refuse(w, r, http.StatusBadRequest, say("problem.this_form_cannot_be"), say("problem.it_is_too_large"))
}

// done leads to a page that says what was done, so that reloading it repeats nothing.
func (p *page) done(at, notice string) error {
	if notices[notice] == "" {
		return fmt.Errorf("console: no notice is named %q", notice)
	}
	and := "?"
	if strings.Contains(at, "?") {
		and = "&"
	}
	http.Redirect(p.w, p.r, at+and+"done="+notice, http.StatusSeeOther)
	return nil
}

// form is a value that was sent, without the spaces around it.
func (p *page) form(name string) string { return strings.TrimSpace(p.r.Form.Get(name)) }

// once names a POST to the API by the form that it comes from.
func (p *page) once() kindred.Option { return kindred.WithIdempotencyKey("console-" + p.form("key")) }

// optional is a value that may be left out.
func (p *page) optional(name string) *string {
	if text := p.form(name); text != "" {
		return &text
	}
	return nil
}

// whole reads a whole number of a form; nil where none was given.
func (p *page) whole(name string) (*int64, error) {
	text := p.form(name)
	if text == "" {
		return nil, nil //nolint:nilnil // nothing was given
	}
	n, err := strconv.ParseInt(withoutCommas(text), 10, 64)
	const most = 1e12 // days of which are seconds still, which the API bounds
	if err != nil || n < -most || n > most {
		return nil, invalid(name, say("problem.this_must_be_a"))
	}
	return &n, nil
}

// decimal reads a number that JSON can write.
func decimal(text string) (n float64, ok bool) {
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil && !math.IsNaN(n) && !math.IsInf(n, 0)
}

// invalid is what the API answers to a field that is wrong, for what it never sees.
func invalid(field, detail string) error {
	return &kindred.Error{
		Status: http.StatusUnprocessableEntity, Code: "invalid", Detail: say("problem.please_correct_what_is"),
		Errors: []kindred.FieldError{{Pointer: "/" + field, Detail: detail}},
	}
}

// notices say what was done, by the name that stands in the address.
var notices = map[string]string{
	"saved": say("notices.saved"), "created": say("notices.created"), "removed": say("notices.removed"), "erased": say("notices.erased_for_good"), "matched": say("notices.matched"), "started": say("notices.started"),
	"paused": say("notices.paused"), "running": say("notices.running"), "cancelled": say("notices.cancelled"), "revoked": say("notices.revoked_it_is_out"),
	"tested": say("notices.a_test_delivery_is"), "redelivered": say("notices.it_is_sent_again"), "recovered": say("notices.what_was_dropped_is"), "rotated": say("notices.a_new_key_pair"),
	"rebuilding": say("notices.the_read_model_is"), "granted": say("notices.consent_recorded"),
	"withdrawn": say("notices.consent_withdrawn"), "retired": say("notices.retired"), "ended": say("notices.the_session_has_ended"), "changed": say("notices.your_password_is_changed"), "imported": say("notices.imported"),
	"active": say("notices.active_again"), "left": say("notices.you_are_signed_out"), "untaken": say("notices.what_you_sent_was"),
}

// confirmed fails where a form that ends something for good does not hold its name, with the
// mistake to be shown at that form.
func (p *page) confirmed(id, name, mistake string) error {
	shown := func(text string) string { return strings.Join(strings.Fields(legibleText(text)), " ") } // as a page runs spaces together
	if shown(p.form("confirm")) == shown(name) {
		return nil
	}
	p.about = id
	return invalid("confirm", mistake)
}

// confirmedIn is confirmed for one of a list. Where it is not there, the API says so when it is
// to be ended.
func confirmedIn[T any](p *page, list func(func(T, error) bool), id string, of func(T) (id, name string), mistake string) error {
	for one, err := range list {
		if err != nil {
			return err
		}
		if found, name := of(one); found == id {
			return p.confirmed(id, name, mistake)
		}
	}
	return nil
}

// collect takes a list up to a bound, and says whether there was more.
func collect[T any](list func(func(T, error) bool), most int) (found []T, more bool, err error) {
	for one, failed := range list {
		if failed != nil {
			return nil, false, failed
		}
		if len(found) == most {
			return found, true, nil
		}
		found = append(found, one)
	}
	return found, false, nil
}

// latest takes the last of a list that begins with the oldest, up to a bound, in its order.
func latest[T any](list func(func(T, error) bool), most int) (found []T, err error) {
	for one, failed := range list {
		if failed != nil {
			return nil, failed
		}
		if len(found) == 2*most {
			found = slices.Delete(found, 0, most)
		}
		found = append(found, one)
	}
	return found[max(0, len(found)-most):], nil
}

// there is what was found; nil where there is no such thing any more.
func there[T any](found *T, err error) (*T, error) {
	if err != nil && problemOf(err).Status == http.StatusNotFound {
		return nil, nil //nolint:nilnil // the page says so
	}
	return found, err
}

// has says whether the token may do something; admin implies read, write and webhooks.
func (i identity) has(scope string) bool {
	return slices.Contains(i.Scopes, scope) || slices.Contains(i.Scopes, "admin") && slices.Contains([]string{"read", "write", "webhooks"}, scope)
}

// Write says whether a page shows what changes things.
func (i identity) Write() bool { return i.has("write") }

// Hooks says whether a page shows what changes endpoints.
func (i identity) Hooks() bool { return i.has("webhooks") }

// Owner says whether a page shows what only owners may do: add, remove and sign out owners.
func (i identity) Owner() bool { return i.Role == string(kindred.RoleOwner) }

// Admin says whether a page shows what only admins may do.
func (i identity) Admin() bool { return i.has("admin") }
