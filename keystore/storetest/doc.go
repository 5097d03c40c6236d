// Package storetest holds the suite that every driver of the key store passes,
// alone and under keystore.Store. A driver's test calls
//
//	storetest.Run(t, open)        // what the store promises
//	storetest.RunCrash(t, …)      // what it promises when the process is killed
//	storetest.Benchmark(b, open)  // what it costs
//
// Nothing in the suite waits for time to pass: clocks are set, and orders of
// events are made with channels.
package storetest
