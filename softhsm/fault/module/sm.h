/*
 * Keys of SM2, SM4 and HMAC-SM3 in front of a module that has none: a set of
 * mechanisms as vendors add to PKCS#11, which has no numbers for them.
 *
 * # The numbers
 *
 * Those of swpkcs11.h, the header of Sansec's module, where it has them.
 * SM4-GCM, which it lacks, has the number of Koal's interface definition, and
 * HMAC with SM3 that of Thales Luna. What the mechanisms do follows their
 * names in that header and users of the module, who call CKM_SM3_SM2 and
 * CKM_SM3_SM2_APPID1_DER without a parameter; its comments do not say how
 * CKM_SM2_RAW lays out a ciphertext, so it is that of ECCCipher (GM/T 0018):
 * x ‖ y ‖ C3 ‖ C2.
 *
 * Beyond these documents the module takes what some vendors want: the user id
 * as the parameter of CKM_SM3_SM2_APPID1 and _DER, which have the default one
 * without, and the parameter of GCM in either of its forms.
 *
 * # The keys
 *
 * They are session objects with handles of their own, far above those of the
 * real module, and obey PKCS#11: they end with their session, a sensitive or
 * unextractable value is not read, one that is unextractable not wrapped, one
 * that is not modifiable not changed, private ones are there for a user who
 * has logged in.
 *
 * # Wrapping
 *
 * Keys of the domain are wrapped under an AES root, which may wrap and unwrap
 * only; what it unwraps, the real module keeps to itself. So it must, and so
 * this module cannot have the real one unwrap the bytes of its keys. It wraps
 * them, by RFC 5649, under a key that hangs on the root: the SHA-256 of what
 * the root makes of a fixed value by CKM_AES_KEY_WRAP_PAD. Tokens with one
 * root have the same, and nobody else can have the root make it: what
 * C_WrapKey returns is compared with it and held back. Whether a key may be
 * unwrapped under a template, the real module decides: it is asked to unwrap
 * that fixed value under the same template, with all rules of the root.
 */
#ifndef SLUICE_SM_H
#define SLUICE_SM_H

#include "cryptoki.h"
#include "sm_crypto.h"

/* Macros, as enumerators have no room for the vendors' numbers. */
#define CKK_SM2 0x80000004UL
#define CKK_SM3 0x80000005UL /* of HMAC keys */
#define CKK_SM4 0x80000106UL

#define CKM_SM4_KEY_GEN 0x80000107UL
#define CKM_SM4_ECB 0x80000108UL
#define CKM_SM4_CBC 0x80000109UL
#define CKM_SM4_GCM 0x8000010FUL /* Koal */
#define CKM_SM2_KEY_PAIR_GEN 0x80008001UL
#define CKM_SM3_SM2 0x80008100UL /* message, r ‖ s, without ZA */
#define CKM_SM3_SM2_DER 0x80008101UL
#define CKM_SM3_SM2_APPID1 0x80008102UL /* with ZA, of the id 1234567812345678 or the parameter */
#define CKM_SM3_SM2_APPID1_DER 0x80008103UL
#define CKM_SM2_SIGN 0x80008104UL /* digest, DER */
#define CKM_SM2_SIGN_NO_DER 0x80008105UL
#define CKM_SM2_RAW 0x80008200UL
#define CKM_SM2_CIPHER_DER 0x80008201UL /* SM2Cipher of GM/T 0009, 7.2 */
#define CKM_SM3 0x80009000UL
#define CKM_SM3_HMAC 0x80000B02UL /* Luna */

/* The secret or private part of a key, or the public one. */
typedef struct {
	CK_ULONG class, type;
	byte value[64]; /* the scalar of SM2, or a secret */
	CK_ULONG value_length;
	byte point[SM2_POINT]; /* SM2 */
} sm_key;

/* Longest CKA_LABEL and CKA_ID that a key takes, in bytes. */
enum { SM_NAME = 64 };

typedef struct sm_object {
	struct sm_object *next;
	CK_ULONG handle, session, slot;
	sm_key key;
	int private, sensitive, extractable, modifiable;
	unsigned uses; /* a bit for each of CKA_ENCRYPT to CKA_DERIVE */
	byte label[SM_NAME], id[SM_NAME];
	CK_ULONG label_length, id_length;
} sm_object;

/* sm_object.c: the keys. All functions lock what they need themselves. */

/* The first handle; those of the real module count from 1. */
#define SM_FIRST_HANDLE (1UL << 40)
int sm_is_handle(CK_ULONG object);
int sm_is_type(CK_ULONG key_type);

/* Fills an object in from a template: its attributes, and for C_CreateObject the key. */
enum sm_origin { SM_CREATED, SM_GENERATED, SM_UNWRAPPED };
CK_RV sm_read_template(sm_object *o, const CK_ATTRIBUTE *template, CK_ULONG count, enum sm_origin origin);
/* The number that a template has for CKA_CLASS or CKA_KEY_TYPE, 0 when it has none. */
CK_ULONG sm_template_number(const CK_ATTRIBUTE *template, CK_ULONG count, CK_ULONG type);
/* Whether keys of the type have the class: SM2 has pairs, the others have secrets. */
int sm_fits(CK_ULONG type, CK_ULONG class);

/* Keeps a copy of the object as one of the session's. */
CK_RV sm_keep(const sm_object *o, CK_ULONG session, CK_ULONG *handle);
/* Copies an object that the session may see, or answers with missing. */
CK_RV sm_look_up(CK_ULONG session, CK_ULONG handle, sm_object *copy, CK_RV missing);
CK_RV sm_destroy(CK_ULONG session, CK_ULONG handle);
CK_RV sm_get(CK_ULONG session, CK_ULONG handle, CK_ATTRIBUTE *template, CK_ULONG count);
CK_RV sm_set(CK_ULONG session, CK_ULONG handle, const CK_ATTRIBUTE *template, CK_ULONG count);
/* Writes at most room handles of those that match; returns how many there are. */
CK_ULONG sm_match(CK_ULONG session, const CK_ATTRIBUTE *template, CK_ULONG count, CK_ULONG *found, CK_ULONG room);
/* Ends the objects of a session, of a slot, or the private ones of a slot. */
void sm_end_session(CK_ULONG session);
void sm_end_slot(CK_ULONG slot, int private_only);
void sm_end_all(void);

/* sm.c: the functions. */

/*
 * The session's slot, and whether a user is logged in; asks the real module,
 * so that a session which is gone there is gone here.
 */
CK_RV sm_session(CK_ULONG session, CK_ULONG *slot, int *user);

/* Puts the functions that know SM keys into the list, before those of the real module. */
void sm_install(function_list *list, const function_list *real_module);

#endif
