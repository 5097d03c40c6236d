// Package costreport writes the report of an incident of a cost breaker down:
// as a page and as a PDF, both from the one model, kms.CostIncident.
//
// The page is one file that loads nothing: no script, no font, no picture that
// is not in it. It reads well on paper too. The PDF has the same parts in the
// same order, and its text can be searched and copied.
//
// Names come from clients: components. The page escapes them (html/template);
// the PDF writes them with a font that has the letters of Latin, Greek and
// Cyrillic, and others as their code points.
package costreport
