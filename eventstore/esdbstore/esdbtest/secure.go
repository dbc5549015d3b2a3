package esdbtest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// StartSecure starts a server of one node that speaks TLS alone, and with
// this user alone. Its URL names the user, the password and the authority.
func StartSecure(t testing.TB, user, password string) *Server {
	t.Helper()
	certificate, authority := selfSigned(t)
	s := newServer(t)
	s.secure = []grpc.ServerOption{
		grpc.Creds(credentials.NewServerTLSFromCert(&certificate)),
		grpc.StreamInterceptor(func(srv any, call grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			if err := known(call.Context(), user, password); err != nil {
				return err
			}
			return next(srv, call)
		}),
	}
	s.join(t)
	s.url = "esdb://" + url.UserPassword(user, password).String() + "@" + s.nodes[0].address + "?tlsCAFile=" + url.QueryEscape(authority)
	return s
}

func known(ctx context.Context, user, password string) error {
	said, _ := metadata.FromIncomingContext(ctx)
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
	if strings.Join(said.Get("authorization"), ",") != want {
		return status.Error(codes.Unauthenticated, "Unauthenticated")
	}
	return nil
}

// selfSigned makes a certificate for this machine, and the file that holds it.
func selfSigned(t testing.TB) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), nil) // draws its own entropy
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotAfter: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC), IsCA: true, BasicConstraintsValid: true,
	}
	raw, err := x509.CreateCertificate(nil, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "authority.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, file
}
