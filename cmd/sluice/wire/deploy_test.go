package wire_test

import (
	"encoding/json/v2"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-kms/sluice/kms"
)

const root = "../../../"

// alertRules are the rules as far as tests here need them; deploy/rulestest
// has Prometheus parse and evaluate them.
type alertRules struct {
	Groups []struct {
		Rules []struct {
			Alert, Expr string
			Annotations struct{ Runbook, Summary string }
		}
	}
}

func readRules(t *testing.T) (rules alertRules) {
	t.Helper()
	content, err := os.ReadFile(root + "deploy/prometheus/alerts.yaml")
	if err == nil {
		err = yaml.Unmarshal(content, &rules)
	}
	if err != nil || len(rules.Groups) == 0 {
		t.Fatalf("%d groups: %v", len(rules.Groups), err)
	}
	return rules
}

// expressions are those of all rules and panels, by where they stand.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, g := range readRules(t).Groups {
		for _, r := range g.Rules {
			all[r.Alert] = r.Expr
		}
	}
	boards, err := filepath.Glob(root + "deploy/grafana/*.json")
	if err != nil || len(boards) < 4 {
		t.Fatalf("%d dashboards: %v", len(boards), err)
	}
	for _, file := range boards {
		content, err := os.ReadFile(file)
		var board struct {
			Panels []struct {
				Title   string
				Targets []struct{ Expr string }
			}
			Templating struct {
				List []struct{ Name, Query string }
			}
		}
		if err == nil {
			err = json.Unmarshal(content, &board, json.MatchCaseInsensitiveNames(true))
		}
		if err != nil || len(board.Panels) == 0 {
			t.Fatalf("%s: %d panels: %v", file, len(board.Panels), err)
		}
		for _, p := range board.Panels {
			for _, target := range p.Targets {
				all[filepath.Base(file)+" "+p.Title+" "+target.Expr] = target.Expr
			}
		}
		for _, v := range board.Templating.List {
			if v.Name != "datasource" {
				all[filepath.Base(file)+" $"+v.Name] = v.Query
			}
		}
	}
	return all
}

var metricName = regexp.MustCompile(`\bsluice_[a-z0-9_]+`)

// unseen are metrics that a quiet service on SQLite has no series of, with the
// text by which the source declares them.
var unseen = map[string]string{
	"sluice_refused_total":                         `"sluice_refused_total"`, // nobody was refused
	"sluice_webhook_deliveries_total":              `"sluice_webhook_deliveries_total"`,
	"sluice_keystore_state_age_seconds":            `desc("state_age_seconds"`,               // nobody else writes to the database
	"sluice_certificate_not_after_seconds":         `"sluice_certificate_not_after_seconds"`, // it has no TLS
	"sluice_node_faults_total":                     `desc("faults_total"`,
	"sluice_reasons_total":                         `"sluice_reasons_total"`,
	"sluice_tenant_p99_seconds":                    `desc("tenant_p99_seconds"`,           // too few requests
	"sluice_capacity_committed_credits_per_second": `desc("committed_credits_per_second"`, // before the first look
	"sluice_capacity_sellable_credits_per_second":  `desc("sellable_credits_per_second"`,
	"sluice_capacity_credits_per_second":           `desc("credits_per_second"`,
	"sluice_capacity_oversold":                     `desc("oversold"`,
}

// Dashboards and alerts are about metrics that there are.
func TestEveryMetricOfDashboardsAndAlertsExists(t *testing.T) {
	s := service(t)
	must(t, s, "/v1/random", object{"bytes": 16})
	must(t, s, "/v1/keys", object{"name": "deploy-test", "spec": "AES_256"})
	must(t, s, "/v1/keys/deploy-test/encrypt", object{"plaintext": "aGVsbG8="})
	families, err := s.App.Metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, f := range families {
		there[f.GetName()] = true
	}
	code := sourceText(t)
	names := 0
	for where, expr := range expressions(t) {
		for _, name := range metricName.FindAllString(expr, -1) {
			names++
			name = strings.TrimSuffix(name, "_bucket")
			if !there[name] && (unseen[name] == "" || !strings.Contains(code, unseen[name])) {
				t.Errorf("%s: there is no %s", where, name)
			}
		}
	}
	if names < 80 {
		t.Errorf("only %d names were found", names)
	}
}

// sourceText is the source of the packages that have metrics.
func sourceText(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	for _, dir := range []string{"cmd/sluice", "cmd/sluice/wire", "keystore", "notify", "watch", "api"} {
		files, err := fs.Glob(os.DirFS(root+dir), "*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			content, err := os.ReadFile(filepath.Join(root, dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(name, "_test.go") {
				text.Write(content)
			}
		}
	}
	return text.String()
}

// Latency and refused share stand on one panel of the overview and of each
// drill-down by tier, operation and tenant.
func TestLatencyAndRefusedShareStandOnOnePanel(t *testing.T) {
	for _, board := range []string{"overview", "operations", "tenants"} {
		content, err := os.ReadFile(root + "deploy/grafana/" + board + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var parsed struct {
			Panels []struct {
				Targets []struct{ Expr string }
			}
		}
		if err := json.Unmarshal(content, &parsed, json.MatchCaseInsensitiveNames(true)); err != nil {
			t.Fatal(err)
		}
		found := false
		for _, p := range parsed.Panels {
			latency, refused := false, false
			for _, target := range p.Targets {
				latency = latency || strings.Contains(target.Expr, "0.99") || strings.Contains(target.Expr, "p99")
				refused = refused || strings.Contains(target.Expr, "refused")
			}
			found = found || latency && refused
		}
		if !found {
			t.Errorf("%s has no panel with both", board)
		}
	}
}

// The runbook has a section for every alert and every type of event: symptom,
// cause, command, fix.
func TestEveryAlertAndEventHasItsPageOfTheRunbook(t *testing.T) {
	content, err := os.ReadFile(root + "docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for section := range strings.SplitSeq("\n"+string(content), "\n## ") {
		title, text, _ := strings.Cut(section, "\n")
		sections[title] = text
	}
	delete(sections, "")
	alerts := map[string]bool{"SluiceSoftLimits": true, "SluiceSecrets": true, "SluiceProviders": true} // events only
	for _, g := range readRules(t).Groups {
		for _, r := range g.Rules {
			alerts[r.Alert] = true
			if sections[r.Alert] == "" {
				t.Errorf("the runbook has no section %s", r.Alert)
			}
			if want := "docs/runbook.md#" + strings.ToLower(r.Alert); r.Annotations.Runbook != want || r.Annotations.Summary == "" {
				t.Errorf("%s names the page %q, want %q", r.Alert, r.Annotations.Runbook, want)
			}
		}
	}
	for title, text := range sections {
		if strings.HasPrefix(title, "#") || title == "" {
			continue // the introduction
		}
		if !alerts[title] {
			t.Errorf("the section %s is about no alert", title)
		}
		for _, part := range []string{"**Symptom.** ", "**Cause.** ", "**Command.**\n\n```sh\n", "**Fix.** "} {
			if strings.Count(text, part) != 1 {
				t.Errorf("%s lacks %s", title, part)
			}
		}
	}
	for _, e := range kms.EventTypes() {
		found := 0
		for _, text := range sections {
			events, _, _ := strings.Cut(text, "**Symptom.**")
			found += strings.Count(events, "`"+string(e.Type)+"`")
		}
		if found != 1 {
			t.Errorf("%s stands in %d sections", e.Type, found)
		}
	}
}
