package api

import (
	"crypto/x509/pkix"
	"encoding/pem"
	"net/http"
	"net/netip"
	"net/url"
	"unicode"
	"unicode/utf8"

	"github.com/sluice-kms/sluice/kms"
)

// mediaPKCS10 is a certification request in DER (RFC 5967, 2).
const mediaPKCS10 = "application/pkcs10"

func csrRoutes() []Route {
	return []Route{define(Route{Name: "csr", Group: "Operations", Method: http.MethodPost, Path: "/v1/keys/{key}/csr", Op: kms.OpCSR,
		Errors: useErrors, Media: []string{mediaPKCS10},
		Summary: "Make a certification request for a key",
		Description: "PKCS #10 (RFC 2986), signed with the key itself. JSON with the PEM by default; the DER by Accept. " +
			"SM2 signs with the default identity, as certificates do."}, csr)}
}

// CSRRequest is the body of csr.
type CSRRequest struct {
	Subject   CSRSubject    `json:"subject" doc:"Absent: empty, for certificates that name their subject by the alternative names alone"`
	DNSNames  []string      `json:"dns_names" doc:"Alternative names; at most 100 of all four kinds" maxlen:"MaxCSRNames" example:"[\"orders.example.com\"]"`
	Emails    []string      `json:"emails" doc:"Alternative names" maxlen:"MaxCSRNames"`
	Addresses []string      `json:"addresses" doc:"Alternative names: IP addresses" maxlen:"MaxCSRNames"`
	URIs      []string      `json:"uris" doc:"Alternative names: absolute URIs" maxlen:"MaxCSRNames"`
	Algorithm kms.Algorithm `json:"algorithm" doc:"Absent: the key's default"`
	Version   uint32        `json:"version" doc:"Absent or 0: the primary version" min:"0"`
}

// CSRSubject is the name of the certificate's subject (RFC 5280, 4.1.2.6).
type CSRSubject struct {
	CommonName         string   `json:"common_name" maxlen:"MaxSubjectValue" example:"orders.example.com"`
	SerialNumber       string   `json:"serial_number" doc:"Of the subject, not of the certificate" maxlen:"MaxSubjectValue"`
	Country            []string `json:"country" doc:"Two letters (ISO 3166)" maxlen:"MaxSubjectValues" example:"[\"CN\"]"`
	Province           []string `json:"province" maxlen:"MaxSubjectValues"`
	Locality           []string `json:"locality" maxlen:"MaxSubjectValues"`
	Organization       []string `json:"organization" maxlen:"MaxSubjectValues" example:"[\"Example Ltd\"]"`
	OrganizationalUnit []string `json:"organizational_unit" maxlen:"MaxSubjectValues"`
	StreetAddress      []string `json:"street_address" maxlen:"MaxSubjectValues"`
	PostalCode         []string `json:"postal_code" maxlen:"MaxSubjectValues"`
}

// CSRResponse is the answer of csr.
type CSRResponse struct {
	CSR       string        `json:"csr" doc:"PEM"`
	Algorithm kms.Algorithm `json:"algorithm" doc:"By which it is signed"`
	Version   uint32        `json:"version" min:"1"`
	Meta
}

// Bounds of a subject. The standard bounds most attributes to 64 characters
// and the longest to 128 (RFC 5280, appendix A.1, "Upper Bounds"), and no
// certificate in use has more than a few values of one.
const (
	maxSubjectValue  = 128 // characters
	maxSubjectValues = 8   // of one attribute
)

func csr(c *call, in *CSRRequest) (*CSRResponse, error) {
	subject, err := in.Subject.name()
	if err != nil {
		return nil, err
	}
	addresses, err := parseAddresses(in.Addresses)
	if err != nil {
		return nil, err
	}
	uris, err := parseURIs(in.URIs)
	if err != nil {
		return nil, err
	}
	der, err := c.service.CSR(c.context, &c.ticket, c.object(0), kms.CSRInput{
		Subject: subject, DNSNames: in.DNSNames, Emails: in.Emails, Addresses: addresses, URIs: uris,
		Algorithm: in.Algorithm, Version: in.Version,
	})
	if err := c.carriedOut(err); err != nil {
		return nil, err
	}
	if media := preferred(c.request.Header["Accept"], c.route.Media); media != "" {
		c.answerRaw(media, der)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	return &CSRResponse{string(text), c.ticket.Algorithm, c.ticket.Version, c.meta()}, nil
}

// name checks a subject's values. What else they must be, the authority that
// signs the certificate decides.
func (s *CSRSubject) name() (pkix.Name, error) {
	for _, values := range [][]string{{s.CommonName}, {s.SerialNumber}, s.Country, s.Province, s.Locality,
		s.Organization, s.OrganizationalUnit, s.StreetAddress, s.PostalCode} {
		if len(values) > maxSubjectValues {
			return pkix.Name{}, kms.Errorf(kms.KindInvalidArgument, "subject: an attribute has at most %d values", maxSubjectValues)
		}
		for _, v := range values {
			if utf8.RuneCountInString(v) > maxSubjectValue || !printableText(v) {
				return pkix.Name{}, kms.Errorf(kms.KindInvalidArgument, "subject: values are printable text of at most %d characters", maxSubjectValue)
			}
		}
	}
	return pkix.Name{
		CommonName: s.CommonName, SerialNumber: s.SerialNumber, Country: s.Country, Province: s.Province,
		Locality: s.Locality, Organization: s.Organization, OrganizationalUnit: s.OrganizationalUnit,
		StreetAddress: s.StreetAddress, PostalCode: s.PostalCode,
	}, nil
}

func printableText(s string) bool {
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

func parseAddresses(texts []string) ([]netip.Addr, error) {
	list := make([]netip.Addr, len(texts))
	for i, text := range texts {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			return nil, kms.Errorf(kms.KindInvalidArgument, "addresses[%d]: must be an IP address without a zone", i)
		}
		list[i] = a
	}
	return list, nil
}

func parseURIs(texts []string) ([]*url.URL, error) {
	list := make([]*url.URL, len(texts))
	for i, text := range texts {
		u, err := url.Parse(text)
		if err != nil || !u.IsAbs() {
			return nil, kms.Errorf(kms.KindInvalidArgument, "uris[%d]: must be an absolute URI", i)
		}
		list[i] = u
	}
	return list, nil
}
