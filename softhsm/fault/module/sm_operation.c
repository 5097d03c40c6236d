#include "sm_operation.h"
#include "sm_encoding.h"

#include <openssl/crypto.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const byte default_id[16] = "1234567812345678"; /* GM/T 0009, 10 */
enum { MAX_ID = 8191 }; /* its length in bits is two bytes, GB/T 32918.2, 5.5 */

/* Sizes are bits for SM2 and bytes otherwise, as for EC and AES. */
const sm_mechanism sm_mechanisms[SM_MECHANISMS] = {
	{ CKM_SM2_KEY_PAIR_GEN, CKK_SM2, 256, 256, CKF_GENERATE_KEY_PAIR },
	{ CKM_SM3_SM2, CKK_SM2, 256, 256, CKF_SIGN },
	{ CKM_SM3_SM2_DER, CKK_SM2, 256, 256, CKF_SIGN },
	{ CKM_SM3_SM2_APPID1, CKK_SM2, 256, 256, CKF_SIGN },
	{ CKM_SM3_SM2_APPID1_DER, CKK_SM2, 256, 256, CKF_SIGN },
	{ CKM_SM2_SIGN, CKK_SM2, 256, 256, CKF_SIGN },
	{ CKM_SM2_SIGN_NO_DER, CKK_SM2, 256, 256, CKF_SIGN },
	{ CKM_SM2_RAW, CKK_SM2, 256, 256, CKF_ENCRYPT | CKF_DECRYPT },
	{ CKM_SM2_CIPHER_DER, CKK_SM2, 256, 256, CKF_ENCRYPT | CKF_DECRYPT },
	{ CKM_SM4_KEY_GEN, CKK_SM4, 16, 16, CKF_GENERATE },
	{ CKM_SM4_ECB, CKK_SM4, 16, 16, CKF_ENCRYPT | CKF_DECRYPT },
	{ CKM_SM4_CBC, CKK_SM4, 16, 16, CKF_ENCRYPT | CKF_DECRYPT },
	{ CKM_SM4_GCM, CKK_SM4, 16, 16, CKF_ENCRYPT | CKF_DECRYPT },
	{ CKM_SM3, 0, 0, 0, CKF_DIGEST },
	{ CKM_SM3_HMAC, CKK_SM3, 16, 64, CKF_SIGN },
};

const sm_mechanism *sm_find_mechanism(CK_ULONG mechanism)
{
	int i;

	for (i = 0; i < SM_MECHANISMS; i++)
		if (sm_mechanisms[i].mechanism == mechanism)
			return &sm_mechanisms[i];
	return NULL;
}

typedef struct {
	int active;
	CK_ULONG mechanism;
	sm_key key;
	byte iv[256];
	CK_ULONG iv_length;
	byte *octets; /* of its own: additional data, or a user id */
	CK_ULONG octets_length;
} operation;

typedef struct noted {
	struct noted *next;
	CK_ULONG session;
	operation operation[SM_KINDS];
} noted;

enum { BUCKETS = 256 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static noted *bucket[BUCKETS]; /* by session, guarded by lock */

static noted **find_locked(CK_ULONG session)
{
	noted **n = &bucket[session % BUCKETS];

	while (*n != NULL && (*n)->session != session)
		n = &(*n)->next;
	return n;
}

static void drop(operation *op)
{
	if (op->octets != NULL)
		OPENSSL_cleanse(op->octets, op->octets_length);
	free(op->octets);
	OPENSSL_cleanse(op, sizeof *op);
}

static void forget_locked(noted **place)
{
	noted *n = *place;
	int i;

	for (i = 0; i < SM_KINDS; i++)
		drop(&n->operation[i]);
	*place = n->next;
	free(n);
}

void sm_forget_session(CK_ULONG session)
{
	noted **n;

	pthread_mutex_lock(&lock);
	n = find_locked(session);
	if (*n != NULL)
		forget_locked(n);
	pthread_mutex_unlock(&lock);
}

void sm_forget_all(void)
{
	int i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < BUCKETS; i++)
		while (bucket[i] != NULL)
			forget_locked(&bucket[i]);
	pthread_mutex_unlock(&lock);
}

static CK_RV keep_octets(operation *op, const byte *octets, CK_ULONG length)
{
	op->octets = malloc(length + 1);
	if (op->octets == NULL)
		return CKR_HOST_MEMORY;
	if (length > 0)
		memcpy(op->octets, octets, length);
	op->octets_length = length;
	return CKR_OK;
}

