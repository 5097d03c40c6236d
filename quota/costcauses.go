package quota

import (
	"fmt"

	"github.com/sluice-kms/sluice/kms"
)

// The shares of an incident's credits, in percent, from which a cause is
// likely.
const (
	mostlyOne   = 70 // of one key
	mostlyKind  = 60 // of encryption and data keys
	mostlyBulk  = 30
	oneCaller   = 70 // of one credential
	oneLoop     = 90 // of one credential, one key and one operation each
	fewAreEarly = 10 // percent of calls before their Retry-After
)

// causes tells what an incident is likely to come from, the strongest sign
// first; at least one.
func causes(i *kms.CostIncident, bulk, early int64) (list []kms.CostCause) {
	all := int64(i.Used + i.Refused)
	percent := func(n int64) int64 {
		p, _ := mulDiv(n, 100, max(all, 1))
		return p
	}
	top := func(shares []kms.CostShare) (string, int64) {
		if len(shares) == 0 {
			return "", 0
		}
		return shares[0].Name, percent(int64(shares[0].Credits))
	}
	key, ofKey := top(i.Keys)
	credential, ofCredential := top(i.Credentials)
	op, ofOp := top(i.Operations)
	calls := max(i.Calls+i.RefusedCalls, 1)

	if ofKey >= oneLoop && ofCredential >= oneLoop && ofOp >= oneLoop || early*100 > calls*fewAreEarly {
		list = append(list, kms.CostCause{Code: kms.CauseRetryLoop,
			Detail: fmt.Sprintf("%d %% of the credits are of %s, %d %% of one credential and %d %% of one key; %d of %d calls came before their Retry-After",
				ofOp, op, ofCredential, ofKey, early, calls),
			Advice: "look for a loop that repeats one call, or retries without a pause; obey Retry-After, bound retries, and give the loop a credential with limits of its own"})
	}
	if p := percent(encryptions(i.Operations)); p >= mostlyKind {
		list = append(list, kms.CostCause{Code: kms.CauseDataKeys,
			Detail: fmt.Sprintf("%d %% of the credits are of encrypting, decrypting and data keys", p),
			Advice: "generate a data key once, encrypt with it locally and cache it for minutes, instead of one call for every record"})
	}
	if p := percent(bulk); p >= mostlyBulk {
		list = append(list, kms.CostCause{Code: kms.CauseBulk,
			Detail: fmt.Sprintf("%d %% of the credits are of batches and bulk urgency", p),
			Advice: "spread bulk work over the nights and days that have room, at a rate of its own, or buy a burst pack for it"})
	}
	if ofKey >= mostlyOne {
		list = append(list, kms.CostCause{Code: kms.CauseHotKey,
			Detail: fmt.Sprintf("%d %% of the credits are of the key %s", ofKey, key),
			Advice: "use data keys under this key, or give it a limit of its own"})
	}
	if ofCredential >= oneCaller {
		list = append(list, kms.CostCause{Code: kms.CauseOneCaller,
			Detail: fmt.Sprintf("%d %% of the credits are of the credential %s", ofCredential, credential),
			Advice: "see what its owner has changed; limit the credential, or rotate it if nobody knows"})
	}
	if len(list) == 0 {
		list = append(list, kms.CostCause{Code: kms.CauseQuotaTooLow,
			Detail: fmt.Sprintf("no key, credential or kind of work stands out: the largest credential has %d %% of the credits", ofCredential),
			Advice: "the quota is too small for what is done: ask for a higher day's total or another tier, or move work to quieter hours"})
	}
	return list
}

// encryptions sums what a data key that is cached would save.
func encryptions(operations []kms.CostShare) (n int64) {
	for _, s := range operations {
		switch kms.Op(s.Name) {
		case kms.OpEncrypt, kms.OpDecrypt, kms.OpDataKey, kms.OpReencrypt:
			n += int64(s.Credits)
		}
	}
	return n
}
