package cli_test

import (
	"encoding/json/v2"
	"fmt"
	"strings"
)

// batch answers every item with what it asks for as bytes, and refuses those
// with a key of refusals; one with the key "busy" is refused the first time.
func (s *service) batch(body []byte) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent++
	var request struct {
		Items []struct {
			Op, Key string
			Bytes   int
		}
	}
	if err := json.Unmarshal(body, &request, json.MatchCaseInsensitiveNames(true)); err != nil {
		return err.Error()
	}
	var results []string
	for _, item := range request.Items {
		switch refusal, refused := refusals[item.Key]; {
		case refused:
			results = append(results, fmt.Sprintf(`{"status":%d,"problem":{"code":%q}}`, refusal.status, refusal.code))
		case item.Key == "busy" && s.sent == 1:
			results = append(results, `{"status":429,"problem":{"code":"quota_exceeded"},"retry_after":1}`)
		default:
			results = append(results, fmt.Sprintf(`{"status":200,"result":{"n":%d}}`, item.Bytes))
		}
	}
	return `{"results":[` + strings.Join(results, ",") + `],` + charge + `}`
}
