package kms

import (
	"slices"
	"time"
)

// The changes of a secret's state: pure functions of what is and the time. Each
// changes a secret that its caller owns, or returns an error and has not.
//
// At any time at most one version is ACTIVE, or two while a rollout runs, whose
// weights add up to 100.

var (
	errNoSecretVersion = &Error{Kind: KindInvalidArgument, Detail: "version: the secret has no such version"}
	errSecretPending   = &Error{Kind: KindPendingDeletion, Detail: "the secret is scheduled for deletion; restore a version first"}
	errRolloutRuns     = &Error{Kind: KindConflict, Detail: "a rollout is running; roll it back or wait for its end"}
)

// ActivateInput is the input of Service.ActivateSecret.
type ActivateInput struct {
	Version uint32
	// Steps are the weights that the version takes on one after the other,
	// ascending to 100; nil: 100 at once, and unwatched.
	Steps    []uint32
	Interval time.Duration // of a step; 0: DefaultInterval
	Observe  time.Duration // 0: DefaultObserve
}

func (in *ActivateInput) check() error {
	if in.Interval == 0 {
		in.Interval = DefaultInterval
	}
	if in.Observe == 0 {
		in.Observe = DefaultObserve
	}
	switch {
	case len(in.Steps) > MaxRolloutSteps:
		return Errorf(KindInvalidArgument, "steps: at most %d", MaxRolloutSteps)
	case in.Interval < MinInterval || in.Interval > MaxInterval:
		return Errorf(KindInvalidArgument, "step_interval: must be 1 second to 7 days")
	case in.Observe < MinObserve || in.Observe > MaxObserve:
		return Errorf(KindInvalidArgument, "observe: must be 1 minute to 90 days")
	}
	var last uint32
	for _, step := range in.Steps {
		if step <= last || step > 100 {
			return Errorf(KindInvalidArgument, "steps: must be ascending weights from 1 to 100")
		}
		last = step
	}
	if len(in.Steps) > 0 && last != 100 {
		return Errorf(KindInvalidArgument, "steps: the last one must be 100")
	}
	return nil
}

// running tells whether a rollout runs.
func (s *ProviderSecret) running() bool { return s.Rollout != nil && s.Rollout.State == RolloutRunning }

// active returns the version in use, nil when there is none; of a rollout the
// one that is being replaced.
func (s *ProviderSecret) active() *SecretVersion {
	if s.running() {
		return s.Version(s.Rollout.From)
	}
	for _, v := range s.Versions {
		if v.State == SecretActive {
			return v
		}
	}
	return nil
}

// live returns a version that is not destroyed.
func (s *ProviderSecret) live(number uint32) (*SecretVersion, error) {
	v := s.Version(number)
	if v == nil || v.State == SecretDestroyed {
		return nil, errNoSecretVersion
	}
	return v, nil
}

func (v *SecretVersion) expired(now time.Time) bool {
	return !v.NotAfter.IsZero() && !now.Before(v.NotAfter)
}

// use makes a version the only one in use, or one of two.
func (v *SecretVersion) use(weight uint32) {
	v.State, v.Weight, v.DestroyAt = SecretActive, weight, time.Time{}
}

// retire takes a version out of use and keeps it for a while.
func (v *SecretVersion) retire(now time.Time, keep time.Duration) {
	v.State, v.Weight, v.Retired, v.DestroyAt = SecretRetired, 0, now, now.Add(keep)
}

// activate brings a version into use: at once, or, where there is one to take
// over from, in steps.
func (s *ProviderSecret) activate(now time.Time, in ActivateInput) error {
	if err := in.check(); err != nil {
		return err
	}
	v, err := s.live(in.Version)
	switch {
	case err != nil:
		return err
	case s.State != SecretInUse:
		return errSecretPending
	case s.running():
		return errRolloutRuns
	case v.State == SecretActive:
		return Errorf(KindConflict, "the version is in use already")
	case v.State == SecretDisabled:
		return Errorf(KindConflict, "the version is disabled; restore it first")
	case v.expired(now):
		return Errorf(KindConflict, "the version has expired")
	}
	from := s.active()
	if from == nil || len(in.Steps) == 0 {
		v.use(100)
		if from != nil {
			from.retire(now, in.Observe)
		}
		s.Rollout = nil
		return nil
	}
	s.Rollout = &Rollout{State: RolloutRunning, From: from.Number, To: v.Number, Steps: slices.Clone(in.Steps),
		Interval: in.Interval, Observe: in.Observe, Since: now}
	s.weigh()
	return nil
}

// weigh gives the versions of a running rollout the weights of its step.
func (s *ProviderSecret) weigh() {
	weight := s.Rollout.Steps[s.Rollout.Step]
	s.Version(s.Rollout.To).use(weight)
	s.Version(s.Rollout.From).use(100 - weight)
}

// next is when a running rollout's step is over.
func (r *Rollout) next() time.Time { return r.Since.Add(r.Interval) }

// advance takes a running rollout to its next step, and after the last one to
// its end.
func (s *ProviderSecret) advance(now time.Time) {
	r := s.Rollout
	r.Since = now
	if r.Step+1 < len(r.Steps) {
		r.Step++
		s.weigh()
		return
	}
	r.State = RolloutDone
	s.Version(r.To).use(100)
	s.Version(r.From).retire(now, r.Observe)
}

