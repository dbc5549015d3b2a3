package event

import "kindred/domain/id"

// DeliveriesEnded: these deliveries to a webhook will not be tried again. It
// stands in a stream of the webhook and the day.
type DeliveriesEnded struct {
	fact
	Webhook    id.Webhook `json:"webhook_id"`
	Deliveries []Ending   `json:"deliveries"`
}

// Ending is how one delivery ended.
type Ending struct {
	Delivery id.Delivery `json:"delivery_id"`
	Event    id.Event    `json:"event_id"` // what was to be told
	State    string      `json:"state"`    // delivered, dropped or cancelled
	Attempts int         `json:"attempts"`
}

var deliveryEvents = []definition{
	define[DeliveriesEnded]("deliveries.ended", 1),
}
