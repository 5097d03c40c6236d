package api_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/sluice-kms/sluice/api"
	"github.com/sluice-kms/sluice/kms"
)

// operations makes, for every operation, a request that can be carried out.
func (w *world) operations() map[string]func() request {
	key := func(spec kms.Spec, usage kms.Usage) string { return "/v1/keys/" + w.key(w.acme, spec, usage, "") }
	post := func(path, body string) request { return request{"POST", path, w.acme.token, body} }
	sealed := func(key string) string {
		return w.post(key+"/encrypt", map[string]any{"plaintext": ""}).text("ciphertext")
	}
	return map[string]func() request{
		"encrypt": func() request { return post(key(kms.SpecAES256, "")+"/encrypt", `{"plaintext":"aGVsbG8="}`) },
		"decrypt": func() request {
			aes := key(kms.SpecAES256, "")
			return post(aes+"/decrypt", `{"ciphertext":"`+sealed(aes)+`"}`)
		},
		"reencrypt": func() request {
			aes := key(kms.SpecAES256, "")
			return post(aes+"/reencrypt", `{"source_key":"`+strings.TrimPrefix(aes, "/v1/keys/")+`","ciphertext":"`+sealed(aes)+`"}`)
		},
		"sign": func() request { return post(key(kms.SpecP256, "")+"/sign", `{"message":"aGVsbG8="}`) },
		"verify": func() request {
			return post(key(kms.SpecP256, "")+"/verify", `{"message":"aGVsbG8=","signature":"MAA="}`)
		},
		"mac": func() request { return post(key(kms.SpecHMAC256, "")+"/mac", `{"message":"aGVsbG8="}`) },
		"verify-mac": func() request {
			return post(key(kms.SpecHMAC256, "")+"/verify-mac", `{"message":"aGVsbG8=","mac":"AAAA"}`)
		},
		"data-key":         func() request { return post(key(kms.SpecAES256, "")+"/datakey", `{"bytes":32}`) },
		"wrapped-data-key": func() request { return post(key(kms.SpecAES256, "")+"/datakey/wrapped", `{"bytes":32}`) },
		"csr":              func() request { return post(key(kms.SpecP256, "")+"/csr", `{"subject":{"common_name":"x"}}`) },
		"wrap": func() request {
			return post(key(kms.SpecAES256, kms.UsageWrapUnwrap)+"/wrap", `{"plaintext":"aGVsbG8="}`)
		},
		"unwrap": func() request {
			aes := key(kms.SpecAES256, kms.UsageWrapUnwrap)
			return post(aes+"/unwrap", `{"wrapped":"`+w.post(aes+"/wrap", map[string]any{"plaintext": "aGVsbG8="}).text("wrapped")+`"}`)
		},
		"shared-secret": func() request {
			p256 := key(kms.SpecP256, kms.UsageKeyAgreement)
			return post(p256+"/shared-secret", `{"public_key":"`+encode(w.spki(p256))+`"}`)
		},
		"derive":      func() request { return post(key(kms.SpecHMAC256, kms.UsageDerive)+"/derive", `{"bytes":32}`) },
		"encapsulate": func() request { return post(key(kms.SpecMLKEM768, "")+"/encapsulate", "") },
		"decapsulate": func() request {
			kem := key(kms.SpecMLKEM768, "")
			return post(kem+"/decapsulate", `{"ciphertext":"`+w.post(kem+"/encapsulate", map[string]any{}).text("ciphertext")+`"}`)
		},
		"fetch-secrets": func() request {
			w.newSecret(w.acme, "dry/fetched", "sk")
			return post("/v1/secret-values/fetch", `{"items":[{"path":"dry/fetched"}]}`)
		},
		"batch": func() request {
			return post("/v1/batch", `{"items":[{"op":"mac","key":"`+strings.TrimPrefix(key(kms.SpecHMAC256, ""), "/v1/keys/")+`","message":""},{"op":"random","bytes":16}]}`)
		},
		"random": func() request { return post("/v1/random", `{"bytes":16}`) },
		"digest": func() request { return post("/v1/digest", `{"algorithm":"SM3","data":""}`) },
	}
}

// TestDryRunPricesAndDoesNothing asks every route that uses a key or changes
// something what it would do: no HSM is asked, nothing is announced in the
// journal, nothing is charged, and the answer holds nothing but the price.
func TestDryRunPricesAndDoesNothing(t *testing.T) {
	w := newWorldOfOne(t)
	doable := w.doable()
	maps.Copy(doable, w.operations())
	tried := 0
	for _, route := range api.Routes() {
		if route.Public || route.Stream || route.Vault != nil || !route.Op.Info().Changes && route.Op.Info().Class != kms.ClassUse {
			continue
		}
		t.Run(route.Name, func(t *testing.T) {
			request := doable[route.Name]
			if request == nil {
				t.Fatal("it has no request that can be carried out: add one, so that it is tested")
			}
			r := request()
			tried++
			w.intents()
			before := w.nodeCalls.Load()
			dry := w.send(r.method, r.path+"?dry_run=true", r.token, r.body, "Idempotency-Key", "dry-"+route.Name)
			if dry.status != 200 || dry.fields["dry_run"] != true || dry.header.Get("Sluice-Cost") != "0" || dry.header.Get("Location") != "" {
				t.Fatalf("%d %s %v", dry.status, dry.body, dry.header)
			}
			for name := range dry.fields {
				switch name {
				case "dry_run", "cost", "request_id", "protection", "results":
				default:
					t.Errorf("the answer shows %s: %s", name, dry.body)
				}
			}
			if n := w.nodeCalls.Load() - before; n != 0 {
				t.Errorf("%d operations reached a node", n)
			}
			if n := w.intents(); n != 0 || len(w.claims) != 0 {
				t.Errorf("%d changes were announced, %d keys claimed", n, len(w.claims))
			}
			// It was not done: now it can be.
			done := w.send(r.method, r.path, r.token, r.body)
			protection, _ := dry.fields["protection"].(string)
			if done.status != route.Success || done.fields["cost"] != dry.fields["cost"] || done.header.Get("Sluice-Protection") != protection {
				t.Errorf("%s was priced, then %d %s", dry.body, done.status, done.body)
			}
		})
	}
	if tried < 40 {
		t.Errorf("only %d routes were tried", tried)
	}
}

