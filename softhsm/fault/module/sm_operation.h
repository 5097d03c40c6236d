/* Operations with SM keys in one part: what *Init notes and the operation runs. */
#ifndef SLUICE_SM_OPERATION_H
#define SLUICE_SM_OPERATION_H

#include "sm.h"

enum sm_kind { SM_ENCRYPT, SM_DECRYPT, SM_SIGN, SM_DIGEST, SM_KINDS };

/* Notes an operation of the session. key is NULL for SM_DIGEST. */
CK_RV sm_begin(CK_ULONG session, enum sm_kind kind, const CK_MECHANISM *mechanism, const sm_object *key);

/* Whether the session has noted an operation of the kind. */
int sm_active(CK_ULONG session, enum sm_kind kind);

/* Runs and ends the session's operation, which is active; the length is asked for as in C_Sign. */
CK_RV sm_run(CK_ULONG session, enum sm_kind kind, const byte *in, CK_ULONG length, byte *out, CK_ULONG *out_length);

/* Drops what the session, or every session, has noted. */
void sm_forget_session(CK_ULONG session);
void sm_forget_all(void);

/* The mechanism's row, NULL for one that is not of SM keys. */
typedef struct {
	CK_ULONG mechanism, type, min_size, max_size, flags;
} sm_mechanism;

enum { SM_MECHANISMS = 15 };
extern const sm_mechanism sm_mechanisms[SM_MECHANISMS];
const sm_mechanism *sm_find_mechanism(CK_ULONG mechanism);

#endif
