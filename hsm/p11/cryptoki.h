/*
 * The part of PKCS#11 v2.40 that the hot path calls, written from the
 * standard ("PKCS #11 Cryptographic Token Interface Base Specification" and
 * "Current Mechanisms Specification", OASIS, 2015), and the calls of this
 * package into it. Names of the standard keep its spelling.
 *
 * On Unix no structure is packed and CK_ULONG is unsigned long.
 */
#ifndef SLUICE_CRYPTOKI_H
#define SLUICE_CRYPTOKI_H

#include <stddef.h>

typedef unsigned char CK_BYTE;
typedef unsigned long CK_ULONG;
typedef CK_ULONG CK_RV;
typedef CK_ULONG CK_SESSION_HANDLE;
typedef CK_ULONG CK_OBJECT_HANDLE;

typedef struct CK_VERSION {
	CK_BYTE major;
	CK_BYTE minor;
} CK_VERSION;

typedef struct CK_ATTRIBUTE {
	CK_ULONG type;
	void *pValue;
	CK_ULONG ulValueLen;
} CK_ATTRIBUTE;

typedef struct CK_MECHANISM {
	CK_ULONG mechanism;
	void *pParameter;
	CK_ULONG ulParameterLen;
} CK_MECHANISM;

/* With ulIvBits, as in the header files of v2.40; its text leaves it out. */
typedef struct CK_GCM_PARAMS {
	CK_BYTE *pIv;
	CK_ULONG ulIvLen;
	CK_ULONG ulIvBits;
	CK_BYTE *pAAD;
	CK_ULONG ulAADLen;
	CK_ULONG ulTagBits;
} CK_GCM_PARAMS;

/* The same as the text of v2.40 has it, and some vendors. */
typedef struct CK_GCM_PARAMS_TEXT {
	CK_BYTE *pIv;
	CK_ULONG ulIvLen;
	CK_BYTE *pAAD;
	CK_ULONG ulAADLen;
	CK_ULONG ulTagBits;
} CK_GCM_PARAMS_TEXT;

typedef struct CK_RSA_PKCS_PSS_PARAMS {
	CK_ULONG hashAlg;
	CK_ULONG mgf;
	CK_ULONG sLen;
} CK_RSA_PKCS_PSS_PARAMS;

typedef struct CK_RSA_PKCS_OAEP_PARAMS {
	CK_ULONG hashAlg;
	CK_ULONG mgf;
	CK_ULONG source;
	void *pSourceData;
	CK_ULONG ulSourceDataLen;
} CK_RSA_PKCS_OAEP_PARAMS;

typedef struct CK_ECDH1_DERIVE_PARAMS {
	CK_ULONG kdf;
	CK_ULONG ulSharedDataLen;
	CK_BYTE *pSharedData;
	CK_ULONG ulPublicDataLen;
	CK_BYTE *pPublicData;
} CK_ECDH1_DERIVE_PARAMS;

typedef struct CK_C_INITIALIZE_ARGS {
	void *CreateMutex;
	void *DestroyMutex;
	void *LockMutex;
	void *UnlockMutex;
	CK_ULONG flags;
	void *pReserved;
} CK_C_INITIALIZE_ARGS;

enum {
	CKF_OS_LOCKING_OK = 0x2,
	CKR_HOST_MEMORY = 0x2,
	CKR_ARGUMENTS_BAD = 0x7,
	CKR_OPERATION_NOT_INITIALIZED = 0x91,
	CKZ_DATA_SPECIFIED = 0x1,
	CKD_NULL = 0x1,
	CKO_SECRET_KEY = 0x4,
	CKK_GENERIC_SECRET = 0x10,
	CKA_CLASS = 0x0,
	CKA_TOKEN = 0x1,
	CKA_PRIVATE = 0x2,
	CKA_VALUE = 0x11,
	CKA_KEY_TYPE = 0x100,
	CKA_SENSITIVE = 0x103,
	CKA_ENCRYPT = 0x104,
	CKA_DECRYPT = 0x105,
	CKA_WRAP = 0x106,
	CKA_UNWRAP = 0x107,
	CKA_SIGN = 0x108,
	CKA_VERIFY = 0x10A,
	CKA_DERIVE = 0x10C,
	CKA_VALUE_LEN = 0x161,
	CKA_EXTRACTABLE = 0x162
};

