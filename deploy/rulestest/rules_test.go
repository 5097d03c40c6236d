package rulestest

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

const rulesFile = "../prometheus/alerts.yaml"

// interval is how often the recorded series were scraped and the rules are
// looked at.
const interval = 15 * time.Second

// sample is what an alert is tested with: series in the notation of promtool,
// one value every interval, at which the alert must fire, and one at which it
// must not.
type sample struct {
	fires, silent string
	after         time.Duration // from the start of the series; beyond "for"
}

const (
	ten      = 10 * time.Minute
	halfHour = 30 * time.Minute
	hour     = time.Hour
)

var samples = map[string]sample{
	"SluiceSlowOperation": {
		`sluice_request_seconds_bucket{tier="gold",op="sign",le="0.1"} 0+90x60
		 sluice_request_seconds_bucket{tier="gold",op="sign",le="0.2"} 0+95x60
		 sluice_request_seconds_bucket{tier="gold",op="sign",le="0.5"} 0+100x60
		 sluice_request_seconds_bucket{tier="gold",op="sign",le="+Inf"} 0+100x60`,
		`sluice_request_seconds_bucket{tier="gold",op="sign",le="0.1"} 0+90x60
		 sluice_request_seconds_bucket{tier="gold",op="sign",le="0.2"} 0+100x60
		 sluice_request_seconds_bucket{tier="gold",op="sign",le="+Inf"} 0+100x60
		 sluice_request_seconds_bucket{tier="gold",op="create",le="0.2"} 0+1x60
		 sluice_request_seconds_bucket{tier="gold",op="create",le="+Inf"} 0+100x60`, ten},
	"SluiceRefusedShare": {
		`sluice_requests_total{tier="free",op="sign",outcome="ok"} 0+990x60
		 sluice_requests_total{tier="free",op="sign",outcome="quota_exceeded"} 0+11x60
		 sluice_refused_total{tier="free",op="sign"} 0+11x60`,
		`sluice_requests_total{tier="free",op="sign",outcome="ok"} 0+991x60
		 sluice_requests_total{tier="free",op="sign",outcome="quota_exceeded"} 0+9x60
		 sluice_refused_total{tier="free",op="sign"} 0+9x60
		 sluice_requests_total{tier="free",op="mac",outcome="quota_exceeded"} 0+1x60
		 sluice_refused_total{tier="free",op="mac"} 0+1x60`, ten},
	"SluiceRefusedSpec": {
		`sluice_key_requests_total{spec="SM2",outcome="served"} 0+980x60
		 sluice_key_requests_total{spec="SM2",outcome="refused"} 0+20x60`,
		`sluice_key_requests_total{spec="SM2",outcome="served"} 0+995x60
		 sluice_key_requests_total{spec="SM2",outcome="refused"} 0+5x60`, ten},
	"SluiceTenantsRefused": {`sluice_tenants_refused 2x60`, `sluice_tenants_refused 0x60`, ten},
	"SluiceUnfairSpread":   {`sluice_tenants_p99_spread 3.1x60`, `sluice_tenants_p99_spread 3x60`, ten},
	"SluiceServiceLevel": {
		`sluice_requests_total{tier="gold",op="sign",outcome="ok"} 0+993x160
		 sluice_requests_total{tier="gold",op="sign",outcome="hsm_unavailable"} 0+7x160`,
		`sluice_requests_total{tier="gold",op="sign",outcome="ok"} 0+900x160
		 sluice_requests_total{tier="gold",op="sign",outcome="hsm_unavailable"} 0+4x160
		 sluice_requests_total{tier="gold",op="sign",outcome="quota_exceeded"} 0+96x160`, halfHour},
	"SluiceGateTrips": {
		`sluice_scheduler_gate_trips_total{domain="hsm"} 0x40 1x40 2x40 3x40 4x40 5x40`,
		`sluice_scheduler_gate_trips_total{domain="hsm"} 0x60 1x60 2x60 2x60
		 sluice_scheduler_gate_trips_total{domain="cpu"} 0+1x240`, hour},
	"SluicePoolIdle": {`sluice_scheduler_utilisation{domain="hsm",average="slow"} 0.59x200`,
		`sluice_scheduler_utilisation{domain="hsm",average="slow"} 0.6x200`, 40 * time.Minute},
	"SluicePoolBusy": {`sluice_scheduler_utilisation{domain="hsm",average="slow"} 0.86x200`,
		`sluice_scheduler_utilisation{domain="hsm",average="slow"} 0.85x200`, halfHour},
	"SluicePoolSaturated": {`sluice_scheduler_utilisation{domain="hsm",average="slow"} 0.96x60`,
		`sluice_scheduler_utilisation{domain="hsm",average="slow"} 0.95x60`, ten},
	"SluiceNodeDown":        {`sluice_node_up{node="hsm-1"} 0x60`, `sluice_node_up{node="hsm-1"} 1x60`, ten},
	"SluiceNodeFaults":      {`sluice_node_errors_total{node="hsm-1"} 0+1x60`, `sluice_node_errors_total{node="hsm-1"} 0x30 4x30`, ten},
	"SluiceOversold":        {`sluice_capacity_oversold 1x60`, `sluice_capacity_oversold 0x60`, ten},
	"SluiceHotKeys":         {`sluice_keys_hot 1x60`, `sluice_keys_hot 0x60`, ten},
	"SluiceRetries":         {`sluice_tenants_retrying 1x60`, `sluice_tenants_retrying 0x60`, ten},
	"SluiceDenials":         {`sluice_credentials_denied 1x60`, `sluice_credentials_denied 0x60`, ten},
	"SluiceSuspicious":      {`sluice_abuse_flags_total{learnt="true"} 0x5 1x60`, `sluice_abuse_flags_total{learnt="true"} 3x60`, ten},
	"SluiceCostStopped":     {`sluice_cost_breaker_tenants{stage="stopped"} 1x60`, `sluice_cost_breaker_tenants{stage="stopped"} 0x60`, ten},
	"SluiceDecryptFailures": {`sluice_keys_failing 1x60`, `sluice_keys_failing 0x60`, ten},
	"SluiceDown":            {`up{job="sluice"} 0x60`, `up{job="sluice"} 1x60`, ten},
	"SluiceJournalLag":      {`sluice_audit_lag_seconds 10.1x60`, `sluice_audit_lag_seconds 10x60`, ten},
	"SluiceJournalErrors":   {`sluice_audit_errors_total{cause="space"} 0+1x60`, `sluice_audit_errors_total{cause="space"} 3x60`, ten},
	"SluiceJournalUnsigned": {`sluice_audit_unsigned_seconds 61x60`, `sluice_audit_unsigned_seconds 60x60`, ten},
	"SluicePolicyFailing":   {`sluice_policy_failing 1x60`, `sluice_policy_failing 0x60`, ten},
	"SluicePolicyBehind": {
		"sluice_policy_version_stored 3x60\nsluice_policy_version_in_force 2x60",
		"sluice_policy_version_stored 3x60\nsluice_policy_version_in_force 3x60", ten},
	"SluiceForgedRows": {
		"sluice_keystore_forged_objects_total 0+1x60\nsluice_keystore_damaged_objects_total 0x60",
		"sluice_keystore_forged_objects_total 2x60\nsluice_keystore_damaged_objects_total 2x60", ten},
	"SluiceOldRows":    {`sluice_keystore_old_rows 1x60`, `sluice_keystore_old_rows 0x60`, ten},
	"SluiceStateStale": {`sluice_keystore_state_age_seconds 0+15x60`, `sluice_keystore_state_age_seconds 1x60`, ten},
	"SluiceWebhooksFailing": {
		`sluice_webhook_deliveries_total{outcome="taken"} 0+4x200
		 sluice_webhook_deliveries_total{outcome="failed"} 0+5x200`,
		`sluice_webhook_deliveries_total{outcome="taken"} 0+5x200
		 sluice_webhook_deliveries_total{outcome="failed"} 0+4x200`, 45 * time.Minute},
	"SluiceQuotaStoreAway":  {`sluice_reasons_total{class="none",reason="STORE_AWAY"} 0+1x60`, `sluice_reasons_total{class="none",reason="TENANT_RATE"} 0+1x60`, ten},
	"SluiceCertificateEnds": {`sluice_certificate_not_after_seconds 1209000x60`, `sluice_certificate_not_after_seconds 1211000x60`, ten}, // the clock begins at 0
	"SluiceEventsLost":      {`sluice_events_lost_total 0+1x60`, `sluice_events_lost_total 5x60`, ten},
}

