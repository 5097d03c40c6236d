/* The wrapping of SM keys; sm.h says how. */
#include "sm_function.h"
#include "sm_encoding.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <string.h>

static const byte fixed[KWP_KEY] = "the wrapping key of SM keys here";
enum { FIXED_WRAPPED = KWP_KEY + 8 };

static int is_kwp(const CK_MECHANISM *m)
{
	return m != NULL && m->length == 0 && (m->mechanism == CKM_AES_KEY_WRAP_PAD || m->mechanism == CKM_AES_KEY_WRAP_KWP);
}

/* Has the real module wrap the fixed value under a key. */
static CK_RV wrap_fixed(CK_ULONG session, CK_MECHANISM *m, CK_ULONG kek, byte wrapped[FIXED_WRAPPED])
{
	CK_ULONG class = CKO_SECRET_KEY, type = CKK_GENERIC_SECRET, carrier, length = FIXED_WRAPPED;
	byte yes = 1, no = 0;
	CK_ATTRIBUTE template[] = {
		{ CKA_CLASS, &class, sizeof class },
		{ CKA_KEY_TYPE, &type, sizeof type },
		{ CKA_TOKEN, &no, sizeof no },
		{ CKA_PRIVATE, &yes, sizeof yes },
		{ CKA_EXTRACTABLE, &yes, sizeof yes },
		{ CKA_VALUE, (void *)(uintptr_t)fixed, sizeof fixed },
	};
	CK_RV rv = REAL(C_CreateObject, (CK_ULONG, CK_ATTRIBUTE *, CK_ULONG, CK_ULONG *))(session, template,
		sizeof template / sizeof template[0], &carrier);

	if (rv != CKR_OK)
		return rv;
	rv = REAL(C_WrapKey, (CK_ULONG, CK_MECHANISM *, CK_ULONG, CK_ULONG, CK_BYTE *, CK_ULONG *))(session, m, kek, carrier,
		wrapped, &length);
	REAL(C_DestroyObject, (CK_ULONG, CK_ULONG))(session, carrier);
	return rv == CKR_OK && length != FIXED_WRAPPED ? CKR_MECHANISM_INVALID : rv;
}

static CK_RV wrapping_key(CK_ULONG session, CK_MECHANISM *m, CK_ULONG kek, byte key[KWP_KEY], byte wrapped[FIXED_WRAPPED])
{
	CK_RV rv = wrap_fixed(session, m, kek, wrapped);

	if (rv == CKR_OK && !EVP_Digest(wrapped, FIXED_WRAPPED, key, NULL, EVP_sha256(), NULL))
		rv = CKR_FUNCTION_FAILED;
	return rv;
}

/* What of a key is wrapped: a secret, or an SM2 key as PrivateKeyInfo. */
static size_t encode(const sm_key *key, byte encoded[SM2_PRIVATE_KEY])
{
	if (key->type == CKK_SM2) {
		sm2_write_private(key->value, encoded);
		return SM2_PRIVATE_KEY;
	}
	memcpy(encoded, key->value, key->value_length);
	return key->value_length;
}

static CK_RV wrap_key(CK_ULONG session, CK_MECHANISM *m, CK_ULONG kek, const sm_object *o, CK_BYTE *out, CK_ULONG *length)
{
	byte key[KWP_KEY], wrapped[FIXED_WRAPPED], encoded[SM2_PRIVATE_KEY];
	size_t size;
	CK_ULONG room = *length;
	CK_RV rv;

	if (o->key.class == CKO_PUBLIC_KEY)
		return CKR_KEY_NOT_WRAPPABLE;
	if (!o->extractable)
		return CKR_KEY_UNEXTRACTABLE;
	rv = wrapping_key(session, m, kek, key, wrapped);
	if (rv != CKR_OK)
		return rv;
	size = encode(&o->key, encoded);
	*length = (size + 7) / 8 * 8 + 8;
	if (out != NULL && room < *length)
		rv = CKR_BUFFER_TOO_SMALL;
	else if (out != NULL && !kwp(1, key, encoded, &size, out))
		rv = CKR_FUNCTION_FAILED;
	OPENSSL_cleanse(key, sizeof key);
	OPENSSL_cleanse(encoded, sizeof encoded);
	return rv;
}

