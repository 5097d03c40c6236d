#define _DEFAULT_SOURCE /* explicit_bzero */
#include "cryptoki.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * The environment belongs to the process, and modules such as SoftHSM read
 * their configuration's path from it in C_Initialize: whoever sets it for one
 * module must keep others from doing the same until that module has read it.
 * The softhsm package does so too, and neither package imports the other, so
 * the lock is this symbol, defined weakly in both: the linker makes one.
 */
pthread_mutex_t sluice_environment_lock __attribute__((weak)) = PTHREAD_MUTEX_INITIALIZER;

const CK_FUNCTION_LIST *sluice_load(const char *path, char *reason, size_t reason_size)
{
	CK_RV (*get_function_list)(CK_FUNCTION_LIST **);
	CK_FUNCTION_LIST *list = NULL;
	/* Never closed: modules start threads and leave handlers behind. */
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	const char *failure = NULL;

	if (library == NULL) {
		failure = dlerror(); /* of this thread */
	} else {
		*(void **)&get_function_list = dlsym(library, "C_GetFunctionList");
		if (get_function_list == NULL)
			failure = "not a PKCS#11 module: no C_GetFunctionList";
		else if (get_function_list(&list) != 0 || list == NULL)
			failure = "C_GetFunctionList failed";
		else if (list->version.major < 2)
			failure = "a PKCS#11 module older than version 2";
	}
	if (failure != NULL) {
		snprintf(reason, reason_size, "%s", failure);
		return NULL;
	}
	return list;
}

CK_RV sluice_initialize(const CK_FUNCTION_LIST *module, const char *names, const char *values,
	size_t count, void *reserved)
{
	CK_C_INITIALIZE_ARGS args = { .flags = CKF_OS_LOCKING_OK, .pReserved = reserved };
	CK_RV rv = 0;

	pthread_mutex_lock(&sluice_environment_lock);
	for (; count > 0; count--) {
		if (setenv(names, values, 1) != 0)
			rv = CKR_HOST_MEMORY;
		names += strlen(names) + 1;
		values += strlen(values) + 1;
	}
	if (rv == 0)
		rv = module->C_Initialize(&args);
	pthread_mutex_unlock(&sluice_environment_lock);
	return rv;
}

CK_RV sluice_login(const CK_FUNCTION_LIST *module, CK_SESSION_HANDLE session, CK_ULONG user,
	CK_BYTE *pin, CK_ULONG pin_length)
{
	return module->C_Login(session, user, pin, pin_length);
}

/*
 * Ends an operation that a failed call may have left active. Cryptoki before
 * version 3 cannot cancel one, but every call of the operation's last function
 * with enough room ends it, whatever its outcome, and tells by
 * CKR_OPERATION_NOT_INITIALIZED that none was active.
 */
static int drain(sluice_call *call, CK_TRANSFORM transform)
{
	CK_RV rv;
	int tries;

	for (tries = 0; tries < 2; tries++) {
		CK_ULONG length = call->output_area;
		rv = transform(call->session, call->input, 0, call->output, &length);
		if (rv == CKR_OPERATION_NOT_INITIALIZED)
			return 0;
		if (rv == 0 && length <= call->output_area)
			explicit_bzero(call->output, length);
	}
	return 1;
}

