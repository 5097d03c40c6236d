package p11

/*
#cgo LDFLAGS: -ldl -lpthread
#cgo nocallback sluice_run
#include <stdlib.h>
#include "cryptoki.h"
*/
import "C"

import (
	"encoding/binary"
	"errors"
	"strings"
	"unsafe"

	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/hsm"
)

// functionList is a loaded module's table of functions. Loading one file
// twice gives one pointer, by whatever paths it was named.
type functionList = *C.CK_FUNCTION_LIST

// loadReasonSize is the room for the loader's message about a module that
// cannot be loaded, in bytes.
const loadReasonSize = 512

func loadLibrary(path string) (functionList, error) {
	cPath := C.CString(path)
	defer C.free(unsafe.Pointer(cPath))
	var reason [loadReasonSize]C.char
	list := C.sluice_load(cPath, &reason[0], loadReasonSize)
	if list == nil {
		return nil, errors.New(C.GoString(&reason[0]))
	}
	return list, nil
}

// initialize calls C_Initialize with the environment variables set.
func initialize(list functionList, env map[string]string, reserved string) uint {
	var names, values strings.Builder
	for name, value := range env {
		names.WriteString(name + "\x00")
		values.WriteString(value + "\x00")
	}
	cNames, cValues := C.CString(names.String()), C.CString(values.String())
	defer C.free(unsafe.Pointer(cNames))
	defer C.free(unsafe.Pointer(cValues))
	var cReserved unsafe.Pointer
	if reserved != "" {
		cReserved = unsafe.Pointer(C.CString(reserved))
		defer C.free(cReserved)
	}
	return uint(C.sluice_initialize(list, cNames, cValues, C.size_t(len(env)), cReserved))
}

// login passes the PIN without a copy that could not be wiped.
func login(list functionList, session pkcs11.SessionHandle, user uint, pin []byte) uint {
	var first *C.CK_BYTE
	if len(pin) > 0 {
		first = (*C.CK_BYTE)(unsafe.Pointer(&pin[0]))
	}
	return uint(C.sluice_login(list, C.CK_SESSION_HANDLE(session), C.CK_ULONG(user), first, C.CK_ULONG(len(pin))))
}

// attributeArray encodes attributes as the value of an array attribute such
// as CKA_UNWRAP_TEMPLATE: CK_ATTRIBUTE structures whose values lie in C
// memory until free is called.
func attributeArray(attributes []*pkcs11.Attribute) (value []byte, free func()) {
	var values []unsafe.Pointer
	for _, a := range attributes {
		p := C.CBytes(a.Value)
		values = append(values, p)
		value = appendULong(value, uint64(a.Type))
		value = appendULong(value, uint64(uintptr(p)))
		value = appendULong(value, uint64(len(a.Value)))
	}
	return value, func() {
		for _, p := range values {
			C.free(p)
		}
	}
}

// ulongSize is the size of CK_ULONG and of a pointer: the platforms with
// PKCS#11 modules that Go runs on and Sluice builds for have both alike.
const ulongSize = int(C.sizeof_CK_ULONG)

func appendULong(b []byte, v uint64) []byte {
	if ulongSize == 4 {
		return binary.NativeEndian.AppendUint32(b, uint32(v))
	}
	return binary.NativeEndian.AppendUint64(b, v)
}

func ulong(b []byte) (v uint64, ok bool) {
	switch {
	case len(b) != ulongSize:
		return 0, false
	case ulongSize == 4:
		return uint64(binary.NativeEndian.Uint32(b)), true
	}
	return binary.NativeEndian.Uint64(b), true
}

// operation is what a call asks of a module.
type operation C.CK_ULONG

const (
	opSign    operation = C.SLUICE_SIGN
	opEncrypt operation = C.SLUICE_ENCRYPT
	opDecrypt operation = C.SLUICE_DECRYPT
	opRandom  operation = C.SLUICE_RANDOM
	opWrap    operation = C.SLUICE_WRAP
	opAgree   operation = C.SLUICE_AGREE
	opExpand  operation = C.SLUICE_EXPAND
	opKWP     operation = C.SLUICE_KWP
	opUnKWP   operation = C.SLUICE_UNKWP
	opImport  operation = C.SLUICE_IMPORT
)

// functions are those of the module that an operation runs, in order.
var functions = map[operation][]string{
	opSign:    {"C_SignInit", "C_Sign"},
	opEncrypt: {"C_EncryptInit", "C_Encrypt"},
	opDecrypt: {"C_DecryptInit", "C_Decrypt"},
	opRandom:  {"C_GenerateRandom"},
	opWrap:    {"C_WrapKey"},
	opAgree:   {"C_DeriveKey", "C_GetAttributeValue", "C_DestroyObject"},
	opExpand:  {"C_SignInit", "C_Sign"},
	opKWP:     {"C_EncryptInit", "C_EncryptUpdate", "C_EncryptFinal"},
	opUnKWP:   {"C_DecryptInit", "C_DecryptUpdate", "C_DecryptFinal"},
	opImport:  {"C_CreateObject", "C_WrapKey", "C_DestroyObject"},
}

// parameter is the kind of parameter a mechanism takes.
type parameter C.CK_ULONG

