package commands_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kindred/commands"
	"kindred/commands/policies"
	"kindred/domain"
	"kindred/domain/event"
	"kindred/domain/fault"
	"kindred/domain/id"
	"kindred/eventstore"
	"kindred/testkit"
)

// model is a read model of spends and impressions.
type model struct {
	fixture *fixture

	mu          sync.Mutex
	positions   []eventstore.Position
	spends      map[string]int // places in positions
	impressions map[id.Impression]int
	ids         map[string]int // of events and their keys, by client
	recorded    map[int]eventstore.Recorded
}

func newModel(w *fixture) *model {
	return &model{
		fixture: w, spends: map[string]int{}, impressions: map[id.Impression]int{}, ids: map[string]int{},
		recorded: map[int]eventstore.Recorded{},
	}
}

// catchUp applies what is new in the log.
func (m *model) catchUp(ctx context.Context) error {
	after := eventstore.Start
	if n := len(m.positions); n > 0 {
		after = m.positions[n-1]
	}
	records, err := m.fixture.store.ReadAll(ctx, after, 1_000_000)
	for _, r := range records {
		recorded, err := m.fixture.log.Decode(r)
		if err != nil {
			return err
		}
		place := len(m.positions)
		m.positions = append(m.positions, r.Position)
		keys := []id.Event{r.ID}
		if single, ok := recorded.Event.(event.Single); ok {
			if key, ok := single.Key(); ok {
				keys = append(keys, key)
			}
		}
		for _, key := range keys {
			if _, twice := m.ids[string(r.Client)+string(key)]; !twice && id.IsDerived(key) {
				m.ids[string(r.Client)+string(key)] = place
				m.recorded[place] = recorded
			}
		}
		switch e := recorded.Event.(type) {
		case event.CampaignSpendRecorded:
			m.spends[string(e.Campaign)+e.SpendID] = place
		case event.CampaignEngagementRecorded:
			if e.Kind == "impression" {
				m.impressions[e.Impression] = place
			}
		default:
			continue
		}
		m.recorded[place] = recorded
	}
	return err
}

// lagging is a model that is as many events behind the log as behind says.
type lagging struct {
	*model
	behind func() int
}

func (l lagging) Recorded(ctx context.Context, _ id.Client, campaign id.Campaign, ids []string) (found []eventstore.Recorded, reached eventstore.Position, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.catchUp(ctx); err != nil {
		return nil, "", err
	}
	end := max(0, len(l.positions)-l.behind())
	for _, spendID := range ids {
		if place, ok := l.spends[string(campaign)+spendID]; ok && place < end {
			found = append(found, l.recorded[place])
		}
	}
	if end > 0 {
		reached = l.positions[end-1]
	}
	return found, reached, nil
}

func (l lagging) Find(ctx context.Context, _ id.Client, impression id.Impression) (eventstore.Recorded, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.catchUp(ctx)
	if place, ok := l.impressions[impression]; ok {
		return l.recorded[place], err
	}
	return eventstore.Recorded{}, errors.Join(err, fault.New(fault.Missing, "impression_unknown", "none"))
}

// Revisions implements [commands.EventIDs].
func (l lagging) Revisions(ctx context.Context, client id.Client, ids []id.Event) (found map[id.Event]eventstore.Revision, reached eventstore.Position, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.catchUp(ctx); err != nil {
		return nil, "", err
	}
	end := max(0, len(l.positions)-l.behind())
	found = map[id.Event]eventstore.Revision{}
	for _, wanted := range ids {
		if place, ok := l.ids[string(client)+string(wanted)]; ok && place < end {
			found[wanted] = l.recorded[place].Revision
		}
	}
	if end > 0 {
		reached = l.positions[end-1]
	}
	return found, reached, nil
}

// spender is a process that may record spends.
func (w *fixture) spender(store eventstore.Store, behind func() int) *commands.Commands {
	return w.spending(w.process(store, w.keys), behind)
}

// spending lets a process record spends.
func (w *fixture) spending(c *commands.Commands, behind func() int) *commands.Commands {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.model == nil {
		w.model = newModel(w)
	}
	lags := lagging{w.model, behind}
	c.Spends, c.Impressions, c.EventIDs = lags, lags, lags
	return c
}

func always(n int) func() int { return func() int { return n } }

