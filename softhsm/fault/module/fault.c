/*
 * A PKCS#11 v2.40 module that stands before a real one and lets it fail: it
 * copies the real module's function list and puts functions of its own before
 * those that do work. What shall go wrong, and how fast the "hardware" is, it
 * reads from a file that the controlling process maps too; see control below
 * and the Go package that writes it.
 *
 * The control file lies beside this library and has its name with ".control"
 * at the end, so that every copy of the library is a module of its own. It
 * names the real module, and says whether keys of SM2, SM4 and HMAC-SM3 are to
 * be had too (sm.h). These lie behind the functions here, so that faults are
 * theirs as well.
 */
#define _GNU_SOURCE /* dladdr */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "sm.h"

/*
 * The functions in front, in the order of the control file, with the number of
 * their arguments, all of which are as wide as a pointer, and whether they
 * occupy an engine.
 */
#define FUNCTIONS(X) \
	X(C_Initialize, 1, 0) \
	X(C_Finalize, 1, 0) \
	X(C_GetSlotList, 3, 0) \
	X(C_GetTokenInfo, 2, 0) \
	X(C_OpenSession, 5, 0) \
	X(C_CloseSession, 1, 0) \
	X(C_CloseAllSessions, 1, 0) \
	X(C_GetSessionInfo, 2, 0) \
	X(C_Login, 4, 0) \
	X(C_Logout, 1, 0) \
	X(C_CreateObject, 4, 0) \
	X(C_CopyObject, 5, 0) \
	X(C_DestroyObject, 2, 0) \
	X(C_GetAttributeValue, 4, 0) \
	X(C_SetAttributeValue, 4, 0) \
	X(C_FindObjectsInit, 3, 0) \
	X(C_FindObjects, 4, 0) \
	X(C_FindObjectsFinal, 1, 0) \
	X(C_EncryptInit, 3, 0) \
	X(C_Encrypt, 5, 1) \
	X(C_DecryptInit, 3, 0) \
	X(C_Decrypt, 5, 1) \
	X(C_DigestInit, 2, 0) \
	X(C_Digest, 5, 1) \
	X(C_SignInit, 3, 0) \
	X(C_Sign, 5, 1) \
	X(C_VerifyInit, 3, 0) \
	X(C_Verify, 5, 1) \
	X(C_GenerateKey, 5, 1) \
	X(C_GenerateKeyPair, 8, 1) \
	X(C_WrapKey, 6, 1) \
	X(C_UnwrapKey, 8, 1) \
	X(C_DeriveKey, 6, 1) \
	X(C_GenerateRandom, 3, 1)

enum function {
#define X(name, arity, works) F_##name,
	FUNCTIONS(X)
#undef X
	FUNCTION_COUNT
};

/*
 * The control file: 64-bit words in the machine's byte order, written by the
 * controlling process and read here at every call, and counters the other way
 * round. The Go package has the same layout.
 */
#define CONTROL_MAGIC UINT64_C(0x31544c5541464c53) /* "SLFAULT1" */
enum { PATH_SIZE = 1024 };

typedef struct {
	_Atomic uint64_t calls;   /* so far */
	_Atomic uint64_t active;  /* in the module now */
	_Atomic uint64_t service; /* ns that a call takes at least */
	_Atomic uint64_t jitter;  /* ns more, at most, evenly distributed */
	_Atomic uint64_t code;    /* that failing calls return */
	_Atomic uint64_t next;    /* so many further calls fail */
	_Atomic uint64_t rate;    /* of 2^32 calls, so many fail */
	_Atomic uint64_t spare;
} function_control;

typedef struct {
	uint64_t magic;
	char module[PATH_SIZE];     /* the real one */
	uint64_t sm;                /* not 0: with SM keys; read when it is loaded */
	_Atomic uint64_t engines;   /* calls that are served at once; 0: any number */
	_Atomic uint64_t slowdown;  /* factor of service and jitter; 0 is 1 */
	_Atomic uint64_t dead;      /* what every call returns; 0: lives */
	_Atomic uint64_t hanging;   /* not 0: calls wait until it is 0 */
	_Atomic uint64_t reset;     /* a change of it ends all sessions */
	_Atomic uint64_t waiting;   /* calls that hang now */
	_Atomic uint64_t resets;    /* done so far */
	_Atomic uint64_t working;   /* calls that hold an engine now */
	function_control function[FUNCTION_COUNT];
} control_file;

static control_file *control;
static function_list *real;
static function_list behind; /* the real module's, or those with SM keys before them */
static function_list front;

