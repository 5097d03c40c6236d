#include "sm_function.h"
#include "sm_operation.h"

#include <openssl/crypto.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

const function_list *sm_real;

CK_RV sm_session(CK_ULONG session, CK_ULONG *slot, int *user)
{
	CK_SESSION_INFO info;
	CK_RV rv = REAL(C_GetSessionInfo, (CK_ULONG, CK_SESSION_INFO *))(session, &info);

	if (rv != CKR_OK)
		return rv;
	*slot = info.slot;
	*user = info.state == CKS_RO_USER_FUNCTIONS || info.state == CKS_RW_USER_FUNCTIONS;
	return CKR_OK;
}

/* --- Sessions: what ends, ends here first. --- */

static CK_RV sm_Finalize(void *reserved)
{
	sm_forget_all();
	sm_end_all();
	return REAL(C_Finalize, (void *))(reserved);
}

static CK_RV sm_CloseSession(CK_ULONG session)
{
	sm_forget_session(session);
	sm_end_session(session);
	return REAL(C_CloseSession, (CK_ULONG))(session);
}

/*
 * Operations of the slot's sessions are left noted: they serve nobody, as the
 * handles of sessions are not used again before C_Finalize.
 */
static CK_RV sm_CloseAllSessions(CK_ULONG slot)
{
	sm_end_slot(slot, 0);
	return REAL(C_CloseAllSessions, (CK_ULONG))(slot);
}

static CK_RV sm_Logout(CK_ULONG session)
{
	CK_ULONG slot;
	int user;

	if (sm_session(session, &slot, &user) == CKR_OK)
		sm_end_slot(slot, 1);
	return REAL(C_Logout, (CK_ULONG))(session);
}

/* --- Mechanisms --- */

static CK_RV sm_GetMechanismList(CK_ULONG slot, CK_ULONG *list, CK_ULONG *count)
{
	CK_ULONG room, used = 0, i;
	CK_RV rv;

	if (count == NULL)
		return CKR_ARGUMENTS_BAD;
	room = *count;
	rv = REAL(C_GetMechanismList, (CK_ULONG, CK_ULONG *, CK_ULONG *))(slot, NULL, &used);
	if (rv != CKR_OK)
		return rv;
	*count = used + SM_MECHANISMS;
	if (list == NULL)
		return CKR_OK;
	if (room < *count)
		return CKR_BUFFER_TOO_SMALL;
	rv = REAL(C_GetMechanismList, (CK_ULONG, CK_ULONG *, CK_ULONG *))(slot, list, &used);
	for (i = 0; rv == CKR_OK && i < SM_MECHANISMS; i++)
		list[used + i] = sm_mechanisms[i].mechanism;
	return rv;
}

static CK_RV sm_GetMechanismInfo(CK_ULONG slot, CK_ULONG mechanism, CK_MECHANISM_INFO *info)
{
	const sm_mechanism *m = sm_find_mechanism(mechanism);

	if (m == NULL)
		return REAL(C_GetMechanismInfo, (CK_ULONG, CK_ULONG, CK_MECHANISM_INFO *))(slot, mechanism, info);
	if (info == NULL)
		return CKR_ARGUMENTS_BAD;
	*info = (CK_MECHANISM_INFO){ m->min_size, m->max_size, m->flags };
	return CKR_OK;
}

/* --- Objects --- */

/* What a template that names one of our types asks for; checks the key. */
static CK_RV complete_created(sm_object *o)
{
	byte point[SM2_POINT];

	if (o->key.class == CKO_PUBLIC_KEY)
		return o->key.point[0] == 0x04 ? CKR_OK : CKR_TEMPLATE_INCOMPLETE;
	if (o->key.value_length == 0)
		return CKR_TEMPLATE_INCOMPLETE;
	if (o->key.type == CKK_SM4)
		return o->key.value_length == SM4_SIZE ? CKR_OK : CKR_ATTRIBUTE_VALUE_INVALID;
	if (o->key.type != CKK_SM2)
		return CKR_OK;
	if (o->key.value_length != SM2_SIZE || !sm2_public(o->key.value, point) ||
		(o->key.point[0] != 0 && memcmp(point, o->key.point, SM2_POINT) != 0))
		return CKR_ATTRIBUTE_VALUE_INVALID;
	memcpy(o->key.point, point, SM2_POINT);
	return CKR_OK;
}

