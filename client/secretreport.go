package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sluice-kms/sluice/client/outcome"
)

const (
	// reportEvery is how often outcomes are reported, reportSoon when a
	// provider refused a key, which a rollout must know of.
	reportEvery = 10 * time.Second
	reportSoon  = time.Second
	// lastReport bounds the report that Close makes.
	lastReport = 2 * time.Second
)

// reports counts outcomes until they are reported. What cannot be is lost, and
// counted: traffic must never wait for it.
type reports struct {
	urgent chan struct{} // capacity 1: a key was refused

	mu      sync.Mutex
	max     int
	counts  map[reportKey]*SecretOutcome
	dropped uint64
}

type reportKey struct {
	secretID string
	version  uint32
}

func (r *reports) start(most int) {
	r.urgent, r.max, r.counts = make(chan struct{}, 1), most, map[reportKey]*SecretOutcome{}
}

func (r *reports) lost() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dropped
}

// add counts an outcome.
func (r *reports) add(secretID string, version uint32, class outcome.Class) {
	item := SecretOutcome{SecretID: secretID, Version: version}
	switch class {
	case outcome.OK:
		item.OK = 1
	case outcome.Credential:
		item.Credential = 1
	case outcome.Quota:
		item.Quota = 1
	case outcome.RateLimit:
		item.RateLimit = 1
	case outcome.Transient:
		item.Transient = 1
	default:
		return // the caller's own faults are nobody's business
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mergeLocked(item)
	if class == outcome.Credential {
		select {
		case r.urgent <- struct{}{}:
		default:
		}
	}
}

func (r *reports) mergeLocked(item SecretOutcome) {
	key := reportKey{item.SecretID, item.Version}
	sum := r.counts[key]
	if sum == nil {
		if len(r.counts) >= r.max {
			r.dropped += item.total()
			return
		}
		sum = &SecretOutcome{SecretID: item.SecretID, Version: item.Version}
		r.counts[key] = sum
	}
	sum.OK += item.OK
	sum.Credential += item.Credential
	sum.Quota += item.Quota
	sum.RateLimit += item.RateLimit
	sum.Transient += item.Transient
}

func (o *SecretOutcome) total() uint64 {
	return uint64(o.OK) + uint64(o.Credential) + uint64(o.Quota) + uint64(o.RateLimit) + uint64(o.Transient)
}

// drain takes all counts, in parts that fit a call.
func (r *reports) drain() [][]SecretOutcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	var parts [][]SecretOutcome
	for _, item := range r.counts {
		if n := len(parts); n == 0 || len(parts[n-1]) == maxReportItems {
			parts = append(parts, nil)
		}
		parts[len(parts)-1] = append(parts[len(parts)-1], *item)
	}
	clear(r.counts)
	return parts
}

// putBack is for a part that was not taken.
func (r *reports) putBack(part []SecretOutcome, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, item := range part {
		if _, refused := errors.AsType[*Error](err); refused && repeatable(err) {
			r.mergeLocked(item)
		} else {
			// It may have been counted: twice would be worse than not at all.
			r.dropped += item.total()
		}
	}
}

// sendReports is the goroutine that reports, a last time when Secrets closes.
func (s *Secrets) sendReports() {
	ticker := time.NewTicker(reportEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-s.reports.urgent:
			if !sleep(s.ctx, reportSoon) {
				continue
			}
		case <-s.ctx.Done():
			ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), lastReport)
			s.reportAll(ctx)
			cancel()
			return
		}
		s.reportAll(s.ctx)
	}
}

func (s *Secrets) reportAll(ctx context.Context) {
	for _, part := range s.reports.drain() {
		attempt, cancel := context.WithTimeout(ctx, fetchTimeout)
		if _, err := s.c.ReportSecrets(attempt, part); err != nil {
			s.reports.putBack(part, err)
		}
		cancel()
	}
}
