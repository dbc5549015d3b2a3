package dispatcher

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"kindred/domain/id"
	"kindred/eventstore/projector"
	"kindred/eventstore/seal"
)

// Checker tells receivers why they cannot verify what they got.
type Checker struct {
	Log     Log
	Secrets Secrets
	Now     func() time.Time
}

// Received is a delivery as a receiver has it.
type Received struct {
	Header http.Header
	Body   []byte
	Sent   []byte // the body as it was sent; nil: not known
}

// Check is what was found.
type Check struct {
	Verified bool       // a signature fits, and nothing failed
	Webhook  id.Webhook // whose secret fits; "": none does
	Steps    []Step
}

func (found *Check) add(name, status, detail string, args ...any) {
	found.Steps = append(found.Steps, Step{name, status, fmt.Sprintf(detail, args...)})
	found.Verified = found.Verified && status != StepFailed
}

// Step is one part of a verification.
type Step struct {
	Name, Status, Detail string
}

// Names of steps.
const (
	StepHeaders          = "headers"
	StepTimestamp        = "timestamp"
	StepSignature        = "webhook_signature"
	StepEd25519          = "ed25519_signature"
	StepServiceSignature = "service_signature"
	StepBody             = "body"
)

// How a step ends.
const (
	StepOK      = "ok"
	StepFailed  = "failed"
	StepSkipped = "skipped" // what it looks at is not there
)

// tolerance is how far the time of a signature may be off, as Standard Webhooks says.
// limit: webhooks | how far `webhook-timestamp` may be from now | {tolerance}, in the SDKs and `webhooks/check`
const tolerance = 5 * time.Minute

const selectSigners = `
SELECT f.reached, f.head, f.quarantined, coalesce(e.webhook, ''), coalesce(e.secrets, '[]'::jsonb)
FROM fresh f LEFT JOIN dispatch_endpoints e ON e.client = $1 AND e.state <> 'removed'
ORDER BY e.webhook`

// signer is a secret of a subscription, open, or a key pair of the client.
type signer struct {
	webhook id.Webhook
	secret  []byte
	pair    *Key
	former  bool // it was replaced, and signs for a day beside the new one
}

func (s signer) String() string {
	which := "newest"
	if s.former {
		which = "former"
	}
	if s.pair != nil {
		return which + " key, " + string(s.pair.ID)
	}
	return which + " secret of " + string(s.webhook)
}

