package p11

import (
	"errors"

	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/hsm"
)

// Return values of PKCS#11 v3.0 to v3.2 that miekg/pkcs11 does not name.
const (
	ckrAEADDecryptFailed     = 0x42
	ckrTokenResourceExceeded = 0x201
	ckrOperationCancelFailed = 0x202
	ckrKeyExhausted          = 0x203
)

// classTable says what each return value means. Values that are not in it,
// vendors' above all, are ambiguous: SoftHSM answers a forged ciphertext with
// CKR_GENERAL_ERROR and CloudHSM answers overload with CKR_FUNCTION_FAILED, so
// a code of that kind must never by itself count against a token. A mechanism
// that the token does not know is a lack of the token, not of the request: the
// driver asks for no mechanism that a client names.
var classTable = map[hsm.Class][]uint{
	hsm.ClassRequest: {
		pkcs11.CKR_ARGUMENTS_BAD,
		pkcs11.CKR_DATA_INVALID, pkcs11.CKR_DATA_LEN_RANGE,
		pkcs11.CKR_ENCRYPTED_DATA_INVALID, pkcs11.CKR_ENCRYPTED_DATA_LEN_RANGE,
		ckrAEADDecryptFailed,
		pkcs11.CKR_SIGNATURE_INVALID, pkcs11.CKR_SIGNATURE_LEN_RANGE,
		pkcs11.CKR_MECHANISM_PARAM_INVALID,
		pkcs11.CKR_KEY_SIZE_RANGE, pkcs11.CKR_KEY_TYPE_INCONSISTENT,
		pkcs11.CKR_KEY_FUNCTION_NOT_PERMITTED, pkcs11.CKR_KEY_NOT_WRAPPABLE,
		pkcs11.CKR_KEY_UNEXTRACTABLE, pkcs11.CKR_KEY_INDIGESTIBLE,
		ckrKeyExhausted, pkcs11.CKR_PUBLIC_KEY_INVALID,
		pkcs11.CKR_WRAPPED_KEY_INVALID, pkcs11.CKR_WRAPPED_KEY_LEN_RANGE,
		pkcs11.CKR_WRAPPING_KEY_SIZE_RANGE, pkcs11.CKR_UNWRAPPING_KEY_SIZE_RANGE,
		pkcs11.CKR_TEMPLATE_INCOMPLETE, pkcs11.CKR_TEMPLATE_INCONSISTENT,
		pkcs11.CKR_ATTRIBUTE_READ_ONLY, pkcs11.CKR_ATTRIBUTE_SENSITIVE,
		pkcs11.CKR_ATTRIBUTE_TYPE_INVALID, pkcs11.CKR_ATTRIBUTE_VALUE_INVALID,
		pkcs11.CKR_ACTION_PROHIBITED,
		pkcs11.CKR_CURVE_NOT_SUPPORTED, pkcs11.CKR_DOMAIN_PARAMS_INVALID,
		pkcs11.CKR_SESSION_READ_ONLY,
	},
	hsm.ClassStaleObject: {
		pkcs11.CKR_OBJECT_HANDLE_INVALID, pkcs11.CKR_KEY_HANDLE_INVALID,
	},
	hsm.ClassRootGone: {
		pkcs11.CKR_WRAPPING_KEY_HANDLE_INVALID, pkcs11.CKR_UNWRAPPING_KEY_HANDLE_INVALID,
		pkcs11.CKR_WRAPPING_KEY_TYPE_INCONSISTENT, pkcs11.CKR_UNWRAPPING_KEY_TYPE_INCONSISTENT,
	},
	hsm.ClassSession: {
		pkcs11.CKR_SESSION_HANDLE_INVALID, pkcs11.CKR_SESSION_CLOSED,
		pkcs11.CKR_OPERATION_ACTIVE, pkcs11.CKR_OPERATION_NOT_INITIALIZED,
		ckrOperationCancelFailed,
	},
	hsm.ClassLogin: {
		pkcs11.CKR_USER_NOT_LOGGED_IN, pkcs11.CKR_USER_ALREADY_LOGGED_IN,
		pkcs11.CKR_USER_ANOTHER_ALREADY_LOGGED_IN, pkcs11.CKR_USER_TOO_MANY_TYPES,
	},
	hsm.ClassPIN: {
		pkcs11.CKR_PIN_INCORRECT, pkcs11.CKR_PIN_INVALID, pkcs11.CKR_PIN_LEN_RANGE,
		pkcs11.CKR_PIN_EXPIRED, pkcs11.CKR_PIN_LOCKED, pkcs11.CKR_PIN_TOO_WEAK,
		pkcs11.CKR_USER_PIN_NOT_INITIALIZED,
	},
	hsm.ClassTokenDown: {
		pkcs11.CKR_DEVICE_ERROR, pkcs11.CKR_DEVICE_REMOVED,
		pkcs11.CKR_TOKEN_NOT_PRESENT, pkcs11.CKR_TOKEN_NOT_RECOGNIZED,
		pkcs11.CKR_SLOT_ID_INVALID, pkcs11.CKR_FIPS_SELF_TEST_FAILED,
		pkcs11.CKR_CRYPTOKI_NOT_INITIALIZED, pkcs11.CKR_CRYPTOKI_ALREADY_INITIALIZED,
		pkcs11.CKR_CANT_LOCK, pkcs11.CKR_NEED_TO_CREATE_THREADS,
		pkcs11.CKR_LIBRARY_LOAD_FAILED,
	},
	hsm.ClassCapacity: {
		pkcs11.CKR_SESSION_COUNT, pkcs11.CKR_DEVICE_MEMORY, ckrTokenResourceExceeded,
	},
	hsm.ClassUnsupported: {
		pkcs11.CKR_MECHANISM_INVALID, pkcs11.CKR_FUNCTION_NOT_SUPPORTED,
		pkcs11.CKR_RANDOM_NO_RNG,
	},
	hsm.ClassAmbiguous: {
		pkcs11.CKR_GENERAL_ERROR, pkcs11.CKR_FUNCTION_FAILED,
		pkcs11.CKR_FUNCTION_CANCELED, pkcs11.CKR_HOST_MEMORY,
	},
}

var classByCode = func() map[uint]hsm.Class {
	m := make(map[uint]hsm.Class)
	for class, codes := range classTable {
		for _, code := range codes {
			m[code] = class
		}
	}
	return m
}()

// classOf returns the class of a return value other than CKR_OK.
func classOf(code uint) hsm.Class {
	if class, ok := classByCode[code]; ok {
		return class
	}
	return hsm.ClassAmbiguous
}

// codeError is the error of a function that returned code.
func codeError(call string, code uint) *hsm.Error {
	return &hsm.Error{Class: classOf(code), Call: call, Code: uint64(code)}
}

// moduleError translates the error of a miekg/pkcs11 function; nil stays nil.
func moduleError(call string, err error) error {
	if err == nil {
		return nil
	}
	if code, ok := errors.AsType[pkcs11.Error](err); ok {
		return codeError(call, uint(code))
	}
	return &hsm.Error{Class: hsm.ClassAmbiguous, Call: call, Err: err}
}

// driverError is an error that the driver found by itself.
func driverError(class hsm.Class, call, text string) *hsm.Error {
	return &hsm.Error{Class: class, Call: call, Err: errors.New(text)}
}
