package p11

import (
	"bytes"
	"embed"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-kms/sluice/hsm"
	"github.com/sluice-kms/sluice/kms"
)

// Profile describes the mechanisms for SM2, SM4 and HMAC-SM3 of a vendor's
// module. PKCS#11 up to version 3.2 has none, so vendors number and shape them
// as they like. With a profile, keys of these families live in the token;
// without one, nothing of them is asked for.
//
// A profile is a file in JSON (RFC 8259): a description taken from a header
// file or manual, which a self-test then proves against the token. A family
// whose description is wrong fails it and is not offered.
type Profile struct {
	// Name says which profile it is, in messages; letters, digits and "-".
	Name string `json:"name"`
	// Source is the document that the numbers and forms are taken from.
	Source string `json:"source"`
	// Assumed lists the fields that the source does not settle, by their paths
	// such as "sm2.sign.encoding".
	Assumed []string `json:"assumed,omitempty"`

	SM2     *SM2Profile     `json:"sm2,omitempty"`
	SM4     *SM4Profile     `json:"sm4,omitempty"`
	HMACSM3 *HMACSM3Profile `json:"hmac_sm3,omitempty"`
}

// Number is a CKM_* or CKK_* as a string in hexadecimal, "0x80008001"; zero is
// none, as neither RSA key pairs nor RSA keys are described here.
type Number uint

// UnmarshalText reads the number.
func (n *Number) UnmarshalText(text []byte) error {
	digits, ok := strings.CutPrefix(string(text), "0x")
	v, err := strconv.ParseUint(digits, 16, 32)
	if !ok || err != nil || v == 0 {
		return fmt.Errorf("must be a number of 32 bits such as 0x80008001, and not 0")
	}
	*n = Number(v)
	return nil
}

// MarshalText writes the number.
func (n Number) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "0x%08X", uint(n)), nil }

// SM2Profile describes SM2 keys.
type SM2Profile struct {
	// KeyType is the CKK_* of SM2 keys.
	KeyType Number `json:"key_type"`
	// Generate is the CKM_* that makes key pairs.
	Generate Number `json:"generate"`
	// ECParams tells whether templates of keys name the curve in
	// CKA_EC_PARAMS, and keys show it there.
	ECParams bool `json:"ec_params"`
	// Point is what CKA_EC_POINT holds: "octet_string", 04 ‖ x ‖ y in an OCTET
	// STRING as PKCS#11 has it; "uncompressed", the same bare; or "coordinates",
	// x ‖ y.
	Point string `json:"point"`
	// ImportPoint tells whether the template of an imported private key holds
	// CKA_EC_POINT beside CKA_VALUE.
	ImportPoint bool `json:"import_point"`

	Sign    SM2Sign    `json:"sign"`
	Decrypt SM2Decrypt `json:"decrypt"`
	// Agree is the CKM_* that gives the x-coordinate of an ECDH with
	// CK_ECDH1_DERIVE_PARAMS; without it keys for KEY_AGREEMENT are not made.
	Agree Number `json:"agree,omitzero"`
}

// SM2Sign describes the mechanism for signatures.
type SM2Sign struct {
	Mechanism Number `json:"mechanism"`
	// Input is what C_Sign takes: "digest", the 32 bytes SM3(ZA ‖ message), or
	// "message". A mechanism for messages signs no digests that callers bring.
	Input string `json:"input"`
	// UserID says whose ZA a mechanism for messages puts in: "default", that of
	// 1234567812345678, so that no other user id is served, or "parameter", that
	// of the bytes in the mechanism's parameter. Empty with "digest".
	UserID string `json:"user_id,omitzero"`
	// Encoding is that of the signature: "rs", r ‖ s of 32 bytes each, or "der".
	Encoding string `json:"encoding"`
}

// SM2Decrypt describes the mechanism for decryption.
type SM2Decrypt struct {
	Mechanism Number `json:"mechanism"`
	// Order is that of the ciphertext: "C1C3C2", "C1C2C3", or "ASN1", SM2Cipher of
	// GM/T 0009-2012, section 7.2.
	Order string `json:"order"`
	// Prefix tells whether C1 begins with 04; false with "ASN1".
	Prefix bool `json:"prefix"`
}

