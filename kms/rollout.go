package kms

// A rollout gives a version its share of the calls step by step. Gateways see
// the calls and report what came of them; from that, and from the time, follows
// what becomes of the rollout:
//
//   - It is rolled back when the new version's credential errors (401, 403)
//     exceed those of the version that it replaces: at least rolloutErrors of
//     them in the step, and a part of the calls that is more than twice the old
//     version's plus one hundredth. Calls are those that tell of the key: ok and
//     credential errors. A provider that is away, out of quota or refuses
//     everybody (transient, quota, rate_limit) does not blame the key; one that
//     takes good keys for bad for a while does so with both versions, and twice
//     the old version's part is then out of reach.
//   - It goes on to the next step when the step's interval is over and, if
//     anything was reported in the step, the new version had at least one ok.
//     Where nobody reports, time alone decides.
//   - After the last step, in which the new version has all calls and the old
//     one still stands by, it is done.
//
// Counts begin anew with each step.

// rolloutErrors is how many credential errors it takes: one or two can be a
// provider's hiccup or a misdirected call.
const rolloutErrors = 3

// judgement is what follows from the outcomes of a step.
type judgement uint8

const (
	rolloutHolds  judgement = iota // not enough is known to go on
	rolloutGoesOn                  // when the interval is over
	rolloutFails
)

// judge judges a running rollout by what was counted in its step.
func (r *Rollout) judge(list []SecretOutcome) judgement {
	var from, to SecretOutcome
	reported := false
	for _, o := range list {
		switch o.Version {
		case r.From:
			from = o
		case r.To:
			to = o
		}
		reported = reported || o.OK+o.Credential+o.Quota+o.RateLimit+o.Transient > 0
	}
	switch {
	case to.Credential >= rolloutErrors && to.refused() > 2*from.refused()+0.01:
		return rolloutFails
	case reported && to.OK == 0:
		return rolloutHolds
	}
	return rolloutGoesOn
}

// refused is the part of the calls that tell of the key in which it was refused.
func (o *SecretOutcome) refused() float64 {
	if o.Credential == 0 {
		return 0
	}
	return float64(o.Credential) / float64(o.OK+o.Credential)
}
