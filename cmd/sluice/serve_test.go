package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-kms/sluice/cmd/sluice/wire"
)

// selfSigned writes a certificate that ends at a time, and its key.
func selfSigned(t *testing.T, ends time.Time) wire.TLSConfig {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: ends.Add(-time.Hour), NotAfter: ends}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	c := wire.TLSConfig{CertFile: filepath.Join(t.TempDir(), "cert.pem"), KeyFile: filepath.Join(t.TempDir(), "key.pem")}
	for file, block := range map[string]*pem.Block{c.CertFile: {Type: "CERTIFICATE", Bytes: cert}, c.KeyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func TestEndOfTheCertificateIsToldInMetrics(t *testing.T) {
	ends := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	r := prometheus.NewPedanticRegistry()
	l, err := listen("127.0.0.1:0", selfSigned(t, ends), r)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	families, err := r.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "sluice_certificate_not_after_seconds" ||
		families[0].Metric[0].GetGauge().GetValue() != float64(ends.Unix()) {
		t.Errorf("metrics are %v, %v", families, err)
	}
}
