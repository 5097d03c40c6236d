package client

import (
	"context"
	"net/netip"
)

// CSRInput is the input of CSR; every field may stay zero. There are at most
// 100 alternative names of all four kinds.
type CSRInput struct {
	Subject   CSRSubject   `json:"subject,omitzero"`
	DNSNames  []string     `json:"dns_names,omitempty"`
	Emails    []string     `json:"emails,omitempty"`
	Addresses []netip.Addr `json:"addresses,omitempty"`
	URIs      []string     `json:"uris,omitempty"`     // absolute
	Algorithm Algorithm    `json:"algorithm,omitzero"` // "": the key's default
	Version   uint32       `json:"version,omitzero"`   // 0: the primary version
}

// CSRSubject is the name of a certificate's subject (RFC 5280, 4.1.2.6), of at
// most eight values an attribute.
type CSRSubject struct {
	CommonName         string   `json:"common_name,omitzero"`
	SerialNumber       string   `json:"serial_number,omitzero"`
	Country            []string `json:"country,omitempty"` // two letters (ISO 3166)
	Province           []string `json:"province,omitempty"`
	Locality           []string `json:"locality,omitempty"`
	Organization       []string `json:"organization,omitempty"`
	OrganizationalUnit []string `json:"organizational_unit,omitempty"`
	StreetAddress      []string `json:"street_address,omitempty"`
	PostalCode         []string `json:"postal_code,omitempty"`
}

// CSROutput is the output of CSR.
type CSROutput struct {
	CSR       string    `json:"csr"` // PEM
	Algorithm Algorithm `json:"algorithm"`
	Version   uint32    `json:"version"`
	Meta
}

// DER returns the request in DER, as x509.ParseCertificateRequest takes it for
// the algorithms that it knows.
func (o *CSROutput) DER() ([]byte, error) { return decodePEM(o.CSR, "CERTIFICATE REQUEST") }

// CSR makes a certification request for a key (PKCS #10, RFC 2986), signed
// with the key itself.
func (c *Client) CSR(ctx context.Context, key string, in CSRInput) (*CSROutput, error) {
	return use[CSROutput](ctx, c, key, in, "csr")
}
