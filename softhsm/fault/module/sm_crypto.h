/*
 * The arithmetic of SM2, SM3 and SM4, of OpenSSL 3's libcrypto as far as that
 * has it: version 3.0 has no SM4-GCM, its SM2 decrypts no empty plaintext and
 * takes ciphertexts in one form. Nothing here takes a time that is independent
 * of secrets: the module is for tests.
 *
 * Functions that return int return 1 when they succeeded and 0 otherwise.
 */
#ifndef SLUICE_SM_CRYPTO_H
#define SLUICE_SM_CRYPTO_H

#include <stddef.h>

typedef unsigned char byte;

enum {
	SM2_SIZE = 32,                /* of a scalar and of a coordinate, bytes */
	SM2_POINT = 1 + 2 * SM2_SIZE, /* uncompressed */
	SM3_SIZE = 32,
	SM4_SIZE = 16, /* of a key and of a block */
	TAG_SIZE = 16,
	KWP_KEY = 32,
	KWP_EXTRA = 16 /* what RFC 5649 adds at most, bytes */
};

int sm2_generate(byte scalar[SM2_SIZE], byte point[SM2_POINT]);

/* The public point of a private scalar in its range. */
int sm2_public(const byte scalar[SM2_SIZE], byte point[SM2_POINT]);

/* scalar · point, for a point on the curve. */
int sm2_multiply(const byte scalar[SM2_SIZE], const byte point[SM2_POINT], byte product[SM2_POINT]);

/* GB/T 32918.2, 6.1 on the digest e: r ‖ s. */
int sm2_sign(const byte scalar[SM2_SIZE], const byte e[SM3_SIZE], byte rs[2 * SM2_SIZE]);

/* e = SM3(ZA ‖ message) (GB/T 32918.2, 5.5 and 6.1), for an id of at most 8191 bytes. */
int sm2_digest(const byte point[SM2_POINT], const byte *id, size_t id_length, const byte *message, size_t length,
	byte e[SM3_SIZE]);

/* GB/T 32918.4, 6.1 and 7.1; c2 has the length of the plaintext. */
int sm2_encrypt(const byte point[SM2_POINT], const byte *plaintext, size_t length,
	byte c1[SM2_POINT], byte *c2, byte c3[SM3_SIZE]);
int sm2_decrypt(const byte scalar[SM2_SIZE], const byte c1[SM2_POINT], const byte *c2, size_t length,
	const byte c3[SM3_SIZE], byte *plaintext);

int sm3_hash(const byte *in, size_t length, byte out[SM3_SIZE]);
int sm3_hmac(const byte *key, size_t key_length, const byte *in, size_t length, byte out[SM3_SIZE]);

/* Whole blocks; in CBC with the IV of a block. */
int sm4_ecb(int encrypt, const byte key[SM4_SIZE], const byte *in, size_t length, byte *out);
int sm4_cbc(int encrypt, const byte key[SM4_SIZE], const byte *iv, const byte *in, size_t length, byte *out);

/* RFC 8998, 3.1: the tag comes after the ciphertext, whose length it is that counts. */
int sm4_gcm(int encrypt, const byte key[SM4_SIZE], const byte *iv, size_t iv_length,
	const byte *aad, size_t aad_length, const byte *in, size_t length, byte *out);

/* RFC 5649 with AES-256; length is that of in, then of out. */
int kwp(int wrap, const byte key[KWP_KEY], const byte *in, size_t *length, byte *out);

#endif
