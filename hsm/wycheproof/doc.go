// Package wycheproof runs the test vectors of Project Wycheproof
// (github.com/c2sp/wycheproof, Apache-2.0) through the drivers of package hsm,
// and a sample of them through the REST API of a whole service. It holds tests
// only, and is a module of its own, so that the vectors, 110 MB of them, are
// nobody's dependency:
//
//	cd hsm/wycheproof && go test ./...
//
// It needs what the service needs, so `go mod tidy` belongs here, too, after a
// change of the project's own go.mod.
//
// Keys of the vectors are imported (hsm.Importer), so a PKCS#11 token computes
// with them as with its own. The providers are the in-process engine, SoftHSM
// and NSS; SLUICE_REQUIRE=softhsm,nss turns one that is not installed from a
// skip into a failure.
//
// Over REST keys are imported as a client imports them, wrapped; keys of which
// the vectors have the public half only are written into the store. What the
// API cannot be asked is not there: it opens no GCM ciphertext but its own.
//
// What a provider must make of a vector follows from the vector's result:
// valid ones give what they state, invalid ones fail, by the one error of
// their operation, and acceptable ones may do either but give nothing else.
// Vectors of what the product does not offer (nonces of other lengths, keys
// of other sizes, labels, contexts) are counted apart, and every test states
// how many it must have run, so that none falls silent.
package wycheproof