// dryRuns prices every operation on a whole service, and then has it done: the
// price is what is charged, and only the second run reaches a node.
func (w *world) dryRuns(t *testing.T) {
	for name, request := range w.operations() {
		r := request()
		before := w.nodeOperations()
		dry := w.must(200, r.method, r.path+"?dry_run=true", r.token, r.body)
		if got := w.nodeOperations() - before; got != 0 {
			t.Errorf("%s: %v operations reached a node", name, got)
		}
		done := w.must(200, r.method, r.path, r.token, r.body)
		if dry.fields["cost"] != done.fields["cost"] || dry.fields["cost"] == 0.0 || dry.fields["protection"] != done.fields["protection"] {
			t.Errorf("%s was priced %s, then %s", name, dry.body, done.body)
		}
	}
}

func TestDryRunIsRefusedAsTheRequestWouldBe(t *testing.T) {
	w := newWorld(t)
	key := w.key(w.acme, kms.SpecAES256, "", "dry/key")
	disabled := w.key(w.acme, kms.SpecAES256, "", "dry/disabled")
	w.must(200, "POST", "/v1/keys/"+disabled+"/disable", w.acme.token, "")
	foreign := w.key(w.rival, kms.SpecAES256, "", "")
	limited := w.must(201, "POST", "/v1/credentials", w.acme.token, `{"name":"limited","scopes":["key:sign"]}`).text("credential")
	for _, c := range []struct {
		name, path, token, body string
		status                  int
	}{
		{"missing", "/v1/keys/missing/encrypt", w.acme.token, `{"plaintext":""}`, 404},
		{"foreign", "/v1/keys/" + foreign + "/encrypt", w.acme.token, `{"plaintext":""}`, 404},
		{"not allowed", "/v1/keys/" + key + "/encrypt", limited, `{"plaintext":""}`, 403},
		{"no credential", "/v1/keys/" + key + "/encrypt", "x", `{"plaintext":""}`, 401},
		{"disabled", "/v1/keys/" + disabled + "/encrypt", w.acme.token, `{"plaintext":""}`, 409},
		{"wrong argument", "/v1/keys/" + key + "/encrypt", w.acme.token, `{"plaintext":"","algorithm":"SM4_GCM"}`, 422},
		{"malformed", "/v1/keys/" + key + "/encrypt", w.acme.token, `{`, 400},
		{"destroying the primary version", "/v1/keys/" + key + "/versions/1/schedule-destruction", w.acme.token, "", 409},
		{"wrong spec", "/v1/keys", w.acme.token, `{"spec":"AES_257"}`, 422},
	} {
		plain := w.sendBad("POST", c.path, c.token, c.body)
		dry := w.sendBad("POST", c.path+"?dry_run=true", c.token, c.body)
		_, _, want := plain.anonymous()
		if status, _, got := dry.anonymous(); status != c.status || got != want {
			t.Errorf("%s: %d %s, done: %s", c.name, status, got, want)
		}
	}
	w.quotaFault = kms.Errorf(kms.KindQuotaExceeded, "too fast")
	if a := w.send("POST", "/v1/keys/"+key+"/encrypt?dry_run=true", w.acme.token, `{"plaintext":""}`); a.status != 429 {
		t.Errorf("over quota: %d", a.status)
	}
}

func TestDryRunIsTrueOrFalseAndOnlyWhereSomethingIsDone(t *testing.T) {
	w := newWorld(t)
	key := "/v1/keys/" + w.key(w.acme, kms.SpecAES256, "", "")
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{"POST", key + "/encrypt?dry_run=false", 200}, {"POST", key + "/encrypt?dry_run=True", 400},
		{"POST", key + "/encrypt?dry_run=1", 400}, {"POST", key + "/encrypt?dry_run=", 400}, {"POST", key + "/encrypt?dry_run", 400},
		{"POST", key + "/encrypt?dry_run=true&dry_run=true", 400}, {"POST", key + "/encrypt?dry-run=true", 400},
		{"GET", key + "?dry_run=true", 400}, {"GET", "/v1/keys?dry_run=true", 400}, {"GET", "/v1/aliases?dry_run=true", 400},
	} {
		body := ""
		if c.method == "POST" {
			body = `{"plaintext":""}`
		}
		a := w.sendBad(c.method, c.path, w.acme.token, body)
		if a.status != c.status || c.status == 200 && a.fields["ciphertext"] == nil {
			t.Errorf("%s %s: %d %s", c.method, c.path, a.status, a.body)
		}
	}
}
