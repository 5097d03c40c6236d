#include "sm_encoding.h"

#include <string.h>

static byte *write_head(byte *p, byte tag, size_t length)
{
	int bytes, i;

	*p++ = tag;
	if (length < 0x80) {
		*p++ = (byte)length;
		return p;
	}
	for (bytes = 1; length >> (8 * bytes) != 0; bytes++)
		;
	*p++ = (byte)(0x80 | bytes);
	for (i = bytes - 1; i >= 0; i--)
		*p++ = (byte)(length >> (8 * i));
	return p;
}

static byte *write_integer(byte *p, const byte number[SM2_SIZE])
{
	size_t zeros = 0, sign;

	while (zeros < SM2_SIZE - 1 && number[zeros] == 0)
		zeros++;
	sign = number[zeros] >> 7;
	p = write_head(p, 0x02, SM2_SIZE - zeros + sign);
	if (sign)
		*p++ = 0;
	memcpy(p, number + zeros, SM2_SIZE - zeros);
	return p + SM2_SIZE - zeros;
}

static byte *write_octets(byte *p, const byte *octets, size_t length)
{
	p = write_head(p, 0x04, length);
	memmove(p, octets, length);
	return p + length;
}

size_t sm2_signature_der(const byte rs[2 * SM2_SIZE], byte *der)
{
	byte numbers[SM2_SIGNATURE_DER], *end = write_integer(write_integer(numbers, rs), rs + SM2_SIZE);
	byte *p = write_head(der, 0x30, (size_t)(end - numbers));

	memcpy(p, numbers, (size_t)(end - numbers));
	return (size_t)(p + (end - numbers) - der);
}

size_t sm2_write_cipher(const byte c1[SM2_POINT], const byte *c2, size_t length, const byte c3[SM3_SIZE], byte *der)
{
	byte start[SM2_CIPHER_OVERHEAD], head[8], *p = write_integer(start, c1 + 1);
	size_t size;

	p = write_octets(write_integer(p, c1 + 1 + SM2_SIZE), c3, SM3_SIZE);
	size = (size_t)(p - start);
	p = write_head(der, 0x30, size + (size_t)(write_head(head, 0x04, length) - head) + length);
	memcpy(p, start, size);
	return (size_t)(write_octets(p + size, c2, length) - der);
}

/* What is left to read. */
typedef struct {
	const byte *p;
	size_t left;
} reader;

/* Reads one element in DER; its content is what inner reads. */
static int read_element(reader *r, byte tag, reader *inner)
{
	size_t length, bytes = 0, i;

	if (r->left < 2 || r->p[0] != tag)
		return 0;
	length = r->p[1];
	if (length >= 0x80) {
		bytes = length & 0x7f;
		if (bytes == 0 || bytes > 4 || r->left < 2 + bytes || r->p[2] == 0)
			return 0;
		for (length = 0, i = 0; i < bytes; i++)
			length = length << 8 | r->p[2 + i];
		if (length < 0x80)
			return 0;
	}
	if (r->left - 2 - bytes < length)
		return 0;
	inner->p = r->p + 2 + bytes;
	inner->left = length;
	r->p += 2 + bytes + length;
	r->left -= 2 + bytes + length;
	return 1;
}

static int read_integer(reader *r, byte number[SM2_SIZE])
{
	reader n;

	if (!read_element(r, 0x02, &n) || n.left == 0 || n.p[0] >> 7 != 0)
		return 0;
	if (n.p[0] == 0 && n.left > 1) {
		if (n.p[1] >> 7 == 0)
			return 0;
		n.p++;
		n.left--;
	}
	if (n.left > SM2_SIZE)
		return 0;
	memset(number, 0, SM2_SIZE);
	memcpy(number + SM2_SIZE - n.left, n.p, n.left);
	return 1;
}

int sm2_read_cipher(const byte *der, size_t size, byte c1[SM2_POINT], const byte **c2, size_t *length, byte c3[SM3_SIZE])
{
	reader all = { der, size }, sequence, hash, text;

	if (!read_element(&all, 0x30, &sequence) || all.left != 0 || !read_integer(&sequence, c1 + 1) ||
		!read_integer(&sequence, c1 + 1 + SM2_SIZE) || !read_element(&sequence, 0x04, &hash) ||
		hash.left != SM3_SIZE || !read_element(&sequence, 0x04, &text) || sequence.left != 0)
		return 0;
	c1[0] = 0x04;
	memcpy(c3, hash.p, SM3_SIZE);
	*c2 = text.p;
	*length = text.left;
	return 1;
}

/* Up to the scalar: version 0, id-ecPublicKey, the curve, version 1. */
static const byte private_head[] = {
	0x30, 0x41, 0x02, 0x01, 0x00, 0x30, 0x13, 0x06, 0x07, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x02, 0x01, 0x06, 0x08,
	0x2A, 0x81, 0x1C, 0xCF, 0x55, 0x01, 0x82, 0x2D, 0x04, 0x27, 0x30, 0x25, 0x02, 0x01, 0x01, 0x04, 0x20,
};

void sm2_write_private(const byte scalar[SM2_SIZE], byte der[SM2_PRIVATE_KEY])
{
	memcpy(der, private_head, sizeof private_head);
	memcpy(der + sizeof private_head, scalar, SM2_SIZE);
}

int sm2_read_private(const byte *der, size_t length, byte scalar[SM2_SIZE])
{
	if (length != SM2_PRIVATE_KEY || memcmp(der, private_head, sizeof private_head) != 0)
		return 0;
	memcpy(scalar, der + sizeof private_head, SM2_SIZE);
	return 1;
}