static void run_transform(sluice_call *call, CK_INIT init, CK_TRANSFORM transform)
{
	union {
		CK_GCM_PARAMS gcm;
		CK_GCM_PARAMS_TEXT gcm_text;
		CK_RSA_PKCS_PSS_PARAMS pss;
		CK_RSA_PKCS_OAEP_PARAMS oaep;
	} parameter;
	CK_MECHANISM mechanism = { call->mechanism, NULL, 0 };

	memset(&parameter, 0, sizeof parameter);
	switch (call->parameter) {
	case SLUICE_GCM:
		parameter.gcm.pIv = call->iv;
		parameter.gcm.ulIvLen = call->iv_length;
		parameter.gcm.ulIvBits = call->iv_length * 8;
		/* Never NULL, even when empty: SoftHSM takes its address. */
		parameter.gcm.pAAD = call->aad;
		parameter.gcm.ulAADLen = call->aad_length;
		parameter.gcm.ulTagBits = 128;
		mechanism.pParameter = &parameter.gcm;
		mechanism.ulParameterLen = sizeof parameter.gcm;
		break;
	case SLUICE_GCM_TEXT:
		parameter.gcm_text.pIv = call->iv;
		parameter.gcm_text.ulIvLen = call->iv_length;
		parameter.gcm_text.pAAD = call->aad;
		parameter.gcm_text.ulAADLen = call->aad_length;
		parameter.gcm_text.ulTagBits = 128;
		mechanism.pParameter = &parameter.gcm_text;
		mechanism.ulParameterLen = sizeof parameter.gcm_text;
		break;
	case SLUICE_OCTETS:
		mechanism.pParameter = call->aad;
		mechanism.ulParameterLen = call->aad_length;
		break;
	case SLUICE_CBC:
		mechanism.pParameter = call->iv;
		mechanism.ulParameterLen = call->iv_length;
		break;
	case SLUICE_PSS:
		parameter.pss.hashAlg = call->hash;
		parameter.pss.mgf = call->mgf;
		parameter.pss.sLen = call->salt_length;
		mechanism.pParameter = &parameter.pss;
		mechanism.ulParameterLen = sizeof parameter.pss;
		break;
	case SLUICE_OAEP:
		parameter.oaep.hashAlg = call->hash;
		parameter.oaep.mgf = call->mgf;
		parameter.oaep.source = CKZ_DATA_SPECIFIED;
		mechanism.pParameter = &parameter.oaep;
		mechanism.ulParameterLen = sizeof parameter.oaep;
		break;
	}
	call->result = init(call->session, &mechanism, call->key);
	if (call->result != 0)
		return;
	call->step = 1;
	call->result = transform(call->session, call->input, call->input_length,
		call->output, &call->output_length);
	if (call->result != 0)
		call->stuck = drain(call, transform);
}

static void run_wrap(sluice_call *call)
{
	CK_RSA_PKCS_OAEP_PARAMS oaep = { call->hash, call->mgf, CKZ_DATA_SPECIFIED, NULL, 0 };
	CK_MECHANISM mechanism = { call->mechanism, NULL, 0 };

	if (call->parameter == SLUICE_OAEP) {
		mechanism.pParameter = &oaep;
		mechanism.ulParameterLen = sizeof oaep;
	}
	call->result = call->module->C_WrapKey(call->session, &mechanism, call->key, call->wrapped,
		call->output, &call->output_length);
}

/* Destroys an object that the call has made and no caller ever sees. */
static void destroy(sluice_call *call, CK_OBJECT_HANDLE object)
{
	CK_RV rv = call->module->C_DestroyObject(call->session, object);

	if (rv != 0 && call->result == 0) {
		call->result = rv;
		call->step = 2;
	}
}

/*
 * The secret becomes an object, as Cryptoki knows no other way, that can be
 * read and do nothing else, for as long as it takes to read it.
 */
