package kms

import (
	"strconv"
	"strings"
	"time"
)

// Unit is what the numbers of a reason count.
type Unit string

// The units.
const (
	UnitNone         Unit = "" // it has no numbers
	UnitCredits      Unit = "micro-credits"
	UnitRates        Unit = "micro-requests"
	UnitRequests     Unit = "requests"
	UnitCreditRate   Unit = "credits/s"
	UnitBytes        Unit = "bytes"
	UnitObjects      Unit = "objects"
	UnitNodes        Unit = "nodes"
	UnitSlots        Unit = "slots"
	UnitPartialSlots Unit = "thousandths of a slot"
	UnitThousandths  Unit = "thousandths"
	UnitTime         Unit = "ns"
	UnitNetworks     Unit = "networks"
	UnitTimes        Unit = "times"
)

// The codes of what requests wait for at the entrance of the HSMs, and of why
// they are refused there.
const (
	ReasonLease         = "LEASE_PENDING"
	ReasonNodeDown      = "NODE_DOWN"
	ReasonGate          = "GATE"
	ReasonQueueFull     = "QUEUE_FULL"
	ReasonOwnQueueFull  = "TENANT_QUEUE_FULL"
	ReasonWaitTooLong   = "WAIT_TOO_LONG"
	ReasonWaitExceeded  = "WAIT_EXCEEDED"
	scopedReasonsPrefix = "TENANT_"
)

// ReasonInfo is a reason's row in the table of reasons.
type ReasonInfo struct {
	Code string
	Unit Unit
	// Text says what happened, in words; {need}, {have} and {limit} stand for
	// the numbers in their unit.
	Text string
	// Advice is what can be done about it.
	Advice string
}

// adviceTheft is what to do about signals of abuse.
const adviceTheft = "find out who uses the credential: rotate it when it is stolen, clear it when all is in order"

