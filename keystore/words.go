package keystore

import "github.com/sluice-kms/sluice/kms"

// words are the values of columns that have few. What is cached shares them
// instead of holding a copy of its own of each.
var words = makeWords()

func makeWords() map[string]string {
	all := []string{
		kms.DefaultProject,
		string(kms.TenantActive), string(kms.TenantSuspended),
		string(kms.ProtectionHSM), string(kms.ProtectionSealed),
		string(kms.KeyEnabled), string(kms.KeyDisabled), string(kms.KeyPendingDeletion),
		string(kms.VersionPendingDestruction), string(kms.VersionDestroyed),
		string(kms.OriginGenerated), string(kms.OriginImportedProcess),
		string(kms.UsageSignVerify), string(kms.UsageEncryptDecrypt), string(kms.UsageGenerateVerifyMAC),
		string(kms.UsageKeyAgreement), string(kms.UsageDerive), string(kms.UsageWrapUnwrap),
		string(kms.UsageEncapsulateDecapsulate),
	}
	for _, t := range kms.Tiers() {
		all = append(all, string(t))
	}
	for _, s := range kms.Specs() {
		all = append(all, string(s.Spec))
	}
	for _, o := range kms.Ops() {
		all = append(all, string(o.Op))
	}
	m := make(map[string]string, len(all))
	for _, w := range all {
		m[w] = w
	}
	return m
}

// word returns s in the memory that it shares with its equals, where it is one
// of the words.
func word(s string) string {
	if w, ok := words[s]; ok {
		return w
	}
	return s
}
