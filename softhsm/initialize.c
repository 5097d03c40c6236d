#include "initialize.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

/*
 * SoftHSM reads SOFTHSM2_CONF in C_Initialize and nowhere else, and the
 * environment belongs to the process: whoever sets it for one module must keep
 * others from doing the same until that module has read it. hsm/p11 does so
 * too, and neither package imports the other, so the lock is this symbol,
 * defined weakly in both: the linker makes one of them.
 */
pthread_mutex_t sluice_environment_lock __attribute__((weak)) = PTHREAD_MUTEX_INITIALIZER;

/* CK_C_INITIALIZE_ARGS, PKCS#11 v2.40 section 3.7. */
struct initialize_args {
	void *create_mutex, *destroy_mutex, *lock_mutex, *unlock_mutex;
	unsigned long flags;
	void *reserved;
};

enum {
	OS_LOCKING_OK = 2,           /* CKF_OS_LOCKING_OK */
	GENERAL_ERROR = 5,           /* CKR_GENERAL_ERROR */
	HOST_MEMORY = 2              /* CKR_HOST_MEMORY */
};

/* The module stays loaded: its caller has opened it and never closes it. */
unsigned long sluice_softhsm_initialize(const char *module, const char *conf)
{
	struct initialize_args args = { .flags = OS_LOCKING_OK };
	unsigned long (*initialize)(void *);
	unsigned long rv = HOST_MEMORY;
	void *library = dlopen(module, RTLD_NOW | RTLD_LOCAL);

	if (library == NULL)
		return GENERAL_ERROR;
	*(void **)&initialize = dlsym(library, "C_Initialize");
	if (initialize == NULL)
		return GENERAL_ERROR;

	pthread_mutex_lock(&sluice_environment_lock);
	if (setenv("SOFTHSM2_CONF", conf, 1) == 0)
		rv = initialize(&args);
	pthread_mutex_unlock(&sluice_environment_lock);
	return rv;
}
