package conformance

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// authority signs certificates of servers.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	file string // as SDKs are told to trust it
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	a := authority{key: newKey(t), file: filepath.Join(t.TempDir(), "authority.pem")}
	cert := &x509.Certificate{
		Subject: pkix.Name{CommonName: "an authority " + rand.Text()}, SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(48 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil { // has a key id, which Python 3.13 wants to find in what it signs
		t.Fatal(err)
	}
	if err := os.WriteFile(a.file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a authority) sign(t *testing.T, cert *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// serve begins a server of this machine with a certificate that is good but for what change does. It counts connections.
func (a authority) serve(t *testing.T, change func(*x509.Certificate)) (url string, connections *atomic.Int64) {
	t.Helper()
	key := newKey(t)
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	change(cert)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { good(w) }))
	connections = new(atomic.Int64)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes fail, as they are to
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{a.sign(t, cert, key)}, PrivateKey: key}}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL, connections
}

// No repetition mends a certificate, and nothing was sent: whoever reads the error is to know what is to be mended.
func TestACertificateThatIsNotTrustedIsToldAtOnce(t *testing.T) {
	t.Parallel()
	trusted, other := newAuthority(t), newAuthority(t)
	for _, name := range sdks() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := startDriver(t, name, "SSL_CERT_FILE="+trusted.file, "NODE_EXTRA_CA_CERTS="+trusted.file)
			url, _ := trusted.serve(t, func(*x509.Certificate) {})
			d.client("trusted", url, command{"token": tokenOf(1)})
			d.must("trusted", "users.get", getUser)
			for what, one := range map[string]struct {
				by     authority
				change func(*x509.Certificate)
			}{
				"unknown":    {other, func(*x509.Certificate) {}},
				"expired":    {trusted, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Hour) }},
				"not yet":    {trusted, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) }},
				"other host": {trusted, func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 2)} }},
			} {
				url, connections := one.by.serve(t, one.change)
				d.client(what, url, command{"token": tokenOf(1)})
				d.client(what+" key", url)
				for _, client := range []string{what, what + " key"} {
					connections.Store(0)
					if _, failed := d.events(client, "follow", command{"options": command{"timeout_ms": 10_000}}); failed == nil || failed.Kind != "connection" || connections.Load() != 1 {
						t.Errorf("%s: a follower ended with %v after %d connections", client, failed, connections.Load())
					}
					for method, more := range map[string]command{"users.get": getUser, "users.change": changeUser} {
						connections.Store(0)
						f := d.fails("connection", client, method, more)
						if connections.Load() != 1 || !strings.Contains(f.Message, "certificate") || strings.Contains(f.Message, "taken effect") || strings.Contains(f.Message, "secret") {
							t.Errorf("%s, %s: %d connections, %s", client, method, connections.Load(), f.Message)
						}
					}
				}
			}
		})
	}
}
