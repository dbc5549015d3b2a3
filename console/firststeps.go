package console

import (
	"net/url"
	"slices"
	"strings"

	kindred "kindred/sdk/go"
)

// step is one of the first steps.
type step struct {
	Name, Why string
	Done      bool
	Path      string // where it is done
	Button    string
	Snippet   string // the same from a server, with the client's own ids
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
	var user, hook string
	open, test := Path+"users", Path+"webhooks"
	if len(users.Data) > 0 {
		user, open = users.Data[0].ExternalID, open+"/"+url.PathEscape(users.Data[0].ID)
	}
	if len(hooks.Data) > 0 {
		hook, test = hooks.Data[0].ID, test+"/"+url.PathEscape(hooks.Data[0].ID)
	}
	calls := snippets(p.PublicURL, p.who.Client, user, hook)
	steps := []step{
		{say("first_steps.make_an_api_key"), say("first_steps.your_servers_exchange_it"), len(keys.Data) > 0, Path + "developers", say("first_steps.make_a_key"), calls[0]},
		{say("first_steps.add_your_first_users"), say("first_steps.drop_a_file_of"), len(users.Data) > 0, Path + "users#add", say("common.add_users"), calls[1]},
		{say("first_steps.see_who_is_alike"), say("first_steps.open_a_user_the"), len(events.Data) > 0, open, say("first_steps.open_a_user"), calls[2]},
		{say("first_steps.subscribe_an_endpoint"), say("first_steps.your_server_is_told"), len(hooks.Data) > 0, Path + "webhooks#add", say("first_steps.add_an_endpoint"), calls[3]},
		{say("first_steps.receive_a_delivery"), say("first_steps.send_a_test_and"), delivered, test, say("first_steps.send_a_test"), calls[4]},
	}
	done := 0
	for _, s := range steps {
		if s.Done {
			done++
		}
	}
	todo := slices.IndexFunc(steps, func(s step) bool { return !s.Done })
	return p.show("first-steps", "Overview", say("common.first_steps"), map[string]any{
		"Steps": steps, "Done": done, "Next": todo,
	})
}

// snippets are the first steps as commands, in their order. Nothing in them but ids is a
// client's own text, and that is quoted for a shell.
func snippets(at, client, user, hook string) [5]string {
	const auth = ` -H "Authorization: Bearer $TOKEN"`
	const body = auth + ` -H 'Content-Type: application/json' \` + "\n  -d "
	ext := "customer-1"
	if user != "" {
		ext = user
	}
	if hook == "" {
		hook = "whk_…"
	}
	post := func(path, sends string) string { return `curl -s "$KINDRED_URL` + path + `"` + body + shell(sends) }
	return [5]string{
		"export KINDRED_URL=" + shell(at) + "\nexport KINDRED_API_KEY=kin_live_…\n" + `TOKEN=$(curl -s "$KINDRED_URL/auth/exchange" -H 'Content-Type: application/json' \
  -d "{\"api_key\": \"$KINDRED_API_KEY\"}" | jq -r .data.token)`,
		post("/api/v1/users", `{"external_id": "customer-1", "traits": {"plan": "pro", "age": 31}}`),
		post("/api/v1/users/ext:"+strings.ReplaceAll(url.PathEscape(ext), "$", "%24")+"/matches", `{"limit": 10}`),
		post("/api/v1/clients/"+client+"/webhooks", `{"url": "https://example.com/hooks", "event_types": ["match.computed"]}`),
		post("/api/v1/clients/"+client+"/webhooks/"+hook+"/test", `{"event_type": "match.computed"}`),
	}
}

// shell quotes a text for a POSIX shell.
func shell(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
