package p11

import (
	"errors"
	"fmt"
	"testing"

	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/hsm"
)

// The meaning of every return value on which a node acts, with the number of
// the standard.
func TestReturnValuesHaveTheirClass(t *testing.T) {
	for _, c := range []struct {
		name  string
		code  uint
		class hsm.Class
	}{
		{"CKR_ARGUMENTS_BAD", 0x7, hsm.ClassRequest},
		{"CKR_ATTRIBUTE_READ_ONLY", 0x10, hsm.ClassRequest},
		{"CKR_ATTRIBUTE_SENSITIVE", 0x11, hsm.ClassRequest},
		{"CKR_ATTRIBUTE_TYPE_INVALID", 0x12, hsm.ClassRequest},
		{"CKR_ATTRIBUTE_VALUE_INVALID", 0x13, hsm.ClassRequest},
		{"CKR_ACTION_PROHIBITED", 0x1B, hsm.ClassRequest},
		{"CKR_DATA_INVALID", 0x20, hsm.ClassRequest},
		{"CKR_DATA_LEN_RANGE", 0x21, hsm.ClassRequest},
		{"CKR_ENCRYPTED_DATA_INVALID", 0x40, hsm.ClassRequest},
		{"CKR_ENCRYPTED_DATA_LEN_RANGE", 0x41, hsm.ClassRequest},
		{"CKR_AEAD_DECRYPT_FAILED", 0x42, hsm.ClassRequest},
		{"CKR_KEY_SIZE_RANGE", 0x62, hsm.ClassRequest},
		{"CKR_KEY_TYPE_INCONSISTENT", 0x63, hsm.ClassRequest},
		{"CKR_KEY_FUNCTION_NOT_PERMITTED", 0x68, hsm.ClassRequest},
		{"CKR_KEY_NOT_WRAPPABLE", 0x69, hsm.ClassRequest},
		{"CKR_KEY_UNEXTRACTABLE", 0x6A, hsm.ClassRequest},
		{"CKR_MECHANISM_PARAM_INVALID", 0x71, hsm.ClassRequest},
		{"CKR_SIGNATURE_INVALID", 0xC0, hsm.ClassRequest},
		{"CKR_SIGNATURE_LEN_RANGE", 0xC1, hsm.ClassRequest},
		{"CKR_TEMPLATE_INCOMPLETE", 0xD0, hsm.ClassRequest},
		{"CKR_TEMPLATE_INCONSISTENT", 0xD1, hsm.ClassRequest},
		{"CKR_UNWRAPPING_KEY_SIZE_RANGE", 0xF1, hsm.ClassRequest},
		{"CKR_WRAPPED_KEY_INVALID", 0x110, hsm.ClassRequest},
		{"CKR_WRAPPED_KEY_LEN_RANGE", 0x112, hsm.ClassRequest},
		{"CKR_WRAPPING_KEY_SIZE_RANGE", 0x114, hsm.ClassRequest},
		{"CKR_DOMAIN_PARAMS_INVALID", 0x130, hsm.ClassRequest},
		{"CKR_CURVE_NOT_SUPPORTED", 0x140, hsm.ClassRequest},
		{"CKR_KEY_EXHAUSTED", 0x203, hsm.ClassRequest},

		{"CKR_KEY_HANDLE_INVALID", 0x60, hsm.ClassStaleObject},
		{"CKR_OBJECT_HANDLE_INVALID", 0x82, hsm.ClassStaleObject},

		{"CKR_UNWRAPPING_KEY_HANDLE_INVALID", 0xF0, hsm.ClassRootGone},
		{"CKR_UNWRAPPING_KEY_TYPE_INCONSISTENT", 0xF2, hsm.ClassRootGone},
		{"CKR_WRAPPING_KEY_HANDLE_INVALID", 0x113, hsm.ClassRootGone},
		{"CKR_WRAPPING_KEY_TYPE_INCONSISTENT", 0x115, hsm.ClassRootGone},

		{"CKR_OPERATION_ACTIVE", 0x90, hsm.ClassSession},
		{"CKR_OPERATION_NOT_INITIALIZED", 0x91, hsm.ClassSession},
		{"CKR_SESSION_CLOSED", 0xB0, hsm.ClassSession},
		{"CKR_SESSION_HANDLE_INVALID", 0xB3, hsm.ClassSession},
		{"CKR_OPERATION_CANCEL_FAILED", 0x202, hsm.ClassSession},

		{"CKR_USER_ALREADY_LOGGED_IN", 0x100, hsm.ClassLogin},
		{"CKR_USER_NOT_LOGGED_IN", 0x101, hsm.ClassLogin},
		{"CKR_USER_ANOTHER_ALREADY_LOGGED_IN", 0x104, hsm.ClassLogin},
		{"CKR_USER_TOO_MANY_TYPES", 0x105, hsm.ClassLogin},

		{"CKR_PIN_INCORRECT", 0xA0, hsm.ClassPIN},
		{"CKR_PIN_INVALID", 0xA1, hsm.ClassPIN},
		{"CKR_PIN_LEN_RANGE", 0xA2, hsm.ClassPIN},
		{"CKR_PIN_EXPIRED", 0xA3, hsm.ClassPIN},
		{"CKR_PIN_LOCKED", 0xA4, hsm.ClassPIN},
		{"CKR_USER_PIN_NOT_INITIALIZED", 0x102, hsm.ClassPIN},

		{"CKR_SLOT_ID_INVALID", 0x3, hsm.ClassTokenDown},
		{"CKR_CANT_LOCK", 0xA, hsm.ClassTokenDown},
		{"CKR_DEVICE_ERROR", 0x30, hsm.ClassTokenDown},
		{"CKR_DEVICE_REMOVED", 0x32, hsm.ClassTokenDown},
		{"CKR_TOKEN_NOT_PRESENT", 0xE0, hsm.ClassTokenDown},
		{"CKR_TOKEN_NOT_RECOGNIZED", 0xE1, hsm.ClassTokenDown},
		{"CKR_CRYPTOKI_NOT_INITIALIZED", 0x190, hsm.ClassTokenDown},
		{"CKR_CRYPTOKI_ALREADY_INITIALIZED", 0x191, hsm.ClassTokenDown},

		{"CKR_DEVICE_MEMORY", 0x31, hsm.ClassCapacity},
		{"CKR_SESSION_COUNT", 0xB1, hsm.ClassCapacity},
		{"CKR_TOKEN_RESOURCE_EXCEEDED", 0x201, hsm.ClassCapacity},

		{"CKR_FUNCTION_NOT_SUPPORTED", 0x54, hsm.ClassUnsupported},
		{"CKR_MECHANISM_INVALID", 0x70, hsm.ClassUnsupported},
		{"CKR_RANDOM_NO_RNG", 0x121, hsm.ClassUnsupported},

		{"CKR_HOST_MEMORY", 0x2, hsm.ClassAmbiguous},
		{"CKR_GENERAL_ERROR", 0x5, hsm.ClassAmbiguous},
		{"CKR_FUNCTION_FAILED", 0x6, hsm.ClassAmbiguous},
		{"CKR_FUNCTION_CANCELED", 0x50, hsm.ClassAmbiguous},
		{"CKR_BUFFER_TOO_SMALL", 0x150, hsm.ClassAmbiguous},
		{"a vendor's", 0x8000001A, hsm.ClassAmbiguous},
		{"a number without a name", 0x7FFF, hsm.ClassAmbiguous},
	} {
		t.Run(c.name, func(t *testing.T) {
			for name, err := range map[string]error{
				"hot path":       codeError("C_Sign", c.code),
				"administration": moduleError("C_Sign", pkcs11.Error(c.code)),
				"wrapped":        moduleError("C_Sign", fmt.Errorf("while testing: %w", pkcs11.Error(c.code))),
			} {
				e, ok := errors.AsType[*hsm.Error](err)
				if !ok || e.Class != c.class || e.Code != uint64(c.code) || e.Call != "C_Sign" {
					t.Errorf("%s: %#v", name, err)
				}
			}
		})
	}
}

func TestNoReturnValueHasTwoClasses(t *testing.T) {
	seen := make(map[uint]hsm.Class)
	for class, codes := range classTable {
		for _, code := range codes {
			if other, ok := seen[code]; ok {
				t.Errorf("0x%x is %s and %s", code, class, other)
			}
			seen[code] = class
		}
	}
	if moduleError("C_Sign", nil) != nil {
		t.Error("success became an error")
	}
	if c := hsm.ClassOf(moduleError("C_Sign", errors.New("no return value"))); c != hsm.ClassAmbiguous {
		t.Errorf("an error without a return value is %s", c)
	}
}
