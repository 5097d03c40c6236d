package api

import (
	"encoding/hex"
	"math"
	"net/http"
	"strconv"

	"github.com/sluice-kms/sluice/kms"
)

// putErrors are those of what is stored after what the caller knows of.
var putErrors = append([]kms.Kind{kms.KindPreconditionFailed}, makeErrors...)

func policyRoutes() []Route {
	group := anyTenant.group
	return []Route{
		define(Route{Name: "describe-policy", Group: group, Method: http.MethodGet, Path: "/v1/policy", Op: kms.OpReadPolicy,
			Summary:     "Show the policy in force",
			Description: "Tiers, prices, lines and times, as one document. It is the one in force on the API node that answers; the others follow within a second."}, describePolicy),
		define(Route{Name: "list-policy-versions", Group: group, Method: http.MethodGet, Path: "/v1/policy/versions", Op: kms.OpReadPolicy,
			Errors: makeErrors, Query: pageParameters, Summary: "List the versions of the policy"}, listPolicies),
		define(Route{Name: "describe-policy-version", Group: group, Method: http.MethodGet, Path: "/v1/policy/versions/{policy}", Op: kms.OpReadPolicy,
			Errors: keyErrors, Summary: "Show a version of the policy"}, describePolicyVersion),
		define(Route{Name: "check-policy", Group: group, Method: http.MethodPost, Path: "/v1/policy/check", Op: kms.OpCheckPolicy,
			Errors: makeErrors, Summary: "Validate a policy without storing it"}, checkPolicy),
		define(Route{Name: "diff-policy", Group: group, Method: http.MethodPost, Path: "/v1/policy/diff", Op: kms.OpCheckPolicy,
			Errors: makeErrors, Summary: "Compare a policy with the one in force"}, diffPolicy),
		change(Route{Name: "put-policy", Group: group, Method: http.MethodPut, Path: "/v1/policy", Op: kms.OpPutPolicy,
			Errors: putErrors, Summary: "Put a policy into force",
			Description: "It becomes the next version, which is in force on this API node with the answer and on the others within a second. " +
				"A document with mistakes changes nothing: check-policy tells what is wrong. " + capacityDescription},
			func(c *call, in *PutPolicyRequest) (*PutPolicyResponse, error) {
				return c.policyOr(c.service.PutPolicy(c.context, &c.ticket, kms.PutPolicyInput{
					Previous: uint64(in.Previous), Document: in.Document, Comment: in.Comment, Force: in.Force}))
			}, replayPolicy),
		change(Route{Name: "rollback-policy", Group: group, Method: http.MethodPost, Path: "/v1/policy/rollback", Op: kms.OpPutPolicy,
			Errors: putErrors, Summary: "Put an earlier policy into force again",
			Description: "Its document becomes the next version: the history only grows. " + capacityDescription},
			func(c *call, in *RollbackPolicyRequest) (*PutPolicyResponse, error) {
				return c.policyOr(c.service.RollbackPolicy(c.context, &c.ticket, uint64(*in.Version), in.Comment, in.Force))
			}, replayPolicy),
	}
}

func describePolicy(c *call, _ *NoBody) (*PolicyResponse, error) {
	p, err := c.service.GetPolicy(c.context, &c.ticket)
	if err != nil {
		return nil, err
	}
	return &PolicyResponse{PolicyVersion: policyVersionOf(&p.PolicyVersion), Stored: p.Stored, Problem: p.Problem,
		Document: p.Document, Charge: c.charge()}, nil
}

func listPolicies(c *call, _ *NoBody) (*PolicyListResponse, error) {
	list, next, err := c.service.ListPolicies(c.context, &c.ticket, c.page())
	if err != nil {
		return nil, err
	}
	out := &PolicyListResponse{Versions: make([]PolicyVersion, len(list)), NextPageToken: next, Charge: c.charge()}
	for i, p := range list {
		out.Versions[i] = policyVersionOf(p)
	}
	return out, nil
}

func describePolicyVersion(c *call, _ *NoBody) (*PolicyVersionResponse, error) {
	p, err := c.service.DescribePolicy(c.context, &c.ticket, c.policyVersion())
	if err != nil {
		return nil, err
	}
	return &PolicyVersionResponse{policyVersionOf(p), p.Document, c.charge()}, nil
}

// policyVersion is the number of the path's version. What is not the one
// spelling of a number is that of no version.
func (c *call) policyVersion() uint64 {
	text := c.object(0)
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || strconv.FormatUint(n, 10) != text {
		return math.MaxUint64
	}
	return n
}

func checkPolicy(c *call, in *CheckPolicyRequest) (*CheckPolicyResponse, error) {
	digest, mistakes, err := c.service.CheckPolicy(c.context, &c.ticket, in.Document)
	if err != nil {
		return nil, err
	}
	out := &CheckPolicyResponse{Valid: len(mistakes) == 0, Charge: c.charge()}
	if out.Valid {
		out.SHA256 = hex.EncodeToString(digest[:])
	}
	for _, m := range mistakes {
		out.Errors = append(out.Errors, PolicyMistake{m.Path, m.What})
	}
	return out, nil
}

func diffPolicy(c *call, in *DiffPolicyRequest) (*DiffPolicyResponse, error) {
	if (in.Document == nil) == (in.Version == nil) {
		return nil, kms.Errorf(kms.KindInvalidArgument, "body: give either document or version")
	}
	what := kms.DiffPolicyInput{Document: in.Document}
	if in.Version != nil {
		what.Version = uint64(*in.Version)
	}
	changes, inForce, err := c.service.DiffPolicy(c.context, &c.ticket, what)
	if err != nil {
		return nil, err
	}
	out := &DiffPolicyResponse{Version: inForce, Changes: make([]PolicyChange, len(changes)), Charge: c.charge()}
	for i, change := range changes {
		out.Changes[i] = PolicyChange(change)
	}
	return out, nil
}

func (c *call) policyOr(p *kms.PolicyVersion, err error) (*PutPolicyResponse, error) {
	if err := c.carriedOut(err); err != nil {
		return nil, err
	}
	return &PutPolicyResponse{policyVersionOf(p), c.charge()}, nil
}

func replayPolicy(c *call, id string) (*PutPolicyResponse, error) {
	return c.policyOr(c.service.ReplayPolicy(c.context, &c.ticket, id))
}

func policyVersionOf(p *kms.PolicyVersion) PolicyVersion {
	out := PolicyVersion{Version: p.Version, SHA256: hex.EncodeToString(p.Digest[:]), Comment: p.Comment, CreatedBy: p.By}
	if !p.Created.IsZero() {
		out.CreatedAt = p.Created.UTC()
	}
	return out
}
