// Package trial plays a scenario on a target and says what came of it, and
// compares what came of several.
//
// Each step of a scenario is one measurement: its rates are those of the streams
// times the step's factor. What was to be sent during the warm-up is not looked
// at. Latency counts from the intended start of a request and is that of the
// answered ones; what was refused, given up or broken is counted beside it.
//
// A trial that is ended early keeps what it has, and says everywhere that it is
// not complete.
package trial
