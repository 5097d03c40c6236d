/* C_Initialize with an environment of its own; see initialize.c. */
#ifndef SLUICE_SOFTHSM_INITIALIZE_H
#define SLUICE_SOFTHSM_INITIALIZE_H

unsigned long sluice_softhsm_initialize(const char *module, const char *conf);

#endif
