package wire_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// BenchmarkServiceEncrypt is the route without HTTP, journal on.
func BenchmarkServiceEncrypt(b *testing.B) {
	s := service(b)
	name := "bench-" + uuid.New().String()[:8]
	must(b, s, "/v1/keys", object{"name": name, "spec": "AES_256"})
	by, err := s.App.Authenticator.Authenticate(context.Background(), s.Demo, here)
	if err != nil {
		b.Fatal(err)
	}
	in := kms.EncryptInput{Plaintext: make([]byte, 64)}
	b.ReportAllocs()
	b.ResetTimer()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			t := &kms.Ticket{RequestID: uuid.NewV7(), By: by, Received: time.Now(), Urgency: kms.UrgencyNormal}
			if _, err := s.App.Service.Encrypt(context.Background(), t, name, in); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkHandlerEncrypt is the whole handler without the network.
func BenchmarkHandlerEncrypt(b *testing.B) {
	s := service(b)
	name := "bench-" + uuid.New().String()[:8]
	must(b, s, "/v1/keys", object{"name": name, "spec": "AES_256"})
	body := `{"plaintext":"` + strings.Repeat("bW1t", 21) + `"}`
	b.ReportAllocs()
	b.ResetTimer()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r := httptest.NewRequest(http.MethodPost, "/v1/keys/"+name+"/encrypt", strings.NewReader(body))
			r.RemoteAddr = "127.0.0.1:1234"
			r.Header.Set("Authorization", "Bearer "+s.Demo)
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			s.Handler.ServeHTTP(w, r)
			if w.Code != http.StatusOK {
				b.Error(w.Code, w.Body)
				return
			}
		}
	})
}
