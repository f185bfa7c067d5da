package display

import (
	"encoding/json"
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/util"
)

// A figure is what a command printed as a table of columns, with bars where a number is part of a
// whole, or as a line of values. It is made from the text alone, and the text stays beside it.
type figure struct {
	head []column
	rows [][]string
	line []float64 // instead of a table
}

// column is one column of a figure.
type column struct {
	name   string
	number bool    // its cells are numbers
	whole  float64 // what a full bar stands for; 0: it has no bars
	share  bool    // its numbers are percentages: near 100 they have another colour
}

const (
	maxFigureText = 16 << 10 // bytes of text that become a figure
	maxFigureRows = 100
	maxFigureCols = 20
	leastLine     = 3 // values
)

// readFigure reads what a command printed. It reports false for everything that it doesn't know:
// then every line of the text counts.
func readFigure(text string) (figure, bool) {
	text = strings.TrimRight(text, " \n")
	if len(text) > maxFigureText || text == "" {
		return figure{}, false
	}
	if text[0] == '[' {
		return readNumbers(text)
	}
	lines := strings.Split(text, "\n")
	if len(lines) > maxFigureRows+2 {
		return figure{}, false
	}
	head := strings.Fields(lines[0])
	switch {
	case strings.HasPrefix(lines[0], "procs ") && len(lines) > 2: // vmstat
		return readColumns(strings.Fields(lines[1]), lines[2:], false, "us", "sy", "wa")
	case len(head) > 2 && head[0] == "Filesystem" && strings.HasSuffix(lines[0], " Mounted on"): // df, also with -i, -h, -T, -P
		head = append(head[:len(head)-2:len(head)-2], "Mounted on")
		f, ok := readColumns(head, lines[1:], true, "Use%", "IUse%", "Capacity")
		misread := func(row []string) bool { return !strings.HasPrefix(row[len(row)-1], "/") } // a name before it has blanks
		return f, ok && !slices.ContainsFunc(f.rows, misread)
	case slices.Contains(head, "PID") && slices.Contains([]string{"COMMAND", "CMD"}, head[len(head)-1]): // ps
		return readColumns(head, lines[1:], true, "%CPU", "%MEM")
	case len(head) > 2 && slices.Contains(head, "CPU(cores)") && slices.Contains(head, "MEMORY(bytes)"): // kubectl top
		return readColumns(head, lines[1:], false, "CPU(cores)", "MEMORY(bytes)", "CPU%", "MEMORY%")
	case strings.HasPrefix(strings.Join(head, " "), "total used free "):
		return readFree(head, lines[1:])
	case strings.HasPrefix(lines[0], "Total: "): // ss -s
		for i, l := range lines {
			if f := strings.Fields(l); len(f) == 4 && f[0] == "Transport" && f[1] == "Total" {
				return readColumns(f, lines[i+1:], false, "Total")
			}
		}
	}
	if tabs := strings.Count(text, "\t"); tabs == len(lines) && tabs > 1 { // du, which has a tab in each line
		f, ok := readColumns([]string{"Size", "Path"}, lines, true, "Size")
		other := func(row []string) bool { return !strings.Contains(row[1], "/") }
		return f, ok && f.head[0].number && !slices.ContainsFunc(f.rows, other)
	}
	return figure{}, false
}

// readFree reads what free prints, with the used part of each total in percent.
func readFree(head []string, lines []string) (f figure, ok bool) {
	for i, l := range lines {
		name, rest, _ := strings.Cut(l, ":")
		cells := strings.Fields(rest)
		if len(cells) < 3 { // also what old ones print below Mem
			return figure{}, false
		}
		total, _ := quantity(cells[0])
		used, ok := quantity(cells[1])
		share := "-" // there is no swap
		if ok && total > 0 {
			share = fmt.Sprintf("%.0f%%", 100*used/total)
		}
		missing := strings.Repeat(" -", max(0, len(head)-len(cells))) // free says shared, cache and available of Mem alone
		lines[i] = strings.Join([]string{name, share, rest, missing}, " ")
	}
	return readColumns(append([]string{"Memory", "Use%"}, head...), lines, false, "Use%")
}

// readColumns reads rows of columns that stand between blanks. With rest, the last column is all that
// is left of a line. The columns named bars have bars: of 100 for a percentage, else of their greatest
// value.
func readColumns(head []string, lines []string, rest bool, bars ...string) (f figure, ok bool) {
	if len(head) < 2 || len(head) > maxFigureCols || len(lines) == 0 {
		return figure{}, false
	}
	for _, l := range lines {
		cells := strings.Fields(l)
		switch {
		case len(cells) == len(head):
		case len(cells) > len(head) && rest:
			cells = append(cells[:len(head)-1:len(head)-1], strings.Join(cells[len(head)-1:], " "))
		default:
			return figure{}, false
		}
		f.rows = append(f.rows, cells)
	}
	for i, name := range head {
		c := column{name: name, number: true}
		most := 0.0
		for _, row := range f.rows {
			n, ok := quantity(row[i])
			c.number = c.number && (ok || row[i] == "-")
			most = max(most, n)
		}
		if c.number && slices.Contains(bars, name) {
			if c.whole = most; strings.Contains(name, "%") || name == "Capacity" || len(name) == 2 { // vmstat's are percentages
				c.whole, c.share = max(100, most), true // %CPU counts each processor
			}
		}
		f.head = append(f.head, c)
	}
	return f, true
}