var euros = event.CampaignTerms{Name: "Spring", BudgetMinor: 1_000_000, Currency: "EUR", Audience: "all"}

// running makes a campaign that runs.
func running(t *testing.T, c *commands.Commands, call commands.Call, terms event.CampaignTerms) id.Campaign {
	t.Helper()
	drafted := testkit.Must(c.DraftCampaign(t.Context(), call, terms))(t)
	become(t, c, call, drafted.ID, "running")
	return drafted.ID
}

func become(t *testing.T, c *commands.Commands, call commands.Call, campaign id.Campaign, status string) commands.Campaign {
	t.Helper()
	return testkit.Must(c.ChangeCampaign(t.Context(), call, campaign, keeping(status)))(t)
}

func keeping(status string) commands.ChangeCampaign {
	return commands.ChangeCampaign{Status: status, Terms: func(t event.CampaignTerms) event.CampaignTerms { return t }}
}

// spends lists what was recorded, in order, and fails on any that counts
// twice or does not add up.
func (w *fixture) spends(t *testing.T, campaign id.Campaign) (ids map[string]event.CampaignSpendRecorded, total int64) {
	t.Helper()
	ids = map[string]event.CampaignSpendRecorded{}
	exhausted, completed := 0, 0
	for _, r := range w.records(t) {
		switch e := r.Event.(type) {
		case event.CampaignSpendRecorded:
			if e.Campaign != campaign {
				continue
			}
			if _, twice := ids[e.SpendID]; twice {
				t.Errorf("%s counts twice", e.SpendID)
			}
			if total += e.AmountMinor; total != e.SpentMinor {
				t.Errorf("%s says %d were spent, it was %d", e.SpendID, e.SpentMinor, total)
			}
			if completed > 0 {
				t.Errorf("%s was recorded after the end", e.SpendID)
			}
			ids[e.SpendID] = e
		case event.CampaignBudgetExhausted:
			exhausted++
		case event.CampaignCompleted:
			completed++
		}
	}
	if exhausted > 1 || completed > 1 || exhausted > completed {
		t.Errorf("exhausted %d times, completed %d times", exhausted, completed)
	}
	return ids, total
}

func TestASpendCountsOnceHoweverFarTheReadModelLags(t *testing.T) {
	for _, behind := range []int{0, 1, 1_100, 1_000_000} {
		t.Run(fmt.Sprint(behind, " events behind"), func(t *testing.T) {
			w := newFixture(t)
			_, call := w.client(t, "a@example.com")
			c := w.spender(w.store, always(behind))
			campaign := running(t, c, call, euros)
			const spends = 2_300 // three streams
			for i := range spends {
				if _, err := c.RecordSpend(t.Context(), call, commands.Spend{Campaign: campaign, ID: fmt.Sprint(i), AmountMinor: 1}); err != nil {
					t.Fatal(err)
				}
			}
			fresh := w.spender(w.store, always(behind)) // knows nothing yet
			for _, i := range []int{0, 999, 1_000, 1_500, 2_299} {
				for _, p := range []*commands.Commands{c, fresh} {
					again, err := p.RecordSpend(t.Context(), call, commands.Spend{Campaign: campaign, ID: fmt.Sprint(i), AmountMinor: 1})
					if err != nil || again.SpentMinor != int64(i+1) {
						t.Errorf("spend %d repeated: %+v, %v", i, again, err)
					}
					_, err = p.RecordSpend(t.Context(), call, commands.Spend{Campaign: campaign, ID: fmt.Sprint(i), AmountMinor: 2})
					if !fault.Is(err, "spend_id_reused") {
						t.Errorf("spend %d with another amount: %v", i, err)
					}
				}
			}
			if _, total := w.spends(t, campaign); total != spends {
				t.Errorf("%d were spent, want %d", total, spends)
			}
			if n := w.count(t, "campaign.spending_opened"); n != 3 {
				t.Errorf("%d streams, want 3", n)
			}
		})
	}
}