/* An entry of the function list that this package does not call itself. */
typedef CK_RV (*CK_UNUSED)(void);

typedef CK_RV (*CK_INIT)(CK_SESSION_HANDLE, CK_MECHANISM *, CK_OBJECT_HANDLE);
typedef CK_RV (*CK_TRANSFORM)(CK_SESSION_HANDLE, CK_BYTE *, CK_ULONG, CK_BYTE *, CK_ULONG *);
typedef CK_RV (*CK_FINAL)(CK_SESSION_HANDLE, CK_BYTE *, CK_ULONG *);

typedef struct CK_FUNCTION_LIST {
	CK_VERSION version;
	CK_RV (*C_Initialize)(void *);
	CK_UNUSED C_Finalize, C_GetInfo, C_GetFunctionList, C_GetSlotList, C_GetSlotInfo,
		C_GetTokenInfo, C_GetMechanismList, C_GetMechanismInfo, C_InitToken, C_InitPIN,
		C_SetPIN, C_OpenSession, C_CloseSession, C_CloseAllSessions, C_GetSessionInfo,
		C_GetOperationState, C_SetOperationState;
	CK_RV (*C_Login)(CK_SESSION_HANDLE, CK_ULONG, CK_BYTE *, CK_ULONG);
	CK_UNUSED C_Logout;
	CK_RV (*C_CreateObject)(CK_SESSION_HANDLE, CK_ATTRIBUTE *, CK_ULONG, CK_OBJECT_HANDLE *);
	CK_UNUSED C_CopyObject;
	CK_RV (*C_DestroyObject)(CK_SESSION_HANDLE, CK_OBJECT_HANDLE);
	CK_UNUSED C_GetObjectSize;
	CK_RV (*C_GetAttributeValue)(CK_SESSION_HANDLE, CK_OBJECT_HANDLE, CK_ATTRIBUTE *, CK_ULONG);
	CK_UNUSED C_SetAttributeValue, C_FindObjectsInit, C_FindObjects, C_FindObjectsFinal;
	CK_INIT C_EncryptInit;
	CK_TRANSFORM C_Encrypt, C_EncryptUpdate;
	CK_FINAL C_EncryptFinal;
	CK_INIT C_DecryptInit;
	CK_TRANSFORM C_Decrypt, C_DecryptUpdate;
	CK_FINAL C_DecryptFinal;
	CK_UNUSED C_DigestInit, C_Digest, C_DigestUpdate, C_DigestKey, C_DigestFinal;
	CK_INIT C_SignInit;
	CK_TRANSFORM C_Sign;
	CK_UNUSED C_SignUpdate, C_SignFinal, C_SignRecoverInit, C_SignRecover, C_VerifyInit,
		C_Verify, C_VerifyUpdate, C_VerifyFinal, C_VerifyRecoverInit, C_VerifyRecover,
		C_DigestEncryptUpdate, C_DecryptDigestUpdate, C_SignEncryptUpdate,
		C_DecryptVerifyUpdate, C_GenerateKey, C_GenerateKeyPair;
	CK_RV (*C_WrapKey)(CK_SESSION_HANDLE, CK_MECHANISM *, CK_OBJECT_HANDLE, CK_OBJECT_HANDLE,
		CK_BYTE *, CK_ULONG *);
	CK_UNUSED C_UnwrapKey;
	CK_RV (*C_DeriveKey)(CK_SESSION_HANDLE, CK_MECHANISM *, CK_OBJECT_HANDLE, CK_ATTRIBUTE *,
		CK_ULONG, CK_OBJECT_HANDLE *);
	CK_UNUSED C_SeedRandom;
	CK_RV (*C_GenerateRandom)(CK_SESSION_HANDLE, CK_BYTE *, CK_ULONG);
	CK_UNUSED C_GetFunctionStatus, C_CancelFunction, C_WaitForSlotEvent;
} CK_FUNCTION_LIST;

