package outcome

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// retryAfter is how long an answer asks to wait, 0 when it does not say, or
// not so that it can be read. The most exact word counts: milliseconds before
// seconds, a direct word before the time at which a limit resets.
func retryAfter(h http.Header, message, delay string, now time.Time) time.Duration {
	for _, wait := range []func() time.Duration{
		func() time.Duration { return number(h.Get("Retry-After-Ms"), time.Millisecond) },
		func() time.Duration { return number(h.Get("X-Ms-Retry-After-Ms"), time.Millisecond) },
		func() time.Duration { return secondsOrDate(h, now) },
		func() time.Duration { return duration(delay) },
		func() time.Duration { return hint(message) },
		func() time.Duration { return reset(h, now) },
	} {
		if d := wait(); d > 0 {
			return min(d, maxRetryAfter)
		}
	}
	return 0
}

// number is a count of units, which may have a fraction.
func number(s string, unit time.Duration) time.Duration {
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || !(n > 0) {
		return 0
	}
	return time.Duration(min(n*float64(unit), float64(maxRetryAfter)))
}

// duration reads "36s", "1m30s" and "20ms".
func duration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0
	}
	return max(0, d)
}

// secondsOrDate reads Retry-After in both of its forms (RFC 9110, 10.2.3).
func secondsOrDate(h http.Header, now time.Time) time.Duration {
	v := h.Get("Retry-After")
	if at, err := http.ParseTime(v); err == nil {
		return max(0, at.Sub(clockOf(h, now)))
	}
	return number(v, time.Second)
}

// clockOf is the time by the clock of the answer, whose dates are told in it.
func clockOf(h http.Header, now time.Time) time.Time {
	if at, err := http.ParseTime(h.Get("Date")); err == nil {
		return at
	}
	return now
}

// tryAgain finds the time in the words of OpenAI ("Please try again in
// 1m2.5s"), Azure ("Please retry after 6 seconds") and Gemini ("Please retry
// in 36.5s"). The message is in lower case.
var tryAgain = regexp.MustCompile(`(?:try again|retry) (?:in|after) ((?:[0-9.]+(?:ms|h|m|s))+|[0-9.]+)( ?(?:milliseconds?|minutes?|hours?))?`)

func hint(message string) time.Duration {
	m := tryAgain.FindStringSubmatch(message)
	if m == nil {
		return 0
	}
	if d := duration(m[1]); d > 0 {
		return d
	}
	unit := time.Second
	switch word := strings.TrimSpace(m[2]); {
	case strings.HasPrefix(word, "milli"):
		unit = time.Millisecond
	case strings.HasPrefix(word, "minute"):
		unit = time.Minute
	case strings.HasPrefix(word, "hour"):
		unit = time.Hour
	}
	return number(m[1], unit)
}

// resets are the headers that tell when a limit is whole again, with the one
// that tells what is left of it.
var resets = []struct{ reset, remaining string }{
	{"X-Ratelimit-Reset-Requests", "X-Ratelimit-Remaining-Requests"},
	{"X-Ratelimit-Reset-Tokens", "X-Ratelimit-Remaining-Tokens"},
	{"X-Ratelimit-Reset", "X-Ratelimit-Remaining"},
	{"Anthropic-Ratelimit-Requests-Reset", "Anthropic-Ratelimit-Requests-Remaining"},
	{"Anthropic-Ratelimit-Tokens-Reset", "Anthropic-Ratelimit-Tokens-Remaining"},
	{"Anthropic-Ratelimit-Input-Tokens-Reset", "Anthropic-Ratelimit-Input-Tokens-Remaining"},
	{"Anthropic-Ratelimit-Output-Tokens-Reset", "Anthropic-Ratelimit-Output-Tokens-Remaining"},
}

// reset is when the last of the limits that are used up is whole again. A
// limit of which something is left is not what refused.
func reset(h http.Header, now time.Time) time.Duration {
	var last time.Duration
	for _, r := range resets {
		if left := h.Get(r.remaining); left != "" && left != "0" {
			continue
		}
		last = max(last, instant(h.Get(r.reset), clockOf(h, now)))
	}
	return last
}

// yearInSeconds tells a Unix time in seconds from a number of seconds to wait,
// and afterIn2100, the seconds until that year, one in milliseconds from both.
const (
	yearInSeconds = 365 * 24 * 3600
	afterIn2100   = 4102444800
	maxUnixMilli  = 1000 * afterIn2100 // more is not believed
)

// instant reads a time of reset: a duration, a date, seconds to wait, or a
// Unix time in seconds or milliseconds.
func instant(s string, now time.Time) time.Duration {
	if at, err := time.Parse(time.RFC3339, s); err == nil {
		return max(0, at.Sub(now))
	}
	n, err := strconv.ParseFloat(s, 64)
	switch {
	case err != nil:
		return duration(s)
	case n > afterIn2100:
		return max(0, time.UnixMilli(int64(min(n, maxUnixMilli))).Sub(now))
	case n > yearInSeconds:
		return max(0, time.Unix(int64(n), 0).Sub(now))
	}
	return number(s, time.Second)
}
