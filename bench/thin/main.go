// Command thin is the thin wrapper that Sluice is measured against: an echo
// handler around a PKCS#11 call, and nothing else. No authentication, no
// tenants, no quota, no queue but a channel of sessions, no journal, no
// metrics, one key of each kind that never leaves its token. What Sluice is
// slower than this is what its promises cost.
//
// With -calls miekg, the default, it calls the module as a wrapper without
// Sluice would, by github.com/miekg/pkcs11. With -calls sluice it calls it by
// Sluice's own driver, which makes one crossing of an operation: then the
// difference is all that is above the driver.
//
// It takes the data folder of a `sluice dev` that is not running and uses its
// first token, so that both run on the same module and the same kind of key.
// With -module it opens that token by another library, which stands before the
// token's own. With -loop it serves nobody: it calls the module in a loop and
// prints how many operations/s that is, which is the physical limit.
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/sluice-kms/sluice/softhsm"
)

// backend is the module with its three keys.
type backend interface {
	// encrypt returns nonce and AES-256-GCM ciphertext.
	encrypt(plaintext []byte) ([]byte, error)
	signEC(message []byte) ([]byte, error)  // ECDSA P-256 with SHA-256
	signRSA(message []byte) ([]byte, error) // RSA-2048 PSS with SHA-256
}

func main() {
	data := flag.String("data-dir", "", "data folder of a stopped `sluice dev`")
	slots := flag.Int("slots", 4, "sessions")
	listen := flag.String("listen", "127.0.0.1:0", "loopback address")
	module := flag.String("module", "", "the library to open the token with; \"\": the token's own")
	calls := flag.String("calls", "miekg", "how the module is called: miekg or sluice")
	looped := flag.Duration("loop", 0, "call the module in a loop for so long for each operation, and end; 0: serve")
	flag.Parse()
	if err := run(*data, *module, *slots, *listen, *calls, *looped); err != nil {
		log.Fatal(err)
	}
}

func run(data, module string, slots int, listen, calls string, looped time.Duration) error {
	token, err := softhsm.Provision(filepath.Join(data, "tokens", "node-1"), "sluice-dev-node-1")
	if err != nil {
		return err
	}
	if module != "" {
		token.Module = module
	}
	var b backend
	switch calls {
	case "miekg":
		b, err = openMiekg(token, slots)
	case "sluice":
		b, err = openDriver(token, filepath.Join(data, "domain.json"), slots)
	default:
		err = fmt.Errorf("-calls: must be miekg or sluice")
	}
	if err != nil {
		return err
	}
	if looped > 0 {
		return loop(b, slots, looped, os.Stdout)
	}
	return serve(b, listen)
}

func serve(b backend, listen string) error {
	e := echo.New()
	e.POST("/encrypt", func(c echo.Context) error {
		var in struct {
			Plaintext []byte `json:"plaintext"`
		}
		return answer(c, &in, "ciphertext", func() ([]byte, error) { return b.encrypt(in.Plaintext) })
	})
	sign := func(f func([]byte) ([]byte, error)) echo.HandlerFunc {
		return func(c echo.Context) error {
			var in struct {
				Message []byte `json:"message"`
			}
			return answer(c, &in, "signature", func() ([]byte, error) { return f(in.Message) })
		}
	}
	e.POST("/sign/ec", sign(b.signEC))
	e.POST("/sign/rsa", sign(b.signRSA))
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	return http.Serve(l, e)
}

func answer(c echo.Context, in any, name string, call func() ([]byte, error)) error {
	if err := c.Bind(in); err != nil {
		return err
	}
	out, err := call()
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, map[string][]byte{name: out})
}
