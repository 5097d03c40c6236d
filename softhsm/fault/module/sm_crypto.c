#define OPENSSL_API_COMPAT 30000
#include "sm_crypto.h"

#include <limits.h>
#include <openssl/bn.h>
#include <openssl/crypto.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/modes.h>
#include <openssl/obj_mac.h>
#include <pthread.h>
#include <string.h>

static EC_GROUP *group;

static void make_group(void) { group = EC_GROUP_new_by_curve_name(NID_sm2); }

/* What a computation on the curve works with. */
typedef struct {
	BN_CTX *ctx;
	BIGNUM *a, *b, *c, *d;
	EC_POINT *p;
} work;

static int begin(work *w)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, make_group);
	memset(w, 0, sizeof *w);
	if (group == NULL || (w->ctx = BN_CTX_secure_new()) == NULL)
		return 0;
	BN_CTX_start(w->ctx);
	w->a = BN_CTX_get(w->ctx);
	w->b = BN_CTX_get(w->ctx);
	w->c = BN_CTX_get(w->ctx);
	w->d = BN_CTX_get(w->ctx);
	w->p = EC_POINT_new(group);
	return w->d != NULL && w->p != NULL;
}

static int end(work *w, int ok)
{
	if (w->ctx != NULL) {
		BN_CTX_end(w->ctx);
		BN_CTX_free(w->ctx);
	}
	EC_POINT_clear_free(w->p);
	return ok;
}

static int write_point(work *w, byte point[SM2_POINT])
{
	return EC_POINT_point2oct(group, w->p, POINT_CONVERSION_UNCOMPRESSED, point, SM2_POINT, w->ctx) == SM2_POINT;
}

/* A private key is 1 to n-2 (GB/T 32918.1, 6.1). */
static int read_scalar(work *w, const byte scalar[SM2_SIZE], BIGNUM *d)
{
	return BN_bin2bn(scalar, SM2_SIZE, d) != NULL && BN_copy(w->d, EC_GROUP_get0_order(group)) != NULL &&
		BN_sub_word(w->d, 1) && !BN_is_zero(d) && BN_cmp(d, w->d) < 0;
}

int sm2_generate(byte scalar[SM2_SIZE], byte point[SM2_POINT])
{
	work w;
	int ok = begin(&w);

	while (ok) {
		ok = BN_priv_rand_range(w.a, EC_GROUP_get0_order(group)) && BN_bn2binpad(w.a, scalar, SM2_SIZE) == SM2_SIZE;
		if (ok && sm2_public(scalar, point))
			break;
	}
	return end(&w, ok);
}

int sm2_public(const byte scalar[SM2_SIZE], byte point[SM2_POINT])
{
	work w;

	return end(&w, begin(&w) && read_scalar(&w, scalar, w.a) &&
		EC_POINT_mul(group, w.p, w.a, NULL, NULL, w.ctx) && write_point(&w, point));
}

int sm2_multiply(const byte scalar[SM2_SIZE], const byte point[SM2_POINT], byte product[SM2_POINT])
{
	work w;

	/* The reading of a point checks that it is on the curve. */
	return end(&w, begin(&w) && read_scalar(&w, scalar, w.a) && point[0] == POINT_CONVERSION_UNCOMPRESSED &&
		EC_POINT_oct2point(group, w.p, point, SM2_POINT, w.ctx) &&
		EC_POINT_mul(group, w.p, NULL, w.p, w.a, w.ctx) && write_point(&w, product));
}

/* One try with a random k; *again when it has to be another. */
static int try_sign(work *w, const byte e[SM3_SIZE], byte rs[2 * SM2_SIZE], int *again)
{
	const BIGNUM *n = EC_GROUP_get0_order(group);
	BIGNUM *d = w->a, *k = w->b, *r = w->c, *t = w->d;
	byte point[SM2_POINT];

	*again = 0;
	if (!BN_priv_rand_range(k, n))
		return 0;
	if (BN_is_zero(k))
		return *again = 1;
	if (!EC_POINT_mul(group, w->p, k, NULL, NULL, w->ctx) || !write_point(w, point) ||
		BN_bin2bn(point + 1, SM2_SIZE, t) == NULL || BN_bin2bn(e, SM3_SIZE, r) == NULL ||
		!BN_mod_add(r, r, t, n, w->ctx) || !BN_add(t, r, k))
		return 0;
	if (BN_is_zero(r) || BN_cmp(t, n) == 0)
		return *again = 1;
	/* s = (1 + d)^-1 · (k - r·d) */
	if (BN_bn2binpad(r, rs, SM2_SIZE) != SM2_SIZE || !BN_mod_mul(t, r, d, n, w->ctx) ||
		!BN_mod_sub(k, k, t, n, w->ctx) || BN_copy(t, d) == NULL || !BN_add_word(t, 1) ||
		BN_mod_inverse(t, t, n, w->ctx) == NULL || !BN_mod_mul(t, t, k, n, w->ctx))
		return 0;
	if (BN_is_zero(t))
		return *again = 1;
	return BN_bn2binpad(t, rs + SM2_SIZE, SM2_SIZE) == SM2_SIZE;
}