/* What a call does: the functions of the module that it runs, in order. */
enum {
	SLUICE_SIGN,    /* C_SignInit, C_Sign */
	SLUICE_ENCRYPT, /* C_EncryptInit, C_Encrypt */
	SLUICE_DECRYPT, /* C_DecryptInit, C_Decrypt */
	SLUICE_RANDOM,  /* C_GenerateRandom */
	SLUICE_WRAP,    /* C_WrapKey */
	SLUICE_AGREE,   /* C_DeriveKey, C_GetAttributeValue, C_DestroyObject */
	SLUICE_EXPAND,  /* C_SignInit, C_Sign for every block */
	SLUICE_KWP,     /* C_EncryptInit, C_EncryptUpdate for every block, C_EncryptFinal */
	SLUICE_UNKWP,   /* C_DecryptInit, C_DecryptUpdate for every block, C_DecryptFinal */
	SLUICE_IMPORT   /* C_CreateObject, C_WrapKey, C_DestroyObject */
};

/* Which parameter the call's mechanism takes. */
enum {
	SLUICE_NO_PARAMETER,
	SLUICE_GCM,
	SLUICE_GCM_TEXT,
	SLUICE_OCTETS, /* the bytes of aad */
	SLUICE_CBC,
	SLUICE_PSS,
	SLUICE_OAEP
};

/*
 * One operation: what sluice_run is told, then what it answers. It lies in
 * the session's own memory, as does everything it points to, so a module that
 * writes late or too far never reaches memory of anyone else.
 */
typedef struct sluice_call {
	const CK_FUNCTION_LIST *module;
	CK_SESSION_HANDLE session;
	CK_ULONG operation;
	CK_ULONG mechanism;
	CK_ULONG parameter;
	CK_OBJECT_HANDLE key;
	CK_OBJECT_HANDLE wrapped; /* SLUICE_WRAP: the key to wrap under key */
	CK_ULONG hash, mgf;       /* PSS, OAEP */
	CK_ULONG salt_length;     /* PSS, bytes */
	CK_ULONG block;           /* SLUICE_EXPAND: bytes of a block of output */
	CK_BYTE iv[16];           /* GCM: as told, then as the module left it; CBC */
	CK_ULONG iv_length;
	CK_BYTE *aad;
	CK_ULONG aad_length;
	CK_BYTE *input;
	CK_ULONG input_length;
	CK_ATTRIBUTE *attributes; /* SLUICE_IMPORT: the key, inside of input */
	CK_ULONG attribute_count;
	CK_BYTE *output;
	CK_ULONG output_length; /* room, then bytes written */
	CK_ULONG output_area;   /* bytes that the session has for output at all */

	CK_RV result;
	CK_ULONG step;  /* index of the function that result is of */
	CK_ULONG stuck; /* an operation may still be active in the session */
} sluice_call;

/*
 * Runs the operation and never asks for a length first. Objects that it makes
 * it destroys, on failure too. Input and additional data are wiped; so is the
 * room for output unless result is CKR_OK.
 */
void sluice_run(sluice_call *call);

/* Loads a module. On failure returns NULL and the loader's reason. */
const CK_FUNCTION_LIST *sluice_load(const char *path, char *reason, size_t reason_size);

/*
 * Initialises a module while the environment has the given variables. names
 * and values hold count NUL-terminated strings each, one after the other.
 */
CK_RV sluice_initialize(const CK_FUNCTION_LIST *module, const char *names, const char *values,
	size_t count, void *reserved);

CK_RV sluice_login(const CK_FUNCTION_LIST *module, CK_SESSION_HANDLE session, CK_ULONG user,
	CK_BYTE *pin, CK_ULONG pin_length);

#endif
