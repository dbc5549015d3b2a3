package dispatcher

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"kindred/eventstore/seal"
	"kindred/panics"
)

const (
	// limit: webhooks | answers that are kept | the first {keptAnswer B} of each
	keptAnswer    = 4 << 10  // bytes of an answer that the delivery log keeps
	drainedAnswer = 64 << 10 // bytes of an answer that are read, so that the connection can be kept

	// idleConnection is under the 5 s after which common servers close theirs:
	// a request that meets the closing would count as a failed attempt.
	idleConnection = 4 * time.Second
)

// newTransport makes connections for one process. It knows no proxy, follows no
// redirect and repeats no request that may have been seen.
func newTransport(guard *Guard, c Config, resolver *net.Resolver) *http.Transport {
	return &http.Transport{
		DialContext:            guard.dialer(c.Timeout, resolver),
		TLSHandshakeTimeout:    c.Timeout,
		MaxIdleConns:           c.FirstAttempts + c.Retries,
		MaxIdleConnsPerHost:    2 * c.PerEndpoint,
		IdleConnTimeout:        idleConnection,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true,
	}
}

// maxRereads is how often an attempt reads its subscription again where what was read is older than
// freshFor. What it reads last it goes by, however long that took: where each statement took 130 ms,
// nothing was ever sent.
// limit: deliveries | times that a changed subscription is read anew before an attempt | {maxRereads}
const maxRereads = 3

// attempt sends a delivery once and says how it went. It ends within the time-out.
func (w *worker) attempt(ctx context.Context, c claim) outcome {
	o := outcome{claim: c, began: w.Now()}
	var ended outcome
	if err := panics.Caught(func() error { ended = w.attempted(ctx, o); return nil }); err != nil {
		return w.putBack(ctx, o, "attempt panicked", err)
	}
	return ended
}

func (w *worker) attempted(ctx context.Context, o outcome) outcome {
	c, started := o.claim, o.began
	private := false // the body names users as their client does
	if c.External {
		body, erased, err := w.named(ctx, c)
		switch {
		case err != nil:
			return unnamed(w.putBack(ctx, o, "external ids cannot be looked up", err), err)
		case erased:
			o.verdict = forgotten
			return o
		}
		private = !bytes.Equal(c.Body, body)
		c.Body = body
	}
	ctx, cancel := context.WithTimeout(ctx, w.config.Timeout)
	defer cancel()
	c, secrets, err := w.current(ctx, c, started)
	switch {
	case errors.Is(err, seal.ErrErased):
		// Never send unsigned what was to be signed.
		o.err = "the signing secret or the address does not exist any more"
	case err != nil:
		return w.putBack(ctx, o, "subscription cannot be read", err)
	case c.Cancelled:
		o.verdict = cancelled
		return o
	default:
		var asked string
		o.status, o.answer, asked, err = w.post(ctx, c, started, secrets)
		if outOfFiles(err) {
			return w.putBack(ctx, o, "this process or machine has no file descriptor left", err)
		}
		if c.Waits && (o.status == http.StatusTooManyRequests || o.status == http.StatusServiceUnavailable) {
			o.hold = retryAfter(asked, w.Now())
		}
		if private { // an answer may repeat the names, which must go with those who are erased
			o.answer = nil
		}
		o.err = describe(err, o.status)
	}
	o.latency = w.Now().Sub(started)
	if o.err == "" {
		o.verdict = delivered
		return o
	}
	o.verdict, o.retryIn = failed, -1
	if delay, again := retryIn(w.config.RetryDelays, c.Delivery, c.Failed+1); again {
		o.retryIn = delay // nothing is claimed before the hold has ended, too
	}
	return o
}

// outOfFiles says whether a connection could not be opened for want of descriptors, which is no fault
// of the endpoint. Of those that a lookup lacks, package net keeps the text alone.
func outOfFiles(err error) bool {
	for _, lack := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE} {
		lookup, failed := errors.AsType[*net.DNSError](err)
		if errors.Is(err, lack) || failed && strings.HasSuffix(lookup.Err, lack.Error()) {
			return true
		}
	}
	return false
}

// putBack ends a claim through no fault of the endpoint. While the database is slow that may be
// many in a second, of which the log gets the number and one reason.
func (w *worker) putBack(ctx context.Context, o outcome, why string, err error) outcome {
	w.putBacks.Add(1)
	w.telling.Do(func() {
		w.Logger.WarnContext(ctx, "deliveries put back", "deliveries", w.putBacks.Swap(0), "webhook_id", string(o.claim.Webhook), "reason", why, "error", err)
	})
	o.verdict, o.retryIn = returned, pauseAfterTrouble
	return o
}

