package plot

import (
	"bytes"
	"fmt"
	"html"
)

// width is the width of a chart in pixels: what a page of documentation shows
// without scaling.
const width = 760

// The colours: ours first, then those that it is held against. They differ in
// lightness too, for who does not see colours.
var colours = [MaxSeries]string{"#0b6e4f", "#c8553d", "#7a7a7a", "#2d5d9f", "#c9a227", "#6b4e8e", "#4fa3a5", "#9c6b3f"}

const (
	ink  = "#222222"
	grid = "#dddddd"
)

// canvas collects elements.
type canvas struct {
	bytes.Buffer
	height int
}

// newCanvas begins a chart under its title; description is what a reader who
// does not see it is told.
func newCanvas(height int, title, description string) *canvas {
	c := &canvas{height: height}
	fmt.Fprintf(c, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" role="img" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(c, "<title>%s</title>\n<desc>%s</desc>\n", html.EscapeString(title), html.EscapeString(description))
	fmt.Fprintf(c, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	c.text(16, 24, "start", title, ` font-size="15" font-weight="bold"`)
	return c
}

func (c *canvas) text(x, y float64, anchor, s, more string) {
	fmt.Fprintf(c, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s"%s>%s</text>`+"\n", x, y, anchor, ink, more, html.EscapeString(s))
}

func (c *canvas) line(x1, y1, x2, y2 float64, colour string) {
	fmt.Fprintf(c, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>`+"\n", x1, y1, x2, y2, colour)
}

func (c *canvas) box(x, y, w, h float64, colour string) {
	fmt.Fprintf(c, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", x, y, w, h, colour)
}

func (c *canvas) end() []byte {
	c.WriteString("</svg>\n")
	return c.Bytes()
}
