/*
 * The part of PKCS#11 v2.40 that the module speaks, written from the standard
 * ("PKCS #11 Cryptographic Token Interface Base Specification" and "Current
 * Mechanisms Specification", OASIS, 2015). Only the standard's names and
 * numbers are used, with its spelling; on Unix no structure is packed and
 * CK_ULONG is unsigned long.
 */
#ifndef SLUICE_FAULT_CRYPTOKI_H
#define SLUICE_FAULT_CRYPTOKI_H

typedef unsigned char CK_BYTE;
typedef unsigned long CK_ULONG;
typedef CK_ULONG CK_RV;

typedef struct {
	CK_ULONG type;
	void *value;
	CK_ULONG length;
} CK_ATTRIBUTE;

typedef struct {
	CK_ULONG mechanism;
	void *parameter;
	CK_ULONG length;
} CK_MECHANISM;

typedef struct {
	CK_ULONG slot, state, flags, device_error;
} CK_SESSION_INFO;

typedef struct {
	CK_ULONG min_key_size, max_key_size, flags;
} CK_MECHANISM_INFO;

/* With the bits of the IV, as in the header files of v2.40. */
typedef struct {
	CK_BYTE *iv;
	CK_ULONG iv_length, iv_bits;
	CK_BYTE *aad;
	CK_ULONG aad_length, tag_bits;
} CK_GCM_PARAMS;

/* The same as the text of v2.40 has it. */
typedef struct {
	CK_BYTE *iv;
	CK_ULONG iv_length;
	CK_BYTE *aad;
	CK_ULONG aad_length, tag_bits;
} CK_GCM_PARAMS_TEXT;

typedef struct {
	CK_ULONG kdf, shared_length;
	CK_BYTE *shared;
	CK_ULONG public_length;
	CK_BYTE *public;
} CK_ECDH1_DERIVE_PARAMS;

#define CK_UNAVAILABLE_INFORMATION (~0UL)

enum {
	CKR_OK = 0x0,
	CKR_HOST_MEMORY = 0x2,
	CKR_GENERAL_ERROR = 0x5,
	CKR_FUNCTION_FAILED = 0x6,
	CKR_ARGUMENTS_BAD = 0x7,
	CKR_ATTRIBUTE_READ_ONLY = 0x10,
	CKR_ATTRIBUTE_SENSITIVE = 0x11,
	CKR_ATTRIBUTE_TYPE_INVALID = 0x12,
	CKR_ATTRIBUTE_VALUE_INVALID = 0x13,
	CKR_ACTION_PROHIBITED = 0x1B,
	CKR_DATA_LEN_RANGE = 0x21,
	CKR_ENCRYPTED_DATA_INVALID = 0x40,
	CKR_ENCRYPTED_DATA_LEN_RANGE = 0x41,
	CKR_KEY_HANDLE_INVALID = 0x60,
	CKR_KEY_SIZE_RANGE = 0x62,
	CKR_KEY_TYPE_INCONSISTENT = 0x63,
	CKR_KEY_FUNCTION_NOT_PERMITTED = 0x68,
	CKR_KEY_NOT_WRAPPABLE = 0x69,
	CKR_KEY_UNEXTRACTABLE = 0x6A,
	CKR_MECHANISM_INVALID = 0x70,
	CKR_MECHANISM_PARAM_INVALID = 0x71,
	CKR_OBJECT_HANDLE_INVALID = 0x82,
	CKR_OPERATION_ACTIVE = 0x90,
	CKR_SESSION_HANDLE_INVALID = 0xB3,
	CKR_TEMPLATE_INCOMPLETE = 0xD0,
	CKR_TEMPLATE_INCONSISTENT = 0xD1,
	CKR_WRAPPED_KEY_INVALID = 0x110,
	CKR_WRAPPING_KEY_TYPE_INCONSISTENT = 0x115,
	CKR_BUFFER_TOO_SMALL = 0x150,

