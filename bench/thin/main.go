// Command thin is the thin wrapper that Sluice is measured against: an echo
// handler around one PKCS#11 call, and nothing else. No authentication, no
// tenants, no quota, no queue but a channel of sessions, no journal, no
// metrics, one key of each kind that never leaves its token. What Sluice is
// slower than this is what its promises cost.
//
// It takes the data folder of a `sluice dev` that is not running and uses its
// first token, so that both run on the same module and the same kind of key.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json/v2"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"github.com/labstack/echo/v4"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/hsm/p11"
	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/softhsm"
)

func main() {
	data := flag.String("data-dir", "", "data folder of a stopped `sluice dev`")
	slots := flag.Int("slots", 4, "sessions")
	listen := flag.String("listen", "127.0.0.1:0", "loopback address")
	flag.Parse()
	if err := run(*data, *slots, *listen); err != nil {
		log.Fatal(err)
	}
}

func run(data string, slots int, listen string) error {
	w, err := open(data, slots)
	if err != nil {
		return err
	}
	e := echo.New()
	e.POST("/encrypt", w.encrypt)
	e.POST("/sign/ec", w.sign(w.ec, kms.SpecP256, kms.AlgECDSASHA256))
	e.POST("/sign/rsa", w.sign(w.rsa, kms.SpecRSA2048, kms.AlgRSAPSSSHA256))
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	return http.Serve(l, e)
}

// wrapper is a channel of sessions and three loaded keys.
type wrapper struct {
	sessions     chan hsm.Session
	aes, ec, rsa hsm.Handle
}

func open(data string, slots int) (*wrapper, error) {
	raw, err := os.ReadFile(filepath.Join(data, "domain.json"))
	if err != nil {
		return nil, err
	}
	var domain hsm.Domain
	if err := json.Unmarshal(raw, &domain); err != nil {
		return nil, err
	}
	soft, err := softhsm.Provision(filepath.Join(data, "tokens", "node-1"), "sluice-dev-node-1")
	if err != nil {
		return nil, err
	}
	token, err := p11.Open(context.Background(), p11.Config{Module: soft.Module, Env: soft.Env,
		TokenLabel: soft.Label, TokenSerial: soft.Serial, PIN: soft.UserPIN, Domain: domain})
	if err != nil {
		return nil, err
	}
	w := &wrapper{sessions: make(chan hsm.Session, slots)}
	for range slots {
		s, err := token.NewSession()
		if err != nil {
			return nil, err
		}
		w.sessions <- s
	}
	for handle, key := range map[*hsm.Handle]struct {
		spec  kms.Spec
		usage kms.Usage
	}{
		&w.aes: {kms.SpecAES256, kms.UsageEncryptDecrypt},
		&w.ec:  {kms.SpecP256, kms.UsageSignVerify},
		&w.rsa: {kms.SpecRSA2048, kms.UsageSignVerify},
	} {
		g, err := token.Generate(key.spec, key.usage)
		if err != nil {
			return nil, err
		}
		if *handle, err = token.Load(g.Material, key.spec, key.usage); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (w *wrapper) do(c *hsm.Call) error {
	s := <-w.sessions
	defer func() { w.sessions <- s }()
	return s.Do(c)
}

func (w *wrapper) encrypt(c echo.Context) error {
	var in struct {
		Plaintext []byte `json:"plaintext"`
	}
	if err := c.Bind(&in); err != nil {
		return err
	}
	nonce := make([]byte, 12)
	rand.Read(nonce)
	call := hsm.Call{Verb: kms.VerbEncrypt, Algorithm: kms.AlgAESGCM, Spec: kms.SpecAES256, Handle: w.aes,
		Input: in.Plaintext, Nonce: nonce, AAD: []byte("thin")}
	if err := w.do(&call); err != nil {
		return err
	}
	return c.JSON(http.StatusOK, map[string][]byte{"ciphertext": append(nonce, call.Output...)})
}

func (w *wrapper) sign(h hsm.Handle, spec kms.Spec, alg kms.Algorithm) echo.HandlerFunc {
	return func(c echo.Context) error {
		var in struct {
			Message []byte `json:"message"`
		}
		if err := c.Bind(&in); err != nil {
			return err
		}
		call := hsm.Call{Verb: kms.VerbSign, Algorithm: alg, Spec: spec, Handle: h, Input: in.Message}
		if err := w.do(&call); err != nil {
			return err
		}
		return c.JSON(http.StatusOK, map[string][]byte{"signature": call.Output})
	}
}
