package audit

import (
	"bytes"
	"encoding/json"
	"math"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// fullEntry has a value in every field.
func fullEntry() *kms.Entry {
	e := testEntry(1)
	e.Subject = "spiffe://example.org/pay"
	e.Resource = "0198c1a5-0000-7000-8000-000000000001"
	e.Reasons = []kms.Reason{
		{Code: "TENANT_RATE", Limit: 1000, Need: 12, Have: -3, RetryIn: time.Second, Waited: time.Millisecond},
		{Code: "DAY_HARD"},
	}
	e.Count = 7
	e.DryRun, e.Replayed = true, true
	e.Approval = uuid.MustParse("0198c1a5-0000-7000-8000-000000000002")
	e.Target = uuid.MustParse("0198c1a5-0000-7000-8000-000000000003")
	e.Revision = 4
	e.Class, e.Urgency, e.Estimate = "MID", kms.UrgencyBulk, time.Second
	e.PolicyVersion, e.Grouped = 5, true
	e.Items = []kms.EntryItem{
		{Secret: uuid.MustParse("0198c1a5-0000-7000-8000-000000000004"), Status: kms.FetchOK, Versions: []uint32{7, 8},
			LeaseEnd: time.Date(2026, 1, 2, 4, 4, 5, 0, time.UTC)},
		{Status: kms.FetchNotFound},
	}
	return e
}

// TestEntryOfAnEarlierVersionIsReadAsItWas has a line from before entries told
// dry runs, repetitions, approvals and the policy. Its bytes are under the chain, so they
// must also be what is written of it today.
func TestEntryOfAnEarlierVersionIsReadAsItWas(t *testing.T) {
	const line = `{"t":"2026-01-02T03:04:05Z","p":"outcome","id":"0198c1a5-0000-7000-8000-000000000001","op":"sign",` +
		`"cost":12000000,"out":"ok","ua":"curl/8","n":3}`
	e, err := parseEntry([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	if e.DryRun || e.Replayed || e.Approval != uuid.Nil() || e.PolicyVersion != 0 || e.Grouped || e.Op != kms.OpSign || e.Count != 3 {
		t.Errorf("read as %+v", e)
	}
	if got := string(appendEntry(nil, e)); got != line {
		t.Errorf("written as %s", got)
	}
}

func TestMarksAreReadBack(t *testing.T) {
	for name, e := range map[string]*kms.Entry{
		"dry run": {DryRun: true}, "repetition": {Replayed: true}, "approval": {Approval: uuid.NewV7()},
		"policy": {PolicyVersion: math.MaxInt64}, "grouped": {Grouped: true}, "none": {},
	} {
		got, err := parseEntry(appendEntry(nil, e))
		if err != nil || !reflect.DeepEqual(got, e) {
			t.Errorf("%s: read back as %+v, %v", name, got, err)
		}
	}
	for _, spelling := range []string{`,"dry":false`, `,"dry":1`, `,"rep":true,"dry":true`} {
		if _, err := parseEntry([]byte(`{"t":"0001-01-01T00:00:00Z"` + spelling + `}`)); err == nil {
			t.Errorf("%s is taken", spelling)
		}
	}
}

func TestFullEntryHasEveryField(t *testing.T) {
	v := reflect.ValueOf(*fullEntry())
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; v.Field(i).IsZero() == (name != "Refused" && name != "Durable") { // which are not kept
			t.Errorf("%s is zero: the other tests do not see it", v.Type().Field(i).Name)
		}
	}
}

func TestEntryIsReadBackAsItWasWritten(t *testing.T) {
	tests := map[string]*kms.Entry{
		"every field": fullEntry(),
		"ordinary":    testEntry(7),
		"no field":    {},
		"intent":      {Phase: kms.PhaseIntent, Op: kms.OpCreateKey},
		"texts": {
			UserAgent: "quote \" backslash \\ slash / newline \n tab \t nul \x00 del \x7f",
			Subject:   "中文 é 😀 \u2028 \u202e \ufeff \U0010ffff",
			TraceID:   "\ufffd",
		},
		"numbers": {
			Version: math.MaxUint32, Bytes: math.MinInt, Cost: math.MaxInt64, Charged: math.MinInt64,
			Wait: math.MaxInt64, SlotTime: -1, Total: math.MinInt64, Count: math.MaxUint32,
			Reasons: []kms.Reason{{Code: "c", Limit: math.MinInt64, Need: math.MaxInt64, Have: -1, RetryIn: -1, Waited: math.MaxInt64}}, Estimate: math.MinInt64,
		},
		"reason without a code": {Reasons: []kms.Reason{{Need: 1}, {}}},
		"IPv6":                  {Address: netip.MustParseAddr("2001:db8::1")},
		"IPv4 in IPv6":          {Address: netip.MustParseAddr("::ffff:192.0.2.1")},
		"first year":            {Time: time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)},
		"last year":             {Time: time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC)},
	}
	for name, e := range tests {
		t.Run(name, func(t *testing.T) {
			payload := appendEntry(nil, e)
			got, err := parseEntry(payload)
			if err != nil {
				t.Fatalf("%v: %s", err, payload)
			}
			if !reflect.DeepEqual(got, e) {
				t.Errorf("read back as\n%+v, want\n%+v", got, e)
			}
		})
	}
}