	CKS_RO_USER_FUNCTIONS = 1,
	CKS_RW_USER_FUNCTIONS = 3,

	CKF_ENCRYPT = 0x100,
	CKF_DECRYPT = 0x200,
	CKF_DIGEST = 0x400,
	CKF_SIGN = 0x800,
	CKF_GENERATE = 0x8000,
	CKF_GENERATE_KEY_PAIR = 0x10000,

	CKO_PUBLIC_KEY = 0x2,
	CKO_PRIVATE_KEY = 0x3,
	CKO_SECRET_KEY = 0x4,

	CKK_GENERIC_SECRET = 0x10,

	CKA_CLASS = 0x0,
	CKA_TOKEN = 0x1,
	CKA_PRIVATE = 0x2,
	CKA_LABEL = 0x3,
	CKA_VALUE = 0x11,
	CKA_KEY_TYPE = 0x100,
	CKA_ID = 0x102,
	CKA_SENSITIVE = 0x103,
	CKA_ENCRYPT = 0x104, /* the first of the uses */
	CKA_DECRYPT = 0x105,
	CKA_SIGN = 0x108,
	CKA_SIGN_RECOVER = 0x109,
	CKA_VERIFY_RECOVER = 0x10B,
	CKA_DERIVE = 0x10C, /* the last */
	CKA_VALUE_LEN = 0x161,
	CKA_EXTRACTABLE = 0x162,
	CKA_MODIFIABLE = 0x170,
	CKA_EC_PARAMS = 0x180,
	CKA_EC_POINT = 0x181,

	CKM_GENERIC_SECRET_KEY_GEN = 0x350,
	CKM_ECDH1_DERIVE = 0x1050,
	CKM_AES_KEY_WRAP_PAD = 0x210A,
	CKM_AES_KEY_WRAP_KWP = 0x210B,
	CKD_NULL = 1
};

typedef void (*any_function)(void);

/* The places of CK_FUNCTION_LIST (base specification, section 3.6). */
enum {
	PLACE_C_Initialize = 0,
	PLACE_C_Finalize = 1,
	PLACE_C_GetFunctionList = 3,
	PLACE_C_GetSlotList = 4,
	PLACE_C_GetTokenInfo = 6,
	PLACE_C_GetMechanismList = 7,
	PLACE_C_GetMechanismInfo = 8,
	PLACE_C_OpenSession = 12,
	PLACE_C_CloseSession = 13,
	PLACE_C_CloseAllSessions = 14,
	PLACE_C_GetSessionInfo = 15,
	PLACE_C_Login = 18,
	PLACE_C_Logout = 19,
	PLACE_C_CreateObject = 20,
	PLACE_C_CopyObject = 21,
	PLACE_C_DestroyObject = 22,
	PLACE_C_GetAttributeValue = 24,
	PLACE_C_SetAttributeValue = 25,
	PLACE_C_FindObjectsInit = 26,
	PLACE_C_FindObjects = 27,
	PLACE_C_FindObjectsFinal = 28,
	PLACE_C_EncryptInit = 29,
	PLACE_C_Encrypt = 30,
	PLACE_C_DecryptInit = 33,
	PLACE_C_Decrypt = 34,
	PLACE_C_DigestInit = 37,
	PLACE_C_Digest = 38,
	PLACE_C_SignInit = 42,
	PLACE_C_Sign = 43,
	PLACE_C_VerifyInit = 48,
	PLACE_C_Verify = 49,
	PLACE_C_GenerateKey = 58,
	PLACE_C_GenerateKeyPair = 59,
	PLACE_C_WrapKey = 60,
	PLACE_C_UnwrapKey = 61,
	PLACE_C_DeriveKey = 62,
	PLACE_C_GenerateRandom = 64,
	PLACES = 68
};

typedef struct {
	unsigned char version[2];
	any_function place[PLACES];
} function_list;

#endif