/* Either form of the parameter; vendors have both. */
static CK_RV read_gcm(operation *op, const CK_MECHANISM *m)
{
	CK_GCM_PARAMS p;

	if (m->parameter == NULL) {
		return CKR_MECHANISM_PARAM_INVALID;
	} else if (m->length == sizeof(CK_GCM_PARAMS_TEXT)) {
		const CK_GCM_PARAMS_TEXT *text = m->parameter;

		p = (CK_GCM_PARAMS){ text->iv, text->iv_length, 8 * text->iv_length, text->aad, text->aad_length, text->tag_bits };
	} else if (m->length == sizeof p) {
		p = *(const CK_GCM_PARAMS *)m->parameter;
	} else {
		return CKR_MECHANISM_PARAM_INVALID;
	}
	if (p.iv == NULL || p.iv_length == 0 || p.iv_length > sizeof op->iv || p.iv_bits != 8 * p.iv_length ||
		p.tag_bits != 8 * TAG_SIZE || (p.aad_length > 0 && p.aad == NULL))
		return CKR_MECHANISM_PARAM_INVALID;
	memcpy(op->iv, p.iv, p.iv_length);
	op->iv_length = p.iv_length;
	return keep_octets(op, p.aad, p.aad_length);
}

/* The user id, or the default one. */
static CK_RV read_id(operation *op, const CK_MECHANISM *m)
{
	if (m->length == 0)
		return keep_octets(op, default_id, sizeof default_id);
	if (m->parameter == NULL || m->length > MAX_ID)
		return CKR_MECHANISM_PARAM_INVALID;
	return keep_octets(op, m->parameter, m->length);
}

static CK_RV read_parameter(operation *op, const CK_MECHANISM *m)
{
	switch (m->mechanism) {
	case CKM_SM4_GCM:
		return read_gcm(op, m);
	case CKM_SM3_SM2_APPID1:
	case CKM_SM3_SM2_APPID1_DER:
		return read_id(op, m);
	case CKM_SM4_CBC:
		if (m->length != SM4_SIZE || m->parameter == NULL)
			return CKR_MECHANISM_PARAM_INVALID;
		memcpy(op->iv, m->parameter, SM4_SIZE);
		return CKR_OK;
	}
	return m->length == 0 ? CKR_OK : CKR_MECHANISM_PARAM_INVALID;
}

static const struct {
	CK_ULONG mechanisms, use; /* what a key must allow */
} needs[SM_KINDS] = {
	[SM_ENCRYPT] = { CKF_ENCRYPT, CKA_ENCRYPT },
	[SM_DECRYPT] = { CKF_DECRYPT, CKA_DECRYPT },
	[SM_SIGN] = { CKF_SIGN, CKA_SIGN },
	[SM_DIGEST] = { CKF_DIGEST, 0 },
};

/* Whether the key serves the mechanism in an operation of the kind. */
static CK_RV check_key(enum sm_kind kind, const sm_mechanism *m, const sm_object *o)
{
	CK_ULONG class = CKO_SECRET_KEY;

	if (m->type == CKK_SM2)
		class = kind == SM_ENCRYPT ? CKO_PUBLIC_KEY : CKO_PRIVATE_KEY;
	if (o->key.type != m->type || o->key.class != class)
		return CKR_KEY_TYPE_INCONSISTENT;
	return o->uses >> (needs[kind].use - CKA_ENCRYPT) & 1 ? CKR_OK : CKR_KEY_FUNCTION_NOT_PERMITTED;
}

CK_RV sm_begin(CK_ULONG session, enum sm_kind kind, const CK_MECHANISM *mechanism, const sm_object *key)
{
	const sm_mechanism *m = mechanism != NULL ? sm_find_mechanism(mechanism->mechanism) : NULL;
	operation op = { .active = 1 };
	noted **n;
	CK_RV rv;

	if (m == NULL || (m->flags & needs[kind].mechanisms) == 0)
		return CKR_MECHANISM_INVALID;
	rv = key != NULL ? check_key(kind, m, key) : CKR_OK;
	if (rv != CKR_OK)
		return rv;
	op.mechanism = mechanism->mechanism;
	if (key != NULL)
		op.key = key->key;
	rv = read_parameter(&op, mechanism);
	pthread_mutex_lock(&lock);
	n = find_locked(session);
	if (rv == CKR_OK && *n == NULL && (*n = calloc(1, sizeof **n)) != NULL)
		(*n)->session = session;
	if (rv == CKR_OK && *n == NULL)
		rv = CKR_HOST_MEMORY;
	else if (rv == CKR_OK && (*n)->operation[kind].active)
		rv = CKR_OPERATION_ACTIVE;
	if (rv == CKR_OK) {
		(*n)->operation[kind] = op;
		op.octets = NULL;
	}
	pthread_mutex_unlock(&lock);
	drop(&op);
	return rv;
}