/*
 * Slots with sessions, for the reset. Their number is small; a session of a
 * slot that does not fit is not reset.
 */
enum { MAX_SLOTS = 16 };
static pthread_mutex_t slots_lock = PTHREAD_MUTEX_INITIALIZER;
static CK_ULONG slots[MAX_SLOTS];
static int slot_count;
static uint64_t seen_reset;

static pthread_mutex_t engine_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t engine_free = PTHREAD_COND_INITIALIZER;

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void sleep_ns(uint64_t ns)
{
	struct timespec t = { (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) };
	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &t) == EINTR)
		;
}

/* xorshift64* (Vigna 2016), one state a thread. */
static uint64_t random64(void)
{
	static _Thread_local uint64_t state;
	if (state == 0)
		state = (now_ns() ^ (uint64_t)(uintptr_t)&state) | 1;
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return state * UINT64_C(0x2545F4914F6CDD1D);
}

static void note_slot(CK_ULONG slot)
{
	int i;
	pthread_mutex_lock(&slots_lock);
	for (i = 0; i < slot_count && slots[i] != slot; i++)
		;
	if (i == slot_count && slot_count < MAX_SLOTS)
		slots[slot_count++] = slot;
	pthread_mutex_unlock(&slots_lock);
}

/*
 * Ends all sessions when the controlling process wants it, as a token that
 * was reset does: logins and session objects go with them.
 */
static void reset_if_wanted(void)
{
	CK_RV (*close_all)(CK_ULONG) = (CK_RV (*)(CK_ULONG))behind.place[PLACE_C_CloseAllSessions];
	uint64_t wanted = atomic_load(&control->reset);
	int i;

	pthread_mutex_lock(&slots_lock);
	if (seen_reset != wanted) {
		seen_reset = wanted;
		for (i = 0; i < slot_count; i++)
			close_all(slots[i]);
		atomic_fetch_add(&control->resets, 1);
	}
	pthread_mutex_unlock(&slots_lock);
}

static void hang_if_wanted(void)
{
	if (atomic_load(&control->hanging) == 0)
		return;
	atomic_fetch_add(&control->waiting, 1);
	while (atomic_load(&control->hanging) != 0)
		sleep_ns(1000000);
	atomic_fetch_sub(&control->waiting, 1);
}

/* Takes one of those failures that are counted, if there is one left. */
static int take_failure(function_control *f)
{
	uint64_t left = atomic_load(&f->next);
	while (left > 0)
		if (atomic_compare_exchange_weak(&f->next, &left, left - 1))
			return 1;
	return 0;
}

static uint64_t take_engine(void)
{
	uint64_t engines = atomic_load(&control->engines);
	if (engines != 0) {
		pthread_mutex_lock(&engine_lock);
		while (atomic_load(&control->working) >= engines) {
			pthread_cond_wait(&engine_free, &engine_lock);
			engines = atomic_load(&control->engines);
			if (engines == 0)
				break;
		}
		atomic_fetch_add(&control->working, 1);
		pthread_mutex_unlock(&engine_lock);
	} else {
		atomic_fetch_add(&control->working, 1);
	}
	return now_ns();
}

static void give_engine(void)
{
	pthread_mutex_lock(&engine_lock);
	atomic_fetch_sub(&control->working, 1);
	pthread_cond_broadcast(&engine_free);
	pthread_mutex_unlock(&engine_lock);
}

/* What happens before a call; it is made when CKR_OK is returned. */
static CK_RV before(enum function which)
{
	function_control *f = &control->function[which];
	uint64_t code, rate;

	atomic_fetch_add(&f->calls, 1);
	hang_if_wanted();
	code = atomic_load(&control->dead);
	if (code != 0)
		return (CK_RV)code;
	reset_if_wanted();
	rate = atomic_load(&f->rate);
	if (take_failure(f) || (rate != 0 && (random64() >> 32) < rate))
		return (CK_RV)atomic_load(&f->code);
	return CKR_OK;
}

/* Keeps the caller until the call has taken as long as it shall. */
static void serve(function_control *f, uint64_t began)
{
	uint64_t service = atomic_load(&f->service), jitter = atomic_load(&f->jitter);
	uint64_t slowdown = atomic_load(&control->slowdown), took;

	if (jitter != 0)
		service += random64() % (jitter + 1);
	if (slowdown != 0)
		service *= slowdown;
	if (service == 0)
		return;
	took = now_ns() - began;
	if (took < service)
		sleep_ns(service - took);
}

