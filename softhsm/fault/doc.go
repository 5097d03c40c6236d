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
// Building the module takes a C compiler, which cgo needs anyway.
package fault