// reasons are those of the quota and those of the scheduler. What a project, a
// credential and a key can have too stands here once, as TENANT_.
var reasons = []ReasonInfo{
	{"TENANT_RATE", UnitCredits, "the bucket of the $ is empty: the request needs {need} and {have} of {limit} are there",
		"send less a second, or ask for a higher rate"},
	{"TENANT_DEBT_REPAY", UnitCredits, "the tenant repays what it has overdrawn: the request needs {need} and {have} of {limit} are there",
		"wait until the debt is repaid; a part of the refill does that"},
	{"TENANT_REQUESTS", UnitRates, "the $ has made its requests of this second: {have} of {limit} are left",
		"send fewer requests a second, or put several into one call"},
	{"TENANT_CONCURRENCY", UnitRequests, "as many requests of the $ are in flight as may be: {limit}",
		"wait for answers before sending more"},
	{"DAY_HARD", UnitCredits, "the day's total is used up: the request needs {need} and {have} of {limit} are left",
		"wait for the reset, or ask for a burst pack"},
	{"TENANT_DAY_HARD", UnitCredits, "the day's total of the $ is used up: the request needs {need} and {have} of {limit} are left",
		"wait for the reset, or ask for a higher total"},
	{"MONTH_HARD", UnitCredits, "the month's total is used up: the request needs {need} and {have} of {limit} are left",
		"wait for the reset, or ask for a burst pack"},
	{"DAY_NOTCH", UnitCredits, "the day runs one notch lower, because the elastic pool is not full: the request needs {need} and the bucket holds at most {limit}",
		"use less until the pool is full, or split the request"},
	{"BANDWIDTH", UnitBytes, "the day's bytes are used up: the request has {need} and {have} of {limit} are left",
		"wait for the reset, or use a data key and encrypt locally"},
	{"STORAGE", UnitObjects, "the tenant stores as many objects of this kind as it may: {limit}", "delete what is no longer needed"},
	{"VERSIONS", UnitObjects, "the key has as many versions as it may: {limit}", "destroy old versions"},
	{"KEY_BREAKER_OPEN", UnitNone, "most calls with the key were refused, so all are held back for a moment",
		"use a data key and cache it locally"},
	{"KEY_FAILING", UnitNone, "most calls with the key failed, so all are held back for a moment", "try again later; if it goes on, tell the operator"},
	{"COST_BULK_REFUSED", UnitCredits, "the cost breaker refuses bulk work: the use of the last minute is so far above what the rest of the day or month allows, of at most {limit} a minute, that the quota would be used up long before its reset",
		"find what uses so much; see the tenant's quota and its incidents"},
	{"COST_STOPPED", UnitCredits, "the cost breaker has stopped the component, or the tenant, because its use went on above {limit} a minute, with which the quota would be used up long before its reset",
		"find what uses so much; send nothing for the time of Retry-After, or have an administrator lift the stop"},
	{ReasonLease, UnitCredits, "this node's part of the shared limit was on its way: {have} of {limit} were there", "nothing: it comes within milliseconds"},
	{"STORE_AWAY", UnitCredits, "the store of shared limits is away, so emergency limits hold: the request needs {need} and {have} are there",
		"send less a second until the store is back"},

	// What refuses nothing by itself, in the list of gates.
	{"OVERDRAFT", UnitCredits, "the tenant can overdraw its bucket by {have} more, of {limit}, while the HSMs have room", ""},
	{"RAMP", UnitThousandths, "a new tenant has {have} of its rate", "nothing: it rises to all of it in a day"},
	{"LOAD", UnitThousandths, "the load of the HSMs leaves {have} of the refill", "send bulk work later"},
	{"COST_RISK", UnitThousandths, "the risk of the cost breaker is {have}, and its line {limit}", "see the tenant's quota"},

	{"SHARE", UnitPartialSlots, "all slots worked for requests whose turn was before: the tenant held {have} of a fair share of {limit}",
		"send less at once; a higher tier has a larger share"},
	{ReasonNodeDown, UnitNodes, "the node that has the key was away: {have} of {limit} nodes served", "nothing: the node comes back or the operator replaces it"},
	{"HOME_BUSY", UnitTime, "waiting {have} for the node that has the key was shorter than the {limit} that loading it elsewhere takes",
		"spread the load over several keys"},
	{ReasonGate, UnitThousandths, "the HSMs were busy at {have}, against a line of {limit} for requests of this class",
		"send bulk work later; a higher tier or urgency passes a higher line"},
	{"RESERVE", UnitSlots, "the free slots are kept for class HIGH: the others held {have} of {limit}", "raise the urgency of what cannot wait"},
	{"BIG_LIMIT", UnitSlots, "big operations held as many slots as they may: {have} of {limit}", "spread key generation and other big operations over time"},
	{"ENTRANCE", UnitTime, "the entrance bucket lacked {have} of slot time; it takes {limit} of it a second", "send a steady stream instead of bursts"},
	{"TENANT_CAP", UnitSlots, "the tenant had as many operations on the HSMs as it may: {have} of {limit}", "send fewer requests at once"},
	{"TENANT_WINDOW", UnitTime, "the tenant has used {have} of slot time of the {limit} that it may use in ten seconds", "send less, or spread it over time"},
	{"OWN_QUEUE", UnitRequests, "{have} earlier requests of the same tenant and urgency were waiting, of at most {limit}",
		"send less at once, or raise the urgency of what cannot wait"},

	{ReasonWatches, UnitRequests, "as many watches of secrets are open as may be: {limit}", "share one watch in a program, or use several credentials"},
	{ReasonQueueFull, UnitRequests, "the queue for the HSMs is full: {have} of {limit} requests wait", "come back when Retry-After says"},
	{ReasonOwnQueueFull, UnitRequests, "the tenant's part of the queue is full: {have} of {limit} requests wait", "send less at once, and come back when Retry-After says"},
	{ReasonWaitTooLong, UnitTime, "the expected wait of {need} is longer than the {limit} that the request may wait",
		"come back when Retry-After says, or allow a longer wait by the urgency or the deadline"},
	{ReasonCapacity, UnitCreditRate, "the HSMs can keep no more promises: {have} of {limit} credits/s are left to sell and this adds {need}", "sell less, add HSMs, or force it"},
	{ReasonThrottled, UnitNone, "the credential was used in an unusual way, and gets a part of the tenant's rate only", "find out who uses it; an administrator of the tenant can clear it"},
	{ReasonSecondFactor, UnitNone, "the credential was used in an unusual way, and needs a second factor beside it",
		"send Sluice-Second-Credential or Sluice-One-Time-Code, or have an administrator of the tenant clear it"},
	{ReasonFactorWrong, UnitNone, "the second factor was not right", "send another one; a code is good once"},
	{ReasonFactorTries, UnitNone, "too many one-time codes of the credential were wrong", "wait, send another credential as Sluice-Second-Credential, or have an administrator of the tenant clear it"},
	{ReasonSuspended, UnitNone, "the credential was used in an unusual way, and is suspended", "find out who uses it; an administrator of the tenant can clear it"},
	{"ABUSE_NEW_NETWORKS", UnitNetworks, "in a minute, {need} networks called that the credential does not usually call from, of {limit} at most before", adviceTheft},
	{"ABUSE_ADDRESSES", UnitNetworks, "the calls were spread as over {need} networks, of {limit} at most before", adviceTheft},
	{"ABUSE_CLIENT", UnitThousandths, "{need} of the calls came from client software that the credential is not used with, of {limit} at most before", adviceTheft},
	{"ABUSE_OPERATIONS", UnitThousandths, "the operations were {need} unlike the usual ones, of {limit} at most before", adviceTheft},
	{"ABUSE_SIZE", UnitTimes, "the sizes of what was sent differed {need} times from the usual ones, of {limit} times at most before", adviceTheft},
	{"ABUSE_DENIALS", UnitThousandths, "{need} of the calls were denied, of {limit} at most before", adviceTheft},
	{"ABUSE_RETRIES", UnitThousandths, "{need} of the calls came before their Retry-After was over, of {limit} at most before", adviceTheft},
	{"ABUSE_RARE_OPERATION", UnitTimes, "operations of a kind came that the credential calls in one of {need} half minutes", adviceTheft},
	{"ABUSE_UNUSUAL_HOUR", UnitThousandths, "{need} of the usual calls come at this time of the week, and would {limit} at any", adviceTheft},
	{"ABUSE_COINCIDENCE", UnitTimes, "what is unusual comes together by chance in one of {need} half minutes, where {limit} is the line", adviceTheft},
	{ReasonWaitExceeded, UnitTime, "no slot became free in the {limit} that the request may wait", "come back when Retry-After says, or allow a longer wait"},
}