static CK_RV sm_CreateObject(CK_ULONG session, CK_ATTRIBUTE *t, CK_ULONG count, CK_ULONG *handle)
{
	sm_object o = { 0 };
	CK_RV rv;

	o.key.type = sm_template_number(t, count, CKA_KEY_TYPE);
	if (!sm_is_type(o.key.type))
		return REAL(C_CreateObject, (CK_ULONG, CK_ATTRIBUTE *, CK_ULONG, CK_ULONG *))(session, t, count, handle);
	if (handle == NULL)
		return CKR_ARGUMENTS_BAD;
	o.key.class = sm_template_number(t, count, CKA_CLASS);
	rv = sm_fits(o.key.type, o.key.class) ? sm_read_template(&o, t, count, SM_CREATED) : CKR_TEMPLATE_INCONSISTENT;
	if (rv == CKR_OK)
		rv = complete_created(&o);
	if (rv == CKR_OK)
		rv = sm_keep(&o, session, handle);
	OPENSSL_cleanse(&o, sizeof o);
	return rv;
}

static CK_RV sm_CopyObject(CK_ULONG session, CK_ULONG object, CK_ATTRIBUTE *t, CK_ULONG count, CK_ULONG *copy)
{
	if (sm_is_handle(object))
		return CKR_ACTION_PROHIBITED; /* CKA_COPYABLE is false */
	return REAL(C_CopyObject, (CK_ULONG, CK_ULONG, CK_ATTRIBUTE *, CK_ULONG, CK_ULONG *))(session, object, t, count, copy);
}

static CK_RV sm_DestroyObject(CK_ULONG session, CK_ULONG object)
{
	if (sm_is_handle(object))
		return sm_destroy(session, object);
	return REAL(C_DestroyObject, (CK_ULONG, CK_ULONG))(session, object);
}

static CK_RV sm_GetAttributeValue(CK_ULONG session, CK_ULONG object, CK_ATTRIBUTE *t, CK_ULONG count)
{
	if (sm_is_handle(object))
		return sm_get(session, object, t, count);
	return REAL(C_GetAttributeValue, (CK_ULONG, CK_ULONG, CK_ATTRIBUTE *, CK_ULONG))(session, object, t, count);
}

static CK_RV sm_SetAttributeValue(CK_ULONG session, CK_ULONG object, CK_ATTRIBUTE *t, CK_ULONG count)
{
	if (sm_is_handle(object))
		return sm_set(session, object, t, count);
	return REAL(C_SetAttributeValue, (CK_ULONG, CK_ULONG, CK_ATTRIBUTE *, CK_ULONG))(session, object, t, count);
}

/* --- Searches: ours come first, then those of the real module. --- */

enum { MAX_FOUND = 1024, MAX_SEARCHES = 64 };

typedef struct {
	CK_ULONG session; /* 0: free; sessions count from 1 */
	CK_ULONG found[MAX_FOUND], count, next;
} search;

static search searches[MAX_SEARCHES];
static pthread_mutex_t searches_lock = PTHREAD_MUTEX_INITIALIZER;

static search *find_search_locked(CK_ULONG session)
{
	int i;

	for (i = 0; i < MAX_SEARCHES; i++)
		if (searches[i].session == session)
			return &searches[i];
	return NULL;
}

static CK_RV sm_FindObjectsInit(CK_ULONG session, CK_ATTRIBUTE *t, CK_ULONG count)
{
	CK_RV rv = REAL(C_FindObjectsInit, (CK_ULONG, CK_ATTRIBUTE *, CK_ULONG))(session, t, count);
	search *s;

	if (rv != CKR_OK)
		return rv;
	pthread_mutex_lock(&searches_lock);
	s = find_search_locked(session);
	if (s == NULL)
		s = find_search_locked(0);
	if (s != NULL) {
		s->count = sm_match(session, t, count, s->found, MAX_FOUND);
		if (s->count > MAX_FOUND)
			s->count = MAX_FOUND;
		s->next = 0;
		s->session = s->count > 0 ? session : 0;
	}
	pthread_mutex_unlock(&searches_lock);
	return CKR_OK;
}

