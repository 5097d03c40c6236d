package p11

// encodeECDSASignature turns the signature of CKM_ECDSA, r and s as numbers of
// equal length, into Ecdsa-Sig-Value in DER (RFC 3279, 2.2.3).
func encodeECDSASignature(raw []byte) []byte {
	r, s := trimInteger(raw[:len(raw)/2]), trimInteger(raw[len(raw)/2:])
	n := integerSize(r) + integerSize(s)
	der := make([]byte, 0, 3+n)
	der = append(der, 0x30)
	if n > 0x7f { // P-521 only
		der = append(der, 0x81)
	}
	der = append(der, byte(n))
	return appendInteger(appendInteger(der, r), s)
}

// trimInteger removes leading zeros, leaving one byte at least.
func trimInteger(n []byte) []byte {
	for len(n) > 1 && n[0] == 0 {
		n = n[1:]
	}
	return n
}

// integerSize is the length of the DER INTEGER; a number whose first bit is
// set takes a zero byte more, or it would be negative.
func integerSize(n []byte) int { return 2 + len(n) + int(n[0]>>7) }

func appendInteger(der, n []byte) []byte {
	der = append(der, 0x02, byte(integerSize(n)-2))
	if n[0]>>7 == 1 {
		der = append(der, 0)
	}
	return append(der, n...)
}