int sm2_sign(const byte scalar[SM2_SIZE], const byte e[SM3_SIZE], byte rs[2 * SM2_SIZE])
{
	work w;
	int again = 1, ok = begin(&w) && read_scalar(&w, scalar, w.a);

	while (ok && again)
		ok = try_sign(&w, e, rs, &again);
	return end(&w, ok);
}

/* Hashes the parts one after another; their list ends with NULL. */
typedef struct {
	const byte *bytes;
	size_t length;
} part;

static int hash_parts(const part *parts, byte out[SM3_SIZE])
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	int ok = ctx != NULL && EVP_DigestInit_ex(ctx, EVP_sm3(), NULL);

	for (; ok && parts->bytes != NULL; parts++)
		ok = EVP_DigestUpdate(ctx, parts->bytes, parts->length);
	ok = ok && EVP_DigestFinal_ex(ctx, out, NULL);
	EVP_MD_CTX_free(ctx);
	return ok;
}

int sm3_hash(const byte *in, size_t length, byte out[SM3_SIZE])
{
	return hash_parts((part[]){ { in, length }, { NULL, 0 } }, out);
}

int sm3_hmac(const byte *key, size_t key_length, const byte *in, size_t length, byte out[SM3_SIZE])
{
	return HMAC(EVP_sm3(), key, (int)key_length, in, length, out, NULL) != NULL;
}

/* a ‖ b ‖ Gx ‖ Gy */
static int curve_constants(work *w, byte constants[4 * SM2_SIZE])
{
	byte point[SM2_POINT];

	if (!EC_GROUP_get_curve(group, w->c, w->a, w->b, w->ctx) ||
		BN_bn2binpad(w->a, constants, SM2_SIZE) != SM2_SIZE ||
		BN_bn2binpad(w->b, constants + SM2_SIZE, SM2_SIZE) != SM2_SIZE ||
		!EC_POINT_copy(w->p, EC_GROUP_get0_generator(group)) || !write_point(w, point))
		return 0;
	memcpy(constants + 2 * SM2_SIZE, point + 1, 2 * SM2_SIZE);
	return 1;
}

int sm2_digest(const byte point[SM2_POINT], const byte *id, size_t id_length, const byte *message, size_t length,
	byte e[SM3_SIZE])
{
	byte constants[4 * SM2_SIZE], za[SM3_SIZE], bits[2];
	work w;

	bits[0] = (byte)(id_length * 8 >> 8);
	bits[1] = (byte)(id_length * 8);
	return end(&w, begin(&w) && curve_constants(&w, constants)) &&
		hash_parts((part[]){ { bits, 2 }, { id, id_length },
			{ constants, sizeof constants }, { point + 1, 2 * SM2_SIZE }, { NULL, 0 } }, za) &&
		hash_parts((part[]){ { za, SM3_SIZE }, { message, length }, { NULL, 0 } }, e);
}

/*
 * out = in ⊕ KDF(x2 ‖ y2) (GB/T 32918.4, 5.4.3); *zero tells whether the mask
 * is all zero.
 */
static int mask(const byte shared[SM2_POINT], const byte *in, size_t length, byte *out, int *zero)
{
	byte block[SM3_SIZE], counter[4];
	size_t done, i;
	unsigned long n = 1;

	*zero = 1;
	for (done = 0; done < length; done += SM3_SIZE, n++) {
		for (i = 0; i < 4; i++)
			counter[i] = (byte)(n >> (24 - 8 * i));
		if (!hash_parts((part[]){ { shared + 1, 2 * SM2_SIZE }, { counter, 4 }, { NULL, 0 } }, block))
			return 0;
		for (i = 0; i < SM3_SIZE && done + i < length; i++) {
			*zero = *zero && block[i] == 0;
			out[done + i] = in[done + i] ^ block[i];
		}
	}
	return 1;
}

/* C3 = SM3(x2 ‖ plaintext ‖ y2) */
static int check_hash(const byte shared[SM2_POINT], const byte *plaintext, size_t length, byte c3[SM3_SIZE])
{
	return hash_parts((part[]){ { shared + 1, SM2_SIZE }, { plaintext, length },
		{ shared + 1 + SM2_SIZE, SM2_SIZE }, { NULL, 0 } }, c3);
}

