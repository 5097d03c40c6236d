package api

import (
	"encoding/json/v2"
	"net/http"
	"strings"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// authenticate finds out who is calling, from the one header that has a token:
// a credential, or that of a login.
func (c *vaultCall) authenticate() error {
	token, err := vaultToken(c.request.Header)
	if err != nil {
		return err
	}
	c.login, err = c.server.authenticator.AuthenticateLogin(c.context, token, c.ticket.Address)
	// A principal is known even when its tenant is suspended.
	c.ticket.By = c.login.By
	c.ticket.Passed(kms.StepAuthenticate, c.server.clock)
	if err != nil {
		return err
	}
	return c.checkNamespace()
}

// vaultToken returns what stands in X-Vault-Token, or in Authorization, which
// Vault takes as well.
func vaultToken(h http.Header) (string, error) {
	tokens, authorizations := h[headerVaultToken], h["Authorization"]
	switch {
	case len(tokens) == 1 && len(authorizations) == 0:
		return tokens[0], nil
	case len(tokens) == 0 && len(authorizations) == 1:
		if scheme, token, ok := strings.Cut(authorizations[0], " "); ok && strings.EqualFold(scheme, "Bearer") {
			return token, nil
		}
	}
	return "", kms.ErrUnauthenticated
}

// checkNamespace denies every namespace but the caller's tenant. One may stand
// in the header, before the path, or in both.
func (c *vaultCall) checkNamespace() error {
	name := c.ticket.By.Tenant.Name
	if c.namespace != "" && c.namespace != name {
		return kms.ErrPermissionDenied
	}
	for _, given := range c.request.Header[headerVaultNamespace] {
		if given = strings.Trim(given, "/"); given != "" && given != name {
			return kms.ErrPermissionDenied
		}
	}
	return nil
}

// maxLoginBody bounds the body of a login in bytes: two texts of a hundred.
const maxLoginBody = 4 << 10

// readLogin reads the body of a login, whatever its type is said to be.
func (c *vaultCall) readLogin() (in VaultLoginRequest, err error) {
	b := newBuffer(smallBuffer)
	defer b.release()
	if err := b.readAll(http.MaxBytesReader(c.ResponseWriter, c.request.Body, maxLoginBody), maxLoginBody); err != nil {
		return in, kms.Errorf(kms.KindMalformed, "body: must be at most %d bytes", maxLoginBody)
	}
	if _, err := ordinary.check(b.bytes); err != nil {
		return in, err
	}
	if err := json.Unmarshal(b.bytes, &in); err != nil {
		return in, kms.Errorf(kms.KindMalformed, "body: must be a JSON object of role_id and secret_id")
	}
	return in, nil
}

func vaultLogin(c *vaultCall) (*buffer, error) {
	in, err := c.readLogin()
	if err != nil {
		return nil, err
	}
	login, token, err := c.server.authenticator.Login(c.context, in.RoleID, in.SecretID, c.ticket.Address)
	if login != nil {
		c.login, c.ticket.By = login, login.By
	}
	c.ticket.Passed(kms.StepAuthenticate, c.server.clock)
	if err == nil {
		err = c.checkNamespace()
	}
	if err == nil {
		err = c.service.Login(c.context, &c.ticket)
	}
	if err != nil {
		return nil, err
	}
	return c.write(c.loginAnswer("approle", token, nil))
}

// loginAnswer tells of the caller's login, whose token is given.
func (c *vaultCall) loginAnswer(mountType, token string, warnings []string) *VaultLoginResponse {
	e := c.envelope(mountType)
	e.Warnings = warnings
	e.Auth = &VaultAuth{ClientToken: token, Accessor: c.accessor(), Policies: vaultPolicies, TokenPolicies: vaultPolicies, Metadata: c.identity(),
		LeaseDuration: c.left(), Renewable: true, TokenType: vaultTokenType, Orphan: true}
	return &VaultLoginResponse{VaultEnvelope: e}
}

// vaultPolicies are the policies that every token is said to have: what it may
// do is what the credential's scopes say.
var vaultPolicies = []string{"default"}

const vaultTokenType = "service"

// accessor names a login without showing it.
func (c *vaultCall) accessor() string { return c.ticket.By.Credential.String() }

func (c *vaultCall) identity() map[string]string {
	return map[string]string{"credential": c.accessor(), "tenant": c.ticket.By.Tenant.Name, "project": c.ticket.By.Project}
}

// left is how long the caller's token lasts, in seconds; 0 for one that does
// not end.
func (c *vaultCall) left() int {
	if c.login.Expires.IsZero() {
		return 0
	}
	return int(max(c.login.Expires.Sub(c.server.clock()), 0) / time.Second)
}

func vaultLookup(c *vaultCall) (*buffer, error) {
	if err := c.service.ReadSelf(c.context, &c.ticket); err != nil {
		return nil, err
	}
	data := VaultToken{Accessor: c.accessor(), DisplayName: "token", Meta: c.identity(), NamespacePath: c.ticket.By.Tenant.Name + "/", Orphan: true,
		Path: "auth/token/create", Policies: vaultPolicies, TTL: c.left(), Type: vaultTokenType}
	if !c.login.Expires.IsZero() {
		end := c.login.Expires.UTC()
		data.ExpireTime = &end
	}
	if !c.login.Credential {
		data.DisplayName, data.Path, data.Renewable = "approle", "auth/approle/login", true
		data.CreationTTL = int(kms.LoginLifetime / time.Second)
		data.CreationTime = c.login.Expires.Add(-kms.LoginLifetime).Unix()
	}
	return c.write(&VaultTokenResponse{VaultEnvelope: c.envelope("token"), Data: data})
}

// errNotRenewable refuses what is no login, and so has no end to talk about.
var errNotRenewable = &kms.Error{Kind: kms.KindInvalidArgument, Detail: "lease is not renewable"}

func vaultRenew(c *vaultCall) (*buffer, error) {
	if c.login.Credential {
		return nil, errNotRenewable
	}
	if err := c.service.ReadSelf(c.context, &c.ticket); err != nil {
		return nil, err
	}
	token, err := vaultToken(c.request.Header)
	if err != nil {
		return nil, err
	}
	return c.write(c.loginAnswer("token", token, []string{"the token ends at its time; log in again to go on"}))
}

func vaultRevoke(c *vaultCall) (*buffer, error) {
	return nil, c.service.Logout(c.context, &c.ticket, func() error { return c.server.authenticator.EndLogin(c.login) })
}
