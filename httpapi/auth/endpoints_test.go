package auth

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/httpapi"
	"kindred/testkit"
)

const password = "correct horse"

// directory implements Accounts, KeyLookup and Sessions.
type directory struct {
	now      func() time.Time
	accounts []Account
	sessions map[[32]byte]SessionRecord
	keys     map[[32]byte]KeyRecord
	lookups  int
	err      error
	noteErr  error // of NoteUse and NoteSeen
	findErr  error // of a session
	used     []id.Key
	removed  string   // the method before which the member is removed
	logins   []string // the networks that members logged in from
}

func (d *directory) LoggedIn(_ context.Context, _ Account, network string) error {
	d.logins = append(d.logins, network)
	return d.stillThere("LoggedIn")
}

func (d *directory) stillThere(method string) error {
	if d.removed == method {
		return fault.New(fault.Missing, "account_unknown", "no such account")
	}
	return nil
}

func (d *directory) SetPassword(_ context.Context, who Account, hash string, keep id.Session) (kept SessionRecord, position string, err error) {
	account := &d.accounts[0]
	if account.PasswordChanges != who.PasswordChanges || d.removed == "SetPassword" {
		return kept, "", fault.New(fault.Missing, "account_unknown", "no such account")
	}
	account.PasswordHash, account.PasswordChanges = hash, who.PasswordChanges+1
	for hash, s := range d.sessions {
		if s.Session == keep {
			kept = s
		} else {
			delete(d.sessions, hash)
		}
	}
	return kept, "7", nil
}

func (d *directory) Open(_ context.Context, who Account, hash [32]byte) (SessionRecord, string, error) {
	s := SessionRecord{
		Session: id.Next[id.Session](id.Random(rand.Reader)), Client: who.Client, Member: who.Member,
		OpenedAt: d.now(), SeenAt: d.now(), ExpiresAt: d.now().Add(7 * 24 * time.Hour),
	}
	d.sessions[hash] = s
	return s, "7", d.stillThere("Open")
}

// sessionDirectory implements Sessions.
type sessionDirectory struct{ *directory }

func (d sessionDirectory) ByHash(_ context.Context, _ id.Client, _ id.Member, hash [32]byte) (SessionRecord, error) {
	d.lookups++
	s, found := d.sessions[hash]
	if !found {
		return s, fault.New(fault.Missing, "session_unknown", "no such session")
	}
	s.Over = d.now().Sub(s.SeenAt) >= 12*time.Hour || !d.now().Before(s.ExpiresAt)
	return s, errors.Join(d.err, d.findErr)
}

func (d sessionDirectory) NoteSeen(_ context.Context, s SessionRecord) error {
	s.SeenAt = d.now()
	for hash, known := range d.sessions {
		if known.Session == s.Session {
			d.sessions[hash] = s
		}
	}
	return d.noteErr
}

func (d *directory) NoteUse(_ context.Context, _ id.Client, key id.Key) error {
	d.used = append(d.used, key)
	return d.noteErr
}

func (d *directory) find(is func(Account) bool) (Account, error) {
	d.lookups++
	if d.err != nil {
		return Account{}, d.err
	}
	for _, account := range d.accounts {
		if is(account) {
			return account, nil
		}
	}
	return Account{}, fault.New(fault.Missing, "member_unknown", "no such member")
}

func (d *directory) ByEmail(_ context.Context, email string) (Account, error) {
	return d.find(func(a Account) bool { return strings.EqualFold(a.Email, strings.TrimSpace(email)) })
}

func (d *directory) ByMember(_ context.Context, client id.Client, member id.Member) (Account, error) {
	return d.find(func(a Account) bool { return a.Client == client && a.Member == member })
}

func (d *directory) ByHash(_ context.Context, hash [32]byte) (KeyRecord, error) {
	d.lookups++
	record, found := d.keys[hash]
	switch {
	case d.err != nil:
		return KeyRecord{}, d.err
	case !found:
		return KeyRecord{}, fault.New(fault.Missing, "api_key_unknown", "no such key")
	}
	return record, nil
}

type service struct {
	*fixture
	*directory
	endpoints *Endpoints
	metrics   *prometheus.Registry
	apiKey    string
}

func newService(t testing.TB) *service {
	t.Helper()
	s := &service{fixture: newFixture(t), directory: &directory{sessions: map[[32]byte]SessionRecord{}}, metrics: prometheus.NewRegistry()}
	s.now = s.Now
	passwords := NewPasswords(rand.Reader, Cost{MemoryKiB: 64, Passes: 1}) // these tests are not about guessing passwords
	hash, err := passwords.Hash(password)
	if err != nil {
		t.Fatal(err)
	}
	s.account.PasswordHash = hash
	if s.apiKey, err = Generate(rand.Reader, ""); err != nil {
		t.Fatal(err)
	}
	s.accounts = []Account{s.account}
	s.directory.keys = map[[32]byte]KeyRecord{Hash(s.apiKey): s.record}
	s.endpoints = New(Config{
		Issuer: s.issuer, Accounts: s.directory, Keys: s.directory, Sessions: sessionDirectory{s.directory}, Passwords: passwords, Metrics: s.metrics,
		Throttles: &Throttles{Pool: s.fixture.keys.Pool, Key: make([]byte, 32)},
	})
	return s
}

