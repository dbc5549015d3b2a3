// Package id names things. Every identifier is typed, says by its prefix what
// it names, and holds 16 bytes: "usr_" and 26 characters of base32.
package id

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// The identifiers of the service.
type (
	Client       string // a tenant: cli_
	Member       string // a dashboard user: mem_
	Key          string // an API key record: key_
	Session      string // a member's session: ses_
	User         string // an end user: usr_
	Webhook      string // a webhook subscription: whk_
	WebhookKey   string // a client's key pair that signs deliveries: wky_
	ConsentLayer string // lay_
	Run          string // a clustering run: run_
	Cluster      string // clu_
	Segment      string // a group of users by rule: seg_
	Campaign     string // cam_
	Impression   string // a campaign that was shown to somebody: ipr_
	Delivery     string // dlv_
	Event        string // a recorded event: evt_
	Import       string // a bulk import of users: imp_
	Rebuild      string // of a read model, asked for over the API: rbd_
	Request      string // an HTTP request, the correlation of all it causes: req_
)

func (Client) prefix() string       { return "cli_" }
func (Member) prefix() string       { return "mem_" }
func (Key) prefix() string          { return "key_" }
func (Session) prefix() string      { return "ses_" }
func (User) prefix() string         { return "usr_" }
func (Webhook) prefix() string      { return "whk_" }
func (WebhookKey) prefix() string   { return "wky_" }
func (ConsentLayer) prefix() string { return "lay_" }
func (Run) prefix() string          { return "run_" }
func (Cluster) prefix() string      { return "clu_" }
func (Segment) prefix() string      { return "seg_" }
func (Campaign) prefix() string     { return "cam_" }
func (Impression) prefix() string   { return "ipr_" }
func (Delivery) prefix() string     { return "dlv_" }
func (Event) prefix() string        { return "evt_" }
func (Import) prefix() string       { return "imp_" }
func (Rebuild) prefix() string      { return "rbd_" }
func (Request) prefix() string      { return "req_" }

// Typed is any identifier of this package.
type Typed interface {
	~string
	prefix() string
}

// encoding is base32 with the extended hex alphabet in lower case, so that
// text order is byte order.
var encoding = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// From writes 16 bytes as an identifier.
func From[T Typed](raw [16]byte) T {
	var kind T
	return T(kind.prefix() + encoding.EncodeToString(raw[:]))
}

// Parse checks that s is an identifier of type T as From writes it.
func Parse[T Typed](s string) (T, error) {
	var kind T
	raw, err := bytes(s, kind.prefix())
	if err != nil {
		return "", err
	}
	if canonical := From[T](raw); string(canonical) != s {
		return "", fmt.Errorf("%q is not a %s… identifier", clip(s), kind.prefix())
	}
	return T(s), nil
}

// Bytes returns the 16 bytes of an identifier.
func Bytes[T Typed](v T) ([16]byte, error) { return bytes(string(v), v.prefix()) }

func bytes(s, prefix string) (raw [16]byte, err error) {
	text, found := strings.CutPrefix(s, prefix)
	if !found || len(text) != 26 {
		return raw, fmt.Errorf("%q is not a %s… identifier", clip(s), prefix)
	}
	if n, err := encoding.Decode(raw[:], []byte(text)); err != nil || n != 16 {
		return raw, fmt.Errorf("%q is not a %s… identifier", clip(s), prefix)
	}
	return raw, nil
}

// IsDerived says whether an identifier followed from a seed, see Next.
func IsDerived[T Typed](v T) bool {
	raw, err := Bytes(v)
	return err == nil && raw[6]&0xf0 == derivedVersion
}

// clip keeps what a caller sent short enough to be quoted back.
func clip(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}

// Source hands out identifiers: random ones, or, for a command that may be
// repeated, always the same ones in the same order. It serves one goroutine.
type Source struct {
	entropy io.Reader
	seed    [32]byte
	next    uint64
}

// Random draws identifiers from entropy, such as crypto/rand.Reader.
func Random(entropy io.Reader) *Source { return &Source{entropy: entropy} }

// Derived hands out the identifiers that follow from parts: SHA-256 over the
// length-prefixed parts, then over that and an ordinal.
func Derived(parts ...string) *Source {
	h := sha256.New()
	for _, p := range parts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(p))))
		h.Write([]byte(p))
	}
	return &Source{seed: [32]byte(h.Sum(nil))}
}

// UUID versions of identifiers, in the high half of a byte. RFC 9562 gives sandboxVersion
// to nobody, so that no other client has it.
const (
	randomVersion  = 0x40
	derivedVersion = 0x80
	sandboxVersion = 0xf0
)

// NextSandbox takes the next identifier of a sandbox beside a client from s. It says of
// itself what it names, and whose it is, so that nobody has to look that up.
func NextSandbox(s *Source, parent Client) Client {
	raw, err1 := Bytes(Next[Client](s))
	of, err2 := Bytes(parent)
	if err := errors.Join(err1, err2); err != nil {
		panic(err) // both were written here
	}
	copy(raw[:6], of[:6])
	raw[6] = raw[6]&0x0f | sandboxVersion
	return From[Client](raw)
}

// Sandbox says whether a client is a sandbox: it stands beside another client, has no
// members of its own, and has a clock that can be moved.
func (c Client) Sandbox() bool {
	raw, err := Bytes(c)
	return err == nil && raw[6]&0xf0 == sandboxVersion
}

// OwnerSize is how long the part of a client's id is that its sandboxes have, too: 45 bits.
const OwnerSize = len("cli_") + 9

// Owner is the same of a client and its sandboxes: what is shared fairly among clients
// they have one share of. Two clients in a hundred thousand million have one by chance.
func (c Client) Owner() string { return string(c[:min(OwnerSize, len(c))]) }

// Everyone names all tokens of a client: they are revoked together when it is deleted.
func Everyone(client Client) string { return string(client) + "/all" }

// Next takes the next identifier from s. The 16 bytes are a valid UUID
// (RFC 9562, version 4 where random and 8 where derived). It panics when the
// entropy fails, as crypto/rand itself does.
func Next[T Typed](s *Source) T {
	var raw [16]byte
	version := byte(randomVersion)
	if s.entropy != nil {
		if _, err := io.ReadFull(s.entropy, raw[:]); err != nil {
			panic(fmt.Sprintf("read entropy: %v", err))
		}
	} else {
		sum := sha256.Sum256(binary.BigEndian.AppendUint64(s.seed[:], s.next))
		raw, version = [16]byte(sum[:16]), derivedVersion
	}
	s.next++
	raw[6] = raw[6]&0x0f | version
	raw[8] = raw[8]&0x3f | 0x80
	return From[T](raw)
}

// Logins names the tokens of a member from when the password had been changed so often:
// they are revoked together when it is changed again.
func Logins(member Member, changes int) string { return string(member) + "/" + strconv.Itoa(changes) }
