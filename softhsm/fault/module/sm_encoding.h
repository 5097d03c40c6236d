/* How SM keys, signatures and ciphertexts are written. Lengths are in bytes. */
#ifndef SLUICE_SM_ENCODING_H
#define SLUICE_SM_ENCODING_H

#include "sm_crypto.h"

enum {
	SM2_SIGNATURE_DER = 72,  /* at most */
	SM2_CIPHER_OVERHEAD = 120, /* of SM2Cipher beside C2, at most */
	SM2_PRIVATE_KEY = 67     /* of PrivateKeyInfo */
};

/* SEQUENCE { r INTEGER, s INTEGER }; returns the length. */
size_t sm2_signature_der(const byte rs[2 * SM2_SIZE], byte *der);

/* SM2Cipher (GM/T 0009, 7.2): SEQUENCE { x, y INTEGER, c3, c2 OCTET STRING }. */
size_t sm2_write_cipher(const byte c1[SM2_POINT], const byte *c2, size_t length, const byte c3[SM3_SIZE], byte *der);
/* Sets c2 to its place in der; 0: not one in DER. */
int sm2_read_cipher(const byte *der, size_t size, byte c1[SM2_POINT], const byte **c2, size_t *length, byte c3[SM3_SIZE]);

/* PrivateKeyInfo (RFC 5208) of an ECPrivateKey (RFC 5915) without a public key. */
void sm2_write_private(const byte scalar[SM2_SIZE], byte der[SM2_PRIVATE_KEY]);
int sm2_read_private(const byte *der, size_t length, byte scalar[SM2_SIZE]);

#endif
