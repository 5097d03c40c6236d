package client_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-kms/sluice/client"
)

// inMemory is a client whose service is a function.
func inMemory(t *testing.T, o client.Options, f roundTripper) *client.Client {
	o.Address = "http://kms.test"
	o.HTTPClient = &http.Client{Transport: f}
	return newClient(t, o)
}

func retryAfter(seconds string) http.Header { return http.Header{"Retry-After": {seconds}} }

var (
	errBroken  = &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}
	errRefused = &net.OpError{Op: "dial", Err: errors.New("connection refused")}
)

// use and change are a call that changes nothing and one that does.
func use(ctx context.Context, c *client.Client) error {
	_, err := c.Sign(ctx, "k", client.SignInput{Message: []byte("m")})
	return err
}

func change(ctx context.Context, c *client.Client) error {
	_, err := c.RotateKey(ctx, "k")
	return err
}

func TestCallsAreRepeatedOnlyWhenUseful(t *testing.T) {
	always := client.DefaultMaxAttempts
	for _, tc := range []struct {
		name     string
		status   int // 0: err
		code     client.Code
		header   http.Header
		err      error
		attempts int
	}{
		{name: "rate limit", status: 429, code: client.ErrQuotaExceeded, attempts: always},
		{name: "busy HSMs", status: 503, code: client.ErrReducedCapacity, attempts: always},
		{name: "no HSM", status: 503, code: client.ErrHSMUnavailable, attempts: always},
		{name: "database, outcome unknown", status: 503, code: client.ErrStoreUnavailable, attempts: always},
		{name: "journal, outcome withheld", status: 503, code: client.ErrAuditUnavailable, attempts: always},
		{name: "a proxy without its server", status: 502, attempts: always},
		{name: "broken connection", err: errBroken, attempts: always},
		{name: "connection closed early", err: io.ErrUnexpectedEOF, attempts: always},
		{name: "no connection", err: errRefused, attempts: always},
		{name: "a stranger's certificate", err: &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, attempts: 1},
		{name: "an hour to wait", status: 429, code: client.ErrQuotaExceeded, header: retryAfter("3600"), attempts: 1},
		{name: "waited long enough", status: 504, code: client.ErrWaitExceeded, attempts: 1},
		{name: "quota used up", status: 402, code: client.ErrQuotaExhausted, attempts: 1},
		{name: "can never fit", status: 422, code: client.ErrUnsatisfiable, attempts: 1},
		{name: "not authenticated", status: 401, code: client.ErrUnauthenticated, attempts: 1},
		{name: "not there", status: 404, code: client.ErrNotFound, attempts: 1},
		{name: "conflict", status: 409, code: client.ErrConflict, attempts: 1},
		{name: "under way", status: 409, code: client.ErrConflict, header: retryAfter("1"), attempts: always},
		{name: "internal error", status: 500, code: client.ErrInternal, attempts: 1},
		{name: "redirect", status: 307, header: http.Header{"Location": {"http://elsewhere.test/"}}, attempts: 1},
	} {
		for _, kind := range []struct {
			name string
			do   func(context.Context, *client.Client) error
		}{{"use", use}, {"change", change}} {
			t.Run(tc.name+"/"+kind.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					attempts := 0
					c := inMemory(t, client.Options{}, func(r *http.Request) (*http.Response, error) {
						attempts++
						if tc.err != nil {
							return nil, tc.err
						}
						return problem(tc.status, tc.code, tc.header), nil
					})
					err := kind.do(t.Context(), c)
					if attempts != tc.attempts {
						t.Errorf("%d attempts, want %d", attempts, tc.attempts)
					}
					e, refused := errors.AsType[*client.Error](err)
					switch {
					case tc.err != nil && (!errors.Is(err, client.ErrNoAnswer) || !errors.Is(err, tc.err)):
						t.Errorf("error %v, want ErrNoAnswer around %v", err, tc.err)
					case tc.err == nil && (!refused || e.Status != tc.status || tc.code != "" && !errors.Is(err, tc.code)):
						t.Errorf("error %v, want status %d and code %q", err, tc.status, tc.code)
					}
				})
			})
		}
	}
}

func TestARepeatedCallIsTheSameCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bodies, targets []string
		c := inMemory(t, client.Options{}, func(r *http.Request) (*http.Response, error) {
			bodies = append(bodies, readAll(t, r.Body))
			targets = append(targets, r.Method+" "+r.URL.String()+" "+r.Header.Get("Authorization"))
			if len(bodies) < 3 {
				return nil, errBroken
			}
			return ok(`{"signature":"cw=="}`), nil
		})
		if err := use(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		for i := range bodies {
			if bodies[i] != `{"message":"bQ=="}` || targets[i] != "POST http://kms.test/v1/keys/k/sign Bearer "+testToken {
				t.Errorf("attempt %d: %s %s", i+1, targets[i], bodies[i])
			}
		}
	})
}

