package costreport

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"uuid"

	"golang.org/x/net/html"

	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/required"
)

var began = time.Date(2030, 3, 10, 6, 0, 0, 0, time.UTC)

func sample() *kms.CostIncident {
	i := &kms.CostIncident{ID: uuid.MustParse("01890000-0000-7000-8000-00000000000a"), Tenant: uuid.MustParse("01890000-0000-7000-8000-000000000001"),
		Node: "api-1", Began: began, Ended: began.Add(2 * time.Hour), Tier: kms.TierGold, PolicyVersion: 7, Factor: 400, Line: 2000, Recover: 1000,
		PeakRisk: 3150, PeakAt: began.Add(time.Minute), Used: 1_234_567 * kms.Credit, Refused: 88 * kms.Credit, Calls: 12345, RefusedCalls: 67,
		Planned: 234_567 * kms.Credit, Over: 1_000_000 * kms.Credit, Stopped: began.Add(3 * time.Minute), StoppedUsed: 9_999 * kms.Credit,
		Predicted: kms.CostPrediction{StopsAt: began.Add(3 * time.Minute), Credits: 10_001 * kms.Credit}, SpanSeconds: 60,
		Components:  []kms.CostShare{{Name: "billing-loop", Credits: 1_234_000 * kms.Credit, Calls: 12000}, {Name: "", Credits: 567 * kms.Credit, Calls: 345}},
		Operations:  []kms.CostShare{{Name: "decrypt", Credits: 1_234_567 * kms.Credit, Calls: 12345}},
		Keys:        []kms.CostShare{{Name: "01890000-0000-7000-8000-0000000000aa", Credits: 5 * kms.Credit, Calls: 1}},
		Credentials: []kms.CostShare{{Name: "01890000-0000-7000-8000-0000000000cc", Credits: 5 * kms.Credit, Calls: 1}},
		Changes:     []kms.CostChange{{At: began.Add(time.Minute), Component: "billing-loop", To: kms.CostNoBulk, Risk: 2100, PerMinute: 55_000 * kms.Credit}, {At: began.Add(2 * time.Minute), Whole: true, From: kms.CostNoBulk, To: kms.CostMarked}},
		Causes:      []kms.CostCause{{Code: kms.CauseRetryLoop, Detail: "90 % of the credits are of one call", Advice: "bound the retries"}},
	}
	for n := range 120 {
		i.Timeline = append(i.Timeline, kms.CostPoint{Used: kms.Credits(n) * 1000 * kms.Credit, Refused: 7 * kms.Credit, Calls: int64(n), Risk: 2000 + n, Stage: kms.CostMarked})
	}
	return i
}

// parts are what a report must say, in the order in which it does.
var parts = []string{"Incident of the cost breaker", "1 234 567 credits were used, 1 000 000 over the plan", "The first stage had said 2030-03-10 06:03:00 UTC and 10 001 credits",
	"Credits over the plan", "1 000 000", "12 345 admitted, 67 refused", "3.15", "RETRY_LOOP", "bound the retries",
	"component billing-loop", "no_bulk", "the tenant", "marked", "Timeline, each line 1m0s", "2030-03-10 07:59:00 UTC", "Components", "billing-loop", "(none)",
	"Operations", "decrypt", "Keys", "0000000000aa", "Credentials", "0000000000cc"}

func wantParts(t *testing.T, text string) {
	t.Helper()
	text = strings.Join(strings.Fields(text), " ") // lines are broken somewhere
	at := 0
	for _, part := range parts {
		i := strings.Index(text[at:], part)
		if i < 0 {
			t.Fatalf("after %q there is no %q", text[max(at-80, 0):at], part)
		}
		at += i
	}
}

func TestPageSaysEverythingAndLoadsNothing(t *testing.T) {
	body, err := Reports{}.HTML(sample())
	if err != nil {
		t.Fatal(err)
	}
	root, err := html.Parse(bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for n := range root.Descendants() {
		switch n.Type {
		case html.TextNode:
			if n.Parent.Data != "style" {
				text.WriteString(n.Data + " ")
			}
		case html.ElementNode:
			for _, a := range n.Attr {
				if a.Key == "src" || a.Key == "href" || strings.HasPrefix(a.Key, "on") {
					t.Errorf("%s has %s=%q", n.Data, a.Key, a.Val)
				}
			}
			switch n.Data {
			case "script", "link", "img", "iframe", "object":
				t.Errorf("there is a %s", n.Data)
			}
		}
	}
	wantParts(t, text.String())
	if regexp.MustCompile(`(?i)https?:|url\(|@import`).Match(body) {
		t.Error("something is loaded from elsewhere")
	}
	if !bytes.Contains(body, []byte("@media print")) {
		t.Error("nothing is said of paper")
	}
}

func TestNamesOfClientsAreText(t *testing.T) {
	i := sample()
	i.Components[0].Name = `<script>alert(1)</script>`
	i.Changes[0].Component = `"><img src=x onerror=alert(1)>`
	body, err := Reports{}.HTML(i)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(body, []byte("<script")) || bytes.Contains(body, []byte("<img")) {
		t.Error("a name is read as a part of the page")
	}
}

// readPDF returns the text of a PDF as another program reads it.
func readPDF(t *testing.T, body []byte) string {
	t.Helper()
	program, err := exec.LookPath("pdftotext")
	required.Part(t, "poppler", err)
	file := filepath.Join(t.TempDir(), "report.pdf")
	if err := os.WriteFile(file, body, 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := exec.Command(program, "-layout", "-enc", "UTF-8", file, "-").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return string(text)
}

func TestPDFSaysEverythingAsText(t *testing.T) {
	body, err := Reports{}.PDF(sample())
	if err != nil {
		t.Fatal(err)
	}
	text := readPDF(t, body)
	wantParts(t, regexp.MustCompile(`(?m)^.*page \d+\s*$`).ReplaceAllString(text, ""))
	if n := strings.Count(text, "page "); n < 3 {
		t.Errorf("120 lines stand on %d pages", n)
	}
	again, err := Reports{}.PDF(sample())
	if err != nil || !bytes.Equal(body, again) {
		t.Errorf("the same incident gives another file, %v", err)
	}
}

func TestPDFHasNamesThatItsFontLacks(t *testing.T) {
	i := sample()
	i.Components[0].Name = "Zürich-Ωμέγα-Москва-支付"
	body, err := Reports{}.PDF(i)
	if err != nil {
		t.Fatal(err)
	}
	if text := readPDF(t, body); !strings.Contains(text, "Zürich-Ωμέγα-Москва-U+652FU+4ED8") {
		t.Errorf("the name is not in %s", text)
	}
}

func TestLeastIncidentHasAReport(t *testing.T) {
	i := &kms.CostIncident{ID: uuid.NewV7(), Began: began, Ended: began}
	for name, write := range map[string]func(*kms.CostIncident) ([]byte, error){"page": Reports{}.HTML, "PDF": Reports{}.PDF} {
		if body, err := write(i); err != nil || len(body) == 0 {
			t.Errorf("%s: %d bytes, %v", name, len(body), err)
		}
	}
}

func TestNumbersAreGrouped(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1 000", 1234567: "1 234 567", -1000: "-1 000"} {
		if got := fmt.Sprint(grouped(n)); got != want {
			t.Errorf("%d is %q", n, got)
		}
	}
}
