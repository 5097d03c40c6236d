#include "sm.h"

#include <openssl/crypto.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Chains of objects by handle: enough for chains to stay short with thousands. */
enum { BUCKETS = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sm_object *bucket[BUCKETS]; /* guarded by lock */
static CK_ULONG next_handle = SM_FIRST_HANDLE;

/* The curve's object identifier, 1.2.156.10197.1.301, in DER. */
static const byte curve[] = { 0x06, 0x08, 0x2A, 0x81, 0x1C, 0xCF, 0x55, 0x01, 0x82, 0x2D };

int sm_is_handle(CK_ULONG object) { return object >= SM_FIRST_HANDLE; }

int sm_is_type(CK_ULONG type) { return type == CKK_SM2 || type == CKK_SM3 || type == CKK_SM4; }

CK_ULONG sm_template_number(const CK_ATTRIBUTE *template, CK_ULONG count, CK_ULONG type)
{
	CK_ULONG number = 0;

	for (; template != NULL && count > 0; template++, count--)
		if (template->type == type && template->length == sizeof number)
			memcpy(&number, template->value, sizeof number);
	return number;
}

int sm_fits(CK_ULONG type, CK_ULONG class)
{
	return type == CKK_SM2 ? class == CKO_PUBLIC_KEY || class == CKO_PRIVATE_KEY : class == CKO_SECRET_KEY;
}

static CK_RV read_flag(const CK_ATTRIBUTE *a, int *flag)
{
	if (a->length != 1 || a->value == NULL)
		return CKR_ATTRIBUTE_VALUE_INVALID;
	*flag = *(const byte *)a->value != 0;
	return CKR_OK;
}

static CK_RV read_number(const CK_ATTRIBUTE *a, CK_ULONG *number)
{
	if (a->length != sizeof *number || a->value == NULL)
		return CKR_ATTRIBUTE_VALUE_INVALID;
	memcpy(number, a->value, sizeof *number);
	return CKR_OK;
}

static CK_RV read_bytes(const CK_ATTRIBUTE *a, byte *bytes, CK_ULONG room, CK_ULONG *length)
{
	if (a->length > room || (a->length > 0 && a->value == NULL))
		return CKR_ATTRIBUTE_VALUE_INVALID;
	if (a->length > 0)
		memcpy(bytes, a->value, a->length);
	*length = a->length;
	return CKR_OK;
}

/* A point, as it is or in an OCTET STRING. */
static CK_RV read_point(const CK_ATTRIBUTE *a, byte point[SM2_POINT])
{
	const byte *p = a->value;

	if (a->length == SM2_POINT + 2 && p[0] == 0x04 && p[1] == SM2_POINT)
		p += 2;
	else if (a->length != SM2_POINT)
		return CKR_ATTRIBUTE_VALUE_INVALID;
	memcpy(point, p, SM2_POINT);
	return CKR_OK;
}

static int is_use(CK_ULONG type) { return type >= CKA_ENCRYPT && type <= CKA_DERIVE; }

static CK_RV read_attribute(sm_object *o, const CK_ATTRIBUTE *a, enum sm_origin origin)
{
	CK_ULONG number = 0;
	int flag = 0;
	CK_RV rv;

	if (is_use(a->type)) {
		unsigned bit = 1u << (a->type - CKA_ENCRYPT);

		rv = read_flag(a, &flag);
		o->uses = flag ? o->uses | bit : o->uses & ~bit;
		return rv;
	}
	switch (a->type) {
	case CKA_CLASS:
		rv = read_number(a, &number);
		return rv != CKR_OK || number == o->key.class ? rv : CKR_TEMPLATE_INCONSISTENT;
	case CKA_KEY_TYPE:
		rv = read_number(a, &number);
		return rv != CKR_OK || number == o->key.type ? rv : CKR_TEMPLATE_INCONSISTENT;
	case CKA_TOKEN: /* there are no token objects */
		rv = read_flag(a, &flag);
		return rv != CKR_OK || !flag ? rv : CKR_ATTRIBUTE_VALUE_INVALID;
	case CKA_PRIVATE:
		return read_flag(a, &o->private);
	case CKA_SENSITIVE:
		return read_flag(a, &o->sensitive);
	case CKA_EXTRACTABLE:
		return read_flag(a, &o->extractable);
	case CKA_MODIFIABLE:
		return read_flag(a, &o->modifiable);
	case CKA_LABEL:
		return read_bytes(a, o->label, SM_NAME, &o->label_length);
	case CKA_ID:
		return read_bytes(a, o->id, SM_NAME, &o->id_length);
	case CKA_EC_PARAMS:
		return o->key.type == CKK_SM2 && a->length == sizeof curve && memcmp(a->value, curve, sizeof curve) == 0
			? CKR_OK : CKR_ATTRIBUTE_VALUE_INVALID;
	case CKA_VALUE_LEN:
		if (origin != SM_GENERATED || o->key.class != CKO_SECRET_KEY)
			return CKR_TEMPLATE_INCONSISTENT;
		rv = read_number(a, &number);
		o->key.value_length = number;
		return rv;
	case CKA_VALUE:
		if (origin != SM_CREATED || o->key.class == CKO_PUBLIC_KEY)
			return CKR_TEMPLATE_INCONSISTENT;
		return read_bytes(a, o->key.value, sizeof o->key.value, &o->key.value_length);
	case CKA_EC_POINT:
		if (origin != SM_CREATED || o->key.type != CKK_SM2)
			return CKR_TEMPLATE_INCONSISTENT;
		return read_point(a, o->key.point);
	}
	return CKR_ATTRIBUTE_TYPE_INVALID;
}

CK_RV sm_read_template(sm_object *o, const CK_ATTRIBUTE *template, CK_ULONG count, enum sm_origin origin)
{
	CK_RV rv = CKR_OK;

	o->private = o->sensitive = o->key.class != CKO_PUBLIC_KEY;
	o->modifiable = 1;
	for (; rv == CKR_OK && count > 0; template++, count--)
		rv = read_attribute(o, template, origin);
	return rv;
}

CK_RV sm_keep(const sm_object *o, CK_ULONG session, CK_ULONG *handle)
{
	sm_object *kept = malloc(sizeof *kept);
	sm_object **chain;
	int user;
	CK_RV rv;

	if (kept == NULL)
		return CKR_HOST_MEMORY;
	*kept = *o;
	rv = sm_session(session, &kept->slot, &user);
	if (rv != CKR_OK) {
		OPENSSL_cleanse(kept, sizeof *kept);
		free(kept);
		return rv;
	}
	kept->session = session;
	pthread_mutex_lock(&lock);
	kept->handle = *handle = next_handle++;
	chain = &bucket[kept->handle % BUCKETS];
	kept->next = *chain;
	*chain = kept;
	pthread_mutex_unlock(&lock);
	return CKR_OK;
}

/* The place of the object's pointer, with the lock held; NULL: there is none. */
static sm_object **find_locked(CK_ULONG handle, CK_ULONG slot, int user)
{
	sm_object **o;

	for (o = &bucket[handle % BUCKETS]; *o != NULL; o = &(*o)->next)
		if ((*o)->handle == handle)
			return (*o)->slot == slot && (user || !(*o)->private) ? o : NULL;
	return NULL;
}

static void free_locked(sm_object **place)
{
	sm_object *o = *place;

	*place = o->next;
	OPENSSL_cleanse(o, sizeof *o);
	free(o);
}

CK_RV sm_look_up(CK_ULONG session, CK_ULONG handle, sm_object *copy, CK_RV missing)
{
	sm_object **o;
	CK_ULONG slot;
	int user;
	CK_RV rv = sm_session(session, &slot, &user);

	if (rv != CKR_OK)
		return rv;
	pthread_mutex_lock(&lock);
	o = find_locked(handle, slot, user);
	if (o != NULL)
		*copy = **o;
	pthread_mutex_unlock(&lock);
	return o != NULL ? CKR_OK : missing;
}

CK_RV sm_destroy(CK_ULONG session, CK_ULONG handle)
{
	sm_object **o;
	CK_ULONG slot;
	int user;
	CK_RV rv = sm_session(session, &slot, &user);

	if (rv != CKR_OK)
		return rv;
	pthread_mutex_lock(&lock);
	o = find_locked(handle, slot, user);
	if (o != NULL)
		free_locked(o);
	else
		rv = CKR_OBJECT_HANDLE_INVALID;
	pthread_mutex_unlock(&lock);
	return rv;
}

/* An attribute's value, in room that holds any; 0: the object has no such one. */
static int value_of(const sm_object *o, CK_ULONG type, byte room[128], CK_ULONG *length)
{
	const void *from = room;
	CK_ULONG number = 0;

	*length = 1;
	if (is_use(type)) {
		room[0] = (byte)(o->uses >> (type - CKA_ENCRYPT) & 1);
		return 1;
	}
	switch (type) {
	case CKA_TOKEN: room[0] = 0; return 1;
	case CKA_PRIVATE: room[0] = (byte)o->private; return 1;
	case CKA_SENSITIVE: room[0] = (byte)o->sensitive; return o->key.class != CKO_PUBLIC_KEY;
	case CKA_EXTRACTABLE: room[0] = (byte)o->extractable; return o->key.class != CKO_PUBLIC_KEY;
	case CKA_MODIFIABLE: room[0] = (byte)o->modifiable; return 1;
	case CKA_CLASS: number = o->key.class; break;
	case CKA_KEY_TYPE: number = o->key.type; break;
	case CKA_VALUE_LEN:
		if (o->key.class != CKO_SECRET_KEY)
			return 0;
		number = o->key.value_length;
		break;
	case CKA_LABEL: from = o->label; *length = o->label_length; break;
	case CKA_ID: from = o->id; *length = o->id_length; break;
	case CKA_VALUE:
		if (o->key.class == CKO_PUBLIC_KEY)
			return 0;
		from = o->key.value;
		*length = o->key.value_length;
		break;
	case CKA_EC_PARAMS:
		if (o->key.type != CKK_SM2)
			return 0;
		from = curve;
		*length = sizeof curve;
		break;
	case CKA_EC_POINT:
		if (o->key.class != CKO_PUBLIC_KEY)
			return 0;
		room[0] = 0x04; /* OCTET STRING */
		room[1] = SM2_POINT;
		memcpy(room + 2, o->key.point, SM2_POINT);
		*length = SM2_POINT + 2;
		return 1;
	default:
		return 0;
	}
	if (from == room) {
		from = &number;
		*length = sizeof number;
	}
	memcpy(room, from, *length);
	return 1;
}

/* C_GetAttributeValue goes on after an attribute that it does not give. */
CK_RV sm_get(CK_ULONG session, CK_ULONG handle, CK_ATTRIBUTE *template, CK_ULONG count)
{
	byte room[128];
	sm_object o;
	CK_RV rv = sm_look_up(session, handle, &o, CKR_OBJECT_HANDLE_INVALID);
	CK_ULONG i, length;

	for (i = 0; rv != CKR_OBJECT_HANDLE_INVALID && rv != CKR_SESSION_HANDLE_INVALID && i < count; i++) {
		CK_ATTRIBUTE *a = &template[i];

		if (a->type == CKA_VALUE && o.key.class != CKO_PUBLIC_KEY && (o.sensitive || !o.extractable)) {
			a->length = CK_UNAVAILABLE_INFORMATION;
			rv = CKR_ATTRIBUTE_SENSITIVE;
		} else if (!value_of(&o, a->type, room, &length)) {
			a->length = CK_UNAVAILABLE_INFORMATION;
			rv = CKR_ATTRIBUTE_TYPE_INVALID;
		} else if (a->value == NULL) {
			a->length = length;
		} else if (a->length < length) {
			a->length = CK_UNAVAILABLE_INFORMATION;
			rv = CKR_BUFFER_TOO_SMALL;
		} else {
			memcpy(a->value, room, length);
			a->length = length;
		}
	}
	OPENSSL_cleanse(room, sizeof room);
	OPENSSL_cleanse(&o, sizeof o);
	return rv;
}

/* Whether an object that can be changed may be changed so: protection only grows. */
static int may_change(const sm_object *before, const sm_object *after, const CK_ATTRIBUTE *template, CK_ULONG count)
{
	for (; count > 0; template++, count--)
		if (!is_use(template->type) && template->type != CKA_LABEL && template->type != CKA_ID &&
			template->type != CKA_SENSITIVE && template->type != CKA_EXTRACTABLE)
			return 0;
	return (!before->sensitive || after->sensitive) && (before->extractable || !after->extractable);
}

CK_RV sm_set(CK_ULONG session, CK_ULONG handle, const CK_ATTRIBUTE *template, CK_ULONG count)
{
	sm_object before, after, **o;
	CK_RV rv = sm_look_up(session, handle, &before, CKR_OBJECT_HANDLE_INVALID);
	CK_ULONG i;

	if (rv != CKR_OK)
		return rv;
	if (!before.modifiable)
		return CKR_ACTION_PROHIBITED;
	after = before;
	for (i = 0; rv == CKR_OK && i < count; i++)
		rv = read_attribute(&after, &template[i], SM_UNWRAPPED);
	if (rv == CKR_OK && !may_change(&before, &after, template, count))
		rv = CKR_ATTRIBUTE_READ_ONLY;
	if (rv == CKR_OK) {
		pthread_mutex_lock(&lock);
		o = find_locked(handle, before.slot, 1);
		if (o != NULL) {
			after.next = (*o)->next;
			**o = after;
		}
		pthread_mutex_unlock(&lock);
	}
	OPENSSL_cleanse(&before, sizeof before);
	OPENSSL_cleanse(&after, sizeof after);
	return rv;
}

/* A value that is not shown matches nothing. */
static int matches(const sm_object *o, const CK_ATTRIBUTE *template, CK_ULONG count)
{
	byte room[128];
	CK_ULONG length;

	for (; count > 0; template++, count--)
		if (template->type == CKA_VALUE || !value_of(o, template->type, room, &length) ||
			length != template->length || memcmp(room, template->value, length) != 0)
			return 0;
	return 1;
}

CK_ULONG sm_match(CK_ULONG session, const CK_ATTRIBUTE *template, CK_ULONG count, CK_ULONG *found, CK_ULONG room)
{
	CK_ULONG slot, n = 0;
	const sm_object *o;
	int user, i;

	if (sm_session(session, &slot, &user) != CKR_OK)
		return 0;
	pthread_mutex_lock(&lock);
	for (i = 0; i < BUCKETS; i++)
		for (o = bucket[i]; o != NULL; o = o->next)
			if (o->slot == slot && (user || !o->private) && matches(o, template, count) && n++ < room)
				found[n - 1] = o->handle;
	pthread_mutex_unlock(&lock);
	return n;
}

static void end_where(int (*ends)(const sm_object *, CK_ULONG), CK_ULONG which)
{
	sm_object **o;
	int i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < BUCKETS; i++) {
		for (o = &bucket[i]; *o != NULL;) {
			if (ends(*o, which))
				free_locked(o);
			else
				o = &(*o)->next;
		}
	}
	pthread_mutex_unlock(&lock);
}

static int of_session(const sm_object *o, CK_ULONG session) { return o->session == session; }
static int of_slot(const sm_object *o, CK_ULONG slot) { return o->slot == slot; }
static int private_of_slot(const sm_object *o, CK_ULONG slot) { return o->slot == slot && o->private; }
static int any(const sm_object *o, CK_ULONG ignored) { (void)o; (void)ignored; return 1; }

void sm_end_session(CK_ULONG session) { end_where(of_session, session); }

void sm_end_slot(CK_ULONG slot, int private_only) { end_where(private_only ? private_of_slot : of_slot, slot); }

void sm_end_all(void) { end_where(any, 0); }