// Two attempts of a call are one request to the service, two calls are two.
func TestAChangeHasOneIdempotencyKeyForAllItsAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var keys []string
		c := inMemory(t, client.Options{}, func(r *http.Request) (*http.Response, error) {
			keys = append(keys, r.Header.Get("Idempotency-Key"))
			if len(keys)%3 != 0 {
				return nil, errBroken
			}
			return ok(`{}`), nil
		})
		for range 2 {
			if err := change(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		if len(keys) != 6 || keys[0] == "" || keys[0] != keys[1] || keys[1] != keys[2] || keys[3] != keys[4] || keys[4] != keys[5] || keys[2] == keys[3] {
			t.Errorf("keys %q", keys)
		}
		// 128 bits, so that no two calls of a credential ever meet.
		if len(keys[0]) < 26 {
			t.Errorf("the key %q is short", keys[0])
		}
	})
}

// The bounds of the pauses as documented: half to all of 0.1, 0.2, 0.4 s.
func TestPausesDoubleWithARandomPart(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			var at []time.Time
			c := inMemory(t, client.Options{}, func(*http.Request) (*http.Response, error) {
				at = append(at, time.Now())
				return nil, errBroken
			})
			_ = use(t.Context(), c)
			for i := 1; i < len(at); i++ {
				full := 100 * time.Millisecond << (i - 1)
				got := at[i].Sub(at[i-1])
				if got < full/2 || got > full {
					t.Errorf("pause %d was %v, want %v to %v", i, got, full/2, full)
				}
				seen[got] = true
			}
		})
	}
	if len(seen) < 10 {
		t.Errorf("%d different pauses among 60: they are not random", len(seen))
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	for name, header := range map[string]http.Header{
		"seconds": retryAfter("7"),
		"date": {"Date": {"Mon, 02 Jan 2006 15:04:05 GMT"},
			"Retry-After": {"Mon, 02 Jan 2006 15:04:12 GMT"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin, attempts := time.Now(), 0
				c := inMemory(t, client.Options{}, func(*http.Request) (*http.Response, error) {
					if attempts++; attempts == 1 {
						return problem(429, client.ErrQuotaExceeded, header), nil
					}
					return ok(`{}`), nil
				})
				if err := use(t.Context(), c); err != nil {
					t.Fatal(err)
				}
				if waited := time.Since(begin); waited < 7*time.Second || waited > 7700*time.Millisecond {
					t.Errorf("waited %v, want 7 s to 7.7 s", waited)
				}
			})
		})
	}
}

// A caller who allows 2 s learns at once that the limit asks for 5, instead
// of after 2 s that his time is over.
func TestNoPauseOutlivesTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		c := inMemory(t, client.Options{}, func(*http.Request) (*http.Response, error) {
			return problem(429, client.ErrQuotaExceeded, retryAfter("5")), nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		err := use(ctx, c)
		if e, isError := errors.AsType[*client.Error](err); !isError || e.RetryAfter != 5*time.Second {
			t.Errorf("error %v, want the refusal with its 5 s", err)
		}
		if waited := time.Since(begin); waited != 0 {
			t.Errorf("waited %v", waited)
		}
	})
}

func TestCancellingEndsAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		begin, attempts := time.Now(), 0
		c := inMemory(t, client.Options{}, func(*http.Request) (*http.Response, error) {
			attempts++
			time.AfterFunc(time.Second, cancel)
			return problem(429, client.ErrQuotaExceeded, retryAfter("9")), nil
		})
		if err := use(ctx, c); !errors.Is(err, client.ErrQuotaExceeded) {
			t.Errorf("error %v, want the refusal", err)
		}
		if waited := time.Since(begin); waited != time.Second || attempts != 1 {
			t.Errorf("%d attempts in %v, want 1 in 1s", attempts, waited)
		}
	})
}

func TestTheContextsEndIsItsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		c := inMemory(t, client.Options{}, func(r *http.Request) (*http.Response, error) {
			attempts++
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := use(ctx, c); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, client.ErrNoAnswer) {
			t.Errorf("error %v, want DeadlineExceeded", err)
		}
		if attempts != 1 {
			t.Errorf("%d attempts, want 1", attempts)
		}
	})
}

func TestAttemptsAreBounded(t *testing.T) {
	for _, limit := range []int{1, 2, 30} {
		t.Run(strconv.Itoa(limit), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin, attempts := time.Now(), 0
				c := inMemory(t, client.Options{MaxAttempts: limit}, func(*http.Request) (*http.Response, error) {
					attempts++
					return nil, errBroken
				})
				_ = use(t.Context(), c)
				if attempts != limit {
					t.Errorf("%d attempts, want %d", attempts, limit)
				}
				// No pause is longer than 5 s.
				if waited := time.Since(begin); waited > time.Duration(limit)*5*time.Second {
					t.Errorf("waited %v", waited)
				}
			})
		})
	}
}
