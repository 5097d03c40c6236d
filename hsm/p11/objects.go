package p11

import (
	"github.com/miekg/pkcs11"

	"github.com/sluice-kms/sluice/hsm"
)

// objects reaches a token's objects through one session.
type objects struct {
	mod     *module
	session pkcs11.SessionHandle
}

// maxFound bounds the objects that one search returns: it looks for at most
// two roots or for what an interrupted ceremony left.
const maxFound = 64

// find returns the objects that match the template.
func (o objects) find(template []*pkcs11.Attribute) ([]pkcs11.ObjectHandle, error) {
	if err := o.mod.ctx.FindObjectsInit(o.session, template); err != nil {
		return nil, moduleError("C_FindObjectsInit", err)
	}
	found, _, err := o.mod.ctx.FindObjects(o.session, maxFound)
	final := o.mod.ctx.FindObjectsFinal(o.session)
	if err != nil {
		return nil, moduleError("C_FindObjects", err)
	}
	return found, moduleError("C_FindObjectsFinal", final)
}

// attributes reads attributes of an object.
func (o objects) attributes(object pkcs11.ObjectHandle, types ...uint) ([][]byte, error) {
	template := make([]*pkcs11.Attribute, len(types))
	for i, typ := range types {
		template[i] = &pkcs11.Attribute{Type: typ}
	}
	got, err := o.mod.ctx.GetAttributeValue(o.session, object, template)
	if err != nil {
		return nil, moduleError("C_GetAttributeValue", err)
	}
	values := make([][]byte, len(got))
	for i, a := range got {
		values[i] = a.Value
	}
	return values, nil
}

// flag reads one attribute that is true or false.
func (o objects) flag(object pkcs11.ObjectHandle, attribute uint) (bool, error) {
	values, err := o.attributes(object, attribute)
	if err != nil {
		return false, err
	}
	if len(values[0]) != 1 {
		return false, driverError(hsm.ClassAmbiguous, "C_GetAttributeValue", "a flag is not one byte")
	}
	return values[0][0] != 0, nil
}

// importKey makes an extractable AES session object of a public value, for
// one use.
func (o objects) importKey(value []byte, use uint) (pkcs11.ObjectHandle, error) {
	object, err := o.mod.ctx.CreateObject(o.session, []*pkcs11.Attribute{
		pkcs11.NewAttribute(pkcs11.CKA_CLASS, pkcs11.CKO_SECRET_KEY),
		pkcs11.NewAttribute(pkcs11.CKA_KEY_TYPE, pkcs11.CKK_AES),
		pkcs11.NewAttribute(pkcs11.CKA_TOKEN, false),
		pkcs11.NewAttribute(pkcs11.CKA_EXTRACTABLE, true),
		pkcs11.NewAttribute(pkcs11.CKA_VALUE, value),
		pkcs11.NewAttribute(use, true),
	})
	return object, moduleError("C_CreateObject", err)
}

// destroy removes a session object that is of no more use. A failure leaves
// it until the session ends and has no other effect.
func (o objects) destroy(object pkcs11.ObjectHandle) {
	_ = o.mod.ctx.DestroyObject(o.session, object)
}
