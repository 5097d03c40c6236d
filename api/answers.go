package api

import "github.com/sluice-kms/sluice/kms"

// used writes what the answers of all operations with a key have in common.
func (w *writer) used(a kms.Algorithm, version uint32, m *Meta) {
	w.text("algorithm", string(a))
	if version != 0 {
		w.number("version", version)
	}
	w.text("protection", string(m.Protection))
}

// verified writes that a checksum was right, if it was given.
func (w *writer) verified(name string, given bool) {
	if given {
		w.truth(name, true)
	}
}

func (r *EncryptResponse) appendTo(w *writer) {
	w.bytes("ciphertext", r.Ciphertext)
	w.number("ciphertext_crc32c", r.CiphertextCRC32C)
	w.verified("verified_plaintext_crc32c", r.VerifiedPlaintextCRC32C)
	w.verified("verified_aad_crc32c", r.VerifiedAADCRC32C)
	w.used(r.Algorithm, r.Version, &r.Meta)
}

func (r *DecryptResponse) appendTo(w *writer) {
	w.bytes("plaintext", r.Plaintext)
	w.number("plaintext_crc32c", r.PlaintextCRC32C)
	w.verified("verified_ciphertext_crc32c", r.VerifiedCiphertextCRC32C)
	w.verified("verified_aad_crc32c", r.VerifiedAADCRC32C)
	w.used(r.Algorithm, r.Version, &r.Meta)
}

func (r *SignResponse) appendTo(w *writer) {
	w.bytes("signature", r.Signature)
	w.number("signature_crc32c", r.SignatureCRC32C)
	w.verified("verified_message_crc32c", r.VerifiedMessageCRC32C)
	w.verified("verified_digest_crc32c", r.VerifiedDigestCRC32C)
	w.used(r.Algorithm, r.Version, &r.Meta)
}

func (r *VerifyResponse) appendTo(w *writer) {
	w.truth("valid", r.Valid)
	w.verified("verified_message_crc32c", r.VerifiedMessageCRC32C)
	w.verified("verified_digest_crc32c", r.VerifiedDigestCRC32C)
	w.verified("verified_signature_crc32c", r.VerifiedSignatureCRC32C)
	w.used(r.Algorithm, r.Version, &r.Meta)
}

func (r *MACResponse) appendTo(w *writer) {
	w.bytes("mac", r.MAC)
	w.number("mac_crc32c", r.MACCRC32C)
	w.verified("verified_message_crc32c", r.VerifiedMessageCRC32C)
	w.used(r.Algorithm, r.Version, &r.Meta)
}

func (r *VerifyMACResponse) appendTo(w *writer) {
	w.truth("valid", r.Valid)
	w.verified("verified_message_crc32c", r.VerifiedMessageCRC32C)
	w.verified("verified_mac_crc32c", r.VerifiedMACCRC32C)
	w.used(r.Algorithm, r.Version, &r.Meta)
}

func (r *DataKeyResponse) appendTo(w *writer) {
	w.bytes("plaintext", r.Plaintext)
	w.bytes("ciphertext", r.Ciphertext)
	w.number("plaintext_crc32c", r.PlaintextCRC32C)
	w.number("ciphertext_crc32c", r.CiphertextCRC32C)
	w.verified("verified_aad_crc32c", r.VerifiedAADCRC32C)
	w.used(r.Algorithm, r.Version, &r.Meta)
}

func (r *WrappedDataKeyResponse) appendTo(w *writer) {
	w.bytes("ciphertext", r.Ciphertext)
	w.number("ciphertext_crc32c", r.CiphertextCRC32C)
	w.verified("verified_aad_crc32c", r.VerifiedAADCRC32C)
	w.used(r.Algorithm, r.Version, &r.Meta)
}