// signers opens the secrets of a client's subscriptions that sign now.
func (c Checker) signers(ctx context.Context, client id.Client, eventual bool) (all []signer, err error) {
	var found []claim
	reader := projector.Reader{Of: (*Dispatcher)(nil), Progress: c.Log.Progress, AtOnce: c.Log.AtOnce}
	err = reader.Read(ctx, eventual, func(ctx context.Context) (at projector.At, err error) {
		found = nil
		rows, _ := c.Log.Pool.Query(ctx, `WITH `+projector.Fresh(reader.Of)+selectSigners, client) // what it fails with, its rows end with
		one := claim{Client: client}
		_, err = pgx.ForEachRow(rows, []any{&at.Reached, &at.Head, &at.Quarantined, &one.Webhook, &one.Secrets}, func() error {
			found = append(found, one)
			one.Secrets = nil
			return nil
		})
		return at, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the secrets of webhooks: %w", err)
	}
	opened := newOpenedSecrets(c.Secrets)
	for _, one := range found {
		secrets, err := opened.signing(ctx, one, c.Now())
		if errors.Is(err, seal.ErrErased) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for i, secret := range secrets {
			all = append(all, signer{webhook: one.Webhook, secret: secret, former: i > 0})
		}
	}
	return all, nil
}

// Check verifies what a receiver got as the receiver should, and says of each step how
// it ended, and why.
// Faults: building, quarantined, stale.
func (c Checker) Check(ctx context.Context, client id.Client, eventual bool, r Received) (Check, error) {
	signers, err := c.signers(ctx, client, eventual)
	if err != nil {
		return Check{}, err
	}
	pairs, err := c.Log.Keys(ctx, client, eventual, c.Now())
	if err != nil {
		return Check{}, err
	}
	for i, pair := range pairs {
		signers = append(signers, signer{pair: &pair, former: i > 0})
	}
	found := Check{Verified: true}
	r.headers(found.add)
	r.timestamp(found.add, c.Now())
	standard := strings.Fields(r.Header.Get("Webhook-Signature"))
	bySecret := slices.DeleteFunc(slices.Clone(standard), func(one string) bool { return strings.HasPrefix(one, "v1a,") })
	byKey := slices.DeleteFunc(standard, func(one string) bool { return !strings.HasPrefix(one, "v1a,") })
	fits := found.matchStandard(StepSignature, bySecret, signers, r, fitsStandard)
	fits = found.matchStandard(StepEd25519, byKey, signers, r, fitsKey) || fits
	fits = found.match(StepServiceSignature, r.Header.Get("X-Service-Signature"), signers, r, fitsService) || fits
	r.body(found.add)
	found.Verified = found.Verified && fits
	return found, nil
}

// secondsNoMore since 1970 are of the year 5138: what is as large was told in milliseconds.
const secondsNoMore = 100_000_000_000

type addStep func(name, status, detail string, args ...any)

func (r Received) headers(add addStep) {
	var missing []string
	for _, name := range []string{"webhook-id", "webhook-timestamp", "webhook-signature"} {
		if r.Header.Get(name) == "" {
			missing = append(missing, name)
		}
	}
	switch {
	case len(missing) == 0:
		add(StepHeaders, StepOK, "All that Standard Webhooks needs is there.")
	case r.Header.Get("X-Service-Signature") != "" && len(missing) == 3:
		add(StepHeaders, StepOK, "X-Service-Signature is there, and nothing of Standard Webhooks.")
	case r.Header.Get("X-Service-Signature") == "" && r.Header.Get("webhook-signature") == "":
		add(StepHeaders, StepFailed, "There is no signature: neither webhook-signature nor X-Service-Signature. A subscription without a secret signs nothing, and a proxy may drop headers.")
	default:
		add(StepHeaders, StepFailed, "%s missing. Pass on every header as it came; their names are the same in any case.", strings.Join(missing, " and "))
	}
}

func (r Received) timestamp(add addStep, now time.Time) {
	text := r.Header.Get("Webhook-Timestamp")
	if text == "" {
		add(StepTimestamp, StepSkipped, "There is no webhook-timestamp.")
		return
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	switch off := now.Sub(time.Unix(seconds, 0)); {
	case err != nil || seconds < 0 || seconds >= secondsNoMore:
		add(StepTimestamp, StepFailed, "webhook-timestamp is no number of seconds since 1970; pass it on as it came.")
	case off > tolerance:
		add(StepTimestamp, StepFailed, "It was signed %s ago, and libraries refuse what is older than 5 minutes. A redelivery is signed anew.", off.Round(time.Second))
	case off < -tolerance:
		add(StepTimestamp, StepFailed, "It is signed %s in the future.", (-off).Round(time.Second))
	default:
		add(StepTimestamp, StepOK, "It was signed %s ago.", max(0, off).Round(time.Second))
	}
}

// matchStandard is match for signatures that cover the id and the time, too.
func (found *Check) matchStandard(name string, signatures []string, signers []signer, r Received, fits func(signature string, by signer, r Received) error) bool {
	if len(signatures) > 0 && (r.Header.Get("Webhook-Id") == "" || r.Header.Get("Webhook-Timestamp") == "") {
		found.add(name, StepSkipped, "It covers webhook-id and webhook-timestamp, too: without both it cannot be verified.")
		return false
	}
	return found.match(name, strings.Join(signatures, " "), signers, r, fits)
}

// match looks for what signs a body, as it came or as it was sent.
func (found *Check) match(name, signature string, signers []signer, r Received, fits func(signature string, by signer, r Received) error) bool {
	if signature == "" {
		found.add(name, StepSkipped, "There is none.")
		return false
	}
	wrong := errNobody
	for _, s := range signers {
		err := fits(signature, s, r)
		if err == nil {
			found.Webhook = cmp.Or(found.Webhook, s.webhook)
			found.add(name, StepOK, "It is by the %s.", s)
			return true
		}
		if as := r; errors.Is(err, errOther) && r.Sent != nil {
			as.Body = r.Sent
			if fits(signature, s, as) == nil {
				err = fmt.Errorf("it is by the %s over the body as it was sent, and yours is another: verify the bytes as they came, before anything parses them", s)
			}
		}
		if !errors.Is(err, errNotMine) && (!errors.Is(err, errOther) || errors.Is(wrong, errNobody)) {
			wrong = err
		}
	}
	found.add(name, StepFailed, "%s.", capital(wrong.Error()))
	return false
}

var (
	errNobody  = errors.New("none of your subscriptions has what makes such a signature: a secret, or ed25519")
	errNotMine = errors.New("it is made by another kind of key")
	errOther   = errors.New("nothing that signs now fits: a secret or key was replaced over a day ago, the delivery is another client's, or the body, webhook-id or webhook-timestamp has changed on its way")
)

// fitsStandard says whether one of the signatures of Standard Webhooks is by a secret.
func fitsStandard(signatures string, by signer, r Received) error {
	if by.secret == nil {
		return errNotMine
	}
	want := mac(standardKey(by.secret), r.standardMessage())
	known := false
	for one := range strings.FieldsSeq(signatures) {
		text, v1 := strings.CutPrefix(one, "v1,")
		if !v1 {
			continue
		}
		known = true
		got, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(got) != len(want) {
			return errors.New("what follows v1, is not base64 of 32 bytes: the header was cut or changed")
		}
		if hmac.Equal(got, want) {
			return nil
		}
	}
	if !known {
		return errors.New("webhook-signature holds no signature that begins with v1,")
	}
	return errOther
}

// fitsKey says whether one of the Ed25519 signatures of Standard Webhooks is by a key pair.
func fitsKey(signatures string, by signer, r Received) error {
	if by.pair == nil {
		return errNotMine
	}
	for one := range strings.FieldsSeq(signatures) {
		got, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(one, "v1a,"))
		if err != nil || len(got) != ed25519.SignatureSize {
			return errors.New("what follows v1a, is not base64 of 64 bytes: the header was cut or changed")
		}
		if ed25519.Verify(by.pair.Public, r.standardMessage(), got) {
			return nil
		}
	}
	return errOther
}

func (r Received) standardMessage() []byte {
	return standardMessage(r.Header.Get("Webhook-Id"), r.Header.Get("Webhook-Timestamp"), r.Body)
}

// fitsService says whether the contract's signature is by a secret.
func fitsService(signature string, by signer, r Received) error {
	if by.secret == nil {
		return errNotMine
	}
	got, err := hex.DecodeString(signature)
	want := mac(by.secret, r.Body)
	switch {
	case err != nil || len(got) != len(want) || hex.EncodeToString(got) != signature:
		return errors.New("X-Service-Signature is not 64 hexadecimal digits in lower case: the header was cut or changed")
	case !hmac.Equal(got, want):
		return errOther
	}
	return nil
}

func (r Received) body(add addStep) {
	switch {
	case r.Sent == nil:
		add(StepBody, StepSkipped, "What was sent is not known: webhook-id names no event of yours, as that of a test does, or one that names a user who was erased.")
	case bytes.Equal(r.Sent, r.Body):
		add(StepBody, StepOK, "It is the body that was sent, byte for byte.")
	default:
		at := 0
		for at < min(len(r.Sent), len(r.Body)) && r.Sent[at] == r.Body[at] {
			at++
		}
		add(StepBody, StepFailed, "%d bytes were sent, and these are %d; they differ from byte %d on.", len(r.Sent), len(r.Body), at+1)
	}
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