// Many at once, in three processes whose read models lag as they like and which
// lose answers to appends that took place: each id counts once, everybody hears
// the same, and the budget is exhausted once.
func TestConcurrentSpendsOfSeveralProcessesAddUp(t *testing.T) {
	const workers, rounds, distinct, amount = 32, 120, 2_600, 7
	w := newFixture(t)
	_, call := w.client(t, "a@example.com")
	terms := euros
	terms.BudgetMinor = 2_300*amount - 3
	campaign := running(t, w.spender(w.store, always(0)), call, terms)

	var processes []*commands.Commands
	for i := range 3 {
		var mu sync.Mutex
		random := rand.New(rand.NewPCG(uint64(i), 7))
		roll := func(n int) int {
			mu.Lock()
			defer mu.Unlock()
			return random.IntN(n)
		}
		processes = append(processes, w.spender(forgetful{w.store, func() bool { return roll(20) == 0 }}, func() int { return roll(400) }))
	}
	type counted struct {
		mu      sync.Mutex
		answers map[string]commands.SpendRecorded
		refused int
	}
	told := counted{answers: map[string]commands.SpendRecorded{}}
	var all sync.WaitGroup
	for worker := range workers {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 9))
			for range rounds {
				spendID := fmt.Sprint(random.IntN(distinct))
				got, err := processes[random.IntN(len(processes))].RecordSpend(t.Context(), call, commands.Spend{Campaign: campaign, ID: spendID, AmountMinor: amount})
				told.mu.Lock()
				switch before, twice := told.answers[spendID]; {
				case fault.Is(err, "campaign_not_running"):
					told.refused++
				case errors.Is(err, eventstore.ErrUnavailable), fault.Is(err, "busy"):
				case err != nil:
					t.Errorf("spend %s: %v", spendID, err)
				case twice && cmp.Diff(before.CampaignSpendRecorded, got.CampaignSpendRecorded, exportEvents) != "":
					t.Errorf("spend %s was answered with %+v and %+v", spendID, before, got)
				default:
					told.answers[spendID] = got
				}
				told.mu.Unlock()
			}
		})
	}
	all.Wait()
	recorded, total := w.spends(t, campaign)
	for spendID, answer := range told.answers {
		if diff := cmp.Diff(recorded[spendID], answer.CampaignSpendRecorded, exportEvents); diff != "" {
			t.Errorf("spend %s was answered otherwise than recorded: %s", spendID, diff)
		}
	}
	if n := w.count(t, "campaign.budget_exhausted"); total >= terms.BudgetMinor && n != 1 || total-terms.BudgetMinor >= amount {
		t.Errorf("%d of %d were spent, exhausted %d times", total, terms.BudgetMinor, n)
	}
	if told.refused > 0 && total < terms.BudgetMinor {
		t.Errorf("%d were refused with %d of %d spent", told.refused, total, terms.BudgetMinor)
	}
}

// forgetful is a store whose answers are lost at times, also those of appends
// that took place.
type forgetful struct {
	eventstore.Store
	lost func() bool
}

func (s forgetful) Append(ctx context.Context, stream eventstore.Stream, expected eventstore.Revision, events []eventstore.Proposed) (eventstore.Appended, error) {
	if s.lost() {
		return eventstore.Appended{}, eventstore.ErrUnavailable
	}
	appended, err := s.Store.Append(ctx, stream, expected, events)
	if err == nil && s.lost() {
		return eventstore.Appended{}, eventstore.ErrUnavailable
	}
	return appended, err
}

func TestAPauseBitesInEveryProcessAtOnce(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "a@example.com")
	one, two := w.spender(w.store, always(3)), w.spender(w.store, always(3))
	campaign := running(t, one, call, euros)
	spend := func(c *commands.Commands, spendID string) error {
		_, err := c.RecordSpend(t.Context(), call, commands.Spend{Campaign: campaign, ID: spendID, AmountMinor: 1})
		return err
	}
	for i := range 20 {
		pausing, spending := one, two
		if i%2 == 1 {
			pausing, spending = two, one
		}
		if err := spend(spending, fmt.Sprint("before ", i)); err != nil {
			t.Fatal(err)
		}
		become(t, pausing, call, campaign, "paused")
		if err := spend(spending, fmt.Sprint("paused ", i)); !fault.Is(err, "campaign_not_running") {
			t.Fatalf("a spend after the pause: %v", err)
		}
		become(t, spending, call, campaign, "running")
		if err := spend(pausing, fmt.Sprint("after ", i)); err != nil {
			t.Fatalf("a spend after it was resumed elsewhere: %v", err)
		}
	}
}