func TestWhatAnEntryCannotKeepIsLeftOut(t *testing.T) {
	long := strings.Repeat("é", 1000)
	tests := []struct {
		name      string
		have, got kms.Entry
	}{
		{"zone", kms.Entry{Address: netip.MustParseAddr("fe80::1%eth0")}, kms.Entry{Address: netip.MustParseAddr("fe80::1")}},
		{"location", kms.Entry{Time: time.Date(2026, 1, 1, 1, 0, 0, 0, time.FixedZone("", 3600))}, kms.Entry{Time: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}},
		{"year 10000", kms.Entry{Time: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}, kms.Entry{}},
		{"year -1", kms.Entry{Time: time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC)}, kms.Entry{}},
		{"count of one", kms.Entry{Count: 1}, kms.Entry{}},
		{"invalid UTF-8", kms.Entry{UserAgent: "a\xff\xc3z"}, kms.Entry{UserAgent: "a\ufffd\ufffdz"}},
		{"long user agent", kms.Entry{UserAgent: long}, kms.Entry{UserAgent: long[:2*maxUserAgent]}},
		{"long request id", kms.Entry{ClientRequestID: long}, kms.Entry{ClientRequestID: long[:2*maxClientRequestID]}},
		{"long trace id", kms.Entry{TraceID: long}, kms.Entry{TraceID: long[:2*maxTraceID]}},
		{"long invalid UTF-8", kms.Entry{UserAgent: strings.Repeat("\xff", 1000)}, kms.Entry{UserAgent: strings.Repeat("\ufffd", maxUserAgent)}},
		{"many reasons", kms.Entry{Reasons: make([]kms.Reason, 40)}, kms.Entry{Reasons: make([]kms.Reason, maxReasons)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			payload := appendEntry(nil, &tt.have)
			got, err := parseEntry(payload)
			if err != nil {
				t.Fatalf("%v: %s", err, payload)
			}
			if !reflect.DeepEqual(got, &tt.got) {
				t.Errorf("read back as\n%+v, want\n%+v", got, tt.got)
			}
		})
	}
}

// hostile fills every text of an entry with s.
func hostile(s string) *kms.Entry {
	e := &kms.Entry{Reasons: make([]kms.Reason, 2*maxReasons)}
	v := reflect.ValueOf(e).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.String {
			f.SetString(s)
		}
	}
	for i := range e.Reasons {
		e.Reasons[i] = kms.Reason{Code: s, Limit: math.MinInt64, Need: math.MinInt64, Have: math.MinInt64, RetryIn: math.MinInt64}
	}
	return e
}