// SM4Profile describes SM4 keys.
type SM4Profile struct {
	// KeyType is the CKK_* of SM4 keys.
	KeyType Number `json:"key_type"`
	// Generate is the CKM_* that makes keys.
	Generate Number `json:"generate"`
	// ValueLen tells whether the template of a new key holds CKA_VALUE_LEN.
	ValueLen bool `json:"value_len"`
	// ECB is the CKM_* of the bare cipher, of which GCM is made where the module
	// has none.
	ECB Number `json:"ecb,omitzero"`
	// CBC is the CKM_* of CBC without padding; its parameter is the IV.
	CBC Number `json:"cbc"`
	// GCM is the CKM_* of GCM with 12 bytes of nonce and 16 of tag.
	GCM Number `json:"gcm,omitzero"`
	// GCMIVBits tells whether CK_GCM_PARAMS has ulIvBits, as the header files of
	// v2.40 have and its text has not.
	GCMIVBits bool `json:"gcm_iv_bits"`
}

// HMACSM3Profile describes keys for HMAC with SM3.
type HMACSM3Profile struct {
	// KeyType is the CKK_* of the keys.
	KeyType Number `json:"key_type"`
	// Generate is the CKM_* that makes keys.
	Generate Number `json:"generate"`
	// ValueLen tells whether the template of a new key holds CKA_VALUE_LEN.
	ValueLen bool `json:"value_len"`
	// Sign is the CKM_* of the MAC of 32 bytes.
	Sign Number `json:"sign"`
}

// Forms of CKA_EC_POINT, of what is signed and of signatures.
const (
	pointOctetString  = "octet_string"
	pointUncompressed = "uncompressed"
	pointCoordinates  = "coordinates"

	signDigest  = "digest"
	signMessage = "message"

	userIDDefault   = "default"
	userIDParameter = "parameter"

	signatureRS  = "rs"
	signatureDER = "der"
)

//go:embed profiles/*.json
var builtIn embed.FS

// ProfileNames returns the names of the profiles that are built in.
func ProfileNames() []string {
	files, err := fs.Glob(builtIn, "profiles/*.json")
	if err != nil {
		panic(err) // the pattern is well-formed
	}
	for i, file := range files {
		files[i] = strings.TrimSuffix(path.Base(file), ".json")
	}
	return files
}

