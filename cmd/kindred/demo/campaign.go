package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
)

type campaign struct {
	ID, Name, Status string
	Budget           int64 `json:"budget_minor"`
}

const (
	budget = 10_000 // cents
	spend  = 4_000  // the third crosses the budget
	shows  = 5
)

func (s *story) campaignPath() string { return "/api/v1/campaigns/" + s.campaign.ID }

// startCampaign drafts a campaign for the largest cluster, or for all where
// there are no clusters, and starts it.
func (s *story) startCampaign(ctx context.Context) error {
	draft := map[string]any{"name": "Spring offer", "budget_minor": budget, "currency": "EUR"}
	audience := "everybody"
	if s.run.ID != "" {
		draft["audience"], draft["cluster_ids"] = "clusters", []string{s.cluster.ID}
		audience = cut(s.cluster.Label, 60)
	}
	if err := s.api.do(ctx, request{method: "POST", path: "/api/v1/campaigns", want: 201, body: draft}, &s.campaign); err != nil {
		return err
	}
	if s.campaign.Status != "draft" || s.campaign.Budget != budget {
		return fmt.Errorf("the campaign is %+v, not a draft with a budget of %d", s.campaign, budget)
	}
	err := s.api.do(ctx, request{method: "PATCH", path: s.campaignPath(), want: 200, body: map[string]any{"status": "running"}}, &s.campaign)
	if err != nil {
		return err
	}
	if s.campaign.Status != "running" {
		return fmt.Errorf("the campaign was started, but is %s", s.campaign.Status)
	}
	s.page.say("%q runs with a budget of %s, for %s.", s.campaign.Name, euros(budget), audience)
	return nil
}

func euros(minor int64) string { return "EUR " + fixed(float64(minor)/100, 2) }

type feedItem struct {
	Type, Reason string
	UserID       string `json:"user_id"`
	ExternalID   string `json:"external_id"`
	CampaignID   string `json:"campaign_id"`
	Score        float64
}

// readFeed reads the first page of a person's feed, in which the campaign is.
func (s *story) readFeed(ctx context.Context) error {
	of := clusterMember{s.asker.ID, s.asker.ExternalID}
	if s.run.ID != "" {
		inside, err := s.membersOf(ctx, s.cluster.ID)
		if err != nil {
			return err
		}
		of = inside[0]
	}
	var page struct{ Data []feedItem }
	err := s.api.do(ctx, request{
		method: "GET", path: "/api/v1/users/" + of.UserID + "/feed", query: url.Values{"limit": {"10"}}, want: 200,
	}, &page)
	if err != nil {
		return err
	}
	if len(page.Data) == 0 {
		return fmt.Errorf("the feed of %s is empty", of.ExternalID)
	}
	seen := map[string]bool{}
	var rows [][]string
	for i, item := range page.Data {
		key := cmp.Or(item.UserID, item.CampaignID)
		switch {
		case key == "" || item.Reason == "":
			return fmt.Errorf("item %d of the feed is %+v, without whom or why", i+1, item)
		case key == of.UserID || seen[key]:
			return fmt.Errorf("%s is in the feed of %s, whose it is or who has seen it", key, of.ExternalID)
		case item.CampaignID != "" && item.CampaignID != s.campaign.ID:
			return fmt.Errorf("the feed shows the campaign %s, which nobody started", item.CampaignID)
		}
		seen[key] = true
		what := item.ExternalID
		if item.CampaignID != "" {
			what = s.campaign.Name
		}
		rows = append(rows, []string{strconv.Itoa(i + 1), item.Type, what, fixed(item.Score, 4), item.Reason})
	}
	if !seen[s.campaign.ID] {
		return fmt.Errorf("the feed of %s does not show the campaign that is meant for them", of.ExternalID)
	}
	s.page.say("What %s sees first:", of.ExternalID)
	s.page.table([]string{"", "item", "what", "score", "reason"}, rows)
	return nil
}

// spendBudget shows the campaign, has people engage, and spends more than is
// left: the record that crosses the budget is taken, and no other after it.
func (s *story) spendBudget(ctx context.Context) error {
	if err := s.engage(ctx); err != nil {
		return err
	}
	type record struct {
		Status    string
		Spent     int64 `json:"spent_minor"`
		Remaining int64 `json:"remaining_minor"`
	}
	var rows [][]string
	for n := int64(1); n <= 3; n++ {
		var got record
		if err := s.api.do(ctx, s.spending(n, http.StatusCreated), &got); err != nil {
			return err
		}
		want := record{"running", n * spend, max(0, budget-n*spend)}
		if n == 3 {
			want.Status = "completed"
		}
		if got != want {
			return fmt.Errorf("record %d of the spend was answered with %+v, not %+v", n, got, want)
		}
		rows = append(rows, []string{strconv.FormatInt(n, 10), euros(spend), euros(got.Spent), euros(got.Remaining), got.Status})
	}
	s.page.table([]string{"record", "amount", "spent", "remaining", "campaign"}, rows)
	if err := s.api.do(ctx, s.spending(3, http.StatusCreated), nil); err != nil {
		return fmt.Errorf("the last record said again: %w", err)
	}
	if err := s.api.do(ctx, s.spending(4, http.StatusConflict), nil); err != nil {
		return fmt.Errorf("a campaign that has spent its budget: %w", err)
	}
	if _, err := s.awaitOne(ctx, subject{kind: "campaign.budget_exhausted", id: s.campaign.ID}); err != nil {
		return err
	}
	s.page.say("The third said again changes nothing, a fourth is refused; campaign.budget_exhausted came once.")
	s.page.blank()
	return s.analyze(ctx)
}