// units are what numbers in tables end with, in the smallest unit of their column.
var units = map[string]float64{
	"": 1, "%": 1, "m": 1e-3, "n": 1e-9, "B": 1,
	"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50,
	"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50,
}

// quantity is a number with a unit.
func quantity(s string) (n float64, ok bool) {
	const digits = "0123456789."
	number := s[:len(s)-len(strings.TrimLeft(s, digits))]
	unit, known := units[s[len(number):]]
	n, err := strconv.ParseFloat(number, 64)
	return n * unit, err == nil && known && !math.IsInf(n, 0)
}

// readNumbers reads a JSON array of numbers, or of objects with the same fields.
func readNumbers(text string) (f figure, ok bool) {
	var line []float64
	if json.Unmarshal([]byte(text), &line) == nil {
		return figure{line: line}, len(line) >= leastLine && !math.IsInf(slices.Max(line)-slices.Min(line), 0)
	}
	var rows []map[string]any
	if json.Unmarshal([]byte(text), &rows) != nil || len(rows) == 0 || len(rows) > maxFigureRows {
		return figure{}, false
	}
	var names []string
	for name := range rows[0] {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, row := range rows {
		var cells []string
		for _, name := range names {
			switch v := row[name].(type) {
			case string:
				cells = append(cells, v)
			case float64:
				cells = append(cells, strconv.FormatFloat(v, 'f', -1, 64))
			default: // it is missing, or more than a value
				return figure{}, false
			}
		}
		if len(row) != len(names) {
			return figure{}, false
		}
		f.rows = append(f.rows, cells)
	}
	if len(names) < 2 || len(names) > maxFigureCols {
		return figure{}, false
	}
	numbers := 0
	for i, name := range names {
		c := column{name: name, number: true}
		for _, row := range f.rows {
			n, ok := quantity(row[i])
			c.number = c.number && ok
			c.whole = max(c.whole, n)
		}
		if c.number {
			numbers++
		} else {
			c.whole = 0
		}
		f.head = append(f.head, c)
	}
	return f, numbers > 0
}

// write writes a figure as HTML.
func (f figure) write(w util.BufWriter) {
	if f.line != nil {
		f.writeLine(w)
		return
	}
	_, _ = w.WriteString("<table class=\"figure\"><thead><tr>")
	for _, c := range f.head {
		_, _ = fmt.Fprintf(w, "<th%s>%s</th>", c.class(), html.EscapeString(c.name))
	}
	_, _ = w.WriteString("</tr></thead><tbody>")
	for _, row := range f.rows {
		_, _ = w.WriteString("<tr>")
		for i, cell := range row {
			c := f.head[i]
			_, _ = fmt.Fprintf(w, "<td%s>%s", c.class(), html.EscapeString(cell))
			if n, ok := quantity(cell); ok && c.whole > 0 {
				limits := ""
				if c.share {
					limits = ` low="75" high="90" optimum="0"`
				}
				_, _ = fmt.Fprintf(w, `<meter max="%g"%s value="%g" aria-label="%s"></meter>`, c.whole, limits, n, html.EscapeString(c.name))
			}
			_, _ = w.WriteString("</td>")
		}
		_, _ = w.WriteString("</tr>")
	}
	_, _ = w.WriteString("</tbody></table>\n")
}

func (c column) class() string {
	if c.number {
		return ` class="number"`
	}
	return ""
}

// The size of a line's picture, in its own units.
const lineWidth, lineHeight = 300, 60

func (f figure) writeLine(w util.BufWriter) {
	low, high := slices.Min(f.line), slices.Max(f.line)
	span := high - low
	if span == 0 {
		span = 1
	}
	name := fmt.Sprintf("%d values from %g to %g, the last %g", len(f.line), low, high, f.line[len(f.line)-1])
	_, _ = fmt.Fprintf(w, `<figure class="line"><svg viewBox="0 0 %d %d" role="img" aria-label="%s" preserveAspectRatio="none"><polyline points="`, lineWidth, lineHeight, name)
	for i, v := range f.line {
		_, _ = fmt.Fprintf(w, "%.1f,%.1f ", float64(i)*lineWidth/float64(max(1, len(f.line)-1)), lineHeight-2-(v-low)/span*(lineHeight-4))
	}
	_, _ = fmt.Fprintf(w, `"/></svg><figcaption>%s</figcaption></figure>`+"\n", name)
}

// codeBlock writes a block of text as it is, and as a figure before it if it is one.
func codeBlock(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	var b strings.Builder
	lines := n.Lines()
	for i := range lines.Len() {
		at := lines.At(i)
		b.Write(at.Value(source))
	}
	class, figures := "", true
	if block, fenced := n.(*ast.FencedCodeBlock); fenced {
		if lang := block.Language(source); len(lang) > 0 {
			class = ` class="language-` + html.EscapeString(string(lang)) + `"`
			figures = string(lang) == "json" || string(lang) == "text"
		}
	}
	text := "<pre><code" + class + ">" + string(util.EscapeHTML([]byte(b.String()))) + "</code></pre>\n"
	f, ok := readFigure(b.String())
	if !ok || !figures {
		_, _ = w.WriteString(text)
		return ast.WalkSkipChildren, nil
	}
	f.write(w)
	_, _ = w.WriteString("<details class=\"as-text\"><summary>As text</summary>" + text + "</details>\n")
	return ast.WalkSkipChildren, nil
}