// A process that dies at any step leaves a campaign that another goes on with.
func TestAnotherProcessGoesOnWhereOneDied(t *testing.T) {
	for n := range 8 {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("dies at step %d, done: %t", n, after), func(t *testing.T) {
				w := newFixture(t)
				_, call := w.client(t, "a@example.com")
				call.Seed = []string{"client", "route", "key"}
				story := func(c *commands.Commands) error {
					drafted, err := c.DraftCampaign(t.Context(), call, euros)
					if err != nil {
						return err
					}
					for i, status := range []string{"running", "paused", "running"} {
						if _, err := c.ChangeCampaign(t.Context(), commands.Call{Client: call.Client}, drafted.ID, keeping(status)); err != nil {
							return err
						}
						if status == "running" {
							if _, err := c.RecordSpend(t.Context(), call, commands.Spend{Campaign: drafted.ID, ID: fmt.Sprint(i), AmountMinor: 500_000}); err != nil {
								return err
							}
						}
					}
					return nil
				}
				l := &life{left: n, after: after}
				if err := story(w.spender(mortalStore{w.store, l}, always(0))); err != nil && !errors.Is(err, errDied) {
					t.Fatal(err)
				}
				// What was over already is refused, as it would be without the death.
				if err := story(w.spender(w.store, always(0))); err != nil && !fault.Is(err, "campaign_over") {
					t.Fatal(err)
				}
				var campaign id.Campaign
				for _, r := range w.records(t) {
					if e, ok := r.Event.(event.CampaignDrafted); ok {
						campaign = e.Campaign
					}
				}
				if _, total := w.spends(t, campaign); total != 1_000_000 {
					t.Errorf("%d were spent", total)
				}
				if drafted, exhausted := w.count(t, "campaign.drafted"), w.count(t, "campaign.budget_exhausted"); drafted != 1 || exhausted != 1 {
					t.Errorf("drafted %d times, exhausted %d times", drafted, exhausted)
				}
			})
		}
	}
}

func TestConcurrentSpendsShareAppends(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "a@example.com")
	slow := &slowStore{Store: w.store, entered: make(chan struct{}, 1_000), release: make(chan struct{})}
	c := w.spender(slow, always(0))
	campaign := running(t, w.spender(w.store, always(0)), call, euros)
	var all sync.WaitGroup
	spend := func(i int) {
		all.Go(func() {
			if _, err := c.RecordSpend(t.Context(), call, commands.Spend{Campaign: campaign, ID: fmt.Sprint(i), AmountMinor: 1}); err != nil {
				t.Error(err)
			}
		})
	}
	spend(0)
	<-slow.entered // the first append is under way: the others gather behind it
	for i := 1; i <= 150; i++ {
		spend(i)
	}
	for c.Waiting(call.Client, campaign) < 150 {
		time.Sleep(time.Millisecond)
	}
	close(slow.release)
	all.Wait()
	if n := slow.appends(); n != 2 {
		t.Errorf("%d appends, want 2: the first, and one for all that waited", n)
	}
}

// A caller that gives up takes nobody else's answer, and leaves the line.
func TestWhoGivesUpDoesNotHoldUpTheOthers(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "a@example.com")
	slow := &slowStore{Store: w.store, entered: make(chan struct{}, 1_000), release: make(chan struct{})}
	c := w.spender(slow, always(0))
	campaign := running(t, w.spender(w.store, always(0)), call, euros)
	ctx, give := context.WithCancel(t.Context())
	results := make(chan error, 3)
	spend := func(ctx context.Context, spendID string) {
		_, err := c.RecordSpend(ctx, call, commands.Spend{Campaign: campaign, ID: spendID, AmountMinor: 1})
		results <- err
	}
	go spend(ctx, "leads")
	<-slow.entered
	go spend(ctx, "waits")
	for c.Waiting(call.Client, campaign) < 1 {
		time.Sleep(time.Millisecond)
	}
	give()
	if err := <-results; !errors.Is(err, context.Canceled) {
		t.Errorf("who waits and gives up hears %v", err)
	}
	go spend(t.Context(), "stays")
	for c.Waiting(call.Client, campaign) < 1 {
		time.Sleep(time.Millisecond)
	}
	close(slow.release)
	for range 2 {
		if err := <-results; err != nil {
			t.Errorf("the leader and who stays hear %v", err)
		}
	}
	if ids, _ := w.spends(t, campaign); len(ids) != 2 {
		t.Errorf("recorded %v", ids)
	}
}

