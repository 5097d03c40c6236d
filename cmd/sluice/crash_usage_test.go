package main

import (
	"fmt"
	"math"
	"net/http"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/audit"
	"github.com/sluice-kms/sluice/cmd/sluice/wire/wiretest"
	"github.com/sluice-kms/sluice/kms"
)

// shipPatience is how long what was recorded may take to come into the audit
// trail here; the alert line of the lag is 10 s.
const shipPatience = 30 * time.Second

// shipped waits until the trail has the entries of a request.
func shipped(t *testing.T, p *devProcess, credential, request string) {
	t.Helper()
	for deadline := time.Now().Add(shipPatience); ; <-time.After(50 * time.Millisecond) {
		status, answer := p.get(credential, "/v1/audit?request="+request)
		if status != http.StatusOK {
			t.Fatalf("reading the audit trail: %d %v", status, answer)
		}
		if len(answer["entries"].([]any)) > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the entry of %s is not in the trail after %v", request, shipPatience)
		}
	}
}

// trailOf reads all entries of the tenant of a credential in the trail, by
// position, with their request and what they charged in micro-credits.
func trailOf(t *testing.T, p *devProcess, credential, more string) (outcomes map[string]int, charged kms.Credits, positions map[string]bool) {
	t.Helper()
	outcomes, positions = map[string]int{}, map[string]bool{}
	for token := ""; ; {
		query := "?order=arrival&page_size=1000" + more
		if token != "" {
			query += "&page_token=" + url.QueryEscape(token)
		}
		status, answer := p.get(credential, "/v1/audit"+query)
		if status != http.StatusOK {
			t.Fatalf("reading the audit trail: %d %v", status, answer)
		}
		for _, entry := range answer["entries"].([]any) {
			e := entry.(map[string]any)
			position := fmt.Sprintf("%s/%.0f", e["api_node"], e["sequence"])
			if positions[position] {
				t.Errorf("%s is in the trail twice", position)
			}
			positions[position] = true
			if e["phase"] == "outcome" {
				outcomes[e["request_id"].(string)]++
				charged += micro(e["charged"])
			}
		}
		next, more := answer["next_page_token"].(string)
		if !more {
			return outcomes, charged, positions
		}
		token = next
	}
}

func micro(credits any) kms.Credits {
	return kms.Credits(math.Round(credits.(float64) * float64(kms.Credit)))
}

// checkUsage compares usage with the journal, up to a question that it asks: the
// requests, the credits and the bytes of the tenant, by every granularity, and
// the bills of its days.
func checkUsage(t *testing.T, p *devProcess, credential, journal string) {
	t.Helper()
	_, question := p.get(credential, "/v1/quota")
	shipped(t, p, credential, question["request_id"].(string))
	// What comes after the answers were made is not in them: the journal is
	// summed up to the last sequence that they say they have.
	for _, granularity := range []string{"minute", "hour", "day"} {
		ok := false
		for range 20 { // the trail moves on: its place before and after has to be the same
			before := placeOf(t, p, credential)
			status, answer := p.get(credential, "/v1/usage?from="+time.Now().UTC().AddDate(0, 0, -1).Format(time.DateOnly)+"&granularity="+granularity)
			if status != http.StatusOK {
				t.Fatalf("reading usage: %d %v", status, answer)
			}
			after := placeOf(t, p, credential)
			if before != after {
				continue
			}
			ok = true
			want := journalUsage(t, journal, before, uuid.MustParse(question["request_id"].(string)))
			var got kms.UsageSum
			for _, row := range answer["rows"].([]any) {
				r := row.(map[string]any)
				got.Requests += int64(r["requests"].(float64))
				got.Charged += micro(r["credits"])
				got.Bytes += int64(r["bytes"].(float64))
			}
			if got.Requests != want.Requests || got.Charged != want.Charged || got.Bytes != want.Bytes || got.Requests == 0 {
				t.Errorf("by %s: usage is %+v, the journal says %+v", granularity, got, want)
			}
			break
		}
		if !ok {
			t.Errorf("by %s: the trail did not stand still", granularity)
		}
	}
}

// placeOf is how far the only node's journal is in the trail.
func placeOf(t *testing.T, p *devProcess, credential string) uint64 {
	t.Helper()
	status, answer := p.get(credential, "/v1/audit?page_size=1")
	if status != http.StatusOK {
		t.Fatalf("reading the audit trail: %d %v", status, answer)
	}
	nodes := answer["api_nodes"].([]any)
	return uint64(nodes[0].(map[string]any)["sequence"].(float64))
}

// journalUsage sums up the entries of a journal up to a sequence, of the tenant
// of a request.
func journalUsage(t *testing.T, journal string, until uint64, request uuid.UUID) kms.UsageSum {
	t.Helper()
	sums := map[uuid.UUID]kms.UsageSum{}
	var tenant uuid.UUID
	err := audit.Read(journal, 1, func(e *kms.Entry, at audit.Position) error {
		if at.Sequence > until {
			return nil
		}
		if key, sum, ok := e.Usage(); ok {
			s := sums[key.Tenant]
			s.Add(sum)
			sums[key.Tenant] = s
		}
		if e.RequestID == request {
			tenant = e.Tenant
		}
		return nil
	})
	if err != nil || tenant == (uuid.UUID{}) {
		t.Fatalf("reading the journal: %v, tenant %v", err, tenant)
	}
	return sums[tenant]
}