int sm_active(CK_ULONG session, enum sm_kind kind)
{
	noted **n;
	int active;

	pthread_mutex_lock(&lock);
	n = find_locked(session);
	active = *n != NULL && (*n)->operation[kind].active;
	pthread_mutex_unlock(&lock);
	return active;
}

/* How much an operation writes at most. */
static CK_ULONG room_for(const operation *op, enum sm_kind kind, CK_ULONG length)
{
	switch (op->mechanism) {
	case CKM_SM3:
	case CKM_SM3_HMAC:
		return SM3_SIZE;
	case CKM_SM3_SM2:
	case CKM_SM3_SM2_APPID1:
	case CKM_SM2_SIGN_NO_DER:
		return 2 * SM2_SIZE;
	case CKM_SM3_SM2_DER:
	case CKM_SM3_SM2_APPID1_DER:
	case CKM_SM2_SIGN:
		return SM2_SIGNATURE_DER;
	case CKM_SM2_RAW:
	case CKM_SM2_CIPHER_DER:
		return kind == SM_ENCRYPT ? length + SM2_CIPHER_OVERHEAD : length;
	case CKM_SM4_GCM:
		return kind == SM_ENCRYPT ? length + TAG_SIZE : length;
	}
	return length;
}

static CK_RV run_sign(const operation *op, const byte *in, CK_ULONG length, byte *out, CK_ULONG *written)
{
	byte e[SM3_SIZE], rs[2 * SM2_SIZE];
	int ok;

	if (op->mechanism == CKM_SM3_HMAC) {
		*written = SM3_SIZE;
		return sm3_hmac(op->key.value, op->key.value_length, in, length, out) ? CKR_OK : CKR_FUNCTION_FAILED;
	}
	if (op->mechanism == CKM_SM2_SIGN || op->mechanism == CKM_SM2_SIGN_NO_DER) {
		if (length != SM3_SIZE)
			return CKR_DATA_LEN_RANGE;
		memcpy(e, in, SM3_SIZE);
		ok = 1;
	} else if (op->mechanism == CKM_SM3_SM2 || op->mechanism == CKM_SM3_SM2_DER) {
		ok = sm3_hash(in, length, e);
	} else {
		ok = sm2_digest(op->key.point, op->octets, op->octets_length, in, length, e);
	}
	if (!ok || !sm2_sign(op->key.value, e, rs))
		return CKR_FUNCTION_FAILED;
	*written = sizeof rs;
	if (op->mechanism == CKM_SM2_SIGN_NO_DER || op->mechanism == CKM_SM3_SM2 || op->mechanism == CKM_SM3_SM2_APPID1)
		memcpy(out, rs, sizeof rs);
	else
		*written = sm2_signature_der(rs, out);
	return CKR_OK;
}

static CK_RV run_sm2_encrypt(const operation *op, const byte *in, CK_ULONG length, byte *out, CK_ULONG *written)
{
	byte c1[SM2_POINT], c3[SM3_SIZE], *c2 = out + 2 * SM2_SIZE + SM3_SIZE;

	if (!sm2_encrypt(op->key.point, in, length, c1, c2, c3))
		return CKR_FUNCTION_FAILED;
	if (op->mechanism == CKM_SM2_CIPHER_DER) {
		byte *copy = malloc(length + 1);

		if (copy == NULL)
			return CKR_HOST_MEMORY;
		memcpy(copy, c2, length);
		*written = sm2_write_cipher(c1, copy, length, c3, out);
		free(copy);
		return CKR_OK;
	}
	memcpy(out, c1 + 1, 2 * SM2_SIZE);
	memcpy(out + 2 * SM2_SIZE, c3, SM3_SIZE);
	*written = length + 2 * SM2_SIZE + SM3_SIZE;
	return CKR_OK;
}

