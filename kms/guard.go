package kms

import (
	"math"
	"time"
)

// AbuseSignal names what is unusual about the calls of a credential: see
// package abuse for what each measures.
type AbuseSignal string

// The signals.
const (
	AbuseNetworks   AbuseSignal = "new_networks"
	AbuseAddresses  AbuseSignal = "address_entropy"
	AbuseClient     AbuseSignal = "client_software"
	AbuseOperations AbuseSignal = "operation_mix"
	AbuseSize       AbuseSignal = "payload_size"
	AbuseDenials    AbuseSignal = "denials"
	AbuseRetries    AbuseSignal = "retries"
	AbuseRare       AbuseSignal = "rare_operation"
	AbuseHour       AbuseSignal = "unusual_hour"
	AbuseTogether   AbuseSignal = "coincidence"
)

// AbuseSignals returns every signal.
func AbuseSignals() []AbuseSignal {
	return []AbuseSignal{AbuseNetworks, AbuseAddresses, AbuseClient, AbuseOperations, AbuseSize, AbuseDenials, AbuseRetries,
		AbuseRare, AbuseHour, AbuseTogether}
}

// AbuseReading is what was measured of a signal. Value and Usual, the highest
// that was not suspicious, are in thousandths of the measure.
type AbuseReading struct {
	Signal       AbuseSignal
	Value, Usual int64
	Gross        bool // enough by itself
}

// MaxAbuseReadings bounds the readings of a flag: one for each signal.
const MaxAbuseReadings = 10

// Reason explains the reading in the table of reasons.
func (r *AbuseReading) Reason() Reason {
	row := abuseReasons[r.Signal]
	return Reason{Code: row.code, Need: row.number(r.Value), Limit: row.number(r.Usual)}
}

// abuseReasons say how the readings of a signal are told.
var abuseReasons = map[AbuseSignal]struct {
	code   string
	number func(thousandths int64) int64
}{
	AbuseNetworks:   {"ABUSE_NEW_NETWORKS", whole},
	AbuseAddresses:  {"ABUSE_ADDRESSES", power},
	AbuseClient:     {"ABUSE_CLIENT", same},
	AbuseOperations: {"ABUSE_OPERATIONS", same},
	AbuseSize:       {"ABUSE_SIZE", power},
	AbuseDenials:    {"ABUSE_DENIALS", same},
	AbuseRetries:    {"ABUSE_RETRIES", same},
	AbuseRare:       {"ABUSE_RARE_OPERATION", power},
	AbuseHour:       {"ABUSE_UNUSUAL_HOUR", same},
	AbuseTogether:   {"ABUSE_COINCIDENCE", power},
}

func same(n int64) int64  { return n }
func whole(n int64) int64 { return (n + 500) / 1000 }

// power tells bits as what they are of: the number of equal networks that have
// the entropy, the factor between sizes.
func power(n int64) int64 { return int64(math.Round(math.Exp2(float64(min(n, 62_000)) / 1000))) }

// AbuseAction is what follows of a flag.
type AbuseAction string

// The actions, each stricter than the one before.
const (
	AbuseAlert        AbuseAction = "alert"         // people are told
	AbuseThrottle     AbuseAction = "throttle"      // its calls get a part of the tenant's rate
	AbuseSecondFactor AbuseAction = "second_factor" // its calls need another credential, or a code, beside it
	AbuseSuspend      AbuseAction = "suspend"       // it can do nothing until it is cleared
)

// AbuseActions returns every action, the mildest first.
func AbuseActions() []AbuseAction {
	return []AbuseAction{AbuseAlert, AbuseThrottle, AbuseSecondFactor, AbuseSuspend}
}

// AbuseRules are what the policy says of flags for one tenant.
type AbuseRules struct {
	Action AbuseAction
	// Throttled is what a throttled credential may use, a second.
	Throttled Credits
	// Proven is for how long a second factor is good.
	Proven time.Duration
	// AlertEnds is after how long a flag that nothing but an alert followed ends
	// by itself, so that the credential is watched again.
	AlertEnds time.Duration
}

// Guard is what is known against a credential, and how it can prove itself. It
// is immutable.
type Guard struct {
	Flagged  time.Time // last; zero: never
	Action   AbuseAction
	Readings []AbuseReading
	// Ends is when the flag ends by itself, zero: never.
	Ends    time.Time
	Cleared time.Time // by an administrator, last; zero: never
	Proven  time.Time // until when the last second factor is good
	// Code is what one-time codes are made with; nil: none is enrolled.
	Code *OneTimeKey
}

// OneTimeKey is the enrolled key of one-time codes.
type OneTimeKey struct {
	Sealed  []byte // under the tenant's sealing key: see OneTimeKeyName
	Version uint32 // grows with every enrolment of the credential, from 1
	Created time.Time
	// Step is that of the last code that was taken, which and those before are
	// taken no more (RFC 6238, 5.2).
	Step uint64
}

// Open tells whether a flag is open: it was not cleared and has not ended.
func (g *Guard) Open(now time.Time) bool {
	return g != nil && g.Flagged.After(g.Cleared) && (g.Ends.IsZero() || now.Before(g.Ends))
}

// reasons explain an open flag.
func (g *Guard) reasons(code string) []Reason {
	list := []Reason{{Code: code}}
	for i := range g.Readings {
		list = append(list, g.Readings[i].Reason())
	}
	return list
}
