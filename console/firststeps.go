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
		{say("first_steps.make_an_api_key"), say("first_steps.your_servers_exchange_it"), len(keys.Data) > 0, Path + "developers", say("first_steps.make_a_key")},
		{say("first_steps.add_your_first_users"), say("first_steps.drop_a_file_of"), len(users.Data) > 0, Path + "users#add", say("common.add_users")},
		{say("first_steps.see_who_is_alike"), say("first_steps.open_a_user_the"), len(events.Data) > 0, Path + "users", say("first_steps.open_a_user")},
		{say("first_steps.subscribe_an_endpoint"), say("first_steps.your_server_is_told"), len(hooks.Data) > 0, Path + "webhooks#add", say("first_steps.add_an_endpoint")},
		{say("first_steps.receive_a_delivery"), say("first_steps.send_a_test_and"), delivered, Path + "webhooks", say("first_steps.send_a_test")},
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
	return p.show("first-steps", "Overview", say("common.first_steps"), map[string]any{
		"Steps": steps, "Done": done, "URL": p.PublicURL, "Client": p.who.Client, "User": user,
	})
}