// rollback gives the calls back to the version before: the one that a running
// rollout replaces, or the one that was retired last.
func (s *ProviderSecret) rollback(now time.Time) error {
	if s.State != SecretInUse {
		return errSecretPending
	}
	if r := s.Rollout; s.running() {
		r.State, r.Since = RolloutRolledBack, now
		s.Version(r.To).retire(now, r.Observe)
		s.Version(r.From).use(100)
		return nil
	}
	var last *SecretVersion
	for _, v := range s.Versions {
		if v.State == SecretRetired && !v.expired(now) && (last == nil || v.Retired.After(last.Retired)) {
			last = v
		}
	}
	if last == nil {
		return Errorf(KindConflict, "there is no version to go back to")
	}
	if v := s.active(); v != nil {
		v.retire(now, DefaultObserve)
	}
	last.use(100)
	return nil
}

// endRollout ends a running rollout because a version of it goes; the other one
// gets all calls.
func (s *ProviderSecret) endRollout(now time.Time, gone uint32) {
	if r := s.Rollout; s.running() && (r.From == gone || r.To == gone) {
		r.State, r.Since = RolloutCancelled, now
		s.Version(r.From + r.To - gone).use(100)
	}
}

// disable takes a version out of use for good, whatever it is and though it be
// the last.
func (s *ProviderSecret) disable(now time.Time, number uint32) error {
	v, err := s.live(number)
	if err != nil {
		return err
	}
	s.endRollout(now, number)
	if v.State == SecretActive {
		v.Retired = now
	}
	v.State, v.Weight = SecretDisabled, 0
	return nil
}

// scheduleDestruction sets the date at which a version that is not in use is
// destroyed.
func (s *ProviderSecret) scheduleDestruction(now time.Time, number uint32, days int) error {
	v, err := s.live(number)
	switch {
	case err != nil:
		return err
	case days < MinDeletionDays || days > MaxDeletionDays:
		return Errorf(KindInvalidArgument, "days: must be %d to %d", MinDeletionDays, MaxDeletionDays)
	case v.State == SecretActive:
		return Errorf(KindConflict, "the version is in use; disable it or activate another first")
	}
	v.State, v.Weight, v.DestroyAt = SecretDisabled, 0, now.Add(time.Duration(days)*24*time.Hour)
	return nil
}

// restore makes a version that is out of use STAGED again, so that nothing is
// in use by mistake, and takes a deletion of the secret back.
func (s *ProviderSecret) restore(number uint32) error {
	v, err := s.live(number)
	switch {
	case err != nil:
		return err
	case v.State != SecretDisabled && v.State != SecretRetired:
		return Errorf(KindConflict, "the version is neither disabled nor retired")
	}
	v.State, v.DestroyAt = SecretStaged, time.Time{}
	s.State, s.DeletionDate = SecretInUse, time.Time{}
	return nil
}

// scheduleDeletion takes all versions out of use and sets the date at which all
// is destroyed.
func (s *ProviderSecret) scheduleDeletion(now time.Time, days int) error {
	switch {
	case days < MinDeletionDays || days > MaxDeletionDays:
		return Errorf(KindInvalidArgument, "days: must be %d to %d", MinDeletionDays, MaxDeletionDays)
	case s.State != SecretInUse:
		return Errorf(KindPendingDeletion, "the secret is scheduled for deletion already")
	}
	if s.running() {
		s.Rollout.State, s.Rollout.Since = RolloutCancelled, now
	}
	for _, v := range s.Versions {
		if v.State != SecretDestroyed {
			v.State, v.Weight = SecretDisabled, 0
		}
	}
	s.State, s.DeletionDate = SecretPendingDeletion, now.Add(time.Duration(days)*24*time.Hour)
	return nil
}

// destroyDue destroys the secret, or the first of its versions, that is due, and
// tells whether there was any; version is 0 for the secret. It destroys one at a
// time, for the journal to name it.
func (s *ProviderSecret) destroyDue(now time.Time) (version uint32, any bool) {
	if s.State == SecretPendingDeletion && !s.DeletionDate.After(now) {
		s.destroyAll(now)
		return 0, true
	}
	for _, v := range s.Versions {
		if (v.State == SecretRetired || v.State == SecretDisabled) && !v.DestroyAt.IsZero() && !v.DestroyAt.After(now) {
			v.destroy(now)
			return v.Number, true
		}
	}
	return 0, false
}

// destroyAll leaves tombstones of the secret and its versions.
func (s *ProviderSecret) destroyAll(now time.Time) {
	for _, v := range s.Versions {
		if v.State != SecretDestroyed {
			v.destroy(now)
		}
	}
	s.State, s.DeletionDate, s.Rollout = SecretGone, time.Time{}, nil
}

func (v *SecretVersion) destroy(now time.Time) {
	v.State, v.Weight, v.DestroyAt = SecretDestroyed, 0, now
	v.DataKey, v.Value, v.Fingerprint, v.FingerprintVersion = nil, nil, [32]byte{}, 0
}

// Due is when something is next due for a secret, zero for never.
func (s *ProviderSecret) Due() (due time.Time) {
	earlier := func(t time.Time) {
		if !t.IsZero() && (due.IsZero() || t.Before(due)) {
			due = t
		}
	}
	earlier(s.DeletionDate)
	if s.running() {
		earlier(s.Rollout.next())
	}
	for _, v := range s.Versions {
		if v.State == SecretRetired || v.State == SecretDisabled {
			earlier(v.DestroyAt)
		}
	}
	return due
}

// usable returns the versions that may be handed out now, with their weights.
// A version that has expired in the middle of a rollout leaves the other.
func (s *ProviderSecret) usable(now time.Time) (list []*SecretVersion) {
	for _, v := range s.Versions {
		if v.State == SecretActive && v.Weight > 0 && !v.expired(now) {
			list = append(list, v)
		}
	}
	return list
}