static CK_RV sm_FindObjects(CK_ULONG session, CK_ULONG *objects, CK_ULONG most, CK_ULONG *count)
{
	CK_ULONG n = 0;
	search *s;
	CK_RV rv;

	if (objects == NULL || count == NULL)
		return CKR_ARGUMENTS_BAD;
	pthread_mutex_lock(&searches_lock);
	s = find_search_locked(session);
	while (s != NULL && n < most && s->next < s->count)
		objects[n++] = s->found[s->next++];
	pthread_mutex_unlock(&searches_lock);
	if (n == most)
		return *count = n, CKR_OK;
	rv = REAL(C_FindObjects, (CK_ULONG, CK_ULONG *, CK_ULONG, CK_ULONG *))(session, objects + n, most - n, count);
	*count += n;
	return rv;
}

static CK_RV sm_FindObjectsFinal(CK_ULONG session)
{
	search *s;

	pthread_mutex_lock(&searches_lock);
	s = find_search_locked(session);
	if (s != NULL)
		s->session = 0;
	pthread_mutex_unlock(&searches_lock);
	return REAL(C_FindObjectsFinal, (CK_ULONG))(session);
}

/* --- Operations --- */

static CK_RV begin(CK_ULONG session, enum sm_kind kind, const CK_MECHANISM *m, CK_ULONG handle)
{
	sm_object o;
	CK_RV rv = sm_look_up(session, handle, &o, CKR_KEY_HANDLE_INVALID);

	if (rv == CKR_OK)
		rv = sm_begin(session, kind, m, &o);
	OPENSSL_cleanse(&o, sizeof o);
	return rv;
}

static CK_RV run(CK_ULONG session, enum sm_kind kind, CK_BYTE *in, CK_ULONG length, CK_BYTE *out, CK_ULONG *out_length)
{
	CK_ULONG slot;
	int user;
	CK_RV rv = sm_session(session, &slot, &user);

	return rv != CKR_OK ? rv : sm_run(session, kind, in, length, out, out_length);
}

