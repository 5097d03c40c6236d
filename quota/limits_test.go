package quota

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/sluice-kms/sluice/kms"
)

var update = flag.Bool("update", false, "write docs/limits.md anew")

const limitsFile = "../docs/limits.md"

// limitRow is a limit as the document tells it.
type limitRow struct {
	what, field, unit string
	value             func(l *TierLimits) int64
	none              string // what 0 means
	at, resets        string
}

// limitRows are all limits of a tenant. The fields of TierLimits that limit
// nothing are in the second table.
var limitRows = []limitRow{
	{"Rate", "credits_per_second", "credits/s", func(l *TierLimits) int64 { return l.CreditsPerSecond }, "",
		"429 `quota_exceeded`, `TENANT_RATE`, with Retry-After", "refills all the time"},
	{"Burst", "burst_credits", "credits", func(l *TierLimits) int64 { return l.BurstCredits }, "",
		"429 as above; a request that costs more: 422 `unsatisfiable`, no Retry-After", "refills at the rate"},
	{"Overdraft", "overdraft_credits", "credits", func(l *TierLimits) int64 { return l.OverdraftCredits }, "none",
		"429, `TENANT_DEBT_REPAY`; not usable above the pool's safe line", "repaid with {overdraft.repay_percent} % of the refill"},
	{"Requests", "requests_per_second", "requests/s", func(l *TierLimits) int64 { return l.RequestsPerSecond }, "no limit",
		"429, `TENANT_REQUESTS`, with Retry-After", "refills all the time"},
	{"Request burst", "burst_requests", "requests", func(l *TierLimits) int64 { return l.BurstRequests }, "no limit",
		"429 as above", "refills at the rate"},
	{"Day total", "day_credits", "credits/day", func(l *TierLimits) int64 { return l.DayCredits }, "",
		"draws on the elastic pool, then on burst packs, then 402 `quota_exhausted`, `DAY_HARD`", "at local midnight plus up to 300 s"},
	{"Elastic pool", "pool_credits", "credits", func(l *TierLimits) int64 { return l.PoolCredits }, "none",
		"402, `DAY_HARD`; not full at a day's end: the next day's total, rate and burst are {elastic.notch_percent} % (`DAY_NOTCH`)",
		"each day's end brings {elastic.repay_percent} % of what the day left unused"},
	{"Month total", "day_credits", "credits/month", func(l *TierLimits) int64 { return l.DayCredits * DefaultPolicy().Totals.MonthDays }, "",
		"burst packs, then 402, `MONTH_HARD`", "with the month's first day"},
	{"Bandwidth", "bandwidth_bytes_per_day", "bytes/day", func(l *TierLimits) int64 { return l.BandwidthBytes }, "",
		"402, `BANDWIDTH`", "at local midnight plus up to 300 s"},
	{"Concurrency", "concurrency", "requests in flight", func(l *TierLimits) int64 { return l.Concurrency }, "",
		"429, `TENANT_CONCURRENCY`, with Retry-After", "when a request ends"},
	{"Keys", "keys", "keys", func(l *TierLimits) int64 { return l.Keys }, "", "402, `STORAGE`, no Retry-After", "when one is deleted"},
	{"Secrets", "secrets", "secrets", func(l *TierLimits) int64 { return l.Secrets }, "", "402, `STORAGE`, no Retry-After", "when one is deleted"},
	{"Credentials", "credentials", "credentials", func(l *TierLimits) int64 { return l.Credentials }, "", "402, `STORAGE`, no Retry-After", "when one is revoked"},
	{"Versions of a key", "versions_per_key", "versions", func(l *TierLimits) int64 { return l.VersionsPerKey }, "",
		"402, `VERSIONS`, no Retry-After", "when one is destroyed"},
	{"Rate and burst of one key", "key_percent", "% of the tenant's", func(l *TierLimits) int64 { return l.KeyPercent }, "",
		"429, `KEY_RATE`; when most calls are refused so, `KEY_BREAKER_OPEN`: use a data key and cache it", "refills all the time"},
	{"Rate of a new tenant or credential", "ramp_from_percent", "% of its own", func(l *TierLimits) int64 { return l.RampFromPercent }, "",
		"429, `TENANT_RATE` or `CREDENTIAL_RATE`", "rises to all of it in {ramp.hours} h"},
	{"Refill above the safe line", "load_percent", "% of the rate", func(l *TierLimits) int64 { return l.LoadPercent }, "",
		"429, `TENANT_RATE`", "below {gate.safe_percent} − {gate.hysteresis_percent} % of the slots"},
	{"Rate while the shared store is away", "emergency_percent", "% of the rate, divided by the nodes", func(l *TierLimits) int64 { return l.EmergencyPercent }, "",
		"429, `STORE_AWAY`", "when the store answers"},
	{"Cost breaker's factor", "cost_factor_permille", "thousandths", func(l *TierLimits) int64 { return l.CostFactorPermille }, "off",
		"429, `COST_BULK_REFUSED` for bulk work, then `COST_STOPPED` for everything, with Retry-After", "when the risk is below the lower line"},
	{"Wait, interactive", "max_wait_ms", "ms", func(l *TierLimits) int64 { return l.MaxWait.Interactive }, "", "504 `wait_exceeded`", "with the next request"},
	{"Wait, normal", "max_wait_ms", "ms", func(l *TierLimits) int64 { return l.MaxWait.Normal }, "", "504 `wait_exceeded`", "with the next request"},
	{"Wait, bulk", "max_wait_ms", "ms", func(l *TierLimits) int64 { return l.MaxWait.Bulk }, "", "504 `wait_exceeded`", "with the next request"},
}