int sm2_encrypt(const byte point[SM2_POINT], const byte *plaintext, size_t length,
	byte c1[SM2_POINT], byte *c2, byte c3[SM3_SIZE])
{
	byte k[SM2_SIZE], shared[SM2_POINT];
	int ok, zero;

	do
		ok = sm2_generate(k, c1) && sm2_multiply(k, point, shared) && mask(shared, plaintext, length, c2, &zero);
	while (ok && zero && length > 0);
	return ok && check_hash(shared, plaintext, length, c3);
}

int sm2_decrypt(const byte scalar[SM2_SIZE], const byte c1[SM2_POINT], const byte *c2, size_t length,
	const byte c3[SM3_SIZE], byte *plaintext)
{
	byte shared[SM2_POINT], check[SM3_SIZE];
	int zero;

	return sm2_multiply(scalar, c1, shared) && mask(shared, c2, length, plaintext, &zero) &&
		(!zero || length == 0) && check_hash(shared, plaintext, length, check) &&
		CRYPTO_memcmp(check, c3, SM3_SIZE) == 0;
}

/* Whole blocks by a cipher of EVP without padding. */
static int run_cipher(const EVP_CIPHER *cipher, int encrypt, const byte *key, const byte *iv,
	const byte *in, size_t length, byte *out, int *written)
{
	EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
	int rest = 0, ok;

	*written = 0;
	if (ctx != NULL)
		EVP_CIPHER_CTX_set_flags(ctx, EVP_CIPHER_CTX_FLAG_WRAP_ALLOW);
	ok = ctx != NULL && length <= INT_MAX && EVP_CipherInit_ex(ctx, cipher, NULL, key, iv, encrypt) &&
		EVP_CIPHER_CTX_set_padding(ctx, 0) && EVP_CipherUpdate(ctx, out, written, in, (int)length) &&
		EVP_CipherFinal_ex(ctx, out + *written, &rest);
	*written += rest;
	EVP_CIPHER_CTX_free(ctx);
	return ok;
}

int sm4_ecb(int encrypt, const byte key[SM4_SIZE], const byte *in, size_t length, byte *out)
{
	int written;

	return run_cipher(EVP_sm4_ecb(), encrypt, key, NULL, in, length, out, &written) && (size_t)written == length;
}

int sm4_cbc(int encrypt, const byte key[SM4_SIZE], const byte *iv, const byte *in, size_t length, byte *out)
{
	int written;

	return run_cipher(EVP_sm4_cbc(), encrypt, key, iv, in, length, out, &written) && (size_t)written == length;
}

static void sm4_block(const byte in[SM4_SIZE], byte out[SM4_SIZE], const void *ctx)
{
	int written;

	EVP_EncryptUpdate((EVP_CIPHER_CTX *)(uintptr_t)ctx, out, &written, in, SM4_SIZE);
}

int sm4_gcm(int encrypt, const byte key[SM4_SIZE], const byte *iv, size_t iv_length,
	const byte *aad, size_t aad_length, const byte *in, size_t length, byte *out)
{
	EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
	GCM128_CONTEXT *gcm = NULL;
	int ok = ctx != NULL && EVP_EncryptInit_ex(ctx, EVP_sm4_ecb(), NULL, key, NULL) &&
		EVP_CIPHER_CTX_set_padding(ctx, 0) && (gcm = CRYPTO_gcm128_new(ctx, sm4_block)) != NULL;

	if (ok) {
		CRYPTO_gcm128_setiv(gcm, iv, iv_length);
		ok = aad_length == 0 || CRYPTO_gcm128_aad(gcm, aad, aad_length) == 0;
	}
	if (ok && encrypt) {
		ok = CRYPTO_gcm128_encrypt(gcm, in, out, length) == 0;
		CRYPTO_gcm128_tag(gcm, out + length, TAG_SIZE);
	} else if (ok) {
		ok = CRYPTO_gcm128_decrypt(gcm, in, out, length) == 0 &&
			CRYPTO_gcm128_finish(gcm, in + length, TAG_SIZE) == 0;
	}
	CRYPTO_gcm128_release(gcm);
	EVP_CIPHER_CTX_free(ctx);
	return ok;
}

int kwp(int wrap, const byte key[KWP_KEY], const byte *in, size_t *length, byte *out)
{
	int written, ok = run_cipher(EVP_aes_256_wrap_pad(), wrap, key, NULL, in, *length, out, &written);

	*length = (size_t)written;
	return ok && written > 0;
}