// Of a round that the end of a stream cuts short, who has given up meanwhile is
// not asked to lead the next.
func TestWhoGivesUpInARoundDoesNotLeadTheNext(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "a@example.com")
	slow := &slowStore{Store: w.store, entered: make(chan struct{}, 1_000), release: make(chan struct{})}
	c, fast := w.spender(slow, always(0)), w.spender(w.store, always(0))
	campaign := running(t, fast, call, euros)
	for i := range 997 { // of the 1,000 events that the stream takes
		if _, err := fast.RecordSpend(t.Context(), call, commands.Spend{Campaign: campaign, ID: fmt.Sprint(i), AmountMinor: 1}); err != nil {
			t.Fatal(err)
		}
	}
	spent, paused := make(chan error, 2), make(chan error, 1)
	spend := func(ctx context.Context, spendID string) {
		_, err := c.RecordSpend(ctx, call, commands.Spend{Campaign: campaign, ID: spendID, AmountMinor: 1})
		spent <- err
	}
	wait := func(n int) {
		for c.Waiting(call.Client, campaign) < n {
			time.Sleep(time.Millisecond)
		}
	}
	go spend(t.Context(), "first")
	<-slow.entered
	go spend(t.Context(), "ends the stream")
	wait(1)
	ctx, give := context.WithCancel(t.Context())
	go func() {
		_, err := c.ChangeCampaign(ctx, call, campaign, keeping("paused"))
		paused <- err
	}()
	wait(2)
	slow.release <- struct{}{}
	<-slow.entered // the round of both is under way
	give()
	if err := <-paused; !errors.Is(err, context.Canceled) {
		t.Errorf("who gives up hears %v", err)
	}
	close(slow.release)
	for range 2 {
		if err := <-spent; err != nil {
			t.Error(err)
		}
	}
	soon, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := c.RecordSpend(soon, call, commands.Spend{Campaign: campaign, ID: "next", AmountMinor: 1}); err != nil {
		t.Errorf("the campaign is stuck: %v", err)
	}
	if n := w.count(t, "campaign.paused"); n != 0 {
		t.Errorf("the campaign was paused %d times for nobody", n)
	}
}

// A request that panics takes the campaign down for nobody else.
func TestAPanicDoesNotBlockTheCampaign(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "a@example.com")
	c := w.spender(w.store, always(0))
	campaign := running(t, c, call, euros)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("nothing panicked")
			}
		}()
		_, _ = c.ChangeCampaign(t.Context(), call, campaign, commands.ChangeCampaign{
			Terms: func(event.CampaignTerms) event.CampaignTerms { panic("a defect") },
		})
	}()
	if _, err := c.RecordSpend(t.Context(), call, commands.Spend{Campaign: campaign, ID: "s", AmountMinor: 1}); err != nil {
		t.Error(err)
	}
}

// slowStore holds back appends until it is told to release them.
type slowStore struct {
	eventstore.Store
	entered, release chan struct{}
	mu               sync.Mutex
	n                int
}

func (s *slowStore) Append(ctx context.Context, stream eventstore.Stream, expected eventstore.Revision, events []eventstore.Proposed) (eventstore.Appended, error) {
	s.mu.Lock()
	s.n++
	s.mu.Unlock()
	s.entered <- struct{}{}
	<-s.release
	return s.Store.Append(ctx, stream, expected, events)
}

func (s *slowStore) appends() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

func TestAFrequencyCapIsNeverExceeded(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "a@example.com")
	c := w.spender(w.store, always(0))
	user := testkit.Must(c.CreateUser(t.Context(), call, "u", []byte("{}")))(t)
	terms := euros
	terms.FrequencyCap, terms.FrequencyWindow = 3, 1800
	campaign := running(t, c, call, terms)
	show := func(p *commands.Commands) error {
		_, err := p.RecordEngagement(t.Context(), call, commands.Engage{Campaign: campaign, Kind: "impression", User: commands.UserRef(user.ID)})
		return err
	}
	for range 2 {
		var all sync.WaitGroup
		for range 32 {
			p := w.spender(w.store, always(0))
			all.Go(func() {
				if err := show(p); err != nil && !fault.Is(err, "frequency_capped") {
					t.Error(err)
				}
			})
		}
		all.Wait()
		w.later() // beyond the window
	}
	if n := w.count(t, "campaign.engagement_recorded"); n != 6 {
		t.Errorf("%d impressions in two windows, want 3 in each", n)
	}
}