// current returns a claim as its subscription is now, and opens its address, its
// endpoint's own headers and the secrets and keys that sign it at a time.
func (w *worker) current(ctx context.Context, c claim, at time.Time) (claim, [][]byte, error) {
	for reread := 0; ; reread++ {
		secrets, err := w.secrets.signing(ctx, c, at)
		if err == nil {
			c.URL, err = w.secrets.url(ctx, c, at)
		}
		if err == nil {
			c.Keys, err = w.secrets.keys(ctx, c, at)
		}
		if err == nil {
			c.Own, err = w.secrets.headers(ctx, c, at)
		}
		if err != nil {
			return c, nil, err
		}
		if reread == maxRereads || w.Now().Sub(c.read) < freshFor {
			return c, secrets, nil
		}
		again, err := w.rereads.Ask(ctx, c)
		if err != nil {
			return c, nil, err
		}
		before := c.read
		if c = again; c.Cancelled {
			return c, nil, nil
		}
		if c.read.Equal(before) {
			return c, nil, errors.New("somebody else holds the delivery")
		}
	}
}

var errURL = errors.New("the URL cannot be read")

// post makes the request. It returns the status, 0 where there was no answer,
// the beginning of the answer's body, and its Retry-After.
func (w *worker) post(ctx context.Context, c claim, at time.Time, secrets [][]byte) (status int, answer []byte, wait string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, bytes.NewReader(c.Body))
	if err != nil {
		return 0, nil, "", errURL
	}
	for name, value := range c.Own {
		req.Header.Set(name, value)
	}
	if req.Header.Get("Idempotency-Key") != "" || req.Header.Get("X-Idempotency-Key") != "" {
		req.GetBody = nil // else the transport repeats a request with such a header, though it may have been seen
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "kindred-webhooks/1")
	req.Header.Set("X-Service-Event", c.EventType)
	if c.Test {
		req.Header.Set("X-Kindred-Test", "true")
	}
	req.Header.Set("X-Kindred-Delivery", string(c.Delivery))
	if c.Client.Sandbox() {
		req.Header.Set("X-Kindred-Livemode", "false")
	}
	sign(req.Header, c.Event, at, c.Body, secrets, c.Keys)
	// Not through an http.Client: its errors quote the URL, and it follows redirects.
	resp, err := w.transport.RoundTrip(req)
	if err != nil {
		return 0, nil, "", err
	}
	wait = resp.Header.Get("Retry-After")
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return resp.StatusCode, nil, wait, nil // the body is the bare connection, which no time-out ends
	}
	// The status has decided. Where the body does not end in time or within its
	// bounds, the connection is not kept, and that is all.
	answer, err = io.ReadAll(io.LimitReader(resp.Body, keptAnswer))
	if err == nil && len(answer) == keptAnswer {
		_, _ = io.CopyN(io.Discard, resp.Body, drainedAnswer-keptAnswer)
	}
	return resp.StatusCode, answer, wait, nil
}

// closedAsTaken is what net/http, which has no value for it, says of a kept connection that the receiver closed just as
// the delivery took it. A transport that may repeat no request ends the attempt.
const closedAsTaken = "http: server closed idle connection"

const noAnswerInTime = "no answer within the time-out"

// describe puts a failure into words for the delivery log; empty is success. A
// redirect is a failure: it is not followed.
func describe(err error, status int) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return noAnswerInTime
	case errors.Is(err, io.EOF), err != nil && err.Error() == closedAsTaken:
		return "the receiver closed the connection without an answer"
	case err != nil:
		return outward(err)
	case status >= 300 && status < 400:
		return fmt.Sprintf("answered %d; redirects are not followed", status)
	case status < 200 || status >= 300:
		return fmt.Sprintf("answered %d", status)
	}
	return ""
}

// outward says in plain words why there was no answer. Go's own words quote what is for nobody
// to read: addresses of our network, the host of the URL, which is sealed, and what the
// receiver has sent, which may repeat its client's ids.
func outward(err error) string {
	certificate, uncertain := errors.AsType[*tls.CertificateVerificationError](err)
	_, unresolved := errors.AsType[*net.DNSError](err)
	_, unencrypted := errors.AsType[tls.RecordHeaderError](err)
	_, unconnected := errors.AsType[*net.OpError](err)
	timed, _ := errors.AsType[net.Error](err)
	switch {
	case uncertain:
		return uncertified(certificate.Err)
	case errors.Is(err, errURL):
		return errURL.Error()
	case unresolved, errors.Is(err, errRefused):
		// The same of a name that is not there and of one that leads to a private address:
		// else deliveries would tell which names our own network has.
		return "the host leads to no public address, nor to one that KINDRED_WEBHOOK_ALLOW_NETWORKS allows"
	case timed != nil && timed.Timeout():
		return noAnswerInTime
	case unencrypted, errors.Is(err, http.ErrSchemeMismatch):
		return "the receiver does not speak TLS: is the URL to begin with http://?"
	case strings.HasPrefix(err.Error(), "tls: "), strings.HasPrefix(err.Error(), "remote error: tls: "):
		return "the receiver and kindred found no TLS that both speak"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused: nothing listens at that port"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "the receiver's network cannot be reached"
	case unconnected: // ECONNRESET, EPIPE
		return "the receiver broke the connection off before it answered"
	default:
		return "the receiver's answer is not valid HTTP"
	}
}

// uncertified says why a certificate is refused.
func uncertified(err error) string {
	if _, other := errors.AsType[x509.HostnameError](err); other {
		return "the receiver's certificate is for another host"
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return "the receiver's certificate has expired or is not yet valid"
	}
	return "the receiver's certificate cannot be trusted"
}
