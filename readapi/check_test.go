package readapi

import (
	"context"
	"net/http"
	"testing"

	"kindred/domain/id"
	"kindred/httpapi"
)

// checked is what is checked.
type checked struct {
	Deliveries
	header http.Header
}

func (c *checked) Check(_ context.Context, _ id.Client, _ bool, header http.Header, _, _ []byte) (httpapi.DeliveryCheck, error) {
	c.header = header
	return httpapi.DeliveryCheck{}, nil
}

func TestAHeaderThatIsGivenTwiceIsCheckedAsTheSameEachTime(t *testing.T) {
	for range 50 {
		got := &checked{}
		api := &API{Deliveries: got}
		ask := httpapi.CheckWebhookRequestObject{Body: &httpapi.CheckWebhookJSONRequestBody{
			Headers: map[string]string{"webhook-id": "second", "Webhook-Id": "first", "WEBHOOK-ID-2": "another"},
		}}
		if _, err := api.CheckWebhook(t.Context(), ask); err != nil {
			t.Fatal(err)
		}
		if one := got.header.Get("Webhook-Id"); one != "first" {
			t.Fatalf("checked as %q", one)
		}
	}
}
