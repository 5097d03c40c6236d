package outcome

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"mime"
	"net/http"
	"strings"
)

// problem is what a body says went wrong.
type problem struct {
	failed  bool     // it says that something did
	codes   []string // lower case
	message string   // lower case
	delay   string   // of google.rpc.RetryInfo, such as "36s"
	page    bool     // it is HTML
}

// maxMessage bounds the text that rows are compared with: what matters stands
// at the beginning, and a message may quote the prompt.
const maxMessage = 2 << 10

// envelope is all the forms that the providers' errors have. Values that may
// be of several types are kept as they came.
type envelope struct {
	Error    jsontext.Value `json:"error"` // an object, or a string
	Response struct {
		Error jsontext.Value `json:"error"` // of OpenAI's event response.failed
	} `json:"response"`
	detail
}

// detail is what an error says of itself.
type detail struct {
	Code    jsontext.Value `json:"code"` // a string, a number, or null
	Type    jsontext.Value `json:"type"`
	Type2   jsontext.Value `json:"__type"` // of AWS
	Status  jsontext.Value `json:"status"`
	Message jsontext.Value `json:"message"`
	Details []struct {
		Reason     string `json:"reason"`
		RetryDelay string `json:"retryDelay"`
		Violations []struct {
			QuotaID string `json:"quotaId"`
		} `json:"violations"`
	} `json:"details"`
}

// lenient is how strangers' JSON is read.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// parse reads the body of an answer. A body that is not JSON says nothing.
func parse(header http.Header, body []byte) problem {
	var said problem
	media, _, _ := mime.ParseMediaType(header.Get("Content-Type"))
	said.page = media == "text/html"
	said.code(header.Get("X-Amzn-ErrorType"))
	said.read(body)
	return said
}

// read adds what the JSON of an error says.
func (p *problem) read(body []byte) {
	e, ok := open(body)
	if !ok {
		return
	}
	for _, inner := range []jsontext.Value{e.Error, e.Response.Error} {
		var d detail
		switch inner.Kind() {
		case jsontext.KindBeginObject:
			if json.Unmarshal(inner, &d, lenient) == nil {
				p.failed = true
				p.add(&d)
			}
		case jsontext.KindString:
			p.failed = true
			p.text(inner)
		}
	}
	// Qwen and AWS have no inner object. Of an object that is no error, the
	// type ("message", "response.created") is no code either.
	if p.failed || !fine[strings.ToLower(said(e.Code))] || len(e.Type2) > 0 || said(e.Type) == "error" {
		p.failed = true
		p.add(&e.detail)
	} else {
		p.text(e.Message)
	}
}

// open decodes an error, or the first of a list of them, which Gemini sends.
func open(body []byte) (e envelope, ok bool) {
	switch jsontext.Value(body).Kind() {
	case jsontext.KindBeginObject:
		return e, json.Unmarshal(body, &e, lenient) == nil
	case jsontext.KindBeginArray:
		var list []envelope
		if json.Unmarshal(body, &list, lenient) != nil || len(list) == 0 {
			return e, false
		}
		return list[0], true
	}
	return e, false
}

// fine are the codes of answers that have one and are no errors.
var fine = map[string]bool{"": true, "0": true, "200": true, "ok": true, "success": true}

func (p *problem) add(d *detail) {
	for _, v := range []jsontext.Value{d.Code, d.Type, d.Type2, d.Status} {
		p.code(said(v))
	}
	p.text(d.Message)
	for _, more := range d.Details {
		p.code(more.Reason)
		if more.RetryDelay != "" {
			p.delay = more.RetryDelay
		}
		for _, violation := range more.Violations {
			p.message += " " + strings.ToLower(shorten(violation.QuotaID))
		}
	}
}

// code adds an error code. Those of AWS may have a namespace before a number
// sign, and an address behind a colon.
func (p *problem) code(s string) {
	s, _, _ = strings.Cut(s, ":")
	if i := strings.LastIndexByte(s, '#'); i >= 0 {
		s = s[i+1:]
	}
	if s != "" {
		p.codes = append(p.codes, strings.ToLower(shorten(s)))
	}
}

func (p *problem) text(v jsontext.Value) { p.message += " " + strings.ToLower(shorten(said(v))) }

// said is the text of a string or a number, "" of everything else.
func said(v jsontext.Value) string {
	switch v.Kind() {
	case jsontext.KindString:
		var s string
		if json.Unmarshal(v, &s, lenient) != nil {
			return ""
		}
		return s
	case jsontext.KindNumber:
		return string(v)
	}
	return ""
}

func shorten(s string) string { return s[:min(len(s), maxMessage)] }