// wantOneLine fails unless the payload is one line of JSON in printable ASCII,
// which a reader of a different make understands too.
func wantOneLine(t *testing.T, payload []byte) {
	t.Helper()
	for i, c := range payload {
		if c < 0x20 || c > 0x7e {
			t.Fatalf("byte %d of the payload is %#x", i, c)
		}
	}
	if !json.Valid(payload) {
		t.Fatalf("no JSON: %s", payload)
	}
}

func TestTextCannotForgeALine(t *testing.T) {
	for _, s := range []string{
		"a\nb", "a\r\n{\"t\":\"2026-01-01T00:00:00Z\"}", `","out":"ok`, `\`, `\"`, `\u0022`, "\x1b[2J", "\x00", "\x7f",
		"\u0085", "\u2028", "\u202e", "\xff\xfe", "\xed\xa0\x80", "😀", "\U000e0001",
	} {
		e := hostile(s)
		payload := appendEntry(nil, e)
		wantOneLine(t, payload)
		var seen map[string]any
		if err := json.Unmarshal(payload, &seen); err != nil {
			t.Fatal(err)
		}
		if want := strings.ToValidUTF8(s, "\ufffd"); utf8.ValidString(s) && seen["ua"] != want {
			t.Errorf("%q is read as %q", want, seen["ua"])
		}
	}
}

func TestLongestEntryIsBelowTheBound(t *testing.T) {
	e := hostile(strings.Repeat("😀", 1000))
	v := reflect.ValueOf(e).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Int, reflect.Int64:
			f.SetInt(math.MinInt64)
		case reflect.Uint32:
			f.SetUint(math.MaxUint32)
		}
	}
	e.RequestID, e.Tenant, e.Credential, e.Key = uuid.Max(), uuid.Max(), uuid.Max(), uuid.Max()
	e.Address = netip.MustParseAddr("1111:2222:3333:4444:5555:6666:7777:8888")
	e.Time = time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC)
	payload := appendEntry(nil, e)
	if _, err := parseEntry(payload); err != nil {
		t.Error(err)
	}
	if len(payload) > maxPayload {
		t.Errorf("the longest payload has %d bytes, the bound is %d", len(payload), maxPayload)
	}
}

