package wire

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/quota"
)

// PolicyEngine joins the policies of package quota to the port of the service.
type PolicyEngine struct{ *quota.Policies }

var _ kms.PolicyEngine = PolicyEngine{}

// NewPolicyEngine holds the policy that Sluice comes with, as version 0.
func NewPolicyEngine(clock func() time.Time) (PolicyEngine, error) {
	policies, err := quota.NewPolicies(clock, 0, quota.DefaultPolicy())
	return PolicyEngine{policies}, err
}

// CheckPolicy implements kms.PolicyEngine. It knows of the first mistake only.
func (PolicyEngine) CheckPolicy(document []byte) ([]byte, []kms.PolicyMistake) {
	p, err := quota.ParsePolicy(document)
	if err == nil {
		var canonical []byte
		if canonical, err = p.Document(); err == nil {
			return canonical, nil
		}
	}
	if mistake, ok := errors.AsType[*quota.PolicyError](err); ok {
		return nil, []kms.PolicyMistake{{Path: mistake.Path, What: mistake.What}}
	}
	return nil, []kms.PolicyMistake{{What: err.Error()}}
}

// DiffPolicies implements kms.PolicyEngine.
func (PolicyEngine) DiffPolicies(from, to []byte) ([]kms.PolicyChange, error) {
	a, err := quota.ParsePolicy(from)
	if err != nil {
		return nil, err
	}
	b, err := quota.ParsePolicy(to)
	if err != nil {
		return nil, err
	}
	found, err := quota.Diff(a, b)
	if err != nil {
		return nil, err
	}
	changes := make([]kms.PolicyChange, len(found))
	for i, c := range found {
		changes[i] = kms.PolicyChange(c)
	}
	return changes, nil
}

// ApplyPolicy implements kms.PolicyEngine.
func (e PolicyEngine) ApplyPolicy(version uint64, document []byte) error {
	return e.Apply(version, document)
}

// PolicyInForce implements kms.PolicyEngine.
func (e PolicyEngine) PolicyInForce() (uint64, []byte) {
	s := e.Current()
	return s.Version, encodePolicy(s.Policy())
}

// PolicyVersion implements kms.PolicyEngine.
func (e PolicyEngine) PolicyVersion() uint64 { return e.Current().Version }

// DefaultPolicy implements kms.PolicyEngine.
func (PolicyEngine) DefaultPolicy() []byte { return encodePolicy(quota.DefaultPolicy()) }

// encodePolicy encodes a valid policy, which cannot fail.
func encodePolicy(p *quota.Policy) []byte {
	document, err := p.Document()
	if err != nil {
		panic(err)
	}
	return document
}

// policyGauges report how the policy in force stands to the stored one.
type policyGauges struct {
	followed                 func() (inForce, stored uint64, problem string)
	inForce, newest, failing *prometheus.Desc
}

func newPolicyGauges(followed func() (inForce, stored uint64, problem string)) *policyGauges {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("sluice_policy_"+name, help, nil, nil)
	}
	return &policyGauges{followed: followed,
		inForce: desc("version_in_force", "Version of the policy in force; 0: the one that Sluice comes with."),
		newest:  desc("version_stored", "Newest stored version of the policy, as last read; 0: none."),
		failing: desc("failing", "1 while the newest stored version cannot be put into force."),
	}
}

// Describe implements prometheus.Collector.
func (g *policyGauges) Describe(ch chan<- *prometheus.Desc) {
	ch <- g.inForce
	ch <- g.newest
	ch <- g.failing
}

// Collect implements prometheus.Collector.
func (g *policyGauges) Collect(ch chan<- prometheus.Metric) {
	inForce, stored, problem := g.followed()
	failing := 0.0
	if problem != "" {
		failing = 1
	}
	ch <- prometheus.MustNewConstMetric(g.inForce, prometheus.GaugeValue, float64(inForce))
	ch <- prometheus.MustNewConstMetric(g.newest, prometheus.GaugeValue, float64(stored))
	ch <- prometheus.MustNewConstMetric(g.failing, prometheus.GaugeValue, failing)
}
