package softhsm

/*
#cgo LDFLAGS: -ldl -lpthread
#include <stdlib.h>
#include "initialize.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/miekg/pkcs11"
)

// initToken initialises the token of a fresh folder with its label and PINs
// and returns its serial. The module is finalised again: whoever uses the
// token initialises it.
func initToken(t *Token, userPIN, soPIN []byte) (serial string, err error) {
	ctx := pkcs11.New(t.Module)
	if ctx == nil {
		return "", errors.New("the SoftHSM library cannot be loaded")
	}
	// ctx is never destroyed: SoftHSM crashes in dlclose.
	module, conf := C.CString(t.Module), C.CString(t.Env["SOFTHSM2_CONF"])
	defer C.free(unsafe.Pointer(module))
	defer C.free(unsafe.Pointer(conf))
	if rv := C.sluice_softhsm_initialize(module, conf); rv != pkcs11.CKR_OK {
		return "", fmt.Errorf("C_Initialize: %w", pkcs11.Error(rv))
	}
	defer func() { err = errors.Join(err, ctx.Finalize()) }()

	slots, err := ctx.GetSlotList(true)
	if err != nil {
		return "", fmt.Errorf("C_GetSlotList: %w", err)
	}
	if len(slots) != 1 { // SoftHSM shows one uninitialised token at the end
		return "", fmt.Errorf("%d slots in a fresh token folder", len(slots))
	}
	if err := ctx.InitToken(slots[0], string(soPIN), t.Label); err != nil {
		return "", fmt.Errorf("C_InitToken: %w", err)
	}
	// SoftHSM numbers the slot anew once its token has a serial.
	slot, serial, err := initialized(ctx)
	if err != nil {
		return "", err
	}
	session, err := ctx.OpenSession(slot, pkcs11.CKF_SERIAL_SESSION|pkcs11.CKF_RW_SESSION)
	if err != nil {
		return "", fmt.Errorf("C_OpenSession: %w", err)
	}
	if err := ctx.Login(session, pkcs11.CKU_SO, string(soPIN)); err != nil {
		return "", fmt.Errorf("C_Login: %w", err)
	}
	if err := ctx.InitPIN(session, string(userPIN)); err != nil {
		return "", fmt.Errorf("C_InitPIN: %w", err)
	}
	return serial, nil
}

// initialized returns slot and serial of the initialised token.
func initialized(ctx *pkcs11.Ctx) (slot uint, serial string, err error) {
	slots, err := ctx.GetSlotList(true)
	if err != nil {
		return 0, "", fmt.Errorf("C_GetSlotList: %w", err)
	}
	for _, slot := range slots {
		info, err := ctx.GetTokenInfo(slot)
		if err != nil {
			return 0, "", fmt.Errorf("C_GetTokenInfo: %w", err)
		}
		if info.Flags&pkcs11.CKF_TOKEN_INITIALIZED != 0 {
			return slot, info.SerialNumber, nil
		}
	}
	return 0, "", errors.New("no initialised token after C_InitToken")
}
