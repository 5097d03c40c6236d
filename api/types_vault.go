package api

import (
	"reflect"
	"time"
	"uuid"
)

// The types of the Vault facade: names, types and nulls are Vault's, and what is
// always the same here is there because clients decode it.

// Null is always null.
type Null struct{}

// VaultErrors is the answer to a request that failed.
type VaultErrors struct {
	Errors []string `json:"errors" doc:"What is wrong; empty for what is missing"`
}

var vaultErrorsType = reflect.TypeFor[VaultErrors]()

// VaultEnvelope is what every answer has beside its data.
type VaultEnvelope struct {
	RequestID     uuid.UUID  `json:"request_id" doc:"Names the request in the journal and in logs"`
	LeaseID       string     `json:"lease_id"`
	Renewable     bool       `json:"renewable"`
	LeaseDuration int        `json:"lease_duration" doc:"Seconds"`
	WrapInfo      *Null      `json:"wrap_info" api:"null"`
	Warnings      []string   `json:"warnings" api:"null"`
	Auth          *VaultAuth `json:"auth" api:"null"`
	MountType     string     `json:"mount_type"`
}

// VaultLoginRequest is the body of vault-login.
type VaultLoginRequest struct {
	RoleID   string `json:"role_id" api:"required" doc:"The first part of a credential's text: what is between slk_ and the next _"`
	SecretID string `json:"secret_id" api:"required" doc:"The second part: what is after that _"`
}

// VaultAuth is a login.
type VaultAuth struct {
	ClientToken      string            `json:"client_token" doc:"To be sent as X-Vault-Token"`
	Accessor         string            `json:"accessor" doc:"The credential's id"`
	Policies         []string          `json:"policies"`
	TokenPolicies    []string          `json:"token_policies"`
	IdentityPolicies []string          `json:"identity_policies" api:"null"`
	Metadata         map[string]string `json:"metadata"`
	LeaseDuration    int               `json:"lease_duration" doc:"Seconds until it ends"`
	Renewable        bool              `json:"renewable"`
	EntityID         string            `json:"entity_id"`
	TokenType        string            `json:"token_type"`
	Orphan           bool              `json:"orphan"`
	MFARequirement   *Null             `json:"mfa_requirement" api:"null"`
	NumUses          int               `json:"num_uses"`
}

// VaultLoginResponse tells of a login, in auth.
type VaultLoginResponse struct {
	VaultEnvelope
	Data *Null `json:"data" api:"null"`
}

// VaultTokenResponse describes the caller's token.
type VaultTokenResponse struct {
	VaultEnvelope
	Data VaultToken `json:"data"`
}

// VaultToken describes a token, which it does not show.
type VaultToken struct {
	Accessor       string            `json:"accessor"`
	CreationTime   int64             `json:"creation_time" doc:"Seconds since 1970; 0 for a credential"`
	CreationTTL    int               `json:"creation_ttl"`
	DisplayName    string            `json:"display_name"`
	EntityID       string            `json:"entity_id"`
	ExpireTime     *time.Time        `json:"expire_time" api:"null" doc:"null: it does not end"`
	ExplicitMaxTTL int               `json:"explicit_max_ttl"`
	ID             string            `json:"id" doc:"Always empty"`
	Meta           map[string]string `json:"meta"`
	NamespacePath  string            `json:"namespace_path"`
	NumUses        int               `json:"num_uses"`
	Orphan         bool              `json:"orphan"`
	Path           string            `json:"path"`
	Policies       []string          `json:"policies"`
	Renewable      bool              `json:"renewable"`
	TTL            int               `json:"ttl" doc:"Seconds until it ends; 0: it does not"`
	Type           string            `json:"type"`
}

// VaultReadResponse has the value of a secret, or tells of one that is not to be
// used. It is written by hand: see readVault.
type VaultReadResponse struct {
	VaultEnvelope
	Data VaultSecret `json:"data"`
}

// VaultSecret is a value with what is said of its version.
type VaultSecret struct {
	Data     *VaultValue          `json:"data" api:"null" doc:"null: the version is not to be used"`
	Metadata VaultVersionMetadata `json:"metadata"`
}