func (r *ReencryptResponse) appendTo(w *writer) {
	w.bytes("ciphertext", r.Ciphertext)
	w.number("source_version", r.SourceVersion)
	w.number("ciphertext_crc32c", r.CiphertextCRC32C)
	w.verified("verified_ciphertext_crc32c", r.VerifiedCiphertextCRC32C)
	w.verified("verified_aad_crc32c", r.VerifiedAADCRC32C)
	w.verified("verified_destination_aad_crc32c", r.VerifiedDestinationAADCRC32C)
	w.used(r.Algorithm, r.Version, &r.Meta)
}

func (r *WrapResponse) appendTo(w *writer) {
	w.bytes("wrapped", r.Wrapped)
	w.number("wrapped_crc32c", r.WrappedCRC32C)
	w.verified("verified_plaintext_crc32c", r.VerifiedPlaintextCRC32C)
	w.used(r.Algorithm, r.Version, &r.Meta)
}

func (r *UnwrapResponse) appendTo(w *writer) {
	w.bytes("plaintext", r.Plaintext)
	w.number("plaintext_crc32c", r.PlaintextCRC32C)
	w.verified("verified_wrapped_crc32c", r.VerifiedWrappedCRC32C)
	w.used(r.Algorithm, r.Version, &r.Meta)
}

func (r *SharedSecretResponse) appendTo(w *writer) {
	w.bytes("secret", r.Secret)
	w.used(r.Algorithm, r.Version, &r.Meta)
}

func (r *DeriveResponse) appendTo(w *writer) {
	w.bytes("derived", r.Derived)
	w.used(r.Algorithm, r.Version, &r.Meta)
}

func (r *EncapsulateResponse) appendTo(w *writer) {
	w.bytes("secret", r.Secret)
	w.bytes("ciphertext", r.Ciphertext)
	w.number("ciphertext_crc32c", r.CiphertextCRC32C)
	w.used(r.Algorithm, r.Version, &r.Meta)
}

func (r *DecapsulateResponse) appendTo(w *writer) {
	w.bytes("secret", r.Secret)
	w.verified("verified_ciphertext_crc32c", r.VerifiedCiphertextCRC32C)
	w.used(r.Algorithm, r.Version, &r.Meta)
}

func (r *RandomResponse) appendTo(w *writer) { w.bytes("random", r.Random) }

func (r *DigestResponse) appendTo(w *writer) {
	w.bytes("digest", r.Digest)
	w.text("algorithm", string(r.Algorithm))
}

func (*Charge) payload() (public, secret []byte)                   { return nil, nil }
func (r *EncryptResponse) payload() (public, secret []byte)        { return r.Ciphertext, nil }
func (r *DecryptResponse) payload() (public, secret []byte)        { return nil, r.Plaintext }
func (r *SignResponse) payload() (public, secret []byte)           { return r.Signature, nil }
func (r *MACResponse) payload() (public, secret []byte)            { return r.MAC, nil }
func (r *DataKeyResponse) payload() (public, secret []byte)        { return r.Ciphertext, r.Plaintext }
func (r *WrappedDataKeyResponse) payload() (public, secret []byte) { return r.Ciphertext, nil }
func (r *ReencryptResponse) payload() (public, secret []byte)      { return r.Ciphertext, nil }
func (r *WrapResponse) payload() (public, secret []byte)           { return r.Wrapped, nil }
func (r *UnwrapResponse) payload() (public, secret []byte)         { return nil, r.Plaintext }
func (r *SharedSecretResponse) payload() (public, secret []byte)   { return nil, r.Secret }
func (r *DeriveResponse) payload() (public, secret []byte)         { return nil, r.Derived }
func (r *EncapsulateResponse) payload() (public, secret []byte)    { return r.Ciphertext, r.Secret }
func (r *DecapsulateResponse) payload() (public, secret []byte)    { return nil, r.Secret }
func (r *RandomResponse) payload() (public, secret []byte)         { return nil, r.Random }
func (r *DigestResponse) payload() (public, secret []byte)         { return r.Digest, nil }
