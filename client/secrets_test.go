package client_test

import (
	"bytes"
	jsonv1 "encoding/json"
	"encoding/json/v2"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/sluice-kms/sluice/client"
)

func TestAValueShowsItselfOnlyWhenRevealed(t *testing.T) {
	const text = "sk-canary-value"
	value := client.NewValue(text)
	if value.Reveal() != text || value.IsZero() || string(value.Append([]byte("x"))) != "x"+text {
		t.Fatal("the value is not the one that was given")
	}
	type nested struct {
		Exported   client.Value
		unexported client.Value
		pointer    *client.Value
		list       []client.Value
		table      map[string]client.Value
		any        any
	}
	n := nested{value, value, &value, []client.Value{value}, map[string]client.Value{"k": value}, value}
	shown := map[string]string{}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%b", "%o", "%U", "%e", "%t", "%p", "%T", "%10.3v"} {
		for what, v := range map[string]any{"value": value, "pointer": &value, "nested": n, "pointer to nested": &n, "error": fmt.Errorf("%v", value)} {
			shown[verb+" of "+what] = fmt.Sprintf(verb, v)
		}
	}
	for what, v := range map[string]any{"value": value, "nested": n} {
		for version, marshal := range map[string]func(any) ([]byte, error){
			"v1": jsonv1.Marshal, "v2": func(v any) ([]byte, error) { return json.Marshal(v) }} {
			b, err := marshal(v)
			if err != nil {
				t.Errorf("JSON %s of %s: %v", version, what, err)
			}
			shown["JSON "+version+" of "+what] = string(b)
		}
	}
	var log bytes.Buffer
	for _, h := range []slog.Handler{slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil)} {
		slog.New(h).Info("m", "value", value, "nested", n)
	}
	shown["log"] = log.String()
	for what, got := range shown {
		for _, secret := range []string{"canary", "sk-", fmt.Sprintf("%x", "canary"), fmt.Sprintf("%X", "canary"), "99 97 110"} {
			if strings.Contains(got, secret) {
				t.Errorf("%s shows %s: %s", what, secret, got)
			}
		}
	}
	if got := shown["%v of value"]; got != "[redacted]" {
		t.Errorf("printed %q", got)
	}
}

func TestAWipedValueIsGoneFromAllItsCopies(t *testing.T) {
	value := client.NewValue("sk-canary-value")
	other, revealed := value, value.Reveal()
	value.Wipe()
	if other.Reveal() != "" || !other.IsZero() || len(other.Append(nil)) != 0 {
		t.Error("a copy of the value outlived the wipe")
	}
	if revealed != "sk-canary-value" {
		t.Error("the wipe reached what was revealed before")
	}
	value.Wipe() // and once more
	client.Value{}.Wipe()
}