func (s *story) spending(n int64, want int) request {
	return request{
		method: "POST", path: s.campaignPath() + "/spend", want: want,
		body: map[string]any{"amount_minor": spend, "spend_id": "demo-" + strconv.FormatInt(n, 10)},
	}
}

// engage shows the campaign to a few people: two click, and one of them buys.
func (s *story) engage(ctx context.Context) error {
	for i, u := range s.people[:shows] {
		var shown struct {
			ID string `json:"impression_id"`
		}
		if err := s.api.do(ctx, s.engagement(map[string]any{"type": "impression", "user_id": u.ID}), &shown); err != nil {
			return err
		}
		if shown.ID == "" {
			return errors.New("an impression was recorded without an id")
		}
		for _, kind := range [][]string{{"click"}, {"click", "conversion"}, nil, nil, nil}[i] {
			if err := s.api.do(ctx, s.engagement(map[string]any{"type": kind, "impression_id": shown.ID}), nil); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *story) engagement(body map[string]any) request {
	return request{method: "POST", path: s.campaignPath() + "/engagements", want: 201, body: body}
}

// analyze looks at what came of the campaign. The feed may have shown it too.
func (s *story) analyze(ctx context.Context) error {
	var a struct {
		Status                                                   string
		Impressions, Engaged, Clicks, Conversions, Reach, Spends int
		Spent                                                    int64   `json:"spent_minor"`
		Rate                                                     float64 `json:"engagement_rate"`
		Clusters                                                 []clusterShare
	}
	if err := s.api.do(ctx, request{method: "GET", path: s.campaignPath() + "/analytics", want: 200}, &a); err != nil {
		return err
	}
	switch {
	case a.Status != "completed" || a.Spent != 3*spend || a.Spends != 3:
		return fmt.Errorf("the campaign is %s with %s spent in %d records, not completed with %s in 3", a.Status, euros(a.Spent), a.Spends, euros(3*spend))
	case a.Impressions < shows || a.Engaged != 2 || a.Clicks != 2 || a.Conversions != 1:
		return fmt.Errorf("%d impressions, %d engaged, %d clicks and %d conversions were counted, not %d or more, 2, 2 and 1",
			a.Impressions, a.Engaged, a.Clicks, a.Conversions, shows)
	case math.Abs(a.Rate-float64(a.Engaged)/float64(a.Impressions)) > 1e-3:
		return fmt.Errorf("the engagement rate of %d in %d is said to be %v", a.Engaged, a.Impressions, a.Rate)
	}
	s.page.table(nil, [][]string{
		{"impressions", count(a.Impressions) + ", seen by " + count(a.Reach)},
		{"clicks, conversions", count(a.Clicks) + ", " + count(a.Conversions)},
		{"engagement rate", fixed(a.Rate, 3)},
		{"spent", euros(a.Spent) + " of " + euros(budget) + ", " + a.Status},
	})
	return s.split(a.Clusters, a.Impressions)
}

type clusterShare struct {
	ID                          string `json:"cluster_id"`
	Label                       string
	Reach, Impressions, Engaged int
	Rate                        float64 `json:"engagement_rate"`
}

// split shows what each cluster has made of the campaign. The feed has shown it
// to a member of the one that it is meant for.
func (s *story) split(shares []clusterShare, impressions int) error {
	if s.run.ID == "" {
		return nil
	}
	var rows [][]string
	sum, shown := 0, false
	for _, c := range shares {
		sum += c.Impressions
		shown = shown || c.ID == s.cluster.ID && c.Impressions > 0
		rows = append(rows, []string{cut(c.Label, 58), count(c.Reach), count(c.Impressions), count(c.Engaged), fixed(c.Rate, 3)})
	}
	if !shown || sum > impressions {
		return fmt.Errorf("of %d impressions the clusters have %d (%+v), and %s must be among them", impressions, sum, shares, s.cluster.ID)
	}
	s.page.blank()
	s.page.table([]string{"cluster", "reach", "impressions", "engaged", "rate"}, rows)
	return nil
}
