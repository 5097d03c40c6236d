package p11

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestBuiltInProfilesAreValid(t *testing.T) {
	names := ProfileNames()
	if want := []string{"fault-module", "koal", "sansec"}; !slices.Equal(names, want) {
		t.Errorf("built in: %v, want %v", names, want)
	}
	for _, name := range names {
		p, err := FindProfile(name)
		if err != nil {
			t.Fatal(err)
		}
		if p.Name != name {
			t.Errorf("%s calls itself %s", name, p.Name)
		}
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseProfile(text)
		if err != nil || !reflect.DeepEqual(p, again) {
			t.Errorf("%s does not survive being written and read: %v", name, err)
		}
	}
}

// The numbers of the two vendors as their documents have them: a slip of the
// pen would make a token do something else under a right name.
func TestBuiltInProfilesHaveTheirSourcesNumbers(t *testing.T) {
	sansec, koal := mustProfile(t, "sansec"), mustProfile(t, "koal")
	for name, c := range map[string]struct{ have, want Number }{
		"sansec CKK_SM2": {sansec.SM2.KeyType, 0x80000000 + 4}, "sansec CKK_SM4": {sansec.SM4.KeyType, 0x80000000 + 0x106},
		"sansec CKM_SM2_KEY_PAIR_GEN": {sansec.SM2.Generate, 0x80008000 + 1}, "sansec CKM_SM2_SIGN_NO_DER": {sansec.SM2.Sign.Mechanism, 0x80008000 + 0x105},
		"sansec CKM_SM2_CIPHER_DER": {sansec.SM2.Decrypt.Mechanism, 0x80008000 + 0x201}, "sansec CKM_SM4_KEY_GEN": {sansec.SM4.Generate, 0x80000000 + 0x107},
		"sansec CKM_SM4_ECB": {sansec.SM4.ECB, 0x80000000 + 0x108}, "sansec CKM_SM4_CBC": {sansec.SM4.CBC, 0x80000000 + 0x109},
		"koal TCKK_SM2": {koal.SM2.KeyType, 1<<32 - 2147483644}, "koal TCKK_SM4": {koal.SM4.KeyType, 1<<32 - 2147483646},
		"koal TCKM_SM2_KEY_PAIR_GEN": {koal.SM2.Generate, 1<<32 - 2147450879}, "koal TCKM_SM2_SIGN": {koal.SM2.Sign.Mechanism, 1<<32 - 2147450620},
		"koal TCKM_SM2_RAW": {koal.SM2.Decrypt.Mechanism, 1<<32 - 2147450368}, "koal TCKM_SM4_KEY_GEN": {koal.SM4.Generate, 1<<32 - 2147483385},
		"koal TCKM_SM4_ECB": {koal.SM4.ECB, 1<<32 - 2147483384}, "koal TCKM_SM4_CBC": {koal.SM4.CBC, 1<<32 - 2147483383},
		"koal TCKM_SM4_GCM": {koal.SM4.GCM, 1<<32 - 2147483377},
	} {
		if c.have != c.want {
			t.Errorf("%s is 0x%X, want 0x%X", name, c.have, c.want)
		}
	}
}