/* Both functions of a kind of operation; one with a key of the real module goes there. */
#define OPERATION(init, name, kind) \
	static CK_RV sm_##init(CK_ULONG session, CK_MECHANISM *m, CK_ULONG key) \
	{ \
		if (sm_active(session, kind)) \
			return CKR_OPERATION_ACTIVE; \
		if (sm_is_handle(key)) \
			return begin(session, kind, m, key); \
		return REAL(C_##init, (CK_ULONG, CK_MECHANISM *, CK_ULONG))(session, m, key); \
	} \
	static CK_RV sm_##name(CK_ULONG session, CK_BYTE *in, CK_ULONG length, CK_BYTE *out, CK_ULONG *out_length) \
	{ \
		if (sm_active(session, kind)) \
			return run(session, kind, in, length, out, out_length); \
		return REAL(C_##name, (CK_ULONG, CK_BYTE *, CK_ULONG, CK_BYTE *, CK_ULONG *))(session, in, length, out, out_length); \
	}

OPERATION(EncryptInit, Encrypt, SM_ENCRYPT)
OPERATION(DecryptInit, Decrypt, SM_DECRYPT)
OPERATION(SignInit, Sign, SM_SIGN)

static CK_RV sm_DigestInit(CK_ULONG session, CK_MECHANISM *m)
{
	CK_ULONG slot;
	int user;
	CK_RV rv;

	if (m == NULL || m->mechanism != CKM_SM3)
		return REAL(C_DigestInit, (CK_ULONG, CK_MECHANISM *))(session, m);
	rv = sm_session(session, &slot, &user);
	return rv != CKR_OK ? rv : sm_begin(session, SM_DIGEST, m, NULL);
}

static CK_RV sm_Digest(CK_ULONG session, CK_BYTE *in, CK_ULONG length, CK_BYTE *out, CK_ULONG *out_length)
{
	if (sm_active(session, SM_DIGEST))
		return run(session, SM_DIGEST, in, length, out, out_length);
	return REAL(C_Digest, (CK_ULONG, CK_BYTE *, CK_ULONG, CK_BYTE *, CK_ULONG *))(session, in, length, out, out_length);
}

/* --- Making keys --- */

static CK_RV random_bytes(CK_ULONG session, CK_BYTE *bytes, CK_ULONG length)
{
	return REAL(C_GenerateRandom, (CK_ULONG, CK_BYTE *, CK_ULONG))(session, bytes, length);
}

static CK_RV sm_GenerateKey(CK_ULONG session, CK_MECHANISM *m, CK_ATTRIBUTE *t, CK_ULONG count, CK_ULONG *handle)
{
	sm_object o = { 0 };
	CK_RV rv;

	if (m != NULL && m->mechanism == CKM_SM4_KEY_GEN)
		o.key.type = CKK_SM4;
	else if (m != NULL && m->mechanism == CKM_GENERIC_SECRET_KEY_GEN && sm_template_number(t, count, CKA_KEY_TYPE) == CKK_SM3)
		o.key.type = CKK_SM3;
	else
		return REAL(C_GenerateKey, (CK_ULONG, CK_MECHANISM *, CK_ATTRIBUTE *, CK_ULONG, CK_ULONG *))(session, m, t, count, handle);
	if (handle == NULL)
		return CKR_ARGUMENTS_BAD;
	o.key.class = CKO_SECRET_KEY;
	o.key.value_length = o.key.type == CKK_SM4 ? SM4_SIZE : SM3_SIZE;
	rv = sm_read_template(&o, t, count, SM_GENERATED);
	if (rv == CKR_OK && (o.key.type == CKK_SM4 ? o.key.value_length != SM4_SIZE
			: o.key.value_length < 16 || o.key.value_length > sizeof o.key.value))
		rv = CKR_KEY_SIZE_RANGE;
	if (rv == CKR_OK)
		rv = random_bytes(session, o.key.value, o.key.value_length);
	if (rv == CKR_OK)
		rv = sm_keep(&o, session, handle);
	OPENSSL_cleanse(&o, sizeof o);
	return rv;
}

static CK_RV sm_GenerateKeyPair(CK_ULONG session, CK_MECHANISM *m, CK_ATTRIBUTE *public_t, CK_ULONG public_count,
	CK_ATTRIBUTE *private_t, CK_ULONG private_count, CK_ULONG *public_handle, CK_ULONG *private_handle)
{
	sm_object public = { 0 }, private = { 0 };
	CK_RV rv;

	if (m == NULL || m->mechanism != CKM_SM2_KEY_PAIR_GEN)
		return REAL(C_GenerateKeyPair, (CK_ULONG, CK_MECHANISM *, CK_ATTRIBUTE *, CK_ULONG, CK_ATTRIBUTE *, CK_ULONG,
			CK_ULONG *, CK_ULONG *))(session, m, public_t, public_count, private_t, private_count, public_handle,
			private_handle);
	if (public_handle == NULL || private_handle == NULL)
		return CKR_ARGUMENTS_BAD;
	public.key = (sm_key){ .class = CKO_PUBLIC_KEY, .type = CKK_SM2 };
	private.key = (sm_key){ .class = CKO_PRIVATE_KEY, .type = CKK_SM2, .value_length = SM2_SIZE };
	rv = sm_read_template(&public, public_t, public_count, SM_GENERATED);
	if (rv == CKR_OK)
		rv = sm_read_template(&private, private_t, private_count, SM_GENERATED);
	if (rv == CKR_OK && !sm2_generate(private.key.value, private.key.point))
		rv = CKR_FUNCTION_FAILED;
	memcpy(public.key.point, private.key.point, SM2_POINT);
	if (rv == CKR_OK)
		rv = sm_keep(&public, session, public_handle);
	if (rv == CKR_OK && (rv = sm_keep(&private, session, private_handle)) != CKR_OK)
		sm_destroy(session, *public_handle);
	OPENSSL_cleanse(&private, sizeof private);
	return rv;
}

/* --- Agreement: the secret becomes an object of the real module, under the caller's template. --- */

static CK_RV keep_secret(CK_ULONG session, const byte *x, const CK_ATTRIBUTE *t, CK_ULONG count, CK_ULONG *handle)
{
	CK_ATTRIBUTE template[MAX_TEMPLATE] = { { CKA_VALUE, (void *)(uintptr_t)x, SM2_SIZE } };
	CK_ULONG n = 1;

	if (count > MAX_TEMPLATE - 1)
		return CKR_TEMPLATE_INCONSISTENT;
	for (; count > 0; t++, count--) {
		if (t->type == CKA_VALUE_LEN && (t->length != sizeof n || *(const CK_ULONG *)t->value != SM2_SIZE))
			return CKR_KEY_SIZE_RANGE;
		if (t->type != CKA_VALUE_LEN)
			template[n++] = *t;
	}
	return REAL(C_CreateObject, (CK_ULONG, CK_ATTRIBUTE *, CK_ULONG, CK_ULONG *))(session, template, n, handle);
}

static CK_RV sm_DeriveKey(CK_ULONG session, CK_MECHANISM *m, CK_ULONG base, CK_ATTRIBUTE *t, CK_ULONG count, CK_ULONG *handle)
{
	const CK_ECDH1_DERIVE_PARAMS *p;
	byte product[SM2_POINT];
	sm_object o;
	CK_RV rv;

	if (!sm_is_handle(base))
		return REAL(C_DeriveKey, (CK_ULONG, CK_MECHANISM *, CK_ULONG, CK_ATTRIBUTE *, CK_ULONG, CK_ULONG *))(session, m,
			base, t, count, handle);
	if (m == NULL || m->mechanism != CKM_ECDH1_DERIVE)
		return CKR_MECHANISM_INVALID;
	p = m->parameter;
	if (p == NULL || m->length != sizeof *p || p->kdf != CKD_NULL || p->shared_length != 0 || p->public_length != SM2_POINT)
		return CKR_MECHANISM_PARAM_INVALID;
	rv = sm_look_up(session, base, &o, CKR_KEY_HANDLE_INVALID);
	if (rv == CKR_OK && (o.key.type != CKK_SM2 || o.key.class != CKO_PRIVATE_KEY))
		rv = CKR_KEY_TYPE_INCONSISTENT;
	if (rv == CKR_OK && (o.uses >> (CKA_DERIVE - CKA_ENCRYPT) & 1) == 0)
		rv = CKR_KEY_FUNCTION_NOT_PERMITTED;
	if (rv == CKR_OK && !sm2_multiply(o.key.value, p->public, product))
		rv = CKR_MECHANISM_PARAM_INVALID;
	if (rv == CKR_OK)
		rv = keep_secret(session, product + 1, t, count, handle);
	OPENSSL_cleanse(&o, sizeof o);
	OPENSSL_cleanse(product, sizeof product);
	return rv;
}

void sm_install(function_list *list, const function_list *real_module)
{
	sm_real = real_module;
#define PUT(name) list->place[PLACE_C_##name] = (any_function)&sm_##name;
	PUT(Finalize) PUT(CloseSession) PUT(CloseAllSessions) PUT(Logout)
	PUT(GetMechanismList) PUT(GetMechanismInfo)
	PUT(CreateObject) PUT(CopyObject) PUT(DestroyObject) PUT(GetAttributeValue) PUT(SetAttributeValue)
	PUT(FindObjectsInit) PUT(FindObjects) PUT(FindObjectsFinal)
	PUT(EncryptInit) PUT(Encrypt) PUT(DecryptInit) PUT(Decrypt) PUT(SignInit) PUT(Sign) PUT(DigestInit) PUT(Digest)
	PUT(GenerateKey) PUT(GenerateKeyPair) PUT(WrapKey) PUT(UnwrapKey) PUT(DeriveKey)
#undef PUT
}