// checkTrail compares the trail with the journal and with what was answered:
// each answered request is there once, and nothing else than the journal has.
func checkTrail(t *testing.T, p *devProcess, credential, journal string, answered map[string]bool) {
	t.Helper()
	_, question := p.get(credential, "/v1/quota")
	last := question["request_id"].(string)
	shipped(t, p, credential, last)
	outcomes, _, positions := trailOf(t, p, credential, "")
	for id := range answered {
		if outcomes[id] != 1 {
			t.Errorf("request %s was answered and is in the trail %d times", id, outcomes[id])
		}
	}
	var tenant uuid.UUID
	ofTenant := map[uuid.UUID][]uint64{}
	err := audit.Read(journal, 1, func(e *kms.Entry, at audit.Position) error {
		if tenant == (uuid.UUID{}) {
			ofTenant[e.Tenant] = append(ofTenant[e.Tenant], at.Sequence)
		}
		if e.RequestID.String() == last {
			tenant = e.Tenant
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	node := nodeOf(positions)
	for _, sequence := range ofTenant[tenant] {
		if !positions[fmt.Sprintf("%s/%d", node, sequence)] {
			t.Errorf("record %d of the journal is not in the trail", sequence)
		}
	}
	t.Logf("%d entries of the tenant in the trail", len(positions))
}

func nodeOf(positions map[string]bool) string {
	for position := range positions {
		return filepath.Dir(position)
	}
	return ""
}

// Two API nodes ship into one database: every request is there once, under the
// node that answered it, and usage is the sum of both journals.
func TestTwoAPINodesShipIntoOneTrail(t *testing.T) {
	wiretest.Require(t)
	dir := t.TempDir()
	program := buildProgram(t, filepath.Join(dir, "bin"))
	configure := postgresSite(t, dir)
	first, firstData := configure("first")
	second, secondData := configure("second")
	a := startServer(t, program, dir, "--config", first, "--operator-credential", filepath.Join(dir, "operator"))
	operator := a.credential(t, "operator")
	admin := a.newTenant(t, operator)
	b := startServer(t, program, dir, "--config", second)
	if status, answer := a.post(admin, "/v1/keys", map[string]any{"name": "k", "spec": "AES_256"}); status != http.StatusCreated {
		t.Fatalf("%d %v", status, answer)
	}
	var mu sync.Mutex
	answered := map[string]string{}
	var workers sync.WaitGroup
	for name, p := range map[string]*devProcess{"first": a, "second": b} {
		for range 2 {
			workers.Go(func() {
				for range 50 {
					status, answer := p.post(admin, "/v1/keys/k/encrypt", map[string]any{"plaintext": "aGVsbG8="})
					if status != http.StatusOK {
						t.Errorf("%d %v", status, answer)
						return
					}
					mu.Lock()
					answered[answer["request_id"].(string)] = name
					mu.Unlock()
				}
			})
		}
	}
	workers.Wait()
	for _, p := range []*devProcess{a, b} {
		_, last := p.get(admin, "/v1/quota")
		shipped(t, a, admin, last["request_id"].(string))
	}
	outcomes, charged, _ := trailOf(t, b, admin, "&operation=encrypt")
	for id, node := range answered {
		if outcomes[id] != 1 {
			t.Errorf("a request that %s answered is in the trail %d times", node, outcomes[id])
		}
	}
	status, usage := a.get(admin, "/v1/usage?operation=encrypt&from="+time.Now().UTC().AddDate(0, 0, -1).Format(time.DateOnly))
	if status != http.StatusOK {
		t.Fatalf("%d %v", status, usage)
	}
	requests, credits := 0.0, kms.Credits(0)
	for _, row := range usage["rows"].([]any) {
		requests += row.(map[string]any)["requests"].(float64)
		credits += micro(row.(map[string]any)["credits"])
	}
	var journals kms.Credits
	for _, data := range []string{firstData, secondData} {
		err := audit.Read(filepath.Join(data, "journal"), 1, func(e *kms.Entry, _ audit.Position) error {
			if e.Op == kms.OpEncrypt && e.Phase == kms.PhaseOutcome {
				journals += e.Charged
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if requests != 200 || credits != charged || credits != journals || len(outcomes) != 200 {
		t.Errorf("usage is %v requests and %v µcr; the trail has %d and %v µcr, the journals %v µcr", requests, credits, len(outcomes), charged, journals)
	}
	if nodes := usage["api_nodes"].([]any); len(nodes) != 2 || usage["complete_until"] == nil {
		t.Errorf("the answer is complete by %v", nodes)
	}
	for _, p := range []*devProcess{a, b} {
		if err := p.stop(t); err != nil {
			t.Errorf("stopping: %v", err)
		}
	}
}