func TestAClockThatWasAheadCapsNobodyForLonger(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "a@example.com")
	c := w.spender(w.store, always(0))
	user := testkit.Must(c.CreateUser(t.Context(), call, "u", []byte("{}")))(t)
	terms := euros
	terms.FrequencyCap, terms.FrequencyWindow = 1, 1800
	campaign := running(t, c, call, terms)
	show := func() (eventstore.Recorded, error) {
		return c.RecordEngagement(t.Context(), call, commands.Engage{Campaign: campaign, Kind: "impression", User: commands.UserRef(user.ID)})
	}
	const year = 365 * 24 * time.Hour
	w.jump(year)
	if _, err := show(); err != nil {
		t.Fatal(err)
	}
	w.jump(-year)
	shown, err := show()
	if now := w.clock(); err != nil || shown.RecordedAt.After(now) {
		t.Fatalf("once the clock is right: recorded at %v, and it is %v; %v", shown.RecordedAt, now, err)
	}
	if _, err := show(); !fault.Is(err, "frequency_capped") {
		t.Errorf("a second one within the window: %v", err)
	}
	w.later()
	if _, err := show(); err != nil {
		t.Errorf("after the window: %v", err)
	}
}

func TestARepeatedEngagementCountsOnce(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "a@example.com")
	c := w.spender(w.store, always(0))
	for _, external := range []string{"u", "v"} {
		if _, err := c.CreateUser(t.Context(), call, external, []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	campaign := running(t, c, call, euros)
	engage := func(key string, in commands.Engage) (eventstore.Recorded, error) {
		call := call
		call.Seed, call.Request = []string{"client", "route", key}, key
		in.Campaign = campaign
		return c.RecordEngagement(t.Context(), call, in)
	}
	twice := func(key string, in commands.Engage) id.Impression {
		t.Helper()
		first := testkit.Must(engage(key, in))(t)
		again, err := engage(key, in)
		if err != nil || again.Event != first.Event || !again.RecordedAt.Equal(first.RecordedAt) {
			t.Errorf("repeated: %+v, %v; first %+v", again, err, first)
		}
		return first.Event.(event.CampaignEngagementRecorded).Impression
	}
	impression := twice("a", commands.Engage{Kind: "impression", User: "ext:u"})
	twice("b", commands.Engage{Kind: "click", Impression: impression})
	twice("c", commands.Engage{Kind: "conversion", User: "ext:u"})
	if n := w.count(t, "campaign.engagement_recorded"); n != 3 {
		t.Errorf("%d engagements are recorded, want 3", n)
	}
	if _, err := engage("a", commands.Engage{Kind: "impression", User: "ext:v"}); !fault.Is(err, "idempotency_key_reused") {
		t.Errorf("the key of another impression: %v", err)
	}
	if _, err := engage("d", commands.Engage{Kind: "conversion", User: "ext:v"}); !fault.Is(err, "impression_unknown") {
		t.Errorf("a conversion of somebody who saw nothing: %v", err)
	}
	become(t, c, call, campaign, "paused")
	twice("a", commands.Engage{Kind: "impression", User: "ext:u"}) // was recorded while it ran
	if _, err := engage("e", commands.Engage{Kind: "impression", User: "ext:u"}); !fault.Is(err, "campaign_not_running") {
		t.Errorf("an impression of a paused campaign: %v", err)
	}
	twice("f", commands.Engage{Kind: "click", Impression: impression}) // came late
}

func TestARepeatedConversionOfAUserCountsOnceWhateverTheUserSeesMeanwhile(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "a@example.com")
	c := w.spender(w.store, always(0))
	if _, err := c.CreateUser(t.Context(), call, "u", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	campaign := running(t, c, call, euros)
	see := func() {
		t.Helper()
		if _, err := c.RecordEngagement(t.Context(), call, commands.Engage{Campaign: campaign, Kind: "impression", User: "ext:u"}); err != nil {
			t.Fatal(err)
		}
	}
	for name, convert := range map[string]func(commands.Call) (any, error){
		"engagement": func(call commands.Call) (any, error) {
			recorded, err := c.RecordEngagement(t.Context(), call, commands.Engage{Campaign: campaign, Kind: "conversion", User: "ext:u"})
			return recorded.Event, err
		},
		"interaction": func(call commands.Call) (any, error) {
			done, err := c.Interact(t.Context(), call, commands.Interact{User: "ext:u", Item: string(campaign), Kind: "conversion"})
			return done.InteractionRecorded, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			see()
			first, err := convert(seeded(call, name, ""))
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				for range 7 {
					w.later()
				}
				see()
				before := w.count(t, "campaign.engagement_recorded")
				again, err := convert(seeded(call, name, ""))
				if err != nil || again != first {
					t.Errorf("repeated %+v, %v; first %+v", again, err, first)
				}
				if n := w.count(t, "campaign.engagement_recorded") - before; n != 0 {
					t.Errorf("the repetition recorded %d more", n)
				}
				w.later()
			}
			_, err = convert(seeded(call, name, "another"))
			wantFault(t, err, "idempotency_key_reused")
			if other, err := convert(seeded(call, "new "+name, "")); err != nil || other == first {
				t.Errorf("another conversion is %+v, %v", other, err)
			}
		})
	}
}