var reasonIndex = func() map[string]*ReasonInfo {
	m := make(map[string]*ReasonInfo, 2*len(reasons))
	for i := range reasons {
		for j, code := range scopedCodes(&reasons[i]) {
			row := reasons[i]
			row.Code, row.Text = code, strings.ReplaceAll(row.Text, "$", reasonScopes[j])
			m[code] = &row
		}
	}
	return m
}()

// Reasons returns the table of reasons, in the order in which they are asked.
func Reasons() []ReasonInfo {
	var all []ReasonInfo
	for _, row := range reasons {
		for _, code := range scopedCodes(&row) {
			all = append(all, *reasonIndex[code])
		}
	}
	return all
}

// scopedCodes are the codes that a row stands for.
func scopedCodes(row *ReasonInfo) []string {
	if !strings.Contains(row.Text, "$") {
		return []string{row.Code}
	}
	var codes []string
	for _, scope := range reasonScopes {
		codes = append(codes, strings.ToUpper(scope)+"_"+strings.TrimPrefix(row.Code, scopedReasonsPrefix))
	}
	return codes
}

// reasonScopes are what a row of several stands for.
var reasonScopes = []string{"tenant", "project", "credential", "key"}

// Info returns the reason's row in the table, nil for an unknown code.
func (r *Reason) Info() *ReasonInfo { return reasonIndex[r.Code] }

// Unit returns what the reason's numbers count.
func (r *Reason) Unit() Unit {
	if info := r.Info(); info != nil {
		return info.Unit
	}
	return UnitNone
}

// Explain says the reason in plain English, and what can be done about it.
func (r *Reason) Explain() (text, advice string) {
	info := r.Info()
	if info == nil {
		return "", ""
	}
	text = strings.NewReplacer("{need}", info.Unit.say(r.Need), "{have}", info.Unit.say(r.Have), "{limit}", info.Unit.say(r.Limit)).Replace(info.Text)
	return text, info.Advice
}

// say writes a number with its unit, as people do.
func (u Unit) say(n int64) string {
	number := func(divisor float64) string { return strconv.FormatFloat(float64(n)/divisor, 'f', -1, 64) }
	const million, thousand, ten = 1e6, 1e3, 10
	switch u {
	case UnitCredits:
		return number(million) + " credits"
	case UnitRates:
		return number(million) + " requests"
	case UnitPartialSlots:
		return number(thousand) + " slots"
	case UnitThousandths:
		return number(ten) + " %"
	case UnitTime:
		return time.Duration(n).Round(10 * time.Microsecond).String()
	case UnitBytes:
		return strconv.FormatInt(n, 10) + " bytes"
	}
	return strconv.FormatInt(n, 10) // the text has the word
}