static CK_RV run_sm2_decrypt(const operation *op, const byte *in, CK_ULONG length, byte *out, CK_ULONG *written)
{
	byte c1[SM2_POINT] = { 0x04 }, c3[SM3_SIZE];
	const byte *c2 = in + 2 * SM2_SIZE + SM3_SIZE;
	size_t c2_length;

	if (op->mechanism == CKM_SM2_CIPHER_DER) {
		if (!sm2_read_cipher(in, length, c1, &c2, &c2_length, c3))
			return CKR_ENCRYPTED_DATA_INVALID;
	} else {
		if (length < 2 * SM2_SIZE + SM3_SIZE)
			return CKR_ENCRYPTED_DATA_LEN_RANGE;
		memcpy(c1 + 1, in, 2 * SM2_SIZE);
		memcpy(c3, in + 2 * SM2_SIZE, SM3_SIZE);
		c2_length = length - 2 * SM2_SIZE - SM3_SIZE;
	}
	*written = c2_length;
	return sm2_decrypt(op->key.value, c1, c2, c2_length, c3, out) ? CKR_OK : CKR_ENCRYPTED_DATA_INVALID;
}

static CK_RV run_sm4(const operation *op, int encrypt, const byte *in, CK_ULONG length, byte *out, CK_ULONG *written)
{
	const byte *key = op->key.value;
	int ok;

	if (op->mechanism == CKM_SM4_GCM) {
		CK_ULONG body = length;

		if (!encrypt && length < TAG_SIZE)
			return CKR_ENCRYPTED_DATA_LEN_RANGE;
		if (!encrypt)
			body -= TAG_SIZE;
		*written = encrypt ? length + TAG_SIZE : body;
		ok = sm4_gcm(encrypt, key, op->iv, op->iv_length, op->octets, op->octets_length, in, body, out);
		return ok ? CKR_OK : encrypt ? CKR_FUNCTION_FAILED : CKR_ENCRYPTED_DATA_INVALID;
	}
	if (length % SM4_SIZE != 0)
		return encrypt ? CKR_DATA_LEN_RANGE : CKR_ENCRYPTED_DATA_LEN_RANGE;
	*written = length;
	if (op->mechanism == CKM_SM4_CBC)
		ok = sm4_cbc(encrypt, key, op->iv, in, length, out);
	else
		ok = sm4_ecb(encrypt, key, in, length, out);
	return ok ? CKR_OK : CKR_FUNCTION_FAILED;
}

static CK_RV run(const operation *op, enum sm_kind kind, const byte *in, CK_ULONG length, byte *out, CK_ULONG *written)
{
	switch (kind) {
	case SM_SIGN:
		return run_sign(op, in, length, out, written);
	case SM_DIGEST:
		*written = SM3_SIZE;
		return sm3_hash(in, length, out) ? CKR_OK : CKR_FUNCTION_FAILED;
	default:
		break;
	}
	if (op->key.type == CKK_SM4)
		return run_sm4(op, kind == SM_ENCRYPT, in, length, out, written);
	return kind == SM_ENCRYPT ? run_sm2_encrypt(op, in, length, out, written)
				  : run_sm2_decrypt(op, in, length, out, written);
}

CK_RV sm_run(CK_ULONG session, enum sm_kind kind, const byte *in, CK_ULONG length, byte *out, CK_ULONG *out_length)
{
	operation op = { 0 };
	CK_ULONG room, written = 0;
	noted **n;
	CK_RV rv = CKR_OK;

	if ((in == NULL && length > 0) || out_length == NULL)
		return CKR_ARGUMENTS_BAD;
	if (in == NULL)
		in = (const byte *)"";
	pthread_mutex_lock(&lock);
	n = find_locked(session);
	if (*n == NULL || !(*n)->operation[kind].active) {
		pthread_mutex_unlock(&lock); /* the session was closed meanwhile */
		return CKR_SESSION_HANDLE_INVALID;
	}
	room = room_for(&(*n)->operation[kind], kind, length);
	if (out != NULL && *out_length >= room) {
		op = (*n)->operation[kind]; /* and its additional data */
		memset(&(*n)->operation[kind], 0, sizeof op);
	} else {
		rv = out != NULL ? CKR_BUFFER_TOO_SMALL : CKR_OK;
		*out_length = room;
	}
	pthread_mutex_unlock(&lock);
	if (op.active) {
		rv = run(&op, kind, in, length, out, &written);
		*out_length = rv == CKR_OK ? written : 0;
		if (rv != CKR_OK)
			OPENSSL_cleanse(out, room); /* what a wrong tag came after */
		drop(&op);
	}
	return rv;
}