// limitsDocument writes the table from a policy.
func limitsDocument(t *testing.T, p *Policy) string {
	t.Helper()
	numbers, err := p.flat()
	if err != nil {
		t.Fatal(err)
	}
	fill := func(text string) string {
		for {
			from := strings.IndexByte(text, '{')
			if from < 0 {
				return text
			}
			to := strings.IndexByte(text, '}')
			value, ok := numbers[text[from+1:to]]
			if !ok {
				t.Fatalf("no number at %s", text[from+1:to])
			}
			text = text[:from] + value + text[to+1:]
		}
	}
	var b strings.Builder
	b.WriteString(`<!-- Generated by "go test ./quota -run Limits -update". Do not edit. -->
# Limits

Every limit of a tenant, its default by tier, what happens at it, and how it
resets. Credits are those of the price list. The numbers are the policy's:
` + "`tiers.<tier>.<field>`" + ` there; a tenant, project, credential or key can have
numbers of its own.

| what | field | unit |`)
	for _, tier := range kms.Tiers() {
		b.WriteString(" " + string(tier) + " |")
	}
	b.WriteString(" at the limit | resets |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, row := range limitRows {
		fmt.Fprintf(&b, "| %s | `%s` | %s |", row.what, row.field, row.unit)
		for _, tier := range kms.Tiers() {
			n := row.value(p.Tiers[tier])
			if n == 0 {
				b.WriteString(" " + row.none + " |")
				continue
			}
			b.WriteString(" " + grouped(n) + " |")
		}
		fmt.Fprintf(&b, " %s | %s |\n", fill(row.at), fill(row.resets))
	}
	b.WriteString(fill(`
Projects, credentials and keys can have a rate and burst in credits and in
requests, a day total and a concurrency of their own, inside those of the
tenant. They have none by default, but a key its part of the tenant's rate. The
reasons begin with ` + "`PROJECT_`, `CREDENTIAL_` or `KEY_`" + ` then. A project's limits
hold for all projects below it.

All limits are asked before anything is spent, and an answer has the reasons of
all that refuse. A refused request costs nothing, but one that is refused for its
credential, its scopes or a missing object, which costs ` + "{costs.refused_microcredits}" + ` micro-credits.

| | |
|---|---|
| Soft limit of day, month and bandwidth | {totals.soft_percent} %: an event, once in the day or month |
| Month total | {totals.month_days} × the day total |
| Retry-After | whole seconds, rounded up, at least 1, lengthened by up to {retry_after.jitter_percent} %, of at most {retry_after.max_seconds} s before that, but for resets |
| Hot-spot breaker of a key | opens at {hot_spot_breaker.min_calls} calls of which more than {hot_spot_breaker.bad_percent} % are refused by the key's bucket within {hot_spot_breaker.window_seconds} s; for {hot_spot_breaker.open_seconds} s, doubling to {hot_spot_breaker.max_open_seconds} s; then one probe |
| Failure breaker of a key | opens at {failure_breaker.min_bad} failures of the key's or the HSM's that are more than {failure_breaker.bad_percent} % within {failure_breaker.window_seconds} s; as long as the other; 503 ` + "`reduced_capacity`, `KEY_FAILING`" + ` |
| Cost breaker | risk = use of the last minute ÷ what the rest of the day or month allows a minute × the factor; above {cost_breaker.risk_percent} % for {cost_breaker.window_seconds} s it refuses bulk work, after as long again it marks answers, after as long again it refuses everything; below {cost_breaker.recover_percent} % for {cost_breaker.recovery_seconds} s it is over. See cost-breaker.md |
| A request whose end nobody tells | counts as in flight for {reservations.timeout_seconds} s, is charged after {reservations.charge_after_hours} h unless the journal says otherwise |
| All tenants' rates together | at most {gate.capacity_percent} % of what the HSMs can do, which is measured; until it was, of {capacity.credits_per_second} credits/s. An operator who would sell more is refused, 409 ` + "`conflict`, `capacity`" + `, unless he forces it |
| Work that ran and failed | gives back to the bucket at most {reservations.refund_percent} % of the rate; the totals have all of it back |
`))
	return b.String()
}

// grouped writes a number with a comma between thousands.
func grouped(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func TestTableOfLimitsIsThatOfThePolicy(t *testing.T) {
	want := limitsDocument(t, DefaultPolicy())
	if *update {
		if err := os.WriteFile(limitsFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(limitsFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the default policy says: go test ./quota -run Limits -update", limitsFile)
	}
}

// Every number of a tier is in the table, and every reason of this package.
func TestTableOfLimitsIsComplete(t *testing.T) {
	text := limitsDocument(t, DefaultPolicy())
	numbers, err := DefaultPolicy().flat()
	if err != nil {
		t.Fatal(err)
	}
	for path := range numbers {
		field, ok := strings.CutPrefix(path, "tiers.gold.")
		field, _, _ = strings.Cut(field, ".")
		if ok && field != "class" && !strings.Contains(text, "`"+field+"`") {
			t.Errorf("%s is not in the table", path)
		}
	}
	for _, reason := range []string{
		ReasonRate, ReasonDebt, ReasonRequests, ReasonConcurrency, ReasonDay, ReasonMonth, ReasonNotch, ReasonBandwidth, ReasonStorage,
		ReasonVersions, ReasonHotKey, ReasonFailingKey, ReasonStoreAway,
	} {
		if !strings.Contains(text, "`"+reason+"`") {
			t.Errorf("the reason %s is not in the table", reason)
		}
	}
}
