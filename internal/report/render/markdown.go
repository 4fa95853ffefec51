package render

import (
	"bytes"
	"fmt"
	"html"
	"io"
	"strings"

	"unnest.io/unnest/internal/report/document"
)

// Markdown prints doc as GitHub Flavored Markdown.
func Markdown(w io.Writer, doc document.Document) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s\n\n", inline(doc.Title))
	switch {
	case doc.Caution != "":
		fmt.Fprintf(&b, "> %s\n\n%s\n\n", inline(doc.Caution), inline(doc.Finding()))
	case doc.Answer != "":
		fmt.Fprintf(&b, "**%s**\n\n", inline(doc.Answer))
	}
	if lead, _ := doc.Lead(); lead.Intervals() {
		b.WriteString(Plot(lead) + "\n")
	}
	if len(doc.Headlines) > 0 {
		bullets(&b, doc.Headlines)
	}
	if len(doc.NotKnown) > 0 {
		fmt.Fprintf(&b, "<details><summary>Not known</summary>%s.</details>\n\n", html.EscapeString(document.Clean(strings.Join(doc.NotKnown, "; "))))
	}
	for _, paragraph := range []string{document.Join(doc.Setting, doc.Dir, doc.RunName()), doc.Description} {
		if paragraph != "" {
			fmt.Fprintf(&b, "%s\n\n", inline(paragraph))
		}
	}
	if len(doc.Warnings) > 0 {
		b.WriteString("**Warnings**\n\n")
		bullets(&b, doc.Warnings)
	}
	for _, g := range doc.Groups {
		fmt.Fprintf(&b, "## %s\n\n", inline(g.Title))
		for _, t := range g.Tables {
			markdownTable(&b, t, doc.Dir)
		}
	}
	for _, t := range []document.Table{doc.Failures, doc.Provenance} {
		if len(t.Rows) > 0 {
			fmt.Fprintf(&b, "## %s\n\n", inline(t.Title))
			markdownRows(&b, t)
		}
	}
	if len(doc.Methods) > 0 {
		b.WriteString("## How to read this\n\n")
	}
	for _, m := range doc.Methods {
		fmt.Fprintf(&b, "- **%s**: %s\n", inline(m.Term), inline(m.Text))
	}
	_, err := w.Write(b.Bytes())
	return err
}

func bullets(b *bytes.Buffer, lines []string) {
	for _, l := range lines {
		fmt.Fprintf(b, "- %s\n", inline(l))
	}
	b.WriteString("\n")
}

func markdownTable(b *bytes.Buffer, t document.Table, dir string) {
	fmt.Fprintf(b, "%s\n\n", document.Join("**"+inline(t.Title)+"**", inline(t.Setting), inline(dir)))
	markdownRows(b, t)
}

func markdownRows(b *bytes.Buffer, t document.Table) {
	t = t.ForPage()
	var names, rules []string
	for _, c := range t.Columns {
		names = append(names, inline(c.Name))
		rules = append(rules, map[bool]string{true: "---:", false: "---"}[c.Numeric])
	}
	fmt.Fprintf(b, "| %s |\n| %s |\n", strings.Join(names, " | "), strings.Join(rules, " | "))
	for _, row := range t.Rows {
		cells := make([]string, len(row))
		for i, c := range row {
			cells[i] = document.Join(inline(c.Text), inline(c.Badge), inline(c.Remark))
		}
		fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
	}
	b.WriteString("\n")
	if len(t.Notes) > 0 {
		bullets(b, t.Notes)
	}
}

// markdownEscapes keeps names from being taken for Markdown or HTML.
var markdownEscapes = strings.NewReplacer(
	`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`,
	"|", `\|`, "<", "&lt;", ">", "&gt;", "&", "&amp;", "#", `\#`, "~", `\~`)

func inline(s string) string { return markdownEscapes.Replace(document.Clean(s)) }