// VaultValue is the value of a secret under each name that clients look for.
type VaultValue struct {
	Key    SecretText `json:"key"`
	Value  SecretText `json:"value"`
	APIKey SecretText `json:"api_key"`
	Camel  SecretText `json:"apiKey"`
}

// VaultVersionMetadata is what is said of the version that was read.
type VaultVersionMetadata struct {
	CreatedTime    time.Time         `json:"created_time"`
	CustomMetadata map[string]string `json:"custom_metadata" api:"null" doc:"The secret's metadata"`
	DeletionTime   string            `json:"deletion_time" doc:"When it was taken out of use; empty while it is in use"`
	Destroyed      bool              `json:"destroyed"`
	Version        uint32            `json:"version"`
}

// VaultFlatResponse has the value of a secret as KV version 1 has it.
type VaultFlatResponse struct {
	VaultEnvelope
	Data VaultValue `json:"data"`
}

// VaultMetadataResponse describes a secret.
type VaultMetadataResponse struct {
	VaultEnvelope
	Data VaultMetadata `json:"data"`
}

// VaultMetadata is what is not secret of a secret.
type VaultMetadata struct {
	CASRequired        bool                    `json:"cas_required"`
	CreatedTime        time.Time               `json:"created_time"`
	CurrentVersion     uint32                  `json:"current_version" doc:"The newest that is in use; without one the newest"`
	CustomMetadata     map[string]string       `json:"custom_metadata" api:"null"`
	DeleteVersionAfter string                  `json:"delete_version_after"`
	MaxVersions        int                     `json:"max_versions"`
	OldestVersion      uint32                  `json:"oldest_version"`
	UpdatedTime        time.Time               `json:"updated_time"`
	Versions           map[string]VaultVersion `json:"versions" doc:"By number"`
}

// VaultVersion is a version of a secret.
type VaultVersion struct {
	CreatedTime  time.Time `json:"created_time"`
	DeletionTime string    `json:"deletion_time" doc:"When it was taken out of use; empty while it is in use"`
	Destroyed    bool      `json:"destroyed"`
}

// VaultListResponse lists a directory.
type VaultListResponse struct {
	VaultEnvelope
	Data VaultKeys `json:"data"`
}

// VaultKeys are the names in a directory.
type VaultKeys struct {
	Keys []string `json:"keys" doc:"Sorted; a directory ends with a slash"`
}

// VaultMountResponse tells of a mount.
type VaultMountResponse struct {
	VaultEnvelope
	Data VaultMount `json:"data"`
}

// VaultMount is a mount.
type VaultMount struct {
	Accessor    string            `json:"accessor"`
	Description string            `json:"description"`
	Local       bool              `json:"local"`
	Options     map[string]string `json:"options" doc:"version: of the KV engine"`
	Path        string            `json:"path"`
	SealWrap    bool              `json:"seal_wrap"`
	Type        string            `json:"type"`
	UUID        string            `json:"uuid"`
}

// VaultHealthResponse tells whether secrets can be read.
type VaultHealthResponse struct {
	Initialized                bool   `json:"initialized"`
	Sealed                     bool   `json:"sealed" doc:"They cannot"`
	Standby                    bool   `json:"standby"`
	PerformanceStandby         bool   `json:"performance_standby"`
	ReplicationPerformanceMode string `json:"replication_performance_mode"`
	ReplicationDRMode          string `json:"replication_dr_mode"`
	ServerTimeUTC              int64  `json:"server_time_utc"`
	Version                    string `json:"version" doc:"Of Sluice"`
	ClusterName                string `json:"cluster_name"`
	ClusterID                  string `json:"cluster_id"`
}

// VaultSealResponse tells the same.
type VaultSealResponse struct {
	Type         string `json:"type"`
	Initialized  bool   `json:"initialized"`
	Sealed       bool   `json:"sealed" doc:"They cannot"`
	T            int    `json:"t"`
	N            int    `json:"n"`
	Progress     int    `json:"progress"`
	Nonce        string `json:"nonce"`
	Version      string `json:"version" doc:"Of Sluice"`
	BuildDate    string `json:"build_date"`
	Migration    bool   `json:"migration"`
	RecoverySeal bool   `json:"recovery_seal"`
	StorageType  string `json:"storage_type"`
	ClusterName  string `json:"cluster_name"`
	ClusterID    string `json:"cluster_id"`
}
