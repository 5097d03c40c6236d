/* Between the files that put functions before those of the real module. */
#ifndef SLUICE_SM_FUNCTION_H
#define SLUICE_SM_FUNCTION_H

#include "sm.h"

extern const function_list *sm_real;

/* A function of the real module, to be called. */
#define REAL(name, types) ((CK_RV (*) types)(sm_real->place[PLACE_##name]))

/* Attributes that a template passed on to the real module has at most. */
enum { MAX_TEMPLATE = 32 };

CK_RV sm_WrapKey(CK_ULONG session, CK_MECHANISM *m, CK_ULONG kek, CK_ULONG key, CK_BYTE *out, CK_ULONG *length);
CK_RV sm_UnwrapKey(CK_ULONG session, CK_MECHANISM *m, CK_ULONG kek, CK_BYTE *in, CK_ULONG length, CK_ATTRIBUTE *t,
	CK_ULONG count, CK_ULONG *handle);

#endif
