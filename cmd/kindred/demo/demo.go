// Package demo tells the story of a company that joins a running service, and
// checks every step of it.
//
// What is printed happened: the demo speaks to the service over its public
// HTTP API alone, and stops with an error at the first answer or delivery that
// is not as the contract (docs/contract.md) says.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"
)

// Options says what the demo plays, and where.
type Options struct {
	URL string    // of the service
	Out io.Writer // where the story goes

	CSV    string   // a file of people; empty: they are made up
	Header []string // the names of the file's columns; none: its first line
	ID     string   // the column that holds their own identifier; empty: the row's number
	Ignore []string // columns that are left out
	Limit  int      // at most so many of the file; 0: all

	Users int    // how many people are made up
	Seed  uint64 // the same seed makes up the same people

	// Patience bounds the wait for deliveries and for a busy service; 0 is a
	// minute, which leaves room for a delivery's first retry.
	Patience time.Duration
}

const (
	minUsers = 10
	maxUsers = 100_000

	// patience is how long the demo waits where nothing else is said.
	patience = time.Minute
	// longest bounds the whole story.
	longest = 30 * time.Minute
)

// steps is the story, in order.
var steps = []struct {
	title string
	play  func(*story, context.Context) error
}{
	{"A company signs up", (*story).signUp},
	{"Its server gets a key, and a token for it", (*story).authorize},
	{"The token is verified the way any server would", (*story).verifyToken},
	{"A receiver subscribes to all that can be told", (*story).subscribe},
	{"People come in", (*story).importPeople},
	{"The first of them", (*story).listPeople},
	{"Who is alike", (*story).computeMatches},
	{"What the receiver got", (*story).collect},
	{"Paused means silent", (*story).pauseAndResume},
	{"Its server catches up by itself", (*story).catchUp},
	{"A person changes", (*story).changeTraits},
	{"Those whom a rule names", (*story).followSegment},
	{"A purpose, which nobody has consented to", (*story).defineLayer},
	{"Everybody consents, and is divided into clusters", (*story).findClusters},
	{"The largest cluster shifts", (*story).shift},
	{"A campaign starts", (*story).startCampaign},
	{"A feed", (*story).readFeed},
	{"The campaign spends its budget", (*story).spendBudget},
	{"A person is forgotten", (*story).erase},
	{"The subscription ends", (*story).unsubscribe},
}

// Run plays the story against the service at o.URL. The error says in a
// sentence what was not as it should be.
func Run(ctx context.Context, o Options) error {
	if err := o.check(); err != nil {
		return err
	}
	who, err := o.gather()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	s := newStory(o, who)
	defer s.close(ctx)
	if err := s.arrive(ctx); err != nil {
		return err
	}
	for i, step := range steps {
		s.page.title(i+1, step.title)
		if err := step.play(s, ctx); err != nil {
			return fmt.Errorf("step %d, %s: %w", i+1, strings.ToLower(step.title[:1])+step.title[1:], err)
		}
	}
	s.summarize()
	return nil
}

func (o *Options) check() error {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("%q is not an http or https URL, such as http://127.0.0.1:8080", o.URL)
	}
	o.URL = strings.TrimRight(o.URL, "/")
	if o.Patience == 0 {
		o.Patience = patience
	}
	if o.CSV != "" {
		return nil
	}
	switch {
	case len(o.Header) > 0 || o.ID != "" || len(o.Ignore) > 0 || o.Limit != 0:
		return errors.New("--header, --id, --ignore and --limit speak of a file: name it with --csv")
	case o.Users < minUsers || o.Users > maxUsers:
		return fmt.Errorf("the demo needs from %d to %s people", minUsers, count(maxUsers))
	}
	return nil
}

// story is what is known so far.
type story struct {
	options  Options
	page     *page
	api      *api
	receiver *receiver // nil before there is one

	email    string
	password string
	client   client
	owner    member
	login    session
	key      keyRecord
	webhook  webhook

	crowd    crowd
	imported importStats
	people   []user // of the first page, those with most traits first
	asker    user   // whose matches are computed
	matches  []match
	layer    layer
	run      run             // the last one that has completed
	cluster  cluster         // the largest that it has found
	members  []clusterMember // of it, after the first run
	campaign campaign
	expected map[subject]float64 // what has to be delivered, and the score where it is a match
	silent   map[subject]bool    // what was computed while the subscription was paused
}

func newStory(o Options, who crowd) *story {
	return &story{
		options: o, crowd: who, page: newPage(o.Out), api: newAPI(o.URL, o.Patience),
		expected: map[subject]float64{}, silent: map[subject]bool{},
	}
}

// arrive checks that there is a service, before anything is told.
func (s *story) arrive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := s.api.do(ctx, request{method: "GET", path: "/readyz", want: 200}, nil); err != nil {
		if _, answered := errors.AsType[*refusal](err); answered {
			return fmt.Errorf("something answers at %s, but not as a kindred that is ready: %w", s.options.URL, err)
		}
		return fmt.Errorf("no service answers at %s; is it running? Start it with: make run (%w)", s.options.URL, err)
	}
	s.page.say("A story of people who are alike, told by the service at %s.", s.options.URL)
	return nil
}

// close leaves nothing behind that works for nobody: the subscription of a
// receiver that is gone.
func (s *story) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if s.webhook.ID != "" {
		if err := s.api.do(ctx, request{method: "DELETE", path: s.webhookPath(), want: 204}, nil); err != nil {
			s.page.say("The subscription %s could not be removed: %v", s.webhook.ID, err)
		}
	}
	if s.receiver != nil {
		if err := s.receiver.close(); err != nil {
			s.page.say("The receiver did not end in order: %v", err)
		}
	}
}
