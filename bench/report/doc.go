// Command report measures the budgets of performance, P1 to P10, in one run and
// writes what came of them: a table with each budget, what was measured, whether
// it was met, and the command that measures it again; the same as JSON; charts;
// and a CPU profile of the server under load. It also puts the table into the
// README.
//
//	go run ./bench/report -sluice bin/sluice -out bench/results
//
// It measures nothing itself: each figure comes out of a benchmark, a test or
// another of the bench's programs, which it runs and whose output it reads. A
// figure that is not in the output, a command that fails, fewer samples than
// asked for or a value that is no number is an error, and then nothing is
// written: a report with a hole in it must not look like a good one.
//
// A budget that is missed is not an error. It is in the report, as missed.
package main