func TestOnlyTheOneSpellingIsRead(t *testing.T) {
	const good = `{"t":"2026-01-01T00:00:00Z","p":"intent","ver":3,"why":[{"c":"X","l":1}],"ua":"a\u000a"}`
	if _, err := parseEntry([]byte(good)); err != nil {
		t.Fatal(err)
	}
	tests := map[string][2]string{
		"space":                {`,"ver"`, `, "ver"`},
		"unknown field":        {`"ver":3`, `"vex":3`},
		"order":                {`"p":"intent","ver":3`, `"ver":3,"p":"intent"`},
		"field twice":          {`"ver":3`, `"ver":3,"ver":3`},
		"explicit zero":        {`"ver":3`, `"ver":0`},
		"explicit empty":       {`"p":"intent"`, `"p":""`},
		"leading zero":         {`"ver":3`, `"ver":03`},
		"plus":                 {`"ver":3`, `"ver":+3`},
		"fraction":             {`"ver":3`, `"ver":3.0`},
		"too large":            {`"ver":3`, `"ver":4294967299`},
		"far too large":        {`"ver":3`, `"ver":99999999999999999999`},
		"no number":            {`"ver":3`, `"ver":`},
		"upper-case escape":    {`\u000a`, `\u000A`},
		"short escape":         {`\u000a`, `\n`},
		"escape too many":      {`"a\u000a"`, `"\u0061\u000a"`},
		"escaped slash":        {`"a\u000a"`, `"\/"`},
		"raw control":          {`\u000a`, "\n"},
		"raw UTF-8":            {`\u000a`, "é"},
		"half a surrogate":     {`\u000a`, `\ud83d`},
		"halves the wrong way": {`\u000a`, `\ude00\ud83d`},
		"escape cut":           {`\u000a"}`, `\u00`},
		"backslash at end":     {`\u000a"}`, `\`},
		"text not closed":      {`\u000a"}`, ``},
		"object not closed":    {`"}`, `"`},
		"something after":      {`"}`, `"}}`},
		"newline after":        {`"}`, "\"}\n"},
		"no time":              {`"2026-01-01T00:00:00Z"`, `""`},
		"time with offset":     {`00Z`, `00+00:00`},
		"time with zeros":      {`00Z`, `00.000Z`},
		"reasons empty":        {`{"c":"X","l":1}`, ``},
		"reason empty":         {`{"c":"X","l":1}`, `{}`},
		"reasons not closed":   {`}],`, `},`},
		"count of one":         {`"}`, `","n":1}`},
		"upper-case id":        {`"p":"intent"`, `"id":"0198C1A5-0000-7000-8000-000000000001"`},
		"nil id":               {`"p":"intent"`, `"id":"00000000-0000-0000-0000-000000000000"`},
		"no id":                {`"p":"intent"`, `"id":"x"`},
		"long address":         {`"ua"`, `"ip":"2001:0db8::1","ua"`},
		"address with zone":    {`"ua"`, `"ip":"fe80::1%a","ua"`},
		"no address":           {`"ua"`, `"ip":"x","ua"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			bad := strings.Replace(good, tt[0], tt[1], 1)
			if bad == good {
				t.Fatal("the case changes nothing")
			}
			if e, err := parseEntry([]byte(bad)); err == nil {
				t.Errorf("%s was read as %+v", bad, e)
			}
		})
	}
}

func FuzzPayload(f *testing.F) {
	f.Add(appendEntry(nil, fullEntry()))
	f.Add(appendEntry(nil, hostile("\"\\\n\x00é😀\xff")))
	f.Fuzz(func(t *testing.T, payload []byte) {
		e, err := parseEntry(payload)
		if err != nil {
			return
		}
		if again := appendEntry(nil, e); !bytes.Equal(again, payload) {
			t.Errorf("%s became %s", payload, again)
		}
		wantOneLine(t, payload)
	})
}

func FuzzTexts(f *testing.F) {
	f.Add("curl/8.5", "id-1")
	f.Add("\"\\\n\x00é😀\xff", "\xed\xa0\x80\u2028")
	f.Fuzz(func(t *testing.T, agent, id string) {
		e := fullEntry()
		e.UserAgent, e.ClientRequestID = agent, id
		payload := appendEntry(nil, e)
		wantOneLine(t, payload)
		got, err := parseEntry(payload)
		if err != nil {
			t.Fatalf("%v: %s", err, payload)
		}
		if again := appendEntry(nil, got); !bytes.Equal(again, payload) {
			t.Errorf("%s became %s", payload, again)
		}
		if utf8.ValidString(agent) && utf8.RuneCountInString(agent) <= maxUserAgent && got.UserAgent != agent {
			t.Errorf("%q became %q", agent, got.UserAgent)
		}
	})
}

func TestEncodingAllocatesNothing(t *testing.T) {
	e := fullEntry()
	b := make([]byte, 0, 4096)
	if got := testing.AllocsPerRun(1000, func() { b = appendEntry(b[:0], e) }); got != 0 {
		t.Errorf("%v allocations per entry", got)
	}
}

func BenchmarkEncode(b *testing.B) {
	e := testEntry(1)
	e.RequestID, e.Tenant, e.Credential, e.Key = uuid.NewV7(), uuid.NewV7(), uuid.NewV7(), uuid.NewV7()
	buf := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		buf = appendEntry(buf[:0], e)
	}
	b.ReportMetric(float64(len(buf)), "bytes")
}

func BenchmarkDecode(b *testing.B) {
	payload := appendEntry(nil, testEntry(1))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := parseEntry(payload); err != nil {
			b.Fatal(err)
		}
	}
}

func TestTextsThatAreKnownAreBoundedAndTheSame(t *testing.T) {
	var n names
	for i := range 3 * maxNames {
		text := "component-" + strconv.Itoa(i)
		if got := n.of([]byte(text)); got != text || len(n.known) > maxNames {
			t.Fatalf("%q, want %q; %d are known", got, text, len(n.known))
		}
	}
}
