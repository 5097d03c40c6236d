// Package fault puts a PKCS#11 module that fails on demand before a real one,
// for tests and benchmarks: SoftHSM neither hangs nor reboots, and it shares
// the processor with everything else, as no HSM does.
//
// The module (module/fault.c) passes every call on to the real module. A
// control file, mapped here and there, says what shall happen to which
// function: a service time that holds one of a number of engines, error codes
// by count or by probability, death, hanging and late return, loss of all
// sessions. It counts the calls of every function, for tests that promise how
// often the module is called.
//
// When asked to, the module also offers what SoftHSM lacks: keys of SM2, SM4
// and HMAC-SM3 by mechanisms of a vendor's kind (module/sm.h), for tests of
// vendor profiles. It has no ML-DSA and no ML-KEM, for which PKCS#11 3.2 has
// mechanisms: OpenSSL 3.0, that of Debian 12, knows neither, and a module with
// an implementation of its own would test that implementation.
//
// Building the module takes a C compiler, which cgo needs anyway, and the
// headers of OpenSSL 3 (Debian: libssl-dev).
package fault
