package eventstore

import (
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"kindred/domain/event"
	"kindred/domain/id"
)

// The names below are the only ones of the service's streams. A sealed field is
// bound to the name of its stream, so readers need them too; none may ever change.

// ClientStream holds a client, its settings and its members.
func ClientStream(client id.Client) Stream { return name("client", string(client)) }

// SandboxesStream holds which sandboxes stand beside a client.
func SandboxesStream(client id.Client) Stream { return name("sandboxes", string(client)) }

// SandboxStream holds how far a sandbox's clock was moved, and that it was deleted.
func SandboxStream(client id.Client) Stream { return name("sandbox", string(client)) }

// LoginsStream holds when a member logged in, and from where.
func LoginsStream(client id.Client, member id.Member) Stream {
	return name("logins", string(client), string(member))
}

// AccessStream holds a member's later passwords, and sessions.
func AccessStream(client id.Client, member id.Member) Stream {
	return name("access", string(client), string(member))
}

// APIKeyStream holds one API key.
func APIKeyStream(client id.Client, key id.Key) Stream {
	return name("apikey", string(client), string(key))
}

// UserStream holds one end user.
func UserStream(client id.Client, user id.User) Stream {
	return name("user", string(client), string(user))
}

// MatchStream holds the matches that were computed for a user.
func MatchStream(client id.Client, user id.User) Stream {
	return name("matches", string(client), string(user))
}

// InteractionStream holds what a user did about an item of a feed.
func InteractionStream(client id.Client, user id.User, item string) Stream {
	return name("interactions", string(client), string(user), item)
}

// TraitSchemaStream holds what was learnt and decided about a client's traits.
func TraitSchemaStream(client id.Client) Stream { return name("traitschema", string(client)) }

// WebhookStream holds one subscription.
func WebhookStream(client id.Client, webhook id.Webhook) Stream {
	return name("webhook", string(client), string(webhook))
}

// WebhookKeysStream holds the key pairs that sign a client's deliveries.
func WebhookKeysStream(client id.Client) Stream { return name("webhookkeys", string(client)) }

// EndingsStream holds how a day's deliveries to a webhook ended.
func EndingsStream(client id.Client, webhook id.Webhook, day time.Time) Stream {
	return name("deliveries", string(client), string(webhook), day.Format("20060102"))
}

// CampaignStream is a campaign's stream until its start, part 0, or one of its
// spending streams.
func CampaignStream(client id.Client, campaign id.Campaign, part int) Stream {
	if part == 0 {
		return name("campaign", string(client), string(campaign))
	}
	return name("spending", string(client), string(campaign), strconv.Itoa(part))
}

// ImpressionsStream holds the impressions of a campaign that a user had.
func ImpressionsStream(client id.Client, campaign id.Campaign, user id.User) Stream {
	return name("impressions", string(client), string(campaign), string(user))
}

// EngagementStream holds what followed one impression.
func EngagementStream(client id.Client, impression id.Impression) Stream {
	return name("engagement", string(client), string(impression))
}

// LayerStream holds one consent layer.
func LayerStream(client id.Client, layer id.ConsentLayer) Stream {
	return name("layer", string(client), string(layer))
}

// ConsentStream holds a user's consent under a layer.
func ConsentStream(client id.Client, layer id.ConsentLayer, user id.User) Stream {
	return name("consent", string(client), string(layer), string(user))
}

// AllConsentsStream holds what was said for all users of a layer at once, in
// requests that cannot be repeated.
func AllConsentsStream(client id.Client, layer id.ConsentLayer) Stream {
	return name("consents", string(client), string(layer))
}

// ConsentRequestStream holds a request to change the consents of some users, or
// of all, that may be repeated.
func ConsentRequestStream(client id.Client, layer id.ConsentLayer, request id.Request) Stream {
	return name("consents", string(client), string(layer), string(request))
}

// SegmentsStream holds a client's segments.
func SegmentsStream(client id.Client) Stream { return name("segments", string(client)) }

// SegmentTimeStream holds how far time has come for a client's segments.
func SegmentTimeStream(client id.Client) Stream { return name("segmenttime", string(client)) }

// RunsStream holds the clustering runs of a layer, or of a segment of it, and what became
// of the clusters.
func RunsStream(client id.Client, of event.RunScope) Stream {
	if of.Segment == "" {
		return name("runs", string(client), string(of.Layer))
	}
	return name("runs", string(client), string(of.Layer), string(of.Segment))
}

// AssignedStream holds who came into which cluster. What an attempt finds stands
// in streams of the attempt, so that one that was given up and one that follows
// it never meet.
func AssignedStream(client id.Client, of event.RunAttempt) Stream {
	return name("run", string(client), string(of.Run), strconv.Itoa(of.Attempt))
}

// ProfileStream holds what an attempt found out about a cluster; of no cluster, how it
// read its users.
func ProfileStream(client id.Client, of event.RunAttempt, cluster id.Cluster) Stream {
	if cluster == "" {
		return name("profile", string(client), string(of.Run), strconv.Itoa(of.Attempt))
	}
	return name("profile", string(client), string(of.Run), strconv.Itoa(of.Attempt), string(cluster))
}

// The kinds of claim. A claim's stream is named by its kind and a hash of what it claims.
const (
	EmailClaim = "email"
	SlugClaim  = "slug"
)

// ClaimStream holds who has what is unique across clients, by its keyed hash.
func ClaimStream(kind string, keyed [32]byte) Stream {
	return name(kind, hex.EncodeToString(keyed[:]))
}

// Shared says whether events of several clients may stand in a stream, one client's after another's: what one has given
// back, another may claim.
func (s Stream) Shared() bool {
	kind, _, _ := strings.Cut(string(s), "-")
	return kind == EmailClaim || kind == SlugClaim
}

// Client is whose stream it is, the second part of its name; empty for one that is shared.
func (s Stream) Client() id.Client {
	if s.Shared() {
		return ""
	}
	_, rest, _ := strings.Cut(string(s), "-")
	client, _, _ := strings.Cut(rest, "-")
	return id.Client(client)
}

func name(parts ...string) Stream { return Stream(strings.Join(parts, "-")) }
