// Package scenarios holds the loads that a benchmark plays, as files: who sends
// what, how often and for how long. Some are shipped with the program; the
// others are files of the user in the same form.
//
// A file is YAML and read strictly: a field that is not known is an error, and
// so is a value that cannot be played. Errors name the field.
//
//	name: signatures              # as it is called in reports
//	about: ECDSA at a rising rate # one line
//	warm_up: 2s                   # at the begin of each step, not counted
//	duration: 10s                 # of each step, after the warm-up
//	patience: 5s                  # after which a caller gives up; default 5s
//	seed: 1                       # of the random arrivals; default 1
//	steps: [1, 2, 4]              # all rates are multiplied by each; default [1]
//	streams:
//	  - name: orders
//	    operation: sign           # encrypt or sign
//	    spec: ECC_NIST_P256       # of the keys
//	    bytes: 64                 # of each plaintext or message
//	    keys: 8                   # take turns; default 1
//	    arrivals: poisson         # poisson, constant, or closed
//	    rate: 200                 # requests/s, of the open ones
//	    clients: 0                # of the closed one
package scenarios
