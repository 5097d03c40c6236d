package costreport

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"

	"github.com/sluice-kms/sluice/kms"
)

//go:embed report.html
var pageText string

var page = template.Must(template.New("report").Parse(pageText))

// HTML writes the report as a page that needs nothing else.
func (Reports) HTML(i *kms.CostIncident) ([]byte, error) {
	var b bytes.Buffer
	if err := page.Execute(&b, viewOf(i)); err != nil {
		return nil, fmt.Errorf("write the report as a page: %w", err)
	}
	return b.Bytes(), nil
}