// groups parses the rules as Prometheus does, names of labels and templates in
// annotations included.
func groups(t *testing.T) []rulefmt.RuleGroup {
	t.Helper()
	content, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	parsed, errs := rulefmt.Parse(content, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if t.Failed() {
		t.FailNow()
	}
	return parsed.Groups
}

// firing evaluates a rule over series every interval, and tells which of its
// alerts fire at the end.
func firing(t *testing.T, rule *rulefmt.Rule, series string, after time.Duration) (list []string) {
	t.Helper()
	storage := promqltest.LoadedStorage(t, "load "+interval.String()+"\n"+series+"\n")
	defer storage.Close()
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(rule.Expr)
	if err != nil {
		t.Fatal(err)
	}
	alert := rules.NewAlertingRule(rule.Alert, expr, time.Duration(rule.For), 0, labels.FromMap(rule.Labels), labels.FromMap(rule.Annotations), labels.FromMap(nil), "", true, slog.New(slog.DiscardHandler))
	for at := time.Duration(0); at <= after; at += interval {
		_, err := alert.Eval(context.Background(), 0, time.Unix(0, 0).Add(at), rules.EngineQueryFunc(engine, storage), new(url.URL), 0)
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range alert.ActiveAlerts() {
		if a.State == rules.StateFiring {
			list = append(list, a.Labels.String()+" "+a.Annotations.Get("summary"))
		}
	}
	return list
}

func TestEveryRuleFiresOnItsLineAndNotBelow(t *testing.T) {
	var seen []string
	for _, g := range groups(t) {
		for i := range g.Rules {
			rule := &g.Rules[i]
			seen = append(seen, rule.Alert)
			s, ok := samples[rule.Alert]
			if !ok {
				t.Errorf("%s has no series to fire on", rule.Alert)
				continue
			}
			t.Run(rule.Alert, func(t *testing.T) {
				fires := firing(t, rule, lines(s.fires), s.after)
				if len(fires) == 0 || strings.Contains(fmt.Sprint(fires), "<error") {
					t.Errorf("it does not fire: %q", fires)
				}
				if fires := firing(t, rule, lines(s.silent), s.after); len(fires) != 0 {
					t.Errorf("it fires: %q", fires)
				}
			})
		}
	}
	for name := range samples {
		if !slices.Contains(seen, name) {
			t.Errorf("there are series for %s, which is no rule", name)
		}
	}
}

// lines indents series as the notation has it.
func lines(series string) string {
	var b strings.Builder
	for line := range strings.Lines(series) {
		b.WriteString("  " + strings.TrimSpace(line) + "\n")
	}
	return b.String()
}
