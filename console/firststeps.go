package console

import kindred "kindred/sdk/go"

// step is one of the first steps.
type step struct {
	Name, Why string
	Done      bool
	Path      string // where it is done
	Button    string
}

func (p *page) firstSteps() error {
	ctx, one := p.r.Context(), new(int64(1))
	users, err := p.api.Users.ListPage(ctx, kindred.ListUsersParams{Limit: one})
	if err != nil {
		return err
	}
	keys, err := p.api.APIKeys.ListPage(ctx, kindred.ListAPIKeysParams{Limit: one})
	if err != nil {
		return err
	}
	hooks, err := p.api.Webhooks.ListPage(ctx, kindred.ListWebhooksParams{Limit: one})
	if err != nil {
		return err
	}
	events, err := p.api.Events.List(ctx, kindred.ListEventsParams{Limit: one, Types: []kindred.EventType{kindred.EventTypeMatchComputed}})
	if err != nil {
		return err
	}
	delivered := false
	if len(hooks.Data) > 0 {
		sent, err := p.api.Webhooks.ListDeliveriesPage(ctx, hooks.Data[0].ID, kindred.ListDeliveriesParams{Limit: one, Status: kindred.DeliveryStatusDelivered})
		if err != nil {
			return err
		}
		delivered = len(sent.Data) > 0
	}
	steps := []step{
		{"Make an API key", "Your servers exchange it for tokens.", len(keys.Data) > 0, Path + "developers", "Make a key"},
		{"Add your first users", "Drop a file of them, or add one by hand: an id of yours and any traits.", len(users.Data) > 0, Path + "users#add", "Add users"},
		{"See who is alike", "Open a user: the best matches, and what each trait adds to them.", len(events.Data) > 0, Path + "users", "Open a user"},
		{"Subscribe an endpoint", "Your server is told of matches, clusters and budgets as they come.", len(hooks.Data) > 0, Path + "webhooks#add", "Add an endpoint"},
		{"Receive a delivery", "Send a test, and verify its signature.", delivered, Path + "webhooks", "Send a test"},
	}
	done := 0
	for _, s := range steps {
		if s.Done {
			done++
		}
	}
	var user string
	if len(users.Data) > 0 {
		user = users.Data[0].ExternalID
	}
	return p.show("first-steps", "Overview", "First steps", map[string]any{
		"Steps": steps, "Done": done, "URL": p.PublicURL, "Client": p.who.Client, "User": user,
	})
}
