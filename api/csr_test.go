package api_test

import (
	"bytes"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-kms/sluice/kms"
)

func TestCertificationRequestIsOneOfTheKey(t *testing.T) {
	w := newWorld(t)
	w.certificationRequests(t)
}

func (w *world) certificationRequests(t *testing.T) {
	for _, c := range []struct {
		spec      kms.Spec
		algorithm kms.Algorithm // "": the default
		standard  bool          // whether the standard library knows the algorithm
	}{
		{kms.SpecP256, "", true}, {kms.SpecP384, "", true}, {kms.SpecP521, "", true}, {kms.SpecEd25519, "", true},
		{kms.SpecRSA2048, "", true}, {kms.SpecRSA2048, kms.AlgRSAPKCS1SHA384, true}, {kms.SpecSM2, "", false},
	} {
		t.Run(string(c.spec)+string(c.algorithm), func(t *testing.T) {
			key := "/v1/keys/" + w.key(w.acme, c.spec, kms.UsageSignVerify, "")
			fields := map[string]any{
				"subject":   map[string]any{"common_name": "orders.example.com", "organization": []string{"Übung GmbH", "中文"}, "country": []string{"CN"}},
				"dns_names": []string{"orders.example.com", "*.example.com"}, "emails": []string{"ops@example.com"},
				"addresses": []string{"192.0.2.1", "2001:db8::1"}, "uris": []string{"spiffe://example.com/orders"},
			}
			if c.algorithm != "" {
				fields["algorithm"] = c.algorithm
			}
			a := w.post(key+"/csr", fields)
			block, rest := pem.Decode([]byte(a.text("csr")))
			if block == nil || block.Type != "CERTIFICATE REQUEST" || len(rest) > 0 || a.fields["version"] != 1.0 || a.text("algorithm") == "" {
				t.Fatalf("answer %s", a.body)
			}
			public := w.must(200, "GET", key+"/public", w.acme.token, "")
			spki, _ := pem.Decode([]byte(public.text("pem")))
			if !bytes.Contains(block.Bytes, spki.Bytes) {
				t.Error("the request is not for the key")
			}
			if !c.standard {
				return
			}
			request, err := x509.ParseCertificateRequest(block.Bytes)
			if err != nil {
				t.Fatal(err)
			}
			if err := request.CheckSignature(); err != nil {
				t.Error(err)
			}
			if request.Subject.CommonName != "orders.example.com" || !slices.Equal(slices.Sorted(slices.Values(request.Subject.Organization)), []string{"Übung GmbH", "中文"}) ||
				!slices.Equal(request.DNSNames, []string{"orders.example.com", "*.example.com"}) || request.EmailAddresses[0] != "ops@example.com" ||
				len(request.IPAddresses) != 2 || request.IPAddresses[1].String() != netip.MustParseAddr("2001:db8::1").String() ||
				request.URIs[0].String() != "spiffe://example.com/orders" {
				t.Errorf("subject %v, names %v %v %v %v", request.Subject, request.DNSNames, request.EmailAddresses, request.IPAddresses, request.URIs)
			}
			der := w.sendBad("POST", key+"/csr", w.acme.token, object(fields), "Accept", "application/pkcs10")
			if der.status != 200 || der.header.Get("Content-Type") != "application/pkcs10" {
				t.Fatalf("by Accept: %d %v", der.status, der.header)
			}
			again, err := x509.ParseCertificateRequest(der.body)
			if err != nil || !bytes.Equal(again.RawTBSCertificateRequest, request.RawTBSCertificateRequest) {
				t.Errorf("the DER is another request: %v", err)
			}
		})
	}
}

func TestCertificationRequestMayNameNothing(t *testing.T) {
	w := newWorld(t)
	key := "/v1/keys/" + w.key(w.acme, kms.SpecP256, "", "")
	block, _ := pem.Decode([]byte(w.must(200, "POST", key+"/csr", w.acme.token, "").text("csr")))
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	var subject []asn1.RawValue
	if _, err := asn1.Unmarshal(request.RawSubject, &subject); err != nil || len(subject) != 0 || len(request.Extensions) != 0 {
		t.Errorf("%v, subject %x, extensions %v", err, request.RawSubject, request.Extensions)
	}
}

func TestBadNamesInACertificationRequestAreNamedNotRepeated(t *testing.T) {
	w := newWorld(t)
	key := "/v1/keys/" + w.key(w.acme, kms.SpecP256, "", "")
	before := w.nodeCalls.Load()
	for _, c := range []struct {
		name, body string
		status     int
		detail     string
	}{
		{"unknown attribute", `{"subject":{"` + canary + `":"x"}}`, 400, "known are subject (common_name, serial_number"},
		{"subject is no object", `{"subject":"` + canary + `"}`, 400, "/subject at byte 11 must be an object of common_name"},
		{"organization is no array", `{"subject":{"organization":"` + canary + `"}}`, 400, "/subject"},
		{"nested deeper", `{"subject":{"organization":[["` + canary + `"]]}}`, 400, "/subject"},
		{"long value", `{"subject":{"common_name":"` + strings.Repeat(canary, 20) + `"}}`, 422, "subject: values"},
		{"control character", `{"subject":{"common_name":"` + canary + `\u0000"}}`, 422, "subject: values"},
		{"many values", `{"subject":{"organization":["1","2","3","4","5","6","7","8","` + canary + `"]}}`, 422, "at most 8"},
		{"address", `{"addresses":["192.0.2.1","` + canary + `"]}`, 422, "addresses[1]"},
		{"address with a zone", `{"addresses":["fe80::1%` + canary + `"]}`, 422, "addresses[0]"},
		{"relative URI", `{"uris":["/` + canary + `"]}`, 422, "uris[0]"},
		{"no URI", `{"uris":["` + canary + `://%zz"]}`, 422, "uris[0]"},
		{"name beyond ASCII", `{"dns_names":["` + canary + `ü"]}`, 422, "dns_names"},
		{"many names", `{"dns_names":["` + strings.Repeat(`a","`, 100) + `a"]}`, 422, "at most 100"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := w.sendBad("POST", key+"/csr", w.acme.token, c.body)
			if a.status != c.status || !strings.Contains(a.text("detail"), c.detail) || leaks(string(a.body)) {
				t.Errorf("%d %s, want %d with %q", a.status, a.body, c.status, c.detail)
			}
		})
	}
	if n := w.nodeCalls.Load(); n != before {
		t.Errorf("%d operations reached a node", n-before)
	}
}