static void run_agree(sluice_call *call)
{
	static CK_ULONG class = CKO_SECRET_KEY, type = CKK_GENERIC_SECRET;
	static CK_BYTE yes = 1, no = 0;
	CK_ULONG length = call->output_length;
	CK_ATTRIBUTE template[] = {
		{ CKA_CLASS, &class, sizeof class },
		{ CKA_KEY_TYPE, &type, sizeof type },
		{ CKA_VALUE_LEN, &length, sizeof length },
		{ CKA_TOKEN, &no, sizeof no },
		{ CKA_PRIVATE, &yes, sizeof yes },
		{ CKA_SENSITIVE, &no, sizeof no },
		{ CKA_EXTRACTABLE, &yes, sizeof yes },
		{ CKA_ENCRYPT, &no, sizeof no },
		{ CKA_DECRYPT, &no, sizeof no },
		{ CKA_SIGN, &no, sizeof no },
		{ CKA_VERIFY, &no, sizeof no },
		{ CKA_WRAP, &no, sizeof no },
		{ CKA_UNWRAP, &no, sizeof no },
		{ CKA_DERIVE, &no, sizeof no },
	};
	CK_ECDH1_DERIVE_PARAMS parameter = { CKD_NULL, 0, NULL, call->input_length, call->input };
	CK_MECHANISM mechanism = { call->mechanism, &parameter, sizeof parameter };
	CK_ATTRIBUTE value = { CKA_VALUE, call->output, call->output_length };
	CK_OBJECT_HANDLE secret = 0;

	call->result = call->module->C_DeriveKey(call->session, &mechanism, call->key, template,
		sizeof template / sizeof template[0], &secret);
	if (call->result != 0)
		return;
	call->step = 1;
	call->result = call->module->C_GetAttributeValue(call->session, secret, &value, 1);
	call->output_length = value.ulValueLen;
	destroy(call, secret);
}

/*
 * HKDF-Expand (RFC 5869, 2.3): block i is the MAC of block i-1, the info and
 * the number i. Input is room for a block, then the info, then a byte for the
 * number; output has room for a whole block more than is wanted.
 */
static void run_expand(sluice_call *call)
{
	CK_MECHANISM mechanism = { call->mechanism, NULL, 0 };
	CK_ULONG wanted = call->output_length, done = 0, length;
	CK_BYTE *number = call->input + call->input_length - 1;
	CK_BYTE *start = call->input + call->block; /* the first block has none before it */

	for (*number = 1; done < wanted; ++*number) {
		call->step = 0;
		call->result = call->module->C_SignInit(call->session, &mechanism, call->key);
		if (call->result != 0)
			return;
		call->step = 1;
		length = call->block;
		call->result = call->module->C_Sign(call->session, start,
			(CK_ULONG)(number + 1 - start), call->output + done, &length);
		if (call->result != 0) {
			call->stuck = drain(call, call->module->C_Sign);
			return;
		}
		if (length != call->block)
			break; /* and let the length tell */
		memcpy(call->input, call->output + done, call->block);
		start = call->input;
		done += call->block;
	}
	call->output_length = done < wanted ? done : wanted;
}

/*
 * One block through an active operation of ECB, which takes a tenth of an
 * operation's time on SoftHSM. Modules give every whole block back at once; one
 * that does not is of no use here.
 */
static int ecb(sluice_call *call, CK_TRANSFORM update, CK_BYTE *block)
{
	CK_BYTE *out = block + 16;
	CK_ULONG length = 16;

	call->result = update(call->session, block, 16, out, &length);
	if (call->result != 0 || length != 16)
		return 0;
	memcpy(block, out, 16);
	return 1;
}

static void xor_number(CK_BYTE *a, CK_ULONG t)
{
	int i;

	for (i = 7; i >= 0 && t != 0; i--, t >>= 8)
		a[i] ^= (CK_BYTE)t;
}

/*
 * The rounds of RFC 3394, 2.2.1 and 2.2.2, on n semiblocks after the first,
 * in place. The block is that of the output's room, with room for another
 * one behind.
 */
static int wrap_rounds(sluice_call *call, CK_ULONG n, CK_BYTE *block)
{
	CK_ULONG i, j;
	CK_BYTE *r;

	for (j = 0; j < 6; j++) {
		for (i = 1, r = call->input + 8; i <= n; i++, r += 8) {
			memcpy(block + 8, r, 8);
			if (!ecb(call, call->module->C_EncryptUpdate, block))
				return 0;
			memcpy(r, block + 8, 8);
			xor_number(block, n * j + i);
		}
	}
	return 1;
}

