package api_test

import (
	"context"
	"encoding/json/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-kms/sluice/api"
	"github.com/sluice-kms/sluice/kms"
)

func TestDocumentHasEveryRouteAndNoOther(t *testing.T) {
	w := newWorld(t)
	documented := map[string]bool{}
	for path, item := range w.document.Paths.Map() {
		for method := range item.Operations() {
			documented[method+" "+path] = true
		}
	}
	names := map[string]bool{}
	for _, r := range api.Routes() {
		if r.Method == "LIST" {
			r.Method = "GET" // of which list=true asks for the same
		}
		if !documented[r.Method+" "+r.Path] && !names[r.Method+" "+r.Path] {
			t.Errorf("%s %s is not documented", r.Method, r.Path)
		}
		delete(documented, r.Method+" "+r.Path)
		if names[r.Name] {
			t.Errorf("two routes are named %s", r.Name)
		}
		names[r.Name], names[r.Method+" "+r.Path] = true, true
		if r.Summary == "" || r.Group == "" || !r.Public && r.Op.Info() == nil {
			t.Errorf("%s lacks a summary, a group or a known operation", r.Name)
		}
	}
	if len(documented) > 0 {
		t.Errorf("documented, but no route: %v", documented)
	}
	if w.document.OpenAPI != "3.1.0" || w.document.Info.Version != "test" {
		t.Errorf("openapi %s, version %s", w.document.OpenAPI, w.document.Info.Version)
	}
}

func TestDocumentIsTheSameEveryTime(t *testing.T) {
	first := newWorld(t).raw("GET", "/openapi.json", "", nil, nil).body
	if second := newWorld(t).raw("GET", "/openapi.json", "", nil, nil).body; string(first) != string(second) {
		t.Error("two documents of one release differ")
	}
}

