package kms

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1"
	"crypto/subtle"
	"encoding/base32"
	"encoding/binary"
	"net/url"
	"strconv"
	"time"
	"uuid"
)

// One-time codes are those of RFC 6238 with the parameters that every
// authenticator has: HMAC-SHA-1, 30 seconds, 6 digits. It is done here because
// this package keeps to the standard library.
const (
	oneTimePeriod = 30 // seconds
	oneTimeDigits = 6
	// oneTimeKeySize is that of the hash's output (RFC 4226, 4).
	oneTimeKeySize = 20
	// oneTimeSkew is how many periods before and after the present one are
	// taken: one, as RFC 6238, 5.2 recommends for the delay of the network.
	oneTimeSkew = 1
)

// OneTimeKeyName names a credential's key of one-time codes to Device.Seal.
func OneTimeKeyName(credential uuid.UUID) string { return "one-time code " + credential.String() }

func newOneTimeKey() []byte {
	key := make([]byte, oneTimeKeySize)
	rand.Read(key)
	return key
}

// OneTimeKeyText writes a key as authenticators take it by hand.
func oneTimeKeyText(key []byte) string {
	return base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(key)
}

// oneTimeURI writes a key as authenticators take it as a QR code.
func oneTimeURI(key []byte, credential string) string {
	q := url.Values{"secret": {oneTimeKeyText(key)}, "issuer": {"Sluice"}}
	return "otpauth://totp/" + url.PathEscape("Sluice:"+credential) + "?" + q.Encode()
}

// oneTimeCode is the code of a step (RFC 4226, 5.3).
func oneTimeCode(key []byte, step uint64) [oneTimeDigits]byte {
	mac := hmac.New(sha1.New, key)
	mac.Write(binary.BigEndian.AppendUint64(nil, step))
	sum := mac.Sum(nil)
	n := binary.BigEndian.Uint32(sum[sum[len(sum)-1]&0xf:]) & 0x7fffffff
	var code [oneTimeDigits]byte
	for i := oneTimeDigits - 1; i >= 0; i-- {
		code[i] = '0' + byte(n%10)
		n /= 10
	}
	return code
}

// oneTimeStep returns the step of a code that is good at a time and later than
// a step; 0 when it is not. It takes the same time whichever is right.
func oneTimeStep(key []byte, code string, now time.Time, after uint64) (step uint64) {
	present := uint64(now.Unix()) / oneTimePeriod
	for s := present - oneTimeSkew; s <= present+oneTimeSkew; s++ {
		want := oneTimeCode(key, s)
		right := subtle.ConstantTimeCompare(want[:], []byte(code))
		if right == 1 && s > after {
			step = s
		}
	}
	return step
}

// validOneTimeCode tells whether a text has the form of a code.
func validOneTimeCode(code string) bool {
	_, err := strconv.ParseUint(code, 10, 32)
	return err == nil && len(code) == oneTimeDigits && code[0] != '+'
}