// How long a key is kept goes by the machine's clock, whatever that of a sandbox says.
func TestARepeatedConversionInASandboxCountsOnceThoughItsClockWasMoved(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "a@example.com")
	c := w.spender(w.store, always(0))
	sandbox := testkit.Must(c.CreateSandbox(t.Context(), call, "s", 0))(t)
	call.Client = sandbox.Sandbox
	if _, err := c.CreateUser(t.Context(), call, "u", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	campaign := running(t, c, call, euros)
	engage := func(call commands.Call, kind string) event.Event {
		t.Helper()
		recorded := testkit.Must(c.RecordEngagement(t.Context(), call, commands.Engage{Campaign: campaign, Kind: kind, User: "ext:u"}))(t)
		return recorded.Event
	}
	engage(call, domain.Impression)
	first := engage(seeded(call, "k", ""), domain.Conversion)
	engage(call, domain.Impression)
	if _, _, _, err := c.MoveClock(t.Context(), call, w.clock().Add(30*24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if again := engage(seeded(call, "k", ""), domain.Conversion); again != first {
		t.Errorf("repeated %+v; first %+v", again, first)
	}
	if n := w.count(t, "campaign.engagement_recorded"); n != 3 {
		t.Errorf("%d engagements are recorded, want 3", n)
	}
}

// due names campaigns to the sweep.
type due map[id.Campaign]id.Client

func (d due) Due(context.Context, time.Time, int) (map[id.Campaign]id.Client, error) { return d, nil }

func TestTheSweepStartsAndCompletesCampaignsOnce(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "a@example.com")
	c := w.spender(w.store, always(0))
	terms := euros
	starts, ends := w.clock().Add(30*time.Minute), w.clock().Add(90*time.Minute)
	terms.StartsAt, terms.EndsAt = &starts, &ends
	campaign := running(t, c, call, terms)
	full := due{campaign: call.Client} // as many as are advanced at a time
	for i := range 99 {
		full[id.Campaign(fmt.Sprintf("cam_000000000000000000000000%02d", i))] = call.Client
	}
	sweep := func(status string) {
		t.Helper()
		for i := range 3 { // several processes, which look at an old model
			p := policies.Policies{
				Commands: w.spender(w.store, always(0)), Now: w.clock, Logger: slog.New(slog.DiscardHandler), Campaigns: full,
			}
			more := testkit.Must(p.AdvanceCampaigns(t.Context()))(t)
			if advanced := i == 0 && status != "scheduled"; more != advanced {
				t.Errorf("%s: sweep %d goes on: %t, though it advanced: %t", status, i, more, advanced)
			}
		}
		got, err := c.ChangeCampaign(t.Context(), call, campaign, keeping(""))
		if err != nil || got.Status != status {
			t.Errorf("it is %s (%v), want %s", got.Status, err, status)
		}
	}
	sweep("scheduled")
	w.later()
	sweep("running")
	w.later()
	sweep("completed")
	for _, name := range []string{"campaign.scheduled", "campaign.started", "campaign.completed"} {
		if n := w.count(t, name); n != 1 {
			t.Errorf("%d times %s", n, name)
		}
	}
}

func TestARepeatedDraftIsAnsweredAsTheFirst(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "a@example.com")
	c := w.spender(w.store, always(0))
	call.Seed, call.Request = []string{"client", "route", "key"}, "body"
	first := testkit.Must(c.DraftCampaign(t.Context(), call, euros))(t)
	become(t, c, commands.Call{Client: call.Client}, first.ID, "running")
	again, err := c.DraftCampaign(t.Context(), call, euros)
	if diff := cmp.Diff(first, again); err != nil || diff != "" {
		t.Errorf("repeated: %v %s", err, diff)
	}
	call.Request = "another"
	if _, err := c.DraftCampaign(t.Context(), call, euros); !fault.Is(err, "idempotency_key_reused") {
		t.Errorf("the key of another request: %v", err)
	}
}