// FindProfile returns the profile that is built in under a name or, if what it
// is given is an absolute path, the one in that file.
func FindProfile(nameOrPath string) (*Profile, error) {
	var text []byte
	var err error
	switch {
	case filepath.IsAbs(nameOrPath):
		text, err = os.ReadFile(nameOrPath)
	case slices.Contains(ProfileNames(), nameOrPath):
		text, err = builtIn.ReadFile("profiles/" + nameOrPath + ".json")
	default:
		return nil, fmt.Errorf("profile %q: neither the absolute path of a file nor one of %s",
			nameOrPath, strings.Join(ProfileNames(), ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("reading the profile: %w", err)
	}
	p, err := ParseProfile(text)
	if err != nil {
		return nil, fmt.Errorf("profile %s: %w", nameOrPath, err)
	}
	return p, nil
}

// ParseProfile reads a profile. An unknown field is an error, as is one that is
// there twice; errors name the field.
func ParseProfile(text []byte) (*Profile, error) {
	var p Profile
	if err := json.Unmarshal(bytes.TrimSpace(text), &p, json.RejectUnknownMembers(true)); err != nil {
		if e, ok := errors.AsType[*json.SemanticError](err); ok {
			return nil, fmt.Errorf("%s: %w", fieldPath(e.JSONPointer), e)
		}
		return nil, err
	}
	if err := p.validate(); err != nil {
		return nil, err
	}
	return &p, nil
}

func fieldPath(p jsontext.Pointer) string {
	return strings.Join(slices.Collect(p.Tokens()), ".")
}

// profileFields returns the paths of all fields, those of parts included.
func profileFields(t reflect.Type, prefix string) []string {
	var fields []string
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		fields = append(fields, prefix+name)
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct {
			fields = append(fields, profileFields(inner, prefix+name+".")...)
		}
	}
	return fields
}

// profileErrors gathers what is wrong with a profile.
type profileErrors []error

func (e *profileErrors) check(ok bool, field, format string, args ...any) {
	if !ok {
		*e = append(*e, fmt.Errorf("%s: %s", field, fmt.Sprintf(format, args...)))
	}
}

func (e *profileErrors) number(field string, n Number) { e.check(n != 0, field, "is missing") }

func (e *profileErrors) oneOf(field, value string, allowed ...string) {
	e.check(slices.Contains(allowed, value), field, "must be %s", strings.Join(allowed, " or "))
}

// maxName bounds a profile's name in bytes, for log lines and messages.
const maxName = 64

func (p *Profile) validate() error {
	var e profileErrors
	plain := strings.Trim(p.Name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") == ""
	e.check(p.Name != "" && len(p.Name) <= maxName && plain, "name", "must be 1 to %d letters, digits and -", maxName)
	e.check(p.Source != "", "source", "is missing")
	known := profileFields(reflect.TypeFor[Profile](), "")
	for i, field := range p.Assumed {
		e.check(slices.Contains(known, field), fmt.Sprintf("assumed[%d]", i), "%q is no field", field)
	}
	e.check(p.SM2 != nil || p.SM4 != nil || p.HMACSM3 != nil, "sm2, sm4, hmac_sm3", "describe one at least")
	if p.SM2 != nil {
		p.SM2.validate(&e)
	}
	if k := p.SM4; k != nil {
		e.number("sm4.key_type", k.KeyType)
		e.number("sm4.generate", k.Generate)
		e.number("sm4.cbc", k.CBC)
		e.check(k.ECB != 0 || k.GCM != 0, "sm4.gcm", "is missing, and sm4.ecb to make it of as well")
		e.check(k.GCM != 0 || !k.GCMIVBits, "sm4.gcm_iv_bits", "there is no sm4.gcm")
	}
	if k := p.HMACSM3; k != nil {
		e.number("hmac_sm3.key_type", k.KeyType)
		e.number("hmac_sm3.generate", k.Generate)
		e.number("hmac_sm3.sign", k.Sign)
	}
	return errors.Join(e...)
}

func (k *SM2Profile) validate(e *profileErrors) {
	e.number("sm2.key_type", k.KeyType)
	e.number("sm2.generate", k.Generate)
	e.oneOf("sm2.point", k.Point, pointOctetString, pointUncompressed, pointCoordinates)
	e.number("sm2.sign.mechanism", k.Sign.Mechanism)
	e.oneOf("sm2.sign.input", k.Sign.Input, signDigest, signMessage)
	if k.Sign.Input == signMessage {
		e.oneOf("sm2.sign.user_id", k.Sign.UserID, userIDDefault, userIDParameter)
	} else {
		e.check(k.Sign.UserID == "", "sm2.sign.user_id", "a digest has it in it")
	}
	e.oneOf("sm2.sign.encoding", k.Sign.Encoding, signatureRS, signatureDER)
	e.number("sm2.decrypt.mechanism", k.Decrypt.Mechanism)
	e.oneOf("sm2.decrypt.order", k.Decrypt.Order, string(kms.SM2OrderC1C3C2), string(kms.SM2OrderC1C2C3), string(kms.SM2OrderASN1))
	e.check(!k.Decrypt.Prefix || k.Decrypt.Order != string(kms.SM2OrderASN1), "sm2.decrypt.prefix", "ASN1 has no prefix")
}

// loadProfile asks for a profile; nil for none.
func loadProfile(from func() (*Profile, error)) (*Profile, error) {
	if from == nil {
		return nil, nil
	}
	p, err := from()
	if err != nil {
		return nil, &hsm.Error{Class: hsm.ClassRequest, Call: "profile", Err: err}
	}
	return p, nil
}
