package wire

import (
	"bytes"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"uuid"

	"github.com/sluice-kms/sluice/api"
	"github.com/sluice-kms/sluice/client"
	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// canary stands for a secret. Its bytes are no text of any encoding of them.
const canary = "cAnArY-5up3r-s3cr3t"

// fill puts the canary wherever a value can hold text or bytes.
func fill(v reflect.Value, depth int) {
	if depth == 0 || !v.CanSet() {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(canary)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte(canary))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth-1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth-1)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), depth-1)
		}
	}
}

// holders are types that hold what must not be logged: plaintexts, secrets,
// shared secrets, keys' private halves, PINs, credentials.
var holders = []any{
	kms.Work{}, kms.ImportMaterial{}, kms.Webhook{}, kms.SystemSecret{}, kms.Version{}, kms.Key{}, kms.Credential{}, kms.CredentialSecret{}, kms.Ticket{},
	kms.EncryptInput{}, kms.DecryptOutput{}, kms.DataKeyOutput{}, kms.Encapsulation{}, kms.ImportKeyInput{}, kms.Principal{}, hsm.Call{}, hsm.Generated{},
	api.DecryptResponse{}, api.DataKeyResponse{}, api.SharedSecretResponse{}, api.UnwrapResponse{}, api.MintedCredentialResponse{},
	client.EncryptInput{}, client.DataKeyOutput{}, client.Options{}, TokenConfig{}, Config{},
}

// However a value with a secret is handed to the log, no secret comes out, in
// clear or in base64.
func TestNoSecretComesIntoTheLogByBeingPassedWhole(t *testing.T) {
	for _, holder := range holders {
		v := reflect.New(reflect.TypeOf(holder))
		v.Elem().Set(reflect.ValueOf(holder))
		fill(v.Elem(), 5)
		var out bytes.Buffer
		log := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{ReplaceAttr: Redact}))
		log.Info("m", "v", v.Elem().Interface(), "p", v.Interface(), slog.Group("g", slog.Any("v", v.Elem().Interface())))
		log.With("v", v.Interface()).WithGroup("h").Info("m", "list", []any{v.Interface()})
		for _, form := range []string{canary, "Y0FuQXJZ"} {
			if strings.Contains(out.String(), form) {
				t.Errorf("%T is logged as %s", holder, out.String())
			}
		}
		if n := strings.Count(out.String(), redacted); n < 5 {
			t.Errorf("%T: %d of 5 values are redacted: %s", holder, n, out.String())
		}
	}
}

func TestLogHidesWhatIsNamedLikeASecretAndKeepsTheRest(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{ReplaceAttr: Redact}))
	for _, name := range secretNames {
		log.Info("m", name, canary, strings.ToUpper(name), []byte(canary))
	}
	if strings.Contains(out.String(), canary) {
		t.Errorf("the log has %s", out.String())
	}
	out.Reset()
	id := uuid.New()
	log.Warn("it happened", "n", 7, "id", id, "error", errors.New("why"), "node", "hsm-1")
	for _, want := range []string{`"n":7`, id.String(), `"error":"why"`, `"node":"hsm-1"`, `"msg":"it happened"`, `"level":"WARN"`, `"time":"2`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log lacks %s: %s", want, out.String())
		}
	}
}
