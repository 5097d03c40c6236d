// Package cli holds the client verbs of the sluice command: keys and what is
// done with them, tenants, projects, credentials, the policy and the HSM
// pool. Each verb
// is one or a few calls of package client and a way to show the answer; `sluice
// bench` plays loads by the packages below bench.
//
// # For people and for programs
//
// Answers are aligned tables, or with --json the JSON of the API, whose
// fields are stable. What is binary (signatures, ciphertexts, public keys,
// random bytes) is printed as base64 unless --raw or --out ask for the bytes
// themselves, and is read in either form. Decrypted plaintexts are written as
// they are. Messages to people go to standard error.
//
// # Exit codes
//
//	0  done; for verify, verify-mac and policy validate: valid
//	1  refused, or no answer
//	2  the command line is wrong
//	3  the signature, MAC or policy is not valid
//
// # Credentials
//
// A credential is read from a file or the environment, never from the command
// line, which other users of the machine can see. So are plaintexts: only
// what is authenticated but not hidden (messages to sign, additional data)
// may be given as an argument. Files that verbs write have mode 0600.
package cli
