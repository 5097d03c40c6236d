package api_test

import (
	"bufio"
	"encoding/json/v2"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
	"uuid"
)

// vaultExchange is a request of a client as it sends it, and the answer that it
// is to have, in which a text in <> stands for whatever is of its kind.
type vaultExchange struct {
	request string // headers and body, as on the line
	status  int
	answer  string
}

// vaultExchanges reads the exchanges of a file of testdata/vault. Lines of a
// request begin with ">", of an answer with "<"; an empty line ends both.
func vaultExchanges(t *testing.T, file string) (list []vaultExchange) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for block := range strings.SplitSeq(string(text), "\n\n") {
		var request, answer []string
		for line := range strings.Lines(block) {
			line = strings.TrimRight(line, "\n")
			if rest, ok := strings.CutPrefix(line, ">"); ok {
				request = append(request, strings.TrimPrefix(rest, " "))
			} else if rest, ok := strings.CutPrefix(line, "<"); ok {
				answer = append(answer, strings.TrimPrefix(rest, " "))
			} else if !strings.HasPrefix(line, "#") {
				t.Fatalf("%s: %q", file, line)
			}
		}
		if request == nil {
			continue
		}
		status, err := strconv.Atoi(answer[0])
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, vaultExchange{strings.Join(request, "\n"), status, strings.Join(answer[1:], "\n")})
	}
	return list
}

// onTheLine is the request with its length.
func (e *vaultExchange) onTheLine(variables *strings.Replacer) string {
	head, body, _ := strings.Cut(variables.Replace(e.request), "\n\n")
	first, headers, _ := strings.Cut(head, "\n")
	text := first + " HTTP/1.1\nHost: sluice.example\nContent-Length: " + strconv.Itoa(len(body)) + "\n" + headers + "\n\n" + body
	head, body, _ = strings.Cut(text, "\n\n")
	return strings.ReplaceAll(strings.TrimRight(head, "\n"), "\n", "\r\n") + "\r\n\r\n" + body
}

// wildcards tell what the texts in <> stand for.
var wildcards = map[string]func(any) bool{
	"<uuid>":    func(v any) bool { s, _ := v.(string); _, err := uuid.Parse(s); return err == nil },
	"<time>":    func(v any) bool { s, _ := v.(string); _, err := time.Parse(time.RFC3339, s); return err == nil },
	"<token>":   func(v any) bool { s, _ := v.(string); return strings.HasPrefix(s, "slt_") },
	"<seconds>": func(v any) bool { n, ok := v.(float64); return ok && n > 0 && n == float64(int64(n)) },
}

// matches holds a JSON value against the expected one.
func matches(want, got any) bool {
	switch want := want.(type) {
	case string:
		if wildcard := wildcards[want]; wildcard != nil {
			return wildcard(got)
		}
	case map[string]any:
		fields, ok := got.(map[string]any)
		if !ok || len(fields) != len(want) {
			return false
		}
		for name, v := range want {
			if other, given := fields[name]; !given || !matches(v, other) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(want, got)
}

// TestVaultAnswersWhatKnownClientsSend replays the calls of gateways and
// operators, byte by byte, and holds the answers against what these need.
func TestVaultAnswersWhatKnownClientsSend(t *testing.T) {
	files, err := filepath.Glob("testdata/vault/*.txt")
	if err != nil || len(files) < 4 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			w := newWorld(t)
			w.newSecret(w.acme, "gateway/OPENAI_API_KEY", "sk-first")
			w.newSecret(w.acme, "elsewhere/OPENAI_API_KEY", "sk-elsewhere")
			w.must(201, "POST", "/v1/secrets", w.acme.token, `{"path":"gateway/BARE","provider":"x","value":"sk-bare"}`)
			off := w.must(201, "POST", "/v1/secrets", w.acme.token, `{"path":"gateway/OFF","provider":"x","value":"sk-off"}`).text("id")
			w.must(200, "POST", "/v1/secrets/"+off+"/versions/1/disable", w.acme.token, "")
			_, credential := w.minted(w.acme, "secret:read:gateway/*")
			_, lister := w.minted(w.acme, "secret:list")
			login := ""
			for i, e := range vaultExchanges(t, file) {
				parts := strings.Split(credential, "_")
				variables := strings.NewReplacer("${role}", parts[1], "${secret}", parts[2],
					"${credential}", credential, "${lister}", lister, "${login}", login)
				request, err := http.ReadRequest(bufio.NewReader(strings.NewReader(e.onTheLine(variables))))
				if err != nil {
					t.Fatal(err)
				}
				recorder := httptest.NewRecorder()
				w.handler.ServeHTTP(recorder, request)
				var want, got any
				if e.answer != "" {
					if err := json.Unmarshal([]byte(e.answer), &want); err != nil {
						t.Fatal(err)
					}
					if err := json.Unmarshal(recorder.Body.Bytes(), &got); err != nil {
						t.Errorf("exchange %d: %v in %s", i+1, err, recorder.Body)
					}
				}
				if recorder.Code != e.status || !matches(want, got) {
					t.Errorf("exchange %d: %d %s\nwant %d %s", i+1, recorder.Code, recorder.Body, e.status, e.answer)
				}
				if fields, ok := got.(map[string]any); ok && fields["auth"] != nil {
					login = fmt.Sprint(fields["auth"].(map[string]any)["client_token"])
				}
			}
		})
	}
}
