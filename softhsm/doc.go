// Package softhsm makes SoftHSMv2 tokens for development, tests and CI.
//
// Provision gives a token a folder of its own with everything it consists of:
//
//	libsofthsm2.so   a copy of the installed library
//	softhsm2.conf    its configuration
//	tokens/          its objects, encrypted under the user PIN
//	user.pin so.pin  its PINs, random
//	token.json       label and serial; written last, it marks the token whole
//
// The copy of the library is what makes several tokens useful in one process:
// the loader takes it for a different module, so each token has its own locks,
// handles and configuration, as separate devices have. (Two slots of one
// module share its locks, and SoftHSM's limit one module to about one core.)
//
// A SoftHSM token keeps its keys in files and its PINs lie beside them, so it
// protects nothing from someone who reads the folder. Folders are made 0700
// and files 0600 whatever the umask. Production uses other tokens.
package softhsm
