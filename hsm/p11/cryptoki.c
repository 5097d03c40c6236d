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
	call->began = 1;
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

void sluice_run(sluice_call *call)
{
	const CK_FUNCTION_LIST *module = call->module;
	CK_ULONG room = call->output_length;

	call->began = 0;
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
	default:
		call->result = CKR_ARGUMENTS_BAD;
	}
	explicit_bzero(call->input, call->input_length);
	explicit_bzero(call->aad, call->aad_length);
	if (call->result != 0)
		explicit_bzero(call->output, room);
}