// TestDocumentExamplesAreValid builds a request of the examples of each
// schema's required fields and holds it against the schema.
func TestDocumentExamplesAreValid(t *testing.T) {
	w := newWorld(t)
	for name, schema := range w.document.Components.Schemas {
		for field, property := range schema.Value.Properties {
			for _, example := range property.Value.Examples {
				if err := property.Value.VisitJSON(example); err != nil {
					t.Errorf("%s.%s: %v", name, field, err)
				}
			}
		}
	}
	if err := w.document.Validate(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestDocumentListsEveryValueOfEveryTable(t *testing.T) {
	w := newWorld(t)
	enum := func(schema, field string) []string {
		t.Helper()
		var list []string
		for _, v := range w.document.Components.Schemas[schema].Value.Properties[field].Value.Enum {
			list = append(list, v.(string))
		}
		return list
	}
	var specs, algorithms []string
	for _, s := range kms.Specs() {
		specs = append(specs, string(s.Spec))
		for _, u := range s.Usages {
			for _, a := range u.Algorithms {
				if !slices.Contains(algorithms, string(a)) {
					algorithms = append(algorithms, string(a))
				}
			}
		}
	}
	codes := []string{string(api.CodeMethodNotAllowed)}
	for _, k := range kms.Kinds() {
		codes = append(codes, k.String())
	}
	for _, c := range []struct {
		schema, field string
		want          []string
	}{
		{"CreateKeyRequest", "spec", specs},
		{"SignRequest", "algorithm", algorithms},
		{"Problem", "code", codes},
	} {
		got := enum(c.schema, c.field)
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s.%s is %v, want %v", c.schema, c.field, got, c.want)
		}
	}
	for _, digest := range enum("DigestRequest", "algorithm") {
		if kms.Digest(digest).Size() == 0 {
			t.Errorf("digest %s is not known", digest)
		}
	}
}

// TestDocumentedRangesAreKept sends, for every number of every request, the
// value beyond each end of its documented range.
func TestDocumentedRangesAreKept(t *testing.T) {
	w := newWorld(t)
	key := w.key(w.acme, kms.SpecAES256, "", "")
	credential := w.must(201, "POST", "/v1/credentials", w.acme.token, `{"name":"c","scopes":["key:*"]}`).text("id")
	secret := w.must(201, "POST", "/v1/secrets", w.acme.token, samples["create-secret"]).text("id")
	w.must(200, "PUT", "/v1/routes/chat", w.acme.token, samples["put-route"])
	tried := 0
	for _, r := range api.Routes() {
		if r.Request == nil || strings.HasPrefix(r.Path, "/v1/tenants") {
			continue
		}
		schema := w.document.Components.Schemas[r.Request.Name()].Value
		path := strings.NewReplacer("{key}", key, "{credential}", credential, "{version}", "1", "{alias}", "an-alias", "{secret}", secret, "{route}", "chat").Replace(r.Path)
		for name, property := range schema.Properties {
			for _, end := range []struct {
				bound *float64
				step  float64
			}{{property.Value.Min, -1}, {property.Value.Max, 1}} {
				if end.bound == nil {
					continue
				}
				tried++
				a := w.sendBad(r.Method, path, w.acme.token, object(map[string]any{name: *end.bound + end.step}))
				if a.status != 400 && a.status != 422 {
					t.Errorf("%s with %s=%v: %d: %s", r.Name, name, *end.bound+end.step, a.status, a.body)
				}
			}
		}
	}
	if tried < 10 {
		t.Errorf("only %d ends of ranges were found", tried)
	}
}

// TestQueriesTakeNoSecret keeps the parameters of queries, which proxies and
// servers log, to those that are known to hold none.
func TestQueriesTakeNoSecret(t *testing.T) {
	harmless := []string{"page_size", "page_token", "project", "version", "dry_run",
		"from", "to", "operation", "key", "credential", "outcome", "request", "component", "api_node", "order", "after", // ids and names
		"granularity", "by", "algorithm", "reason", "day", "month", "prefix", "from_revision", "list", "activecode", "sealedcode", "model", "retain_hours"}
	for _, r := range api.Routes() {
		for _, p := range r.Query {
			if !slices.Contains(harmless, p.Name) {
				t.Errorf("%s takes %s in the query", r.Name, p.Name)
			}
			if p.Doc == "" {
				t.Errorf("%s of %s is not explained", p.Name, r.Name)
			}
		}
	}
}

// TestAnswersAreTheirTypes decodes the answers of every operation, which are
// written by hand, into their types and compares what these would write.
func TestAnswersAreTheirTypes(t *testing.T) {
	w := newWorld(t)
	aes := "/v1/keys/" + w.key(w.acme, kms.SpecAES256, "", "")
	p256 := "/v1/keys/" + w.key(w.acme, kms.SpecP256, "", "")
	hmac := "/v1/keys/" + w.key(w.acme, kms.SpecHMAC256, "", "")
	send := func(path, body string) *answer { t.Helper(); return w.must(200, "POST", path, w.acme.token, body) }
	encrypted := send(aes+"/encrypt", `{"plaintext":"aGVsbG8=","aad_crc32c":0}`)
	signed := send(p256+"/sign", `{"message":"aGVsbG8=","digest_crc32c":0}`)
	macced := send(hmac+"/mac", `{"message":"aGVsbG8="}`)
	wrapper := "/v1/keys/" + w.key(w.acme, kms.SpecAES256, kms.UsageWrapUnwrap, "")
	wrapped := send(wrapper+"/wrap", `{"plaintext":"aGVsbG8="}`)
	agree := "/v1/keys/" + w.key(w.acme, kms.SpecP256, kms.UsageKeyAgreement, "")
	kem := "/v1/keys/" + w.key(w.acme, kms.SpecMLKEM768, "", "")
	encapsulated := send(kem+"/encapsulate", `{}`)
	for _, c := range []struct {
		name   string
		answer *answer
		as     any
	}{
		{"encrypt", encrypted, &api.EncryptResponse{}},
		{"decrypt", send(aes+"/decrypt", object(map[string]any{"ciphertext": encrypted.text("ciphertext")})), &api.DecryptResponse{}},
		{"sign", signed, &api.SignResponse{}},
		{"verify", send(p256+"/verify", object(map[string]any{"message": "aGVsbG8=", "signature": signed.text("signature")})), &api.VerifyResponse{}},
		{"verify, not valid", send(p256+"/verify", object(map[string]any{"message": "", "signature": signed.text("signature")})), &api.VerifyResponse{}},
		{"mac", macced, &api.MACResponse{}},
		{"verify-mac", send(hmac+"/verify-mac", object(map[string]any{"message": "aGVsbG8=", "mac": macced.text("mac")})), &api.VerifyMACResponse{}},
		{"datakey", send(aes+"/datakey", `{"spec":"AES_256"}`), &api.DataKeyResponse{}},
		{"datakey/wrapped", send(aes+"/datakey/wrapped", `{"bytes":16}`), &api.WrappedDataKeyResponse{}},
		{"reencrypt", send(aes+"/reencrypt", object(map[string]any{"ciphertext": encrypted.text("ciphertext"), "source_key": strings.TrimPrefix(aes, "/v1/keys/"), "aad_crc32c": 0})), &api.ReencryptResponse{}},
		{"wrap", wrapped, &api.WrapResponse{}},
		{"unwrap", send(wrapper+"/unwrap", object(map[string]any{"wrapped": wrapped.text("wrapped")})), &api.UnwrapResponse{}},
		{"shared-secret", send(agree+"/shared-secret", object(map[string]any{"public_key": encode(w.spki(agree))})), &api.SharedSecretResponse{}},
		{"derive", send("/v1/keys/"+w.key(w.acme, kms.SpecHMAC256, kms.UsageDerive, "")+"/derive", `{"bytes":16}`), &api.DeriveResponse{}},
		{"encapsulate", encapsulated, &api.EncapsulateResponse{}},
		{"decapsulate", send(kem+"/decapsulate", object(map[string]any{"ciphertext": encapsulated.text("ciphertext")})), &api.DecapsulateResponse{}},
		{"random", send("/v1/random", `{"bytes":32}`), &api.RandomResponse{}},
		{"digest", send("/v1/digest", `{"algorithm":"SHA_256","data":""}`), &api.DigestResponse{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := json.Unmarshal(c.answer.body, c.as, costs, json.RejectUnknownMembers(true)); err != nil {
				t.Fatal(err)
			}
			again, err := json.Marshal(c.as)
			if err != nil {
				t.Fatal(err)
			}
			var want, got any
			if err := json.Unmarshal(again, &want); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(c.answer.body, &got); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("the answer is %s, its type says %s", c.answer.body, again)
			}
		})
	}
}

// costs reads a cost, which only the server writes.
var costs = json.WithUnmarshalers(json.UnmarshalFunc(func(b []byte, c *api.Cost) error {
	var credits float64
	err := json.Unmarshal(b, &credits)
	*c = api.Cost(credits * float64(kms.Credit))
	return err
}))
