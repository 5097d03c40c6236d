package api

import (
	"crypto/sha256"
	"encoding/binary"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// vaultFields are the names under which the value of a secret is answered: what
// gateways look for when nobody tells them another.
var vaultFields = []string{"key", "value", "api_key", "apiKey"}

// missing is the error for a path without a secret: nobody who may not list
// secrets can tell it from one that he may not read.
func (c *vaultCall) missing() error {
	if c.ticket.By.Allowed(kms.OpListSecrets, nil) {
		return kms.ErrNotFound
	}
	return kms.ErrPermissionDenied
}

// errVaultPath refuses a path that no secret can have.
var errVaultPath = &kms.Error{Kind: kms.KindInvalidArgument, Detail: "the path is none that a secret can have"}

// fetch fetches the version of the path's secret that the query names, or the one
// that the caller is to use. Without a value there is no version to use, and the
// version is one to tell of. The caller wipes the value.
func (c *vaultCall) fetch() (*vaultRead, error) {
	wanted, err := c.versionWanted()
	if err != nil {
		return nil, err
	}
	if !kms.ValidSecretPath(c.path) {
		return nil, errVaultPath
	}
	list, _, err := c.service.FetchSecrets(c.context, &c.ticket, kms.FetchInput{Items: []kms.FetchItem{{Path: c.path}},
		Narrow: func(s *kms.ProviderSecret, usable []*kms.SecretVersion) []*kms.SecretVersion {
			if wanted == 0 {
				return []*kms.SecretVersion{chooseVersion(usable, c.ticket.By.Credential, s.ID)}
			}
			return slices.DeleteFunc(usable, func(v *kms.SecretVersion) bool { return v.Number != wanted })
		}})
	if err != nil {
		return nil, err
	}
	f := &list[0]
	switch f.Status {
	case kms.FetchOK:
		return &vaultRead{f.Secret, f.Secret.Version(f.Values[0].Version), f.Values[0].Value, f.FreshUntil}, nil
	case kms.FetchDisabled:
		return c.unused(f.Secret, wanted)
	case kms.FetchDenied:
		return nil, kms.ErrPermissionDenied
	default:
		return nil, c.missing()
	}
}

// vaultRead is what was read of a secret.
type vaultRead struct {
	secret  *kms.ProviderSecret
	version *kms.SecretVersion
	value   []byte // nil: the version is not to be used
	fresh   time.Time
}

// unused tells of a secret that has no version to use: of the one that is wanted,
// or of the newest.
func (c *vaultCall) unused(s *kms.ProviderSecret, wanted uint32) (*vaultRead, error) {
	v := s.Versions[len(s.Versions)-1]
	if wanted != 0 {
		if v = s.Version(wanted); v == nil {
			return nil, kms.ErrNotFound
		}
	}
	return &vaultRead{secret: s, version: v}, nil
}

// chooseVersion returns the one of the versions that share the calls which a
// credential is to use: always the same one while their weights are. The caller
// of this interface gets one value where others choose for each of their
// requests, so what is shared out is gateways. Newer versions come first, so that
// a gateway that was given the new one keeps it while its share grows.
func chooseVersion(usable []*kms.SecretVersion, credential, secret uuid.UUID) *kms.SecretVersion {
	var total uint64
	for _, v := range usable {
		total += uint64(v.Weight)
	}
	sum := sha256.Sum256(append(credential[:], secret[:]...))
	point := binary.BigEndian.Uint64(sum[:]) % max(total, 1)
	for i := len(usable) - 1; i > 0; i-- {
		if point < uint64(usable[i].Weight) {
			return usable[i]
		}
		point -= uint64(usable[i].Weight)
	}
	return usable[0]
}

// versionWanted is the version that the query names; 0: none.
func (c *vaultCall) versionWanted() (uint32, error) {
	text, given := c.query["version"]
	if !given {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, kms.Errorf(kms.KindMalformed, "query: version must be a whole number")
	}
	return uint32(n), nil
}

func readVault(c *vaultCall) (*buffer, error) {
	r, err := c.fetch()
	if err != nil {
		return nil, err
	}
	defer clear(r.value)
	w := c.begin(r.value)
	w.name("data")
	w.raw("{")
	if w.name("data"); r.value == nil {
		c.success = http.StatusNotFound
		w.raw("null")
	} else {
		w.fields(r.value)
	}
	w.vaultMetadata(r)
	w.raw("}")
	c.end(w, 0)
	return w.b, nil
}

// lists tells whether a GET asks for a directory. Clients write it in all the
// ways of a Go boolean, as Vault reads it: node-vault sends list=1.
func (c *vaultCall) lists() bool {
	list, err := strconv.ParseBool(c.query["list"])
	return err == nil && list
}

func readVaultFlat(c *vaultCall) (*buffer, error) {
	if c.lists() {
		return listVault(c)
	}
	r, err := c.fetch()
	if err != nil {
		return nil, err
	}
	if r.value == nil {
		return nil, kms.ErrNotFound
	}
	defer clear(r.value)
	w := c.begin(r.value)
	w.name("data")
	w.fields(r.value)
	c.end(w, int(max(r.fresh.Sub(c.server.clock()), 0)/time.Second))
	return w.b, nil
}

// begin begins an answer that may hold a value, with room for it.
func (c *vaultCall) begin(value []byte) *writer {
	w := &writer{newBuffer(smallBuffer + len(vaultFields)*escapedByte*len(value))}
	w.raw("{")
	w.text("request_id", c.ticket.RequestID.String())
	w.text("lease_id", "")
	w.truth("renewable", false)
	return w
}

// end ends it. lease is in seconds.
func (c *vaultCall) end(w *writer, lease int) {
	w.number("lease_duration", uint32(lease))
	for _, name := range []string{"wrap_info", "warnings", "auth"} {
		w.name(name)
		w.raw("null")
	}
	w.text("mount_type", "kv")
	w.raw("}")
}

// fields writes the value under each of its names.
func (w *writer) fields(value []byte) {
	w.raw("{")
	for _, name := range vaultFields {
		w.quoted(name, value)
	}
	w.raw("}")
}

func (w *writer) vaultMetadata(r *vaultRead) {
	s, v := r.secret, r.version
	w.name("metadata")
	w.raw("{")
	w.text("created_time", v.Created.UTC().Format(time.RFC3339Nano))
	if w.name("custom_metadata"); len(s.Metadata) == 0 {
		w.raw("null")
	} else {
		w.object(s.Metadata)
	}
	w.text("deletion_time", vaultDeletion(v, r.value != nil))
	w.truth("destroyed", v.State == kms.SecretDestroyed)
	w.number("version", v.Number)
	w.raw("}")
}

// vaultDeletion is when a version that is not to be used was taken out of use,
// "" for one that is: what is not in use looks deleted here.
func vaultDeletion(v *kms.SecretVersion, used bool) string {
	if used {
		return ""
	}
	for _, t := range []time.Time{v.Retired, v.NotAfter, v.DestroyAt} {
		if !t.IsZero() {
			return t.UTC().Format(time.RFC3339Nano)
		}
	}
	return v.Created.UTC().Format(time.RFC3339Nano) // it has not been in use yet
}

func describeVault(c *vaultCall) (*buffer, error) {
	if c.lists() {
		return listVault(c)
	}
	s, err := c.service.DescribeSecretAt(c.context, &c.ticket, c.path)
	if kms.KindOf(err) == kms.KindNotFound && err != nil {
		err = c.missing()
	}
	if err != nil {
		return nil, err
	}
	return c.write(&VaultMetadataResponse{VaultEnvelope: c.envelope("kv"), Data: vaultMetadataOf(s, c.server.clock())})
}

func vaultMetadataOf(s *kms.ProviderSecret, now time.Time) VaultMetadata {
	out := VaultMetadata{CreatedTime: s.Created.UTC(), UpdatedTime: s.Created.UTC(), CustomMetadata: s.Metadata, DeleteVersionAfter: "0s",
		CurrentVersion: s.Highest, Versions: make(map[string]VaultVersion, len(s.Versions))}
	for i, v := range s.Versions {
		used := s.State == kms.SecretInUse && v.State == kms.SecretActive && (v.NotAfter.IsZero() || now.Before(v.NotAfter))
		if used {
			out.CurrentVersion = v.Number
		}
		if i == 0 {
			out.OldestVersion = v.Number
		}
		for _, t := range []time.Time{v.Created, v.Retired} {
			if t.After(out.UpdatedTime) {
				out.UpdatedTime = t.UTC()
			}
		}
		out.Versions[strconv.FormatUint(uint64(v.Number), 10)] = VaultVersion{CreatedTime: v.Created.UTC(),
			DeletionTime: vaultDeletion(v, used), Destroyed: v.State == kms.SecretDestroyed}
	}
	return out
}

func listVault(c *vaultCall) (*buffer, error) {
	directory := c.path
	if directory != "" {
		directory += "/"
	}
	names, err := c.service.SecretDirectory(c.context, &c.ticket, directory)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, kms.ErrNotFound
	}
	return c.write(&VaultListResponse{VaultEnvelope: c.envelope("kv"), Data: VaultKeys{Keys: names}})
}

// vaultMount tells of the mount of a path. Clients ask before they read, to know
// which version of the engine it has; that a mount does not exist is told by
// denying it.
func vaultMount(c *vaultCall) (*buffer, error) {
	if err := c.service.ReadSelf(c.context, &c.ticket); err != nil {
		return nil, err
	}
	mount, _, _ := strings.Cut(c.path, "/")
	version := map[string]string{"secret": "2", "kv": "1"}[mount]
	if version == "" {
		return nil, kms.ErrPermissionDenied
	}
	return c.write(&VaultMountResponse{VaultEnvelope: c.envelope("system"), Data: VaultMount{Path: mount + "/", Type: "kv",
		Description: "provider secrets, to be read", Options: map[string]string{"version": version}}})
}
