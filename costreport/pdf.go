package costreport

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"

	"codeberg.org/go-pdf/fpdf"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/goregular"

	"github.com/sluice-kms/sluice/kms"
)

// Measures of a page, in millimetres, and sizes of letters, in points.
const (
	margin     = 16
	line       = 5
	bodySize   = 9
	headSize   = 12
	titleSize  = 16
	textWidth  = 210 - 2*margin // A4 is 210 wide
	barWidth   = 36
	footOffset = -12
)

// PDF writes the report as a PDF of A4 pages.
func (Reports) PDF(i *kms.CostIncident) ([]byte, error) {
	w := newWriter(viewOf(i))
	w.pdf.SetCreationDate(i.Ended) // the same report gives the same bytes
	w.pdf.SetModificationDate(i.Ended)
	w.write()
	var b bytes.Buffer
	if err := w.pdf.Output(&b); err != nil {
		return nil, fmt.Errorf("write the report as a PDF: %w", err)
	}
	return b.Bytes(), nil
}

// writer writes a view onto pages. Errors stay in pdf until its end.
type writer struct {
	pdf *fpdf.Fpdf
	v   *view
}

func newWriter(v *view) *writer {
	pdf := fpdf.New("P", "mm", "A4", "")
	pdf.SetCatalogSort(true)
	pdf.SetMargins(margin, margin, margin)
	pdf.SetAutoPageBreak(true, margin)
	pdf.AddUTF8FontFromBytes("go", "", goregular.TTF)
	pdf.AddUTF8FontFromBytes("go", "B", gobold.TTF)
	pdf.SetTitle(v.Title+" "+v.ID, true)
	pdf.SetLang("en")
	pdf.SetFooterFunc(func() {
		pdf.SetY(footOffset)
		pdf.SetFont("go", "", bodySize-2)
		pdf.CellFormat(textWidth/2, line, v.ID, "", 0, "L", false, 0, "")
		pdf.CellFormat(textWidth/2, line, fmt.Sprint("page ", pdf.PageNo()), "", 0, "R", false, 0, "")
	})
	return &writer{pdf, v}
}

func (w *writer) write() {
	v := w.v
	w.pdf.AddPage()
	w.pdf.SetFont("go", "B", titleSize)
	w.pdf.CellFormat(0, 2*line, v.Title, "", 1, "L", false, 0, "")
	for _, s := range v.Summary {
		w.paragraph(s)
	}
	for _, f := range v.Facts {
		w.row([]float64{44, textWidth - 44}, "LL", []string{f.Name, f.Value})
	}
	w.head("Causes and advice")
	for _, c := range v.Causes {
		w.paragraph(c.Code + ": " + c.Detail + ". To do: " + c.Advice + ".")
	}
	w.head("Changes of stages")
	w.table([]float64{42, 56, 18, 18, 16, 28}, "LLLLRR", []string{"At", "Of", "From", "To", "Risk", "Credits a minute"}, v.Changes)
	w.head("Timeline, each line " + v.Span)
	w.timeline()
	for _, s := range v.Shares {
		w.head(s.What)
		w.table([]float64{92, 32, 22, 32}, "LRRR", []string{"Name", "Credits", "Share", "Calls"}, s.Rows)
	}
	w.paragraph("Credits and calls of components, operations, keys and credentials count what was refused too. It is what the API node saw.")
}

func (w *writer) head(text string) {
	if w.pdf.GetY() > 297-margin-4*line { // A4 is 297 high: no head at the foot
		w.pdf.AddPage()
	}
	w.pdf.Ln(line / 2)
	w.pdf.SetFont("go", "B", headSize)
	w.pdf.CellFormat(0, line+2, text, "B", 1, "L", false, 0, "")
	w.pdf.Ln(1)
}

func (w *writer) paragraph(text string) {
	w.pdf.SetFont("go", "", bodySize)
	w.pdf.MultiCell(0, line, printable(text), "", "L", false)
	w.pdf.Ln(1)
}

func (w *writer) table(widths []float64, align string, head []string, rows [][]string) {
	w.pdf.SetFont("go", "B", bodySize)
	w.cells(widths, align, head)
	w.pdf.SetFont("go", "", bodySize)
	for _, r := range rows {
		w.row(widths, align, r)
	}
}

// row writes cells of one line. What is too long for its cell is cut: names
// are in full in the other forms.
func (w *writer) row(widths []float64, align string, texts []string) {
	w.pdf.SetFont("go", "", bodySize)
	w.cells(widths, align, texts)
}

func (w *writer) cells(widths []float64, align string, texts []string) {
	for n, text := range texts {
		w.pdf.CellFormat(widths[n], line, w.fit(printable(text), widths[n]-2), "", 0, align[n:n+1], false, 0, "")
	}
	w.pdf.Ln(line)
}

// fit cuts a text to a width.
func (w *writer) fit(text string, width float64) string {
	if w.pdf.GetStringWidth(text) <= width {
		return text
	}
	runes := []rune(text)
	for len(runes) > 0 && w.pdf.GetStringWidth(string(runes)+"…") > width {
		runes = runes[:len(runes)-1]
	}
	return string(runes) + "…"
}

func (w *writer) timeline() {
	widths := []float64{42, barWidth + 2, 26, 26, 18, 14, 18}
	w.pdf.SetFont("go", "B", bodySize)
	w.cells(widths, "LLRRRRL", []string{"From", "", "Credits", "Refused", "Calls", "Risk", "Stage"})
	w.pdf.SetFont("go", "", bodySize)
	for _, p := range w.v.Timeline {
		w.cells(widths[:1], "L", []string{p.At})
		w.pdf.SetXY(margin+widths[0], w.pdf.GetY()-line)
		w.bar(p)
		w.pdf.SetX(margin + widths[0] + widths[1])
		w.cells(widths[2:], "RRRRL", []string{p.Credits, p.RefusedCredits, grouped(p.Calls), p.Risk, p.Stage})
	}
}

// bar draws what was used and what was refused.
func (w *writer) bar(p point) {
	x, y := w.pdf.GetX(), w.pdf.GetY()+1
	used, refused := p.Used/100*barWidth, p.Refused/100*barWidth
	w.pdf.SetFillColor(47, 111, 178)
	w.pdf.Rect(x, y, used, line-2, "F")
	w.pdf.SetFillColor(200, 86, 60)
	w.pdf.Rect(x+used, y, refused, line-2, "F")
}

// printable writes letters that the font lacks as their code points, and
// nothing that is no letter, digit or sign.
func printable(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case unicode.In(r, unicode.Latin, unicode.Greek, unicode.Cyrillic), r >= ' ' && r <= '~', r == '…', r == '÷', r == '×':
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, "U+%04X", r)
		}
	}
	return b.String()
}