func mustProfile(t testing.TB, name string) *Profile {
	t.Helper()
	p, err := FindProfile(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAWrongProfileIsRefusedByTheFieldsName(t *testing.T) {
	good, err := builtIn.ReadFile("profiles/fault-module.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ field, from, to string }{
		{"naem", `"name": "fault-module"`, `"naem": "fault-module"`},
		{"name", `"name": "fault-module"`, `"name": "a/b"`},
		{"name", `"name": "fault-module",`, ``},
		{"name", `"name": "fault-module"`, `"name": "` + strings.Repeat("n", 65) + `"`},
		{"source", `"source": "softhsm`, `"sources": "softhsm`},
		{"source", `"source": "softhsm/fault/module/sm.h, the module of this project's tests: Sansec's numbers, with Koal's for SM4-GCM and Thales Luna's for HMAC-SM3"`, `"source": ""`},
		{"assumed[0]", `"sm2": {`, `"assumed": ["sm2.sign.endocing"], "sm2": {`},
		{"sm2.key_type", `"key_type": "0x80000004"`, `"key_type": "80000004"`},
		{"sm2.key_type", `"key_type": "0x80000004"`, `"key_type": 2147483652`},
		{"sm2.key_type", `"key_type": "0x80000004",`, ``},
		{"sm2.generate", `"generate": "0x80008001"`, `"generate": "0x180008001"`},
		{"sm2.generate", `"generate": "0x80008001"`, `"generate": "0x0"`},
		{"sm2.ec_params", `"ec_params": true`, `"ec_params": "yes"`},
		{"sm2.point", `"point": "octet_string"`, `"point": "bitstring"`},
		{"sm2.sign.mechanism", `"mechanism": "0x80008105",`, ``},
		{"sm2.sign.input", `"input": "digest"`, `"input": "hash"`},
		{"sm2.sign.user_id", `"input": "digest"`, `"input": "message"`},
		{"sm2.sign.user_id", `"input": "digest"`, `"input": "digest", "user_id": "default"`},
		{"sm2.sign.encoding", `"encoding": "rs"`, `"encoding": "raw"`},
		{"sm2.sign.hash", `"encoding": "rs"`, `"encoding": "rs", "hash": "SM3"`},
		{"sm2.decrypt.mechanism", `"mechanism": "0x80008200",`, ``},
		{"sm2.decrypt.order", `"order": "C1C3C2"`, `"order": "C3C1C2"`},
		{"sm2.decrypt.prefix", `"order": "C1C3C2",
      "prefix": false`, `"order": "ASN1", "prefix": true`},
		{"sm4.key_type", `"key_type": "0x80000106",`, ``},
		{"sm4.generate", `"generate": "0x80000107",`, ``},
		{"sm4.cbc", `"cbc": "0x80000109",`, ``},
		{"sm4.gcm", `"ecb": "0x80000108",
    "cbc": "0x80000109",
    "gcm": "0x8000010F",
    "gcm_iv_bits": true`, `"cbc": "0x80000109"`},
		{"sm4.gcm_iv_bits", `"gcm": "0x8000010F",`, ``},
		{"hmac_sm3.key_type", `"key_type": "0x80000005",`, ``},
		{"hmac_sm3.generate", `"generate": "0x00000350",`, ``},
		{"hmac_sm3.sign", `,
    "sign": "0x80000B02"`, ``},
		{"sm2", `"hmac_sm3": {`, `"sm2": {`}, // twice
	} {
		text := strings.Replace(string(good), c.from, c.to, 1)
		if text == string(good) {
			t.Fatalf("%s: %q is not there", c.field, c.from)
		}
		_, err := ParseProfile([]byte(text))
		if err == nil || !strings.Contains(err.Error(), c.field) {
			t.Errorf("%q for %q: %v, want an error that names %s", c.to, c.from, err, c.field)
		}
	}
	for _, text := range []string{"", "null", "{}", "[]", string(good) + "{}", `{"name":"x","source":"y"}`} {
		if _, err := ParseProfile([]byte(text)); err == nil {
			t.Errorf("%.40q was accepted", text)
		}
	}
}

func TestAProfileIsFoundByNameOrPath(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.json")
	text, err := builtIn.ReadFile("profiles/sansec.json")
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if p, err := FindProfile(file); err != nil || p.Name != "sansec" {
		t.Errorf("by path: %v", err)
	}
	for _, name := range []string{"", "nobody", "../profiles/sansec", "sansec.json", filepath.Join(t.TempDir(), "none.json")} {
		if _, err := FindProfile(name); err == nil {
			t.Errorf("%q was found", name)
		}
	}
}

// The operations manual has one row for each field, with the words of its
// values.
func TestTheManualHasEveryFieldOfAProfile(t *testing.T) {
	manual, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(manual), "\n## Vendor profiles\n")
	if !ok {
		t.Fatal("there is no section on vendor profiles")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	_, table, _ := strings.Cut(section, "\n| field | meaning |\n")
	var rows []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z0-9_.]+)` \\|").FindAllStringSubmatch(table, -1) {
		rows = append(rows, row[1])
	}
	if want := profileFields(reflect.TypeFor[Profile](), ""); !slices.Equal(rows, want) {
		t.Errorf("the manual has the fields\n%v, want\n%v", rows, want)
	}
	for _, word := range []string{pointOctetString, pointUncompressed, pointCoordinates, signDigest, signMessage, userIDDefault,
		userIDParameter, signatureRS, signatureDER, "C1C3C2", "C1C2C3", "ASN1"} {
		if !strings.Contains(section, "`"+word+"`") {
			t.Errorf("the manual does not explain %q", word)
		}
	}
	for _, name := range ProfileNames() {
		if !strings.Contains(section, "`"+name+"`") {
			t.Errorf("the manual does not name the profile %q", name)
		}
	}
}

func FuzzParseProfile(f *testing.F) {
	for _, name := range ProfileNames() {
		text, err := builtIn.ReadFile("profiles/" + name + ".json")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := ParseProfile(text)
		if err != nil {
			return
		}
		newVendor(p) // must not panic
		if err := (*jsontext.Value)(&text).Compact(); err != nil {
			t.Errorf("accepted what is no JSON: %v", err)
		}
	})
}
