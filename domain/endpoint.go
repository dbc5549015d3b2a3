package domain

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"kindred/domain/event"
	"kindred/domain/fault"
)

// ControlsChange is what an owner chooses about deliveries to an endpoint; what is
// nil stays.
type ControlsChange struct {
	Headers           *map[string]string // all of them, by name; empty: none
	RespectRetryAfter *bool
	DisableAfter      *int // seconds; 0: never
	MaxPerSecond      *int // attempts; 0: no bound
	Ordered           *bool
	Ed25519           *bool
	Filter            *string // a rule of events, which was parsed; "": all of the types
}

const (
	// limit: client | headers of an endpoint's own | {maxHeaders} | 422 `invalid`
	maxHeaders = 10
	// limit: client | name of an endpoint's own header | {maxHeaderName} bytes | 422 `invalid`
	maxHeaderName = 64
	// limit: client | value of an endpoint's own header | {maxHeaderValue} bytes | 422 `invalid`
	maxHeaderValue = 1024

	// limit: client | `disable_after_seconds` | {minDisableAfter} to {maxDisableAfter} | 422 `invalid`
	minDisableAfter = 60
	maxDisableAfter = 2_592_000
	// limit: client | `max_per_second` | 1 to {maxPerSecond} | 422 `invalid`
	maxPerSecond = 1_000
)

// control records what changes of the controls. Headers that were given are recorded
// even where their names stay: nobody can compare values that are sealed.
func (w *Webhook) control(change ControlsChange) ([]event.Event, error) {
	var events []event.Event
	if change.Headers != nil && (len(*change.Headers) > 0 || len(w.HeaderNames) > 0) {
		set, err := headersSet(*change.Headers)
		if err != nil {
			return nil, err
		}
		set.Webhook = w.ID
		events = append(events, set)
	}
	controls := w.Controls
	if change.RespectRetryAfter != nil {
		controls.RespectRetryAfter = *change.RespectRetryAfter
	}
	if after := change.DisableAfter; after != nil {
		if *after != 0 && (*after < minDisableAfter || *after > maxDisableAfter) {
			return nil, fault.NewInvalid(fault.Field{
				Pointer: "/disable_after_seconds", Detail: fmt.Sprintf("must be %d to %d", minDisableAfter, maxDisableAfter),
			})
		}
		controls.DisableAfter = *after
	}
	if most := change.MaxPerSecond; most != nil {
		if *most < 0 || *most > maxPerSecond {
			return nil, fault.NewInvalid(fault.Field{Pointer: "/max_per_second", Detail: fmt.Sprintf("must be 1 to %d", maxPerSecond)})
		}
		controls.MaxPerSecond = *most
	}
	if change.Ordered != nil {
		controls.Ordered = *change.Ordered
	}
	if change.Ed25519 != nil {
		controls.Ed25519 = *change.Ed25519
	}
	if change.Filter != nil {
		controls.Filter = *change.Filter
	}
	if controls != w.Controls {
		events = append(events, event.WebhookControlsSet{Webhook: w.ID, EndpointControls: controls})
	}
	return events, nil
}

// Disable pauses a subscription that has failed for as long as its owner allows.
// One that is not there, is paused or has no such bound stays as it is.
func (w *Webhook) Disable(failingSince time.Time) []event.Event {
	if w.exists() != nil || w.Paused || w.Controls.DisableAfter == 0 {
		return nil
	}
	return []event.Event{event.WebhookDisabled{Webhook: w.ID, FailingSince: failingSince.UTC()}}
}

func headersSet(headers map[string]string) (event.WebhookHeadersSet, error) {
	var wrong []fault.Field
	names := slices.AppendSeq([]string{}, maps.Keys(headers))
	slices.Sort(names)
	if len(names) > maxHeaders {
		return event.WebhookHeadersSet{}, fault.NewInvalid(fault.Field{Pointer: "/headers", Detail: fmt.Sprintf("must have at most %d members", maxHeaders)})
	}
	seen := map[string]bool{}
	for _, name := range names {
		lower := strings.ToLower(name)
		detail := wrongHeader(name, headers[name])
		if detail == "" && seen[lower] {
			detail = "is named twice"
		}
		if detail != "" {
			shown := strings.NewReplacer("~", "~0", "/", "~1").Replace(strings.ToValidUTF8(name[:min(len(name), maxHeaderName)], ""))
			wrong = append(wrong, fault.Field{Pointer: "/headers/" + shown, Detail: detail})
		}
		seen[lower] = true
	}
	if len(wrong) > 0 {
		return event.WebhookHeadersSet{}, fault.NewInvalid(wrong...)
	}
	set := event.WebhookHeadersSet{Names: names}
	if len(names) > 0 {
		plain, err := json.Marshal(headers)
		if err != nil {
			return set, fmt.Errorf("write the headers: %w", err)
		}
		set.Headers = event.Private(plain)
	}
	return set, nil
}

// wrongHeader says why an endpoint cannot have a header.
func wrongHeader(name, value string) string {
	switch {
	case name == "" || len(name) > maxHeaderName || strings.IndexFunc(name, notOfName) >= 0:
		return fmt.Sprintf("must be named with 1 to %d letters, digits, - or _", maxHeaderName)
	case reservedHeader(strings.ToLower(name)):
		return "is a header that kindred or the connection sets"
	case value == "" || len(value) > maxHeaderValue || value != strings.TrimSpace(value) || strings.IndexFunc(value, notOfValue) >= 0:
		return fmt.Sprintf("must have 1 to %d printable ASCII characters, and no spaces at its ends", maxHeaderValue)
	}
	return ""
}

// notOfName goes by the name as it was given: the Kelvin sign is a k in lower case, and no header is named so.
func notOfName(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
}

func notOfValue(r rune) bool { return r < ' ' || r > '~' }

// reservedHeader: those of the connection, of the body, and of deliveries.
func reservedHeader(name string) bool {
	switch name {
	case "connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "expect", "host", "user-agent":
		return true
	}
	return slices.ContainsFunc([]string{"content-", "proxy-", "webhook-", "x-kindred-", "x-service-"}, func(prefix string) bool {
		return strings.HasPrefix(name, prefix)
	})
}