var exportEvents = cmp.Exporter(func(reflect.Type) bool { return true })

// What a record costs does not grow with what was recorded before: a process
// that knows the campaign reads no event, and one that does not reads the
// newest stream alone.
func TestASpendCostsTheSameHoweverManyWentBefore(t *testing.T) {
	w := newFixture(t)
	_, call := w.client(t, "a@example.com")
	reads := &countingStore{Store: w.store}
	c := w.spender(reads, always(0))
	campaign := running(t, c, call, euros)
	spend := func(c *commands.Commands, n int) {
		t.Helper()
		if _, err := c.RecordSpend(t.Context(), call, commands.Spend{Campaign: campaign, ID: fmt.Sprint(n), AmountMinor: 1}); err != nil {
			t.Fatal(err)
		}
	}
	spend(c, 0)
	before := reads.events.Load()
	const spends = 5_500
	for n := 1; n < spends; n++ {
		spend(c, n)
	}
	if read := reads.events.Load() - before; read > 0 {
		t.Errorf("%d events were read to record %d spends", read, spends)
	}
	cold := &countingStore{Store: w.store}
	spend(w.spender(cold, always(0)), spends)
	if read, calls := cold.events.Load(), cold.calls.Load(); read > 1_100 || calls > 20 {
		t.Errorf("a process that knows nothing reads %d events in %d calls to record one", read, calls)
	}
}

// countingStore counts what is read from streams.
type countingStore struct {
	eventstore.Store
	calls, events atomic.Int64
}

func (s *countingStore) ReadStream(ctx context.Context, stream eventstore.Stream, from eventstore.Revision, limit int) ([]eventstore.Record, error) {
	found, err := s.Store.ReadStream(ctx, stream, from, limit)
	s.calls.Add(1)
	s.events.Add(int64(len(found)))
	return found, err
}

func (s *countingStore) ReadBack(ctx context.Context, stream eventstore.Stream, from eventstore.Revision, limit int) ([]eventstore.Record, error) {
	found, err := s.Store.ReadBack(ctx, stream, from, limit)
	s.calls.Add(1)
	s.events.Add(int64(len(found)))
	return found, err
}

func TestAnImpressionIsAnsweredInItsCampaignUntilItsUserIsErased(t *testing.T) {
	w, call := fixtureWithUser(t)
	c := w.spender(w.store, always(0))
	campaign, other := running(t, c, call, euros), running(t, c, call, euros)
	engage := func(in commands.Engage) (id.Impression, error) {
		if in.Campaign == "" {
			in.Campaign = campaign
		}
		recorded, err := c.RecordEngagement(t.Context(), call, in)
		if err != nil {
			return "", err
		}
		return recorded.Event.(event.CampaignEngagementRecorded).Impression, nil
	}
	impression := testkit.Must(engage(commands.Engage{Kind: domain.Impression, User: "ext:u1"}))(t)
	for _, kind := range []string{domain.Impression, domain.Click, domain.Conversion} {
		if same, err := engage(commands.Engage{Kind: kind, Impression: impression}); err != nil || same != impression {
			t.Errorf("%s: %s, %v", kind, same, err)
		}
		if _, err := engage(commands.Engage{Campaign: other, Kind: kind, Impression: impression}); !fault.Is(err, "impression_unknown") {
			t.Errorf("%s in another campaign: %v", kind, err)
		}
	}
	if _, err := c.EraseUser(t.Context(), call, "ext:u1"); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{domain.Impression, domain.Click, domain.Conversion} {
		if _, err := engage(commands.Engage{Kind: kind, Impression: impression}); !fault.Is(err, "impression_unknown") {
			t.Errorf("%s after the erasure: %v", kind, err)
		}
	}
}
