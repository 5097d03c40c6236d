package api_test

import (
	"bytes"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/sluice-kms/sluice/kms"
)

// BenchmarkEncrypt measures a request from its headers to its answer, with
// ports in memory and the in-process engine: what is not the interface's
// share is the engine's loading of the key and its AES.
func BenchmarkEncrypt(b *testing.B) {
	for _, size := range []int{16, 4 << 10, 1 << 20} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			w := newWorld(b)
			path := "/v1/keys/" + w.key(w.acme, kms.SpecAES256, "", "") + "/encrypt"
			body := []byte(`{"plaintext":"` + encode(make([]byte, size)) + `"}`)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest("POST", path, bytes.NewReader(body))
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Authorization", "Bearer "+w.acme.token)
				recorder := httptest.NewRecorder()
				w.handler.ServeHTTP(recorder, r)
				if recorder.Code != 200 {
					b.Fatal(recorder.Body)
				}
			}
		})
	}
}

// BenchmarkRefuse measures a request that is refused before it is decoded.
func BenchmarkRefuse(b *testing.B) {
	w := newWorld(b)
	b.ReportAllocs()
	for b.Loop() {
		recorder := httptest.NewRecorder()
		w.handler.ServeHTTP(recorder, httptest.NewRequest("POST", "/v1/random", nil))
		if recorder.Code != 401 {
			b.Fatal(recorder.Body)
		}
	}
}
