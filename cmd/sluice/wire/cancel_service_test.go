package wire_test

import (
	"bytes"
	"context"
	"encoding/json/v2"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
)

// cancelPace is how many requests a second begin, each of which its client may
// leave at any moment.
const cancelPace = 1000

// cancelSeconds is for how long: SLUICE_CHAOS=full asks for minutes.
func cancelSeconds() int {
	if os.Getenv("SLUICE_CHAOS") == "full" {
		return 180
	}
	return 4
}

// Clients of several tenants leave at random moments, a thousand requests a
// second, so that slots, sessions, buffers and connections change hands in the
// midst of calls. Every answer that does arrive is its own tenant's: ciphertexts
// of one decrypt to what that tenant sent, and to nothing for another (a
// multiplexed connection that went on after a cancelled request gave answers to
// others: redis-py, ChatGPT, 20 March 2023).
func TestClientsWhoLeaveNeverGetAnothersAnswer(t *testing.T) {
	s := wiretest.Start(t, t.TempDir())
	v := &village{Service: s}
	const tenants = 4
	tokens, ciphertexts := make([]string, tenants), make([][][]byte, tenants)
	value := func(tenant, i int) []byte {
		return bytes.Repeat(fmt.Appendf(nil, "tenant-%d value-%d;", tenant, i), 1+i%50)
	}
	const values = 20
	for i := range tenants {
		_, tokens[i] = v.tenant(t, fmt.Sprintf("tenant-%d", i))
		v.make(t, tokens[i], "/v1/keys", object{"name": "k", "spec": "AES_256"})
		for n := range values {
			ciphertexts[i] = append(ciphertexts[i], v.make(t, tokens[i], "/v1/keys/k/encrypt", object{"plaintext": value(i, n)}).Ciphertext)
		}
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 64, MaxConnsPerHost: 256}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	var answered, left, refused atomic.Int64
	// patience, in µs, follows how long requests take here, so that many end in
	// their midst.
	var patience atomic.Int64
	patience.Store(4000)
	request := func(tenant, n int) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.Int64N(2*patience.Load()))*time.Microsecond)
		defer cancel()
		body, _ := json.Marshal(object{"ciphertext": ciphertexts[tenant][n]})
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/v1/keys/k/decrypt", bytes.NewReader(body))
		if err != nil {
			t.Error(err)
			return
		}
		r.Header.Set("Authorization", "Bearer "+tokens[tenant])
		r.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(r)
		var a answer
		if err == nil {
			err = json.UnmarshalRead(resp.Body, &a)
			resp.Body.Close()
		}
		switch {
		case err != nil:
			left.Add(1)
			patience.Store(min(patience.Load()+20, 200_000))
		case resp.StatusCode != http.StatusOK:
			refused.Add(1)
		default:
			answered.Add(1)
			patience.Store(max(patience.Load()-20, 200))
			if !bytes.Equal(a.Plaintext, value(tenant, n)) {
				t.Errorf("tenant-%d asked for value %d and got %.60q", tenant, n, a.Plaintext)
			}
		}
	}
	var all sync.WaitGroup
	began := time.Now()
	total := cancelPace * cancelSeconds()
	for i := range total {
		if wait := time.Until(began.Add(time.Duration(i) * time.Second / cancelPace)); wait > 0 {
			<-time.After(wait)
		}
		all.Go(func() { request(rand.IntN(tenants), rand.IntN(values)) })
	}
	paced := time.Since(began)
	all.Wait()
	t.Logf("%d requests begun in %v: %d answered, %d left before, %d refused", total, paced.Round(10*time.Millisecond), answered.Load(), left.Load(), refused.Load())
	if answered.Load() < int64(total/20) || left.Load() < int64(total/20) {
		t.Error("this test cancels nothing, or everything")
	}
	if rate := float64(total) / paced.Seconds(); rate < 0.9*cancelPace {
		t.Logf("the machine began %.0f requests a second only", rate)
	}
	// Another tenant's ciphertext is nothing to anybody, and all goes on.
	for i := range tenants {
		other := (i + 1) % tenants
		if status, _ := call(t, s, tokens[i], "POST", "/v1/keys/k/decrypt", object{"ciphertext": ciphertexts[other][0]}); status/100 != 4 {
			t.Errorf("another tenant's ciphertext is answered with %d", status)
		}
		if got := v.make(t, tokens[i], "/v1/keys/k/decrypt", object{"ciphertext": ciphertexts[i][0]}).Plaintext; !bytes.Equal(got, value(i, 0)) {
			t.Errorf("afterwards: %q", got)
		}
	}
}
