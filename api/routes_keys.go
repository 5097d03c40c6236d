package api

import (
	"context"
	"net/http"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// The parameters of lists.
var pageParameters = []Parameter{
	{Name: "page_size", Max: kms.MaxPageSize, Default: "100", Doc: "Items of a page"},
	{Name: "page_token", Doc: "next_page_token of the page before"},
}

// defaultPageSize is a page that a person can still look at.
const defaultPageSize = 100

// Errors that routes on one key have in common.
var (
	keyErrors  = []kms.Kind{kms.KindNotFound}
	useErrors  = []kms.Kind{kms.KindNotFound, kms.KindInvalidArgument, kms.KindKeyDisabled, kms.KindPendingDeletion}
	sealErrors = append([]kms.Kind{kms.KindConflict}, useErrors...)
	openErrors = append([]kms.Kind{kms.KindDecryptionFailed}, useErrors...)
	makeErrors = []kms.Kind{kms.KindNotFound, kms.KindInvalidArgument, kms.KindConflict}
	moveErrors = []kms.Kind{kms.KindNotFound, kms.KindInvalidArgument, kms.KindConflict, kms.KindKeyDisabled, kms.KindPendingDeletion}
)

func keyRoutes() []Route {
	const group = "Keys"
	return []Route{
		change(Route{Name: "create-key", Group: group, Method: http.MethodPost, Path: "/v1/keys", Op: kms.OpCreateKey,
			Success: http.StatusCreated, Errors: makeErrors,
			Summary:     "Create a key",
			Description: "Makes a key with its first version. RSA keys take seconds."}, createKey, replayKey),
		define(Route{Name: "list-keys", Group: group, Method: http.MethodGet, Path: "/v1/keys", Op: kms.OpListKeys,
			Errors: makeErrors, Query: append([]Parameter{
				{Name: "project", Doc: "Keys of this project only; absent: all that the credential sees"}}, pageParameters...),
			Summary: "List keys"}, listKeys),
		define(Route{Name: "describe-key", Group: group, Method: http.MethodGet, Path: "/v1/keys/{key}", Op: kms.OpDescribeKey,
			Errors: keyErrors, Summary: "Describe a key"}, onKey[NoBody]((*kms.Service).DescribeKey)),
		change(Route{Name: "update-key", Group: group, Method: http.MethodPatch, Path: "/v1/keys/{key}", Op: kms.OpUpdateKey,
			Errors: makeErrors, Summary: "Change a key's description, tags, deletion protection or rotation"}, updateKey, replayKey),
		change(Route{Name: "delete-key", Group: group, Method: http.MethodDelete, Path: "/v1/keys/{key}", Op: kms.OpDeleteKey,
			Errors: moveErrors, Summary: "Schedule a key's deletion in 30 days"}, deleteKey, replayKey),
		change(Route{Name: "rotate-key", Group: group, Method: http.MethodPost, Path: "/v1/keys/{key}/rotate", Op: kms.OpRotateKey,
			Errors: moveErrors, Summary: "Give a key a new primary version",
			Description: "Older versions still decrypt and verify."}, onKey[Empty]((*kms.Service).RotateKey), replayKey),
		change(Route{Name: "enable-key", Group: group, Method: http.MethodPost, Path: "/v1/keys/{key}/enable", Op: kms.OpEnableKey,
			Errors: moveErrors, Summary: "Switch a key on"}, onKey[Empty]((*kms.Service).EnableKey), replayKey),
		change(Route{Name: "disable-key", Group: group, Method: http.MethodPost, Path: "/v1/keys/{key}/disable", Op: kms.OpDisableKey,
			Errors: moveErrors, Summary: "Switch a key off"}, onKey[Empty]((*kms.Service).DisableKey), replayKey),
		change(Route{Name: "schedule-key-deletion", Group: group, Method: http.MethodPost, Path: "/v1/keys/{key}/schedule-deletion", Op: kms.OpDeleteKey,
			Errors: moveErrors, Summary: "Schedule a key's deletion",
			Description: "Disables the key at once and destroys it on the date, unless that is cancelled before."}, scheduleDeletion, replayKey),
		change(Route{Name: "cancel-key-deletion", Group: group, Method: http.MethodPost, Path: "/v1/keys/{key}/cancel-deletion", Op: kms.OpCancelDel,
			Errors: moveErrors, Summary: "Cancel a key's deletion",
			Description: "The key stays disabled until it is enabled."}, onKey[Empty]((*kms.Service).CancelKeyDeletion), replayKey),
		define(Route{Name: "public-key", Group: group, Method: http.MethodGet, Path: "/v1/keys/{key}/public", Op: kms.OpPublic,
			Errors:  []kms.Kind{kms.KindNotFound, kms.KindInvalidArgument},
			Query:   []Parameter{{Name: "version", Max: 1<<32 - 1, Default: "the primary version", Doc: "Number of the key version"}},
			Media:   []string{mediaPEM, mediaJWK, mediaDER},
			Summary: "Get a key's public half",
			Description: "JSON by default; PEM, JWK or the DER of SubjectPublicKeyInfo by Accept. " +
				"It works on disabled keys too: a public key verifies what was signed before."}, publicKey),
	}
}

func createKey(c *call, in *CreateKeyRequest) (*KeyResponse, error) {
	made, err := createInput(in)
	if err != nil {
		return nil, err
	}
	key, err := c.service.CreateKey(c.context, &c.ticket, made)
	if err := c.carriedOut(err); err != nil {
		return nil, err
	}
	c.createdKey(key.ID)
	return c.key(key), nil
}

func createInput(in *CreateKeyRequest) (kms.CreateKeyInput, error) {
	rotation, err := rotationPeriod(in.RotationDays)
	return kms.CreateKeyInput{
		Name: in.Name, Spec: in.Spec, Usage: in.Usage, Project: in.Project, Protection: in.Protection,
		Description: in.Description, Tags: in.Tags, DeletionProtection: in.DeletionProtection,
		RotationPeriod: rotation,
	}, err
}

func listKeys(c *call, _ *NoBody) (*KeyListResponse, error) {
	keys, next, err := c.service.ListKeys(c.context, &c.ticket, c.query["project"], c.page())
	if err != nil {
		return nil, err
	}
	out := &KeyListResponse{Keys: make([]Key, len(keys)), NextPageToken: next, Charge: c.charge()}
	for i, k := range keys {
		out.Keys[i] = keyOf(k)
	}
	return out, nil
}

// onKey makes the handler of a route that does one thing to a key; Req is
// NoBody or Empty.
func onKey[Req any](verb func(*kms.Service, context.Context, *kms.Ticket, string) (*kms.Key, error)) func(*call, *Req) (*KeyResponse, error) {
	return func(c *call, _ *Req) (*KeyResponse, error) {
		return c.keyOr(verb(c.service, c.context, &c.ticket, c.object(0)))
	}
}

func updateKey(c *call, in *UpdateKeyRequest) (*KeyResponse, error) {
	described := in.Description != nil || in.Tags != nil || in.DeletionProtection != nil
	switch {
	case described && in.RotationDays != nil:
		// Two changes of a key, of which one could fail after the other.
		return nil, kms.Errorf(kms.KindInvalidArgument, "rotation_days: is changed on its own, with no other field beside it")
	case in.RotationDays != nil:
		return setRotation(c, in.RotationDays)
	case !described:
		return nil, kms.Errorf(kms.KindInvalidArgument, "body: give at least one of %s", c.route.shape.known)
	}
	return c.keyOr(c.service.UpdateKey(c.context, &c.ticket, c.object(0), kms.UpdateKeyInput{
		Description: in.Description, Tags: in.Tags, DeletionProtection: in.DeletionProtection,
	}))
}

const day = 24 * time.Hour

// maxRotationDays is kms.MaxRotation in the unit of rotation_days.
const maxRotationDays = int(kms.MaxRotation / day)

// rotationPeriod is the time that rotation_days stands for.
func rotationPeriod(days *int) (time.Duration, error) {
	if days == nil {
		return 0, nil
	}
	// Checked before it is multiplied, which could overflow.
	if *days < 0 || *days > maxRotationDays {
		return 0, kms.Errorf(kms.KindInvalidArgument, "rotation_days: must be 0 for none, or 1 to %d", maxRotationDays)
	}
	return time.Duration(*days) * day, nil
}

func setRotation(c *call, days *int) (*KeyResponse, error) {
	period, err := rotationPeriod(days)
	if err != nil {
		return nil, err
	}
	return c.keyOr(c.service.SetRotation(c.context, &c.ticket, c.object(0), period))
}

func deleteKey(c *call, _ *NoBody) (*KeyResponse, error) {
	return c.keyOr(c.service.ScheduleKeyDeletion(c.context, &c.ticket, c.object(0), kms.DefaultDeletionDays))
}

func scheduleDeletion(c *call, in *ScheduleDeletionRequest) (*KeyResponse, error) {
	return c.keyOr(c.service.ScheduleKeyDeletion(c.context, &c.ticket, c.object(0), daysOr(in.Days)))
}

func (c *call) keyOr(k *kms.Key, err error) (*KeyResponse, error) {
	if err := c.carriedOut(err); err != nil {
		return nil, err
	}
	return c.key(k), nil
}

// key is a key with its versions.
func (c *call) key(k *kms.Key) *KeyResponse {
	out := &KeyResponse{Key: keyOf(k), Charge: c.charge()}
	out.Versions = make([]KeyVersion, len(k.Versions))
	for i, v := range k.Versions {
		out.Versions[i] = KeyVersion{Version: v.Number, State: v.State, CreatedAt: v.Created.UTC(), DestroyAt: v.DestroyAt.UTC()}
	}
	return out
}

func keyOf(k *kms.Key) Key {
	var algorithms []kms.Algorithm
	if info := k.Spec.Info(); info != nil { // a newer release may have stored others
		algorithms = info.Algorithms(k.Usage)
	}
	return Key{
		ID: k.ID, Name: k.Name, Spec: k.Spec, Usage: k.Usage, Algorithms: algorithms,
		Project: k.Project, Protection: k.Protection, State: k.State, Description: k.Description, Tags: k.Tags,
		Origin: k.Origin, RotationDays: int(k.RotationPeriod / day), NextRotation: k.NextRotation.UTC(),
		LastUsed: k.LastUsed.UTC(), LastUsedOp: k.LastUsedOp,
		CreatedAt: k.Created.UTC(), DeletionDate: k.DeletionDate.UTC(), DeletionProtection: k.DeletionProtection,
		PrimaryVersion: k.Primary, Revision: k.Revision,
	}
}
