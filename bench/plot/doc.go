// Package plot writes small charts as SVG for the reports of the benchmarks:
// bars that compare, and lines over an axis. The same data give the same
// bytes, so that a chart under version control changes only when its data do.
//
// A chart that would show nothing is an error: an empty series, a value that
// is no number, or one that a logarithmic axis has no place for.
package plot
