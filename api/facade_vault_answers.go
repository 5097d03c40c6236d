package api

import (
	"encoding/json/v2"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/sluice-kms/sluice/kms"
)

// The errors that clients know, word for word.
const (
	vaultDenied = "permission denied"
	vaultSealed = "Vault is sealed"
)

// vaultErrors is what the facade makes of the kinds of errors that mean
// something to its clients. Everything else is told as natively.
var vaultErrors = map[kms.Kind]struct {
	status int
	text   string
}{
	kms.KindUnauthenticated:  {http.StatusForbidden, vaultDenied},
	kms.KindPermissionDenied: {http.StatusForbidden, vaultDenied},
	// With the text that says what is wanted, which a person reads.
	kms.KindSecondFactor:        {http.StatusForbidden, ""},
	kms.KindCredentialSuspended: {http.StatusForbidden, ""},
	kms.KindNotFound:            {http.StatusNotFound, ""},
	kms.KindQuotaExceeded:       {http.StatusTooManyRequests, "rate limit quota exceeded"},
	kms.KindQuotaExhausted:      {http.StatusTooManyRequests, "quota exhausted"},
	kms.KindReducedCapacity:     {http.StatusServiceUnavailable, vaultSealed},
	kms.KindHSMUnavailable:      {http.StatusServiceUnavailable, vaultSealed},
	kms.KindAuditUnavailable:    {http.StatusServiceUnavailable, vaultSealed},
	kms.KindStoreUnavailable:    {http.StatusServiceUnavailable, vaultSealed},
	kms.KindStaleReplica:        {http.StatusServiceUnavailable, vaultSealed},
	kms.KindWaitExceeded:        {http.StatusServiceUnavailable, vaultSealed},
	kms.KindInternal:            {http.StatusInternalServerError, "internal error"},
	// Not 422: what is wrong with a request is one thing to Vault.
	kms.KindInvalidArgument: {http.StatusBadRequest, ""},
	kms.KindUnsatisfiable:   {http.StatusBadRequest, ""},
}

// VaultStatus returns the facade's HTTP status of a kind of error.
func VaultStatus(k kms.Kind) int {
	if e, ok := vaultErrors[k]; ok {
		return e.status
	}
	return ProblemStatus(k)
}

// failVault answers with an error as Vault has it.
func (s *Server) failVault(x *exchange, err error) {
	p, retryAfter := problemOf(err)
	s.logFailure(x, p, err)
	kind := kms.KindOf(err)
	text := vaultErrors[kind].text
	if status := VaultStatus(kind); text == "" && status != http.StatusNotFound {
		text = p.Detail
	}
	if len(p.Reasons) > 0 && reasoned(p.Status) {
		s.describeTime(x)
	}
	if retryAfter > 0 {
		x.Header().Set("Retry-After", strconv.FormatInt(int64(math.Ceil(retryAfter.Seconds())), 10))
	}
	x.writeVaultErrors(VaultStatus(kind), text)
}

// writeVaultErrors sends an error, or none: what is missing has no more than its
// status.
func (x *exchange) writeVaultErrors(status int, text string) {
	out := VaultErrors{Errors: []string{}}
	if text != "" {
		out.Errors = append(out.Errors, text)
	}
	body, err := json.Marshal(&out)
	if err != nil {
		panic(err) // it holds strings only
	}
	x.write(status, contentJSON, body)
}

// ready tells whether the service can open secrets now, as far as it knows.
func (s *Server) isReady() bool { return s.ready == nil || s.ready() == nil }

// The queries by which a client asks for another status than health has. Vault's
// own client wants one of success, to read what is said beside.
const (
	queryActiveCode = "activecode"
	querySealedCode = "sealedcode"
)

// statusWanted is the status that a query names, otherwise without one.
func (c *vaultCall) statusWanted(query string, otherwise int) (int, error) {
	text, given := c.query[query]
	if !given {
		return otherwise, nil
	}
	// Those below have no body, and those above are none.
	if n, err := strconv.Atoi(text); err == nil && n >= http.StatusOK && n < 600 {
		return n, nil
	}
	return 0, kms.Errorf(kms.KindMalformed, "query: %s must be a status from 200 to 599", query)
}

func vaultHealth(c *vaultCall) (_ *buffer, err error) {
	sealed := !c.server.isReady()
	if sealed {
		c.success, err = c.statusWanted(querySealedCode, http.StatusServiceUnavailable)
	} else {
		c.success, err = c.statusWanted(queryActiveCode, http.StatusOK)
	}
	if err != nil {
		return nil, err
	}
	return c.write(&VaultHealthResponse{Initialized: true, Sealed: sealed, ReplicationPerformanceMode: "disabled", ReplicationDRMode: "disabled",
		ServerTimeUTC: c.server.clock().Unix(), Version: c.server.version, ClusterName: vaultCluster})
}

func vaultSeal(c *vaultCall) (*buffer, error) {
	return c.write(&VaultSealResponse{Type: "pkcs11", Initialized: true, Sealed: !c.server.isReady(), T: 1, N: 1, Version: c.server.version,
		RecoverySeal: true, StorageType: vaultCluster, ClusterName: vaultCluster})
}

// vaultCluster is what the service calls itself.
const vaultCluster = "sluice"

// vaultResponses are the answers of a route of the facade, for the document.
func (s *schemas) vaultResponses(r *Route) node {
	body := func(schemas ...any) node {
		schema := node{"oneOf": schemas}
		if len(schemas) == 1 {
			schema = schemas[0].(node)
		}
		return node{contentJSON: node{"schema": schema}}
	}
	answer := s.reference(r.Response, false)
	failed := s.reference(vaultErrorsType, false)
	responses := node{}
	for status, codes := range r.vaultProblems() {
		responses[strconv.Itoa(status)] = node{"description": http.StatusText(status) + ": " + strings.Join(codes, ", "),
			"content": body(failed), "headers": headersOf(r, status)}
	}
	success := node{"description": http.StatusText(r.Success), "headers": headersOf(r, r.Success)}
	if r.Success != http.StatusNoContent {
		success["content"] = body(answer)
		if r.Vault.also != nil {
			success["content"] = body(answer, s.reference(r.Vault.also, false))
		}
	}
	responses[strconv.Itoa(r.Success)] = success
	if r.Vault.absent {
		responses[strconv.Itoa(http.StatusNotFound)].(node)["content"] = body(failed, answer)
	}
	if r.Public && r.Op == "" {
		responses[strconv.Itoa(http.StatusServiceUnavailable)] = node{"description": "They cannot", "content": body(answer), "headers": headersOf(r, http.StatusServiceUnavailable)}
	}
	return responses
}

// vaultProblems lists the codes of the errors that a route of the facade can
// give, by status.
func (r *Route) vaultProblems() map[int][]string {
	kinds := append([]kms.Kind{kms.KindNotFound, kms.KindInvalidArgument, kms.KindTooLarge}, commonErrors...)
	if r.Op == "" {
		kinds = []kms.Kind{kms.KindInternal, kms.KindMalformed}
	}
	byStatus := make(map[int][]string)
	for _, k := range kinds {
		byStatus[VaultStatus(k)] = append(byStatus[VaultStatus(k)], k.String())
	}
	return byStatus
}
