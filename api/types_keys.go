package api

import (
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// Charge is the part of every answer that says what it cost.
type Charge struct {
	Cost      Cost      `json:"cost" doc:"Credits charged"`
	RequestID uuid.UUID `json:"request_id" doc:"Names the request in the journal"`
}

// Key is a key's metadata.
type Key struct {
	ID                 uuid.UUID         `json:"id"`
	Name               string            `json:"name" doc:"Unique in the tenant, immutable" example:"payments/orders"`
	Spec               kms.Spec          `json:"spec"`
	Usage              kms.Usage         `json:"usage" doc:"What the key may be used for; immutable"`
	Algorithms         []kms.Algorithm   `json:"algorithms" doc:"What spec and usage offer, the default first"`
	Project            string            `json:"project" example:"default"`
	Protection         kms.Protection    `json:"protection" doc:"HSM: material exists in the clear only inside a token. SEALED: sealed by an HSM at rest, used in process memory"`
	State              kms.KeyState      `json:"state"`
	Description        string            `json:"description,omitzero"`
	Tags               map[string]string `json:"tags,omitempty"`
	CreatedAt          time.Time         `json:"created_at"`
	Origin             kms.Origin        `json:"origin" doc:"How the material of the first version came to be; rotation generates"`
	RotationDays       int               `json:"rotation_days,omitzero" doc:"Days between scheduled rotations; absent: there are none" min:"1"`
	NextRotation       time.Time         `json:"next_rotation,omitzero" doc:"When the next scheduled rotation is due"`
	LastUsed           time.Time         `json:"last_used,omitzero" doc:"Last use of the material, noted with some delay; absent: never"`
	LastUsedOp         kms.Op            `json:"last_used_op,omitzero" doc:"What it was used for" example:"sign"`
	DeletionDate       time.Time         `json:"deletion_date,omitzero" doc:"When a key that is pending deletion will be destroyed"`
	DeletionProtection bool              `json:"deletion_protection" doc:"While true the key's deletion cannot be scheduled"`
	PrimaryVersion     uint32            `json:"primary_version" doc:"The version that new operations use" min:"1"`
	Versions           []KeyVersion      `json:"versions,omitempty" doc:"Ascending by number; not in lists of keys"`
	Revision           uint64            `json:"revision" doc:"Grows by one with every change" min:"1"`
}

// KeyVersion is one version of a key's material.
type KeyVersion struct {
	Version   uint32           `json:"version" min:"1"`
	State     kms.VersionState `json:"state"`
	CreatedAt time.Time        `json:"created_at"`
	DestroyAt time.Time        `json:"destroy_at,omitzero" doc:"When the material of a version that is pending destruction will be erased"`
}

// KeyResponse is a key.
type KeyResponse struct {
	Key
	Charge
}

// KeyListResponse is a page of keys.
type KeyListResponse struct {
	Keys          []Key  `json:"keys" doc:"Ordered by name"`
	NextPageToken string `json:"next_page_token,omitzero" doc:"Absent at the end"`
	Charge
}

// CreateKeyRequest is the body of create-key.
type CreateKeyRequest struct {
	Name               string            `json:"name" doc:"1 to 128 letters, digits and -_./, beginning and ending with a letter or digit, not looking like a UUID. Absent: key- and the id" maxlen:"MaxNameLength" example:"payments/orders"`
	Spec               kms.Spec          `json:"spec" api:"required"`
	Usage              kms.Usage         `json:"usage" doc:"Absent: the spec's default"`
	Project            string            `json:"project" doc:"Absent: the credential's" maxlen:"MaxNameLength"`
	Protection         kms.Protection    `json:"protection" doc:"Absent: HSM where a token offers the spec; SEALED otherwise, if the tenant allows that"`
	Description        string            `json:"description" doc:"Printable text" maxlen:"MaxDescription"`
	Tags               map[string]string `json:"tags" doc:"At most 50; names of 1 to 128 bytes, values of at most 256, printable"`
	DeletionProtection bool              `json:"deletion_protection"`
	RotationDays       *int              `json:"rotation_days" doc:"Days between scheduled rotations, from now; absent or 0: there are none" min:"0" max:"MaxRotationDays"`
}

// UpdateKeyRequest is the body of update-key; what is absent stays.
type UpdateKeyRequest struct {
	Description        *string           `json:"description" doc:"Printable text" maxlen:"MaxDescription"`
	Tags               map[string]string `json:"tags" doc:"Replaces all tags"`
	DeletionProtection *bool             `json:"deletion_protection"`
	RotationDays       *int              `json:"rotation_days" doc:"Days between scheduled rotations, from now; 0 ends them. A change of its own, with no other field beside it" min:"0" max:"MaxRotationDays"`
}

// Empty is the body of routes that take no fields. It may be left out.
type Empty struct{}

// ScheduleDeletionRequest is the body of schedule-deletion. It may be left
// out.
type ScheduleDeletionRequest struct {
	Days *int `json:"days" doc:"Days until the key is destroyed. Absent: 30" min:"MinDeletionDays" max:"MaxDeletionDays"`
}

// ScheduleDestructionRequest is the body of schedule-version-destruction. It
// may be left out.
type ScheduleDestructionRequest struct {
	Days *int `json:"days" doc:"Days until the version's material is erased. Absent: 30" min:"MinDeletionDays" max:"MaxDeletionDays"`
}

// Alias is a further name of a key.
type Alias struct {
	Name  string    `json:"alias" example:"payments/current"`
	KeyID uuid.UUID `json:"key_id" doc:"The key that it stands for"`
}

// AliasResponse is an alias.
type AliasResponse struct {
	Alias
	Charge
}

// DeletedAliasResponse is an alias that is no more.
type DeletedAliasResponse struct {
	Name string `json:"alias" example:"payments/current"`
	Charge
}

// AliasListResponse is a page of aliases.
type AliasListResponse struct {
	Aliases       []Alias `json:"aliases" doc:"Ordered by name"`
	NextPageToken string  `json:"next_page_token,omitzero" doc:"Absent at the end"`
	Charge
}

// SetAliasRequest is the body of set-alias.
type SetAliasRequest struct {
	Key string `json:"key" api:"required" doc:"Id or name of the key" example:"payments/orders"`
}

// PublicKeyResponse is the public half of a key version.
type PublicKeyResponse struct {
	PEM     string    `json:"pem" doc:"SubjectPublicKeyInfo"`
	JWK     *JWK      `json:"jwk,omitzero" doc:"RFC 7517; absent where no JWK form is registered, as for SM2"`
	Spec    kms.Spec  `json:"spec"`
	Usage   kms.Usage `json:"usage"`
	Version uint32    `json:"version" min:"1"`
	Meta
}

// JWK is a public key as a JSON Web Key (RFC 7517, 7518, 8037, 8812).
type JWK struct {
	KeyType string `json:"kty" example:"EC"`
	Use     string `json:"use" doc:"sig or enc"`
	KeyID   string `json:"kid" doc:"The key's id, a dot and the version"`
	Curve   string `json:"crv,omitzero" example:"P-256"`
	X       string `json:"x,omitzero" doc:"base64url without padding"`
	Y       string `json:"y,omitzero" doc:"base64url without padding"`
	N       string `json:"n,omitzero" doc:"base64url without padding"`
	E       string `json:"e,omitzero" doc:"base64url without padding"`
}
