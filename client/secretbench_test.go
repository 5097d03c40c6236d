package client_test

import (
	"fmt"
	"net/http"
	"runtime"
	"testing"

	"github.com/sluice-kms/sluice/client"
)

// benchSecrets holds n secrets of two versions each when split, of one
// otherwise.
func benchSecrets(b *testing.B, n int, split bool) (*client.Secrets, []string) {
	b.Helper()
	f := newFake()
	var paths []string
	for i := range n {
		path := fmt.Sprintf("tenant-%d/llm/openai", i)
		paths = append(paths, path)
		versions := []fakeVersion{{1, 90, "sk-0123456789abcdef0123456789abcdef0123456789abcdef"}}
		if split {
			versions = append(versions, fakeVersion{2, 10, "sk-fedcba9876543210fedcba9876543210fedcba9876543210"})
		}
		f.put(path, "changed", "ok", versions...)
	}
	s := newSecrets(b, f, client.SecretsOptions{})
	if err := s.Preload(b.Context(), paths...); err != nil {
		b.Fatal(err)
	}
	return s, paths
}

func BenchmarkAHeldHandle(b *testing.B) {
	for name, split := range map[string]bool{"one version": false, "two versions": true} {
		b.Run(name, func(b *testing.B) {
			s, paths := benchSecrets(b, 1, split)
			h := s.Handle(paths[0])
			b.ReportAllocs()
			for b.Loop() {
				if _, err := h.Get("request-0123456789"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAHeldHandleInParallel(b *testing.B) {
	s, paths := benchSecrets(b, 1, false)
	h := s.Handle(paths[0])
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if _, err := h.Get("request-0123456789"); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkByPath(b *testing.B) {
	s, paths := benchSecrets(b, 10_000, false)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if _, err := s.Get(paths[i%len(paths)], "request-0123456789"); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

// BenchmarkMemory reports the bytes that a secret takes among 10,000.
func BenchmarkMemory(b *testing.B) {
	const n = 10_000
	for b.Loop() {
		before := heap()
		s, _ := benchSecrets(b, n, false)
		with := heap()
		s.Close()
		without := heap()
		b.ReportMetric(float64(with-without)/n, "B/secret")
		b.ReportMetric(float64(with-before)/n, "B/secret-with-the-service")
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func BenchmarkATransport(b *testing.B) {
	s, paths := benchSecrets(b, 1, false)
	base := roundTripper(func(*http.Request) (*http.Response, error) { return ok(`{}`), nil })
	rt := s.Handle(paths[0]).Transport(client.TransportOptions{Base: base})
	req, err := http.NewRequest(http.MethodGet, "https://llm.test/", nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		res, err := rt.RoundTrip(req)
		if err != nil {
			b.Fatal(err)
		}
		res.Body.Close()
	}
}