/* Holds back what the wrapping of SM keys hangs on. */
static CK_RV hold_back(CK_ULONG session, CK_MECHANISM *m, CK_ULONG kek, CK_BYTE *out, CK_ULONG *length)
{
	byte wrapped[FIXED_WRAPPED];
	CK_RV rv;

	if (*length != FIXED_WRAPPED)
		return CKR_OK;
	rv = wrap_fixed(session, m, kek, wrapped);
	if (rv == CKR_OK && memcmp(out, wrapped, FIXED_WRAPPED) == 0)
		rv = CKR_KEY_NOT_WRAPPABLE;
	if (rv != CKR_OK) {
		OPENSSL_cleanse(out, FIXED_WRAPPED);
		*length = 0;
	}
	return rv;
}

CK_RV sm_WrapKey(CK_ULONG session, CK_MECHANISM *m, CK_ULONG kek, CK_ULONG key, CK_BYTE *out, CK_ULONG *length)
{
	sm_object o;
	CK_RV rv;

	if (sm_is_handle(kek))
		return CKR_WRAPPING_KEY_TYPE_INCONSISTENT;
	if (!sm_is_handle(key)) {
		rv = REAL(C_WrapKey, (CK_ULONG, CK_MECHANISM *, CK_ULONG, CK_ULONG, CK_BYTE *, CK_ULONG *))(session, m, kek,
			key, out, length);
		return rv == CKR_OK && out != NULL && is_kwp(m) ? hold_back(session, m, kek, out, length) : rv;
	}
	if (!is_kwp(m))
		return CKR_MECHANISM_INVALID;
	if (length == NULL)
		return CKR_ARGUMENTS_BAD;
	rv = sm_look_up(session, key, &o, CKR_KEY_HANDLE_INVALID);
	if (rv == CKR_OK)
		rv = wrap_key(session, m, kek, &o, out, length);
	OPENSSL_cleanse(&o, sizeof o);
	return rv;
}

/*
 * Asks the real module to unwrap the fixed value under the caller's template,
 * as a secret, and takes over the protection that it gives.
 */
static CK_RV ask_real(CK_ULONG session, CK_MECHANISM *m, CK_ULONG kek, byte wrapped[FIXED_WRAPPED],
	const CK_ATTRIBUTE *t, CK_ULONG count, sm_object *o)
{
	CK_ULONG class = CKO_SECRET_KEY, type = CKK_GENERIC_SECRET, n = 2, probe;
	byte sensitive = 0, extractable = 1;
	CK_ATTRIBUTE template[MAX_TEMPLATE] = { { CKA_CLASS, &class, sizeof class }, { CKA_KEY_TYPE, &type, sizeof type } };
	CK_ATTRIBUTE flags[] = { { CKA_SENSITIVE, &sensitive, 1 }, { CKA_EXTRACTABLE, &extractable, 1 } };
	CK_RV rv;

	if (count > MAX_TEMPLATE - 2)
		return CKR_TEMPLATE_INCONSISTENT;
	for (; count > 0; t++, count--)
		if (t->type != CKA_CLASS && t->type != CKA_KEY_TYPE && t->type != CKA_EC_PARAMS &&
			t->type != CKA_SIGN_RECOVER && t->type != CKA_VERIFY_RECOVER)
			template[n++] = *t;
	rv = REAL(C_UnwrapKey, (CK_ULONG, CK_MECHANISM *, CK_ULONG, CK_BYTE *, CK_ULONG, CK_ATTRIBUTE *, CK_ULONG, CK_ULONG *))(
		session, m, kek, wrapped, FIXED_WRAPPED, template, n, &probe);
	if (rv != CKR_OK)
		return rv;
	rv = REAL(C_GetAttributeValue, (CK_ULONG, CK_ULONG, CK_ATTRIBUTE *, CK_ULONG))(session, probe, flags, 2);
	REAL(C_DestroyObject, (CK_ULONG, CK_ULONG))(session, probe);
	o->sensitive = sensitive;
	o->extractable = extractable;
	return rv;
}

