package auth

import (
	"testing"

	jose "github.com/go-jose/go-jose/v4"
)

// The core of an exchange: checksum, hash, lookup, claims, signature.
func BenchmarkExchange(b *testing.B) {
	s := newService(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.endpoints.exchange(b.Context(), s.apiKey); err != nil {
			b.Fatal(err)
		}
	}
}

// The signature alone, the floor of an exchange.
func BenchmarkBareSignature(b *testing.B) {
	for _, alg := range []jose.SignatureAlgorithm{jose.ES256, jose.EdDSA} {
		b.Run(string(alg), func(b *testing.B) {
			key, err := newFixture(b).keys.signer(alg)
			if err != nil {
				b.Fatal(err)
			}
			payload := make([]byte, 300)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := key.signer.Sign(payload); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAuthenticate(b *testing.B) {
	w := newFixture(b)
	for name, token := range map[string]string{"ES256": w.exchanged(b), "EdDSA": w.login(b)} {
		b.Run("cached/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := w.verifier.Authenticate(b.Context(), token); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("uncached/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w.verifier.cache.Purge()
				if _, err := w.verifier.Authenticate(b.Context(), token); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