#define PARAMETERS1 CK_ULONG a
#define PARAMETERS2 PARAMETERS1, CK_ULONG b
#define PARAMETERS3 PARAMETERS2, CK_ULONG c
#define PARAMETERS4 PARAMETERS3, CK_ULONG d
#define PARAMETERS5 PARAMETERS4, CK_ULONG e
#define PARAMETERS6 PARAMETERS5, CK_ULONG f
#define PARAMETERS7 PARAMETERS6, CK_ULONG g
#define PARAMETERS8 PARAMETERS7, CK_ULONG h
#define ARGUMENTS1 a
#define ARGUMENTS2 ARGUMENTS1, b
#define ARGUMENTS3 ARGUMENTS2, c
#define ARGUMENTS4 ARGUMENTS3, d
#define ARGUMENTS5 ARGUMENTS4, e
#define ARGUMENTS6 ARGUMENTS5, f
#define ARGUMENTS7 ARGUMENTS6, g
#define ARGUMENTS8 ARGUMENTS7, h

/*
 * One function in front of each. Arguments pass as words: pointers and
 * CK_ULONG travel alike in the calling conventions of the machines that this
 * runs on (System V AMD64, AAPCS64).
 */
#define X(name, arity, works) \
	static CK_RV front_##name(PARAMETERS##arity) \
	{ \
		CK_RV (*call)(PARAMETERS##arity) = (CK_RV (*)(PARAMETERS##arity))behind.place[PLACE_##name]; \
		function_control *fc = &control->function[F_##name]; \
		CK_RV rv = before(F_##name); \
		uint64_t began; \
		if (rv != CKR_OK) \
			return rv; \
		atomic_fetch_add(&fc->active, 1); \
		began = works ? take_engine() : now_ns(); \
		if (F_##name == F_C_OpenSession) \
			note_slot(a); \
		rv = call(ARGUMENTS##arity); \
		serve(fc, began); \
		if (works) \
			give_engine(); \
		atomic_fetch_sub(&fc->active, 1); \
		return rv; \
	}
FUNCTIONS(X)
#undef X

static CK_RV front_get_function_list(function_list **list)
{
	if (list == NULL)
		return CKR_ARGUMENTS_BAD;
	*list = &front;
	return CKR_OK;
}

/* Maps the control file and loads the real module; tells what failed. */
static const char *start(void)
{
	CK_RV (*get_real)(function_list **);
	char path[PATH_SIZE + 16];
	struct stat info;
	Dl_info self;
	void *library;
	int file;

	if (dladdr((void *)(uintptr_t)&front_get_function_list, &self) == 0)
		return "its own path is unknown";
	if (snprintf(path, sizeof path, "%s.control", self.dli_fname) >= (int)sizeof path)
		return "its path is too long";
	file = open(path, O_RDWR | O_CLOEXEC);
	if (file < 0)
		return "there is no control file";
	if (fstat(file, &info) != 0 || (size_t)info.st_size != sizeof *control) {
		close(file);
		return "the control file has another size";
	}
	control = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	close(file);
	if (control == MAP_FAILED || control->magic != CONTROL_MAGIC)
		return "the control file is not one";
	library = dlopen(control->module, RTLD_NOW | RTLD_LOCAL);
	if (library == NULL)
		return dlerror();
	*(void **)&get_real = dlsym(library, "C_GetFunctionList");
	if (get_real == NULL || get_real(&real) != CKR_OK)
		return "the real module has no function list";
	behind = *real;
	if (control->sm != 0)
		sm_install(&behind, real);
	front = behind;
	seen_reset = atomic_load(&control->reset);
	/* A process that was killed in its calls holds no engine any more. */
	atomic_store(&control->working, 0);
	atomic_store(&control->waiting, 0);
	front.place[PLACE_C_GetFunctionList] = (any_function)&front_get_function_list;
#define X(name, arity, works) front.place[PLACE_##name] = (any_function)&front_##name;
	FUNCTIONS(X)
#undef X
	return NULL;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const char *failure;

static void start_once(void) { failure = start(); }

__attribute__((visibility("default"))) CK_RV C_GetFunctionList(function_list **list);

CK_RV C_GetFunctionList(function_list **list)
{
	pthread_once(&once, start_once);
	if (failure != NULL) {
		fprintf(stderr, "fault module: %s\n", failure);
		return CKR_GENERAL_ERROR;
	}
	return front_get_function_list(list);
}