// Advance lets time pass, for the database too.
func (s *service) Advance(d time.Duration) {
	s.clock.Advance(d)
	if _, err := s.fixture.keys.Pool.Exec(context.Background(), `UPDATE throttles SET until = until - $1::interval`, d); err != nil {
		panic(err)
	}
}

func from(t testing.TB, address string) context.Context {
	t.Helper()
	return httpapi.With(t.Context(), httpapi.Principal{}, httpapi.Call{RemoteAddr: address})
}

func (s *service) exchangeKey(t testing.TB, key string) error {
	t.Helper()
	_, err := s.endpoints.ExchangeAPIKey(t.Context(), httpapi.ExchangeAPIKeyRequestObject{Body: &httpapi.ExchangeRequest{APIKey: key}})
	return err
}

func (s *service) logInFrom(t testing.TB, address, email, password string) error {
	t.Helper()
	_, err := s.endpoints.LogIn(from(t, address), httpapi.LogInRequestObject{Body: &httpapi.TokenRequest{Email: &email, Password: password}})
	return err
}

func hasKind(err error, kind fault.Kind) bool {
	f := fault.As(err)
	return f != nil && f.Kind == kind
}

func (s *service) count(t testing.TB, name, outcome string) float64 {
	t.Helper()
	families := testkit.Must(s.metrics.Gather())(t)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == name && metric.GetLabel()[0].GetValue() == outcome {
				return metric.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func TestAnAPIKeyIsExchanged(t *testing.T) {
	s := newService(t)
	answer := testkit.Must(s.endpoints.ExchangeAPIKey(t.Context(), httpapi.ExchangeAPIKeyRequestObject{Body: &httpapi.ExchangeRequest{APIKey: s.apiKey}}))(t)
	data := answer.(httpapi.ExchangeAPIKey200JSONResponse).Data
	if diff := cmp.Diff(httpapi.SessionToken{Token: data.Token, ExpiresIn: 900, Scopes: []string{"read", "write"}}, data); diff != "" {
		t.Error(diff)
	}
	principal, err := s.verifier.Authenticate(t.Context(), data.Token)
	if err != nil || principal.Key != s.record.Key {
		t.Errorf("the token stands for %+v, %v", principal, err)
	}
	if n := s.count(t, "kindred_exchanges_total", "ok"); n != 1 {
		t.Errorf("%v exchanges were counted", n)
	}
}

func TestAnAPIKeyGivesTokensUntilItExpires(t *testing.T) {
	s := newService(t)
	record := s.record
	record.Expires = s.Now().Add(10 * time.Minute)
	s.directory.keys[Hash(s.apiKey)] = record
	answer := testkit.Must(s.endpoints.ExchangeAPIKey(t.Context(), httpapi.ExchangeAPIKeyRequestObject{Body: &httpapi.ExchangeRequest{APIKey: s.apiKey}}))(t)
	if n := answer.(httpapi.ExchangeAPIKey200JSONResponse).Data.ExpiresIn; n > 600 {
		t.Errorf("a token of a key that expires in 600 s lives for %d s", n)
	}
	s.Advance(10*time.Minute - leeway - time.Millisecond)
	if err := s.exchangeKey(t, s.apiKey); err != nil {
		t.Errorf("before its end: %v", err)
	}
	s.Advance(time.Millisecond)
	if err := s.exchangeKey(t, s.apiKey); !fault.Is(err, "invalid_api_key") {
		t.Errorf("in its last second: %v", err)
	}
}

func TestTheUseOfAnAPIKeyIsNotedOnceAnHour(t *testing.T) {
	s := newService(t)
	hour := s.Now().Truncate(time.Hour)
	for _, last := range []time.Time{{}, hour.Add(-time.Hour), hour} {
		record := s.record
		record.LastUsed = last
		s.directory.keys[Hash(s.apiKey)] = record
		if err := s.exchangeKey(t, s.apiKey); err != nil {
			t.Fatal(err)
		}
	}
	if want := []id.Key{s.record.Key, s.record.Key}; !slices.Equal(s.used, want) {
		t.Errorf("noted for %v; want %v", s.used, want)
	}
}

func TestEveryWrongAPIKeyIsRefusedAlike(t *testing.T) {
	s := newService(t)
	unknown := testkit.Must(Generate(rand.Reader, ""))(t)
	revoked := testkit.Must(Generate(rand.Reader, ""))(t)
	record := s.record
	record.Revoked = true
	s.directory.keys[Hash(revoked)] = record

	want := fault.New(fault.Unauthenticated, "invalid_api_key", "The API key is not valid.")
	for name, test := range map[string]struct {
		key     string
		lookups int
	}{
		"empty":          {"", 0},
		"typing error":   {s.apiKey[:44] + "_", 0},
		"anything":       {strings.Repeat("x", 4000), 0},
		"NUL":            {"\x00", 0},
		"with a newline": {s.apiKey + "\n", 0},
		"unknown":        {unknown, 1},
		"revoked":        {revoked, 1},
	} {
		s.lookups = 0
		if diff := cmp.Diff(error(want), s.exchangeKey(t, test.key)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if s.lookups != test.lookups {
			t.Errorf("%s: %d lookups; want %d", name, s.lookups, test.lookups)
		}
	}
	if n := s.count(t, "kindred_exchanges_total", "refused"); n != 7 {
		t.Errorf("%v refusals were counted; want 7", n)
	}
}

func TestAFailingAPIKeyWaitsAloneAndNotForGood(t *testing.T) {
	s := newService(t)
	wrong := testkit.Must(Generate(rand.Reader, ""))(t)
	var limited error
	for i := 0; i < 20 && limited == nil; i++ {
		if err := s.exchangeKey(t, wrong); !hasKind(err, fault.Unauthenticated) {
			limited = err
		}
	}
	if f := fault.As(limited); f == nil || f.Kind != fault.Limited || f.RetryAfter <= 0 {
		t.Fatalf("got %v; want a fault of kind Limited that says when to try again", limited)
	}
	if err := s.exchangeKey(t, s.apiKey); err != nil {
		t.Errorf("another key: %v", err)
	}
	s.Advance(fault.As(limited).RetryAfter)
	if err := s.exchangeKey(t, wrong); !hasKind(err, fault.Unauthenticated) {
		t.Errorf("after the pause: %v", err)
	}
}

func TestAFailedLookupIsNobodysFault(t *testing.T) {
	s := newService(t)
	s.err = errors.New("away")
	for range 100 {
		if err := s.exchangeKey(t, s.apiKey); !errors.Is(err, s.err) {
			t.Fatalf("exchange: %v", err)
		}
		if err := s.logInFrom(t, "192.0.2.1", s.account.Email, password); !errors.Is(err, s.err) {
			t.Fatalf("login: %v", err)
		}
	}
	s.err = nil
	if err := s.exchangeKey(t, s.apiKey); err != nil {
		t.Errorf("exchange: %v", err)
	}
	if err := s.logInFrom(t, "192.0.2.1", s.account.Email, password); err != nil {
		t.Errorf("login: %v", err)
	}
}

// Where attempts cannot be counted, a password could be guessed at without end.
func TestWhatCannotBeCountedIsNotTried(t *testing.T) {
	s := newService(t)
	ctx, cancel := context.WithCancel(from(t, "192.0.2.1"))
	cancel()
	if err := s.endpoints.check(ctx, s.account, subjectOf(s.account), "wrong horse"); !errors.Is(err, context.Canceled) {
		t.Errorf("a wrong password: %v", err)
	}
	_, err := s.endpoints.LogIn(ctx, httpapi.LogInRequestObject{Body: &httpapi.TokenRequest{Email: &s.account.Email, Password: password}})
	if !errors.Is(err, context.Canceled) || s.lookups != 0 {
		t.Errorf("after %d lookups: %v", s.lookups, err)
	}
	for name, attempt := range map[string]func(context.Context, func() error) error{"sign up": s.endpoints.SignUp, "add a member": s.endpoints.AddMember} {
		tried := false
		if err := attempt(ctx, func() error { tried = true; return nil }); !errors.Is(err, context.Canceled) || tried {
			t.Errorf("%s: %v, tried: %v", name, err, tried)
		}
	}
}

// Members who are not there wait each for itself, as those do who are.
func TestGuessingAtNobodySlowsDownNobodyElse(t *testing.T) {
	s := newService(t)
	client := string(s.account.Client)
	for n := range 12 { // ten are free, the eleventh opens the pause
		member := "nobody"
		if n == 11 {
			member = "nobody else"
		}
		_, err := s.endpoints.LogIn(from(t, "192.0.2.1"), httpapi.LogInRequestObject{
			Body: &httpapi.TokenRequest{ClientID: &client, UserID: &member, Password: password},
		})
		if !hasKind(err, fault.Unauthenticated) {
			t.Errorf("%s: %v", member, err)
		}
	}
}

func TestBothFormsLogIn(t *testing.T) {
	s := newService(t)
	client, member := string(s.account.Client), string(s.account.Member)
	for name, request := range map[string]httpapi.TokenRequest{
		"email":  {Email: &s.account.Email, Password: password},
		"member": {ClientID: &client, UserID: &member, Password: password},
	} {
		answer, err := s.endpoints.LogIn(from(t, "192.0.2.1"), httpapi.LogInRequestObject{Body: &request})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := httpapi.LoggedIn(answer.(httpapi.LogIn200JSONResponse))
		want := httpapi.LoggedIn{
			Token: got.Token, ExpiresIn: 900, Scopes: []string{"admin", "read", "write"},
			User:   httpapi.ClientUser{ID: s.account.Member, Email: "ada@example.com", Role: "owner"},
			Client: httpapi.ClientName{ID: s.account.Client, Slug: "acme", Name: "Acme"},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if code := s.refusal(t, got.Token); code != "" {
			t.Errorf("%s: the token is refused with %s", name, code)
		}
	}
	if diff := cmp.Diff([]string{"192.0.2.1", "192.0.2.1"}, s.logins); diff != "" {
		t.Errorf("noted are %s", diff)
	}
}

func TestEveryWrongLoginIsRefusedAlike(t *testing.T) {
	s := newService(t)
	text := func(s string) *string { return &s }
	client, member := text(string(s.account.Client)), text(string(s.account.Member))
	other := text(string(id.Next[id.Client](id.Derived("other"))))
	want := fault.New(fault.Unauthenticated, "invalid_credentials", "There is no such account, or the password is wrong.")
	for name, request := range map[string]httpapi.TokenRequest{
		"wrong password":           {Email: &s.account.Email, Password: "wrong horse"},
		"no password":              {Email: &s.account.Email},
		"long password":            {Email: &s.account.Email, Password: strings.Repeat("x", 3000)},
		"unknown address":          {Email: text("bob@example.com"), Password: password},
		"no address":               {Email: text(""), Password: password},
		"member, wrong password":   {ClientID: client, UserID: member, Password: "wrong horse"},
		"member of another client": {ClientID: other, UserID: member, Password: password},
		"member that is none":      {ClientID: client, UserID: text("me"), Password: password},
		"client that is none":      {ClientID: text(""), UserID: member, Password: password},
	} {
		_, err := s.endpoints.LogIn(from(t, "192.0.2.1"), httpapi.LogInRequestObject{Body: &request})
		if diff := cmp.Diff(error(want), err); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	for name, request := range map[string]httpapi.TokenRequest{
		"nothing":    {Password: password},
		"half":       {ClientID: client, Password: password},
		"other half": {UserID: member, Password: password},
		"both forms": {Email: &s.account.Email, ClientID: client, UserID: member, Password: password},
		"a client":   {Email: &s.account.Email, ClientID: client, Password: password},
		"mixed":      {Email: &s.account.Email, UserID: member, Password: password},
	} {
		_, err := s.endpoints.LogIn(from(t, "192.0.2.1"), httpapi.LogInRequestObject{Body: &request})
		if !hasKind(err, fault.Invalid) {
			t.Errorf("%s: %v; want a fault of kind Invalid", name, err)
		}
	}
}

// Who was removed since it was looked up is refused as if it had been before.
func TestAMemberWhoIsRemovedMeanwhileIsRefused(t *testing.T) {
	s := newService(t)
	p := s.as(t, s.login(t))
	for removed, try := range map[string]func() error{
		"LoggedIn": func() error { return s.logInFrom(t, "192.0.2.1", s.account.Email, password) },
		"Open": func() error {
			_, err := s.open(t, "192.0.2.1", password)
			return err
		},
		"SetPassword": func() error {
			_, err := s.setPassword(t, p, "192.0.2.1", password, otherPassword)
			return err
		},
		"": func() error { // before anything
			s.accounts = nil
			_, err := s.setPassword(t, p, "192.0.2.1", password, otherPassword)
			return err
		},
	} {
		s.removed, s.accounts = removed, []Account{s.account}
		want := map[string]string{"LoggedIn": "invalid_credentials", "Open": "invalid_credentials", "SetPassword": "wrong_password", "": "invalid_token"}[removed]
		if f := fault.As(try()); f == nil || f.Code != want {
			t.Errorf("removed before %q: %v; want %s", removed, f, want)
		}
	}
}

// A stored hash that cannot be used is nobody's password, and our own trouble: it counts against nobody.
func TestAStoredHashThatIsDamagedLetsNobodyIn(t *testing.T) {
	s := newService(t)
	right := s.accounts[0].PasswordHash
	s.accounts[0].PasswordHash = strings.TrimPrefix(right, "$argon2id")
	for range freeLogins + 1 {
		if err := s.logInFrom(t, "192.0.2.1", s.account.Email, password); !errors.Is(err, errBadHash) || fault.As(err) != nil {
			t.Fatal(err)
		}
	}
	s.accounts[0].PasswordHash = right
	if err := s.logInFrom(t, "192.0.2.1", s.account.Email, password); err != nil {
		t.Errorf("once it is put right: %v", err)
	}
}

// A session may have ended where it cannot be looked up, and ends early where its use is not noted, as a key does.
func TestNoTokenIsGivenForWhatIsNotFoundOrNoted(t *testing.T) {
	s := newService(t)
	opened := testkit.Must(s.open(t, "192.0.2.1", password))(t)
	s.noteErr = errors.New("away")
	if err := s.exchangeKey(t, s.apiKey); !errors.Is(err, s.noteErr) {
		t.Errorf("exchange: %v", err)
	}
	if _, err := s.token(t, opened.Secret); !errors.Is(err, s.noteErr) {
		t.Errorf("a session that is not noted: %v", err)
	}
	s.noteErr, s.findErr = nil, errors.New("away")
	if _, err := s.token(t, opened.Secret); !errors.Is(err, s.findErr) {
		t.Errorf("a session that is not found: %v", err)
	}
}

// A guesser meets a pause for an account that exists as for one that does
// not, and cannot get around it by naming the account otherwise.
func TestGuessingAtAnAccountIsSlowedDown(t *testing.T) {
	s := newService(t)
	for _, email := range []string{s.account.Email, "nobody@example.com"} {
		attempts := 0
		var err error
		for ; attempts < 30; attempts++ {
			spelt := email
			if attempts%2 == 1 {
				spelt = " " + strings.ToUpper(email)
			}
			if err = s.logInFrom(t, "192.0.2.1", spelt, "wrong horse"); hasKind(err, fault.Limited) {
				break
			}
		}
		if attempts != 11 { // ten are free, the eleventh opens the pause
			t.Errorf("%s: %d attempts passed, then %v", email, attempts, err)
		}
	}
	if err := s.logInFrom(t, "192.0.2.1", " "+strings.ToUpper(s.account.Email), password); !hasKind(err, fault.Limited) {
		t.Errorf("another spelling: %v", err)
	}
	client, member := string(s.account.Client), string(s.account.Member)
	_, err := s.endpoints.LogIn(from(t, "192.0.2.1"), httpapi.LogInRequestObject{
		Body: &httpapi.TokenRequest{ClientID: &client, UserID: &member, Password: password},
	})
	if !hasKind(err, fault.Limited) {
		t.Errorf("by member: %v", err)
	}
	s.Advance(fault.As(err).RetryAfter)
	if err := s.logInFrom(t, "192.0.2.1", s.account.Email, password); err != nil {
		t.Errorf("after the pause: %v", err)
	}
	for range 10 {
		if err := s.logInFrom(t, "192.0.2.1", s.account.Email, "wrong horse"); !hasKind(err, fault.Unauthenticated) {
			t.Errorf("failures before the right password still count: %v", err)
		}
	}
}

// The clock of the database, and ours, are set back by hours.
func TestAClockThatIsSetBackLocksNobodyOut(t *testing.T) {
	s := newService(t)
	for range 10 {
		if err := s.logInFrom(t, "192.0.2.1", s.account.Email, "wrong horse"); hasKind(err, fault.Limited) {
			t.Fatal(err)
		}
	}
	s.Advance(-3 * time.Hour)
	var limited *fault.Fault
	for i := 0; i < 3 && limited == nil; i++ {
		if err := s.logInFrom(t, "192.0.2.1", s.account.Email, "wrong horse"); hasKind(err, fault.Limited) {
			limited = fault.As(err)
		}
	}
	if limited == nil || limited.RetryAfter > time.Minute {
		t.Errorf("it is slowed down as before: %v", limited)
	}
	s.Advance(-3 * time.Hour)
	if err := s.logInFrom(t, "192.0.2.1", s.account.Email, password); err != nil {
		t.Errorf("the owner: %v", err)
	}
}

func TestNobodyIsLockedOutByWhoGuessesElsewhere(t *testing.T) {
	s := newService(t)
	for round := range 20 { // each takes what passes, then waits for the end of the pause
		var limited error
		for range 200 {
			if err := s.logInFrom(t, "192.0.2.1", s.account.Email, "wrong horse"); hasKind(err, fault.Limited) {
				limited = err
				break
			}
		}
		if limited == nil {
			t.Fatal("guessing from one address knows no bound")
		}
		if err := s.logInFrom(t, "198.51.100.7", s.account.Email, password); err != nil {
			t.Fatalf("the owner in another network, round %d: %v", round, err)
		}
		s.Advance(fault.As(limited).RetryAfter)
	}
}

func TestAllNetworksTogetherKeepAnOwnerOutForSecondsAtMost(t *testing.T) {
	s := newService(t)
	var limited error
	for i := 0; i < 300 && limited == nil; i++ {
		if err := s.logInFrom(t, fmt.Sprintf("192.0.2.%d", i%250), s.account.Email, "wrong horse"); hasKind(err, fault.Limited) {
			limited = err
		}
		if f := fault.As(limited); f != nil && i < 100 {
			t.Fatalf("attempt %d: %v", i, f)
		}
	}
	for i := range 20 {
		err := s.logInFrom(t, fmt.Sprintf("203.0.113.%d", i), s.account.Email, "wrong horse")
		if f := fault.As(err); f.RetryAfter > 10*time.Second {
			t.Fatalf("it has to wait for %s", f.RetryAfter)
		}
		s.Advance(10 * time.Second)
	}
	if err := s.logInFrom(t, "198.51.100.7", s.account.Email, password); limited == nil || err != nil {
		t.Errorf("%v; then the owner: %v", limited, err)
	}
}

func TestAPauseOfAllNetworksOpensNoneOfAnOwners(t *testing.T) {
	s := newService(t)
	guess := func(address string) error { return s.logInFrom(t, address, s.account.Email, "wrong horse") }
	for i := 0; !hasKind(guess(fmt.Sprintf("192.0.2.%d", i%250)), fault.Limited); i++ {
		if i == 300 {
			t.Fatal("guessing from many addresses knows no bound")
		}
	}
	s.Advance(10 * time.Second)
	for round := range 30 { // somebody else is sooner at the end of each pause
		_ = guess(fmt.Sprintf("203.0.113.%d", round))
		f := fault.As(s.logInFrom(t, "198.51.100.7", s.account.Email, password))
		if f == nil || f.Kind != fault.Limited || f.RetryAfter > 10*time.Second {
			t.Fatalf("round %d: %+v; want to wait for 10 s at most", round, f)
		}
		s.Advance(f.RetryAfter)
	}
	if err := s.logInFrom(t, "198.51.100.7", s.account.Email, password); err != nil {
		t.Errorf("the owner, once nobody is sooner: %v", err)
	}
}

func TestPollingForTheEndOfAPauseIsNotFree(t *testing.T) {
	s := newService(t)
	for range 51 {
		_ = s.logInFrom(t, "192.0.2.1", s.account.Email, "wrong horse")
	}
	if err := s.logInFrom(t, "192.0.2.1", "nobody@example.com", "wrong horse"); !hasKind(err, fault.Limited) {
		t.Errorf("after 51 tries, 40 of them within a pause: %v; want the network to wait", err)
	}
}

func TestAttemptsAreCountedOverReplicas(t *testing.T) {
	s := newService(t)
	c := s.endpoints.c
	c.Metrics = prometheus.NewRegistry()
	replicas := []*Endpoints{s.endpoints, New(c)}
	passed := 0
	for ; passed < 100; passed++ {
		if err := replicas[passed%2].SignUp(from(t, "192.0.2.1"), func() error { return nil }); hasKind(err, fault.Limited) {
			break
		}
	}
	if passed != 21 {
		t.Errorf("%d sign-ups passed", passed)
	}
}

func TestManyAttemptsAtOnceFindNoGap(t *testing.T) {
	s := newService(t)
	var passed atomic.Int64
	var group sync.WaitGroup
	for range 40 {
		group.Go(func() {
			wait, err := s.endpoints.c.Throttles.take(t.Context(), budget{"ada", 5, time.Minute})
			if err != nil {
				t.Error(err)
			} else if wait == 0 {
				passed.Add(1)
			}
		})
	}
	group.Wait()
	if n := passed.Load(); n != 6 { // five are free, the sixth opens the pause
		t.Errorf("%d attempts passed; want 6", n)
	}
}

func TestLoginsAtOnceDoNotHoldUpOneAnother(t *testing.T) {
	s := newService(t)
	atOnce := func(from string, rounds int, logIn func(budgets ...budget) error) {
		var group sync.WaitGroup
		for n := range 8 {
			group.Go(func() {
				for range rounds {
					if err := logIn(budget{fmt.Sprint("ada from ", from, n%2), 1_000, time.Second}, budget{"ada", 1_000, time.Second}); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		group.Wait()
	}
	take := func(budgets ...budget) error {
		_, err := s.endpoints.c.Throttles.take(t.Context(), budgets...)
		return err
	}
	atOnce("", 100, func(budgets ...budget) error { // right passwords forget what other attempts just count
		return errors.Join(take(budgets...), s.endpoints.c.Throttles.forget(t.Context(), budgets...))
	})
	for n := range 100 { // what is old is pruned while it counts again
		s.Advance(16 * time.Minute)
		atOnce(fmt.Sprint(n, "."), 1, take)
	}
}

func TestPausesDoubleUpToALimitAndQuietIsForgiven(t *testing.T) {
	s := newService(t)
	ada := budget{"ada", 2, 10 * time.Second}
	take := func() time.Duration {
		t.Helper()
		return testkit.Must(s.endpoints.c.Throttles.take(t.Context(), ada))(t)
	}
	var pauses []time.Duration
	for range 8 {
		if wait := take(); wait != 0 {
			t.Fatalf("has to wait for %s after its pause", wait)
		}
		if len(pauses) < 2 {
			pauses = append(pauses, 0)
			continue
		}
		pause := take().Round(time.Second)
		pauses = append(pauses, pause)
		s.Advance(pause)
	}
	second := time.Second
	if diff := cmp.Diff([]time.Duration{0, 0, second, 2 * second, 4 * second, 8 * second, 10 * second, 10 * second}, pauses); diff != "" {
		t.Error(diff)
	}
	s.Advance(15*time.Minute + time.Second)
	for range 2 { // the first one forgives, the second one is free
		if wait := take(); wait != 0 {
			t.Errorf("old attempts count after a long time of quiet: it waits for %s", wait)
		}
	}
	s.Advance(16 * time.Minute)
	ada.subject = "bob"
	take()
	var rows int
	if err := s.fixture.keys.Pool.QueryRow(t.Context(), `SELECT count(*) FROM throttles`).Scan(&rows); err != nil || rows != 1 {
		t.Errorf("%d subjects are kept, %v; want 1", rows, err)
	}
}

func TestGuessingFromAnAddressIsSlowedDown(t *testing.T) {
	s := newService(t)
	passed := 0
	for i := range 60 {
		err := s.logInFrom(t, "2001:db8::"+string(rune('a'+i%6)), strings.Repeat("x", i)+"@example.com", "wrong horse")
		if hasKind(err, fault.Limited) {
			break
		}
		passed++
	}
	if passed != 51 { // fifty are free, the next one opens the pause
		t.Errorf("%d attempts passed", passed)
	}
	lookups := s.lookups
	if err := s.logInFrom(t, "2001:db8::1234", s.account.Email, password); !hasKind(err, fault.Limited) {
		t.Errorf("from a neighbour in the same /64: %v", err)
	}
	if s.lookups != lookups {
		t.Error("the database was asked for an address that has to wait")
	}
	if err := s.logInFrom(t, "2001:db8:0:1::1", s.account.Email, password); err != nil {
		t.Errorf("from another network: %v", err)
	}
	if n := s.count(t, "kindred_logins_total", "throttled"); n != 2 {
		t.Errorf("%v throttled logins were counted; want 2", n)
	}
}

func TestSigningUpFromAnAddressIsSlowedDown(t *testing.T) {
	s := newService(t)
	signUp := func(address string, ends error) error {
		return s.endpoints.SignUp(from(t, address), func() error { return ends })
	}
	away, busy := errors.New("away"), fault.New(fault.Unavailable, "busy", "Busy.")
	for range 100 {
		if err := signUp("192.0.2.1", away); !errors.Is(err, away) {
			t.Fatalf("our own trouble counts: %v", err)
		}
		if err := signUp("192.0.2.1", busy); !errors.Is(err, busy) {
			t.Fatalf("overload counts: %v", err)
		}
	}
	gone := 0
	for ; gone < 100; gone++ {
		ctx, goAway := context.WithCancel(from(t, "192.0.2.3"))
		err := s.endpoints.SignUp(ctx, func() error { goAway(); return ctx.Err() })
		if hasKind(err, fault.Limited) {
			break
		}
	}
	if gone != 21 {
		t.Errorf("who went away each time could try %d times", gone)
	}
	taken := fault.New(fault.Conflict, "email_exists", "It is taken.")
	passed := 0
	for ; passed < 100; passed++ {
		if err := signUp("192.0.2.1", [2]error{nil, taken}[passed%2]); hasKind(err, fault.Limited) {
			break
		}
	}
	if passed != 21 { // twenty are free, the next one opens the pause
		t.Errorf("%d sign-ups passed", passed)
	}
	f := fault.As(signUp("192.0.2.1", nil))
	if f == nil || f.Code != "too_many_signups" || f.RetryAfter <= 0 {
		t.Fatalf("got %v; want too_many_signups and when to try again", f)
	}
	if err := signUp("192.0.2.2", nil); err != nil {
		t.Errorf("from another address: %v", err)
	}
	s.Advance(f.RetryAfter)
	if err := signUp("192.0.2.1", nil); err != nil {
		t.Errorf("after the pause: %v", err)
	}
	for _, own := range []string{"127.0.0.1", "::1"} {
		for range 100 {
			if err := signUp(own, nil); err != nil {
				t.Fatalf("on this machine, %s: %v", own, err)
			}
		}
	}
	for _, call := range []httpapi.Call{
		{RemoteAddr: "127.0.0.1", Forwarded: true}, {RemoteAddr: "10.1.2.3"}, {RemoteAddr: "::ffff:192.168.1.1"}, {RemoteAddr: "@"},
	} {
		if passed := s.passing(t, func(int) httpapi.Call { return call }); passed != 21 {
			t.Errorf("%d sign-ups passed a proxy that nobody has named, %+v", passed, call)
		}
	}
	if passed := s.passing(t, func(i int) httpapi.Call { return httpapi.Call{RemoteAddr: fmt.Sprintf("2001:db8:1:%x::1", i)} }); passed != 41 {
		t.Errorf("%d sign-ups passed from the networks of one /48", passed)
	}
	hammers := func(int) httpapi.Call { return httpapi.Call{RemoteAddr: "2001:db8:2:1::1"} }
	first := s.passing(t, hammers)
	for range 100 {
		_ = s.passing(t, hammers)
	}
	if passed := s.passing(t, func(int) httpapi.Call { return httpapi.Call{RemoteAddr: "2001:db8:2:2::1"} }); first != 21 || passed == 0 {
		t.Errorf("%d sign-ups passed from a network that then hammers, and %d from its neighbour", first, passed)
	}
	s.endpoints.c.Unlimited = true
	if passed := s.passing(t, func(int) httpapi.Call { return httpapi.Call{RemoteAddr: "192.0.2.1"} }); passed != 150 {
		t.Errorf("%d sign-ups passed without limits", passed)
	}
}

// passing is how many of 150 sign-ups pass until one is refused.
func (s *service) passing(t testing.TB, call func(i int) httpapi.Call) (passed int) {
	t.Helper()
	for i := range 150 {
		err := s.endpoints.SignUp(httpapi.With(t.Context(), httpapi.Principal{}, call(i)), func() error { return nil })
		if f := fault.As(err); err != nil && (f == nil || f.Kind != fault.Limited || f.RetryAfter <= 0) {
			t.Fatal(err)
		} else if err != nil {
			break
		}
		passed++
	}
	return passed
}

func TestAddingMembersIsSlowedDownByClientAndNetwork(t *testing.T) {
	s := newService(t)
	ids := id.Derived("clients")
	taken := fault.New(fault.Conflict, "email_exists", "It is taken.")
	adding := func(client func() id.Client, call httpapi.Call) (passed int) {
		for range 200 {
			ctx := httpapi.With(t.Context(), httpapi.Principal{Client: client()}, call)
			err := s.endpoints.AddMember(ctx, func() error { return taken })
			f := fault.As(err)
			if f != taken && (f == nil || f.Code != "too_many_new_members" || f.RetryAfter <= 0) {
				t.Fatal(err)
			}
			if f != taken {
				break
			}
			passed++
		}
		return passed
	}
	fresh := func() id.Client { return id.Next[id.Client](ids) }
	one := fresh()
	if n := adding(func() id.Client { return one }, httpapi.Call{RemoteAddr: "127.0.0.1"}); n != 21 {
		t.Errorf("one client tried %d addresses", n)
	}
	if n := adding(fresh, httpapi.Call{RemoteAddr: "192.0.2.1"}); n != 61 {
		t.Errorf("%d addresses were tried from one network", n)
	}
	if n := adding(fresh, httpapi.Call{RemoteAddr: "127.0.0.1"}); n != 200 {
		t.Errorf("many clients on this machine tried %d addresses", n)
	}
}

func TestRightPasswordsDoNotAddUp(t *testing.T) {
	s := newService(t)
	for range 60 {
		if err := s.logInFrom(t, "192.0.2.1", s.account.Email, password); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheKeySetMayBeKeptForFiveMinutes(t *testing.T) {
	s := newService(t)
	answer := testkit.Must(s.endpoints.GetJWKS(t.Context(), httpapi.GetJWKSRequestObject{}))(t)
	w := httptest.NewRecorder()
	if err := answer.VisitGetJWKSResponse(w); err != nil {
		t.Fatal(err)
	}
	if got := w.Header().Get("Cache-Control"); got != "public, max-age=300" {
		t.Errorf("Cache-Control: %s", got)
	}
	if n := strings.Count(w.Body.String(), `"kid"`); n != 2 {
		t.Errorf("%d keys in %s", n, w.Body)
	}
}

func TestWhereARequestComesFrom(t *testing.T) {
	for _, test := range []struct {
		a, b string
		same bool
	}{
		{"192.0.2.1", "192.0.2.1", true},
		{"192.0.2.1", "::ffff:192.0.2.1", true},
		{"192.0.2.1", "192.0.2.2", false},
		{"2001:db8::1", "2001:db8::2", true},
		{"2001:db8::1", "2001:db8:0:1::1", false},
		{"fe80::1%eth0", "fe80::1", true},
		{"", "unix", false},
	} {
		a, _ := networksOf(test.a)
		b, _ := networksOf(test.b)
		if got := a == b; got != test.same {
			t.Errorf("%q and %q: %v; want %v", test.a, test.b, got, test.same)
		}
	}
}