static CK_RV decode(sm_key *key, const byte *encoded, size_t length)
{
	key->value_length = length;
	switch (key->type) {
	case CKK_SM2:
		key->value_length = SM2_SIZE;
		return sm2_read_private(encoded, length, key->value) && sm2_public(key->value, key->point)
			? CKR_OK : CKR_WRAPPED_KEY_INVALID;
	case CKK_SM4:
		if (length != SM4_SIZE)
			return CKR_WRAPPED_KEY_INVALID;
		break;
	default:
		if (length < 16 || length > sizeof key->value)
			return CKR_WRAPPED_KEY_INVALID;
	}
	memcpy(key->value, encoded, length);
	return CKR_OK;
}

/* Longest wrapped SM key in bytes. */
enum { MAX_WRAPPED = SM2_PRIVATE_KEY + KWP_EXTRA };

static CK_RV unwrap_key(CK_ULONG session, CK_MECHANISM *m, CK_ULONG kek, const CK_BYTE *in, CK_ULONG length,
	const CK_ATTRIBUTE *t, CK_ULONG count, sm_object *o)
{
	byte key[KWP_KEY], wrapped[FIXED_WRAPPED], encoded[MAX_WRAPPED];
	size_t size = length;
	CK_RV rv = sm_read_template(o, t, count, SM_UNWRAPPED);

	if (rv == CKR_OK && (in == NULL || length > MAX_WRAPPED))
		rv = CKR_WRAPPED_KEY_INVALID;
	if (rv == CKR_OK)
		rv = wrapping_key(session, m, kek, key, wrapped);
	if (rv == CKR_OK)
		rv = ask_real(session, m, kek, wrapped, t, count, o);
	if (rv == CKR_OK && !kwp(0, key, in, &size, encoded))
		rv = CKR_WRAPPED_KEY_INVALID;
	if (rv == CKR_OK)
		rv = decode(&o->key, encoded, size);
	OPENSSL_cleanse(key, sizeof key);
	OPENSSL_cleanse(encoded, sizeof encoded);
	return rv;
}

CK_RV sm_UnwrapKey(CK_ULONG session, CK_MECHANISM *m, CK_ULONG kek, CK_BYTE *in, CK_ULONG length, CK_ATTRIBUTE *t,
	CK_ULONG count, CK_ULONG *handle)
{
	sm_object o = { 0 };
	CK_RV rv;

	o.key.type = sm_template_number(t, count, CKA_KEY_TYPE);
	if (!sm_is_type(o.key.type))
		return REAL(C_UnwrapKey, (CK_ULONG, CK_MECHANISM *, CK_ULONG, CK_BYTE *, CK_ULONG, CK_ATTRIBUTE *, CK_ULONG,
			CK_ULONG *))(session, m, kek, in, length, t, count, handle);
	if (sm_is_handle(kek))
		return CKR_WRAPPING_KEY_TYPE_INCONSISTENT;
	if (!is_kwp(m))
		return CKR_MECHANISM_INVALID;
	if (handle == NULL)
		return CKR_ARGUMENTS_BAD;
	o.key.class = sm_template_number(t, count, CKA_CLASS);
	if (!sm_fits(o.key.type, o.key.class) || o.key.class == CKO_PUBLIC_KEY)
		return CKR_TEMPLATE_INCONSISTENT;
	rv = unwrap_key(session, m, kek, in, length, t, count, &o);
	if (rv == CKR_OK)
		rv = sm_keep(&o, session, handle);
	OPENSSL_cleanse(&o, sizeof o);
	return rv;
}
