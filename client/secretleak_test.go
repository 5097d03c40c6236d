package client_test

import (
	"bytes"
	jsonv1 "encoding/json"
	"encoding/json/v2"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-kms/sluice/client"
)

// shown is what v shows of itself in every way that programs print things.
func shown(v any) string {
	var b strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		fmt.Fprintf(&b, verb+"\n", v)
	}
	if text, err := jsonv1.Marshal(v); err == nil {
		b.Write(text)
	}
	if text, err := json.Marshal(v); err == nil {
		b.Write(text)
	}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("m", "v", v)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("m", "v", v)
	b.Write(log.Bytes())
	return b.String()
}

// All types that hold values or may come to hold one, each as a pointer and as
// what it points to, and everything that their exported methods return.
func TestNoTypeOfTheCacheShowsAValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.put("a", "changed", "ok", fakeVersion{1, 50, "sk-canary-1"}, fakeVersion{2, 50, "sk-canary-2"})
		f.set("gone", 3)
		s := newSecrets(t, f, client.SecretsOptions{})
		h, gone := s.Handle("a"), s.Handle("gone")
		preload(t, s, "a", "gone")
		synctest.Wait()
		f.do(func() { f.delay = time.Second })
		f.put("gone", "revoked", "disabled") // its value is in limbo
		synctest.Wait()
		rt := h.Transport(client.TransportOptions{})
		value, err := h.Get("r")
		if err != nil {
			t.Fatal(err)
		}
		_, refused := gone.Get("r")
		for _, root := range []any{s, h, gone, rt, value, refused, map[string]any{"h": h}, []any{s, value}, struct{ v client.Value }{value}} {
			check := func(what string, v any) {
				text := shown(v)
				for _, secret := range []string{"canary", "sk-", fmt.Sprintf("%x", "canary"), fmt.Sprintf("%X", "canary"), "99 97 110"} {
					if strings.Contains(text, secret) {
						t.Errorf("%s shows a value: %s", what, text)
					}
				}
			}
			check(fmt.Sprintf("%T", root), root)
			v := reflect.ValueOf(root)
			if v.Kind() == reflect.Pointer && v.Elem().Kind() == reflect.Struct {
				check("*"+fmt.Sprintf("%T", root), v.Elem().Interface())
			}
			for i := range v.NumMethod() {
				m := v.Type().Method(i)
				if v.Method(i).Type().NumIn() > 0 || m.Name == "Reveal" || m.Name == "Close" || m.Name == "Wipe" {
					continue
				}
				for _, result := range v.Method(i).Call(nil) {
					check(fmt.Sprintf("%T.%s", root, m.Name), result.Interface())
				}
			}
		}
	})
}