static int unwrap_rounds(sluice_call *call, CK_ULONG n, CK_BYTE *block)
{
	CK_ULONG i, j;
	CK_BYTE *r;

	for (j = 6; j-- > 0;) {
		for (i = n, r = call->input + 8 * n; i >= 1; i--, r -= 8) {
			xor_number(block, n * j + i);
			memcpy(block + 8, r, 8);
			if (!ecb(call, call->module->C_DecryptUpdate, block))
				return 0;
			memcpy(r, block + 8, 8);
		}
	}
	return 1;
}

/*
 * RFC 5649, 4.1 or 4.2 but for the making and checking of initial value and
 * padding, with the bare block cipher, so that no key of the token can be
 * wrapped or unwrapped under a key that wraps callers' bytes.
 */
static void run_kwp(sluice_call *call, CK_INIT init, CK_FINAL final, int wrap)
{
	CK_MECHANISM mechanism = { call->mechanism, NULL, 0 };
	CK_ULONG n = call->input_length / 8 - 1, length = 0;
	CK_BYTE *block = call->output;
	CK_RV rv;
	int done;

	call->result = init(call->session, &mechanism, call->key);
	if (call->result != 0)
		return;
	call->step = 1;
	memcpy(block, call->input, 8);
	if (n == 1) {
		memcpy(block + 8, call->input + 8, 8);
		done = ecb(call, wrap ? call->module->C_EncryptUpdate : call->module->C_DecryptUpdate, block);
		memcpy(call->input + 8, block + 8, 8);
	} else {
		done = wrap ? wrap_rounds(call, n, block) : unwrap_rounds(call, n, block);
	}
	memcpy(call->input, block, 8);
	length = call->output_area;
	rv = final(call->session, call->output, &length);
	if (call->result == 0 && rv != 0) {
		call->result = rv;
		call->step = 2;
	}
	/* What failed before may have ended the operation; what did not, must. */
	call->stuck = rv != 0 && rv != CKR_OPERATION_NOT_INITIALIZED;
	explicit_bzero(call->output, 32);
	if (call->result != 0 || !done) {
		call->output_length = 0;
		return;
	}
	memcpy(call->output, call->input, call->input_length);
	call->output_length = call->input_length;
}

static void run_import(sluice_call *call)
{
	call->result = call->module->C_CreateObject(call->session, call->attributes,
		call->attribute_count, &call->wrapped);
	if (call->result != 0)
		return;
	run_wrap(call);
	call->step = 1;
	destroy(call, call->wrapped);
}

void sluice_run(sluice_call *call)
{
	const CK_FUNCTION_LIST *module = call->module;
	CK_ULONG room = call->output_length;

	call->step = 0;
	call->stuck = 0;
	switch (call->operation) {
	case SLUICE_SIGN:
		run_transform(call, module->C_SignInit, module->C_Sign);
		break;
	case SLUICE_ENCRYPT:
		run_transform(call, module->C_EncryptInit, module->C_Encrypt);
		break;
	case SLUICE_DECRYPT:
		run_transform(call, module->C_DecryptInit, module->C_Decrypt);
		break;
	case SLUICE_RANDOM:
		call->result = module->C_GenerateRandom(call->session, call->output,
			call->output_length);
		break;
	case SLUICE_WRAP:
		run_wrap(call);
		break;
	case SLUICE_AGREE:
		run_agree(call);
		break;
	case SLUICE_EXPAND:
		run_expand(call);
		break;
	case SLUICE_KWP:
		run_kwp(call, module->C_EncryptInit, module->C_EncryptFinal, 1);
		break;
	case SLUICE_UNKWP:
		run_kwp(call, module->C_DecryptInit, module->C_DecryptFinal, 0);
		break;
	case SLUICE_IMPORT:
		run_import(call);
		break;
	default:
		call->result = CKR_ARGUMENTS_BAD;
	}
	explicit_bzero(call->input, call->input_length);
	explicit_bzero(call->aad, call->aad_length);
	if (call->result != 0)
		explicit_bzero(call->output, room);
}
