package notify

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"time"
)

// The headers of Standard Webhooks.
const (
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
)

// sign sets the headers by which a receiver knows who sends, what, and when.
func sign(h http.Header, secret []byte, id string, at time.Time, body []byte) {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	h.Set(headerID, id)
	h.Set(headerTimestamp, timestamp)
	h.Set(headerSignature, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}