const (
	noParameter parameter = C.SLUICE_NO_PARAMETER
	gcm         parameter = C.SLUICE_GCM
	// gcmWithoutBits is that of the text of v2.40, see CK_GCM_PARAMS_TEXT.
	gcmWithoutBits parameter = C.SLUICE_GCM_TEXT
	octets         parameter = C.SLUICE_OCTETS // the bytes in aad
	cbc            parameter = C.SLUICE_CBC
	pss            parameter = C.SLUICE_PSS
	oaep           parameter = C.SLUICE_OAEP
)

// mechanism is a mechanism with the constant part of its parameter.
type mechanism struct {
	id        uint // CKM_*
	parameter parameter
	hash, mgf uint // PSS, OAEP: CKM_*, CKG_*
	salt      int  // PSS, bytes
}

// nonceSize is the length of GCM nonces in bytes (NIST SP 800-38D, 5.2.1.1),
// and ivSize that of CBC's.
const (
	nonceSize = 12
	ivSize    = 16
)

// request is one operation for a module.
type request struct {
	operation operation
	mechanism *mechanism // nil for opRandom
	key       uint
	wrapped   uint                // opWrap: the key to wrap under key
	nonce     []byte              // GCM: nonceSize bytes; CBC: ivSize
	aad       []byte              // GCM; octets: the parameter
	input     []byte              // with aad at most maxData bytes
	room      int                 // for output, at most maxData+outputSlack bytes
	block     int                 // opExpand: bytes of a MAC, at most outputSlack
	object    []*pkcs11.Attribute // opImport, instead of input
}

// outcome is how it ended.
type outcome struct {
	code   uint   // CKR_*
	step   int    // which of the operation's functions the code is of
	stuck  bool   // the session may have an active operation
	output []byte // in the session's memory: to be copied before release
	nonce  []byte // GCM: what the module left there, likewise
}

// run executes a request in the session: one crossing. Afterwards the caller
// copies the output and calls m.release.
func (m *memory) run(list functionList, session pkcs11.SessionHandle, r *request) outcome {
	c := (*C.sluice_call)(unsafe.Pointer(&m.request[0]))
	*c = C.sluice_call{
		module:        list,
		session:       C.CK_SESSION_HANDLE(session),
		operation:     C.CK_ULONG(r.operation),
		key:           C.CK_OBJECT_HANDLE(r.key),
		wrapped:       C.CK_OBJECT_HANDLE(r.wrapped),
		block:         C.CK_ULONG(r.block),
		aad_length:    C.CK_ULONG(len(r.aad)),
		output:        (*C.CK_BYTE)(unsafe.Pointer(&m.output[0])),
		output_length: C.CK_ULONG(r.room),
		output_area:   C.CK_ULONG(len(m.output)),
	}
	if mech := r.mechanism; mech != nil {
		c.mechanism = C.CK_ULONG(mech.id)
		c.parameter = C.CK_ULONG(mech.parameter)
		c.hash, c.mgf = C.CK_ULONG(mech.hash), C.CK_ULONG(mech.mgf)
		c.salt_length = C.CK_ULONG(mech.salt)
	}
	nonce := unsafe.Slice((*byte)(unsafe.Pointer(&c.iv[0])), len(c.iv))
	c.iv_length = C.CK_ULONG(copy(nonce, r.nonce))
	// The areas are longer than maxData, so both pointers are valid even
	// when there is nothing to point to: modules take NULL for a question.
	c.input = (*C.CK_BYTE)(unsafe.Pointer(&m.input[0]))
	n := copy(m.input, r.input)
	if r.object != nil {
		n = m.putAttributes(c, r.object)
	}
	c.input_length = C.CK_ULONG(n)
	c.aad = (*C.CK_BYTE)(unsafe.Pointer(&m.input[min(n, maxData-1)]))
	m.touchedInput = n + copy(m.input[n:], r.aad)
	m.touchedOutput = r.room + r.block // a whole block may be written last

	C.sluice_run(c)

	o := outcome{code: uint(c.result), step: int(c.step), stuck: c.stuck != 0}
	if o.code == pkcs11.CKR_OK {
		if uint64(c.output_length) > uint64(r.room) {
			// A module that claims to have written past its room has broken
			// the interface; nothing it says can be used.
			o.code = pkcs11.CKR_DEVICE_ERROR
			return o
		}
		o.output = m.output[:c.output_length]
		o.nonce = nonce[:nonceSize]
	}
	return o
}

// putAttributes writes the template of an object and the values that it
// points to into the input, and returns their length.
func (m *memory) putAttributes(c *C.sluice_call, object []*pkcs11.Attribute) int {
	size := len(object) * C.sizeof_CK_ATTRIBUTE
	c.attributes = (*C.CK_ATTRIBUTE)(unsafe.Pointer(&m.input[0]))
	c.attribute_count = C.CK_ULONG(len(object))
	template := unsafe.Slice(c.attributes, len(object))
	for i, a := range object {
		template[i] = C.CK_ATTRIBUTE{
			_type:      C.CK_ULONG(a.Type),
			pValue:     unsafe.Pointer(&m.input[size]),
			ulValueLen: C.CK_ULONG(len(a.Value)),
		}
		size += pad(copy(m.input[size:], a.Value))
	}
	return size
}

// pad rounds a length up to where any value is aligned.
func pad(n int) int { return (n + ulongSize - 1) / ulongSize * ulongSize }

// failedCall names the function of the module that an outcome came from.
func (o *outcome) failedCall(op operation) string { return functions[op][o.step] }

func (o *outcome) err(op operation) *hsm.Error { return codeError(o.failedCall(op), o.code) }
