package redact

import (
	"regexp"
	"strings"
	"sync"
)

// maxObject is how far around its kind a Kubernetes object is looked at, in
// bytes.
const maxObject = 64 << 10

// maxLooked bounds what is looked at for the objects of one text, in bytes, so
// that a text of nothing but their beginnings takes no square of time.
const maxLooked = 1 << 20

// kubeSecret finds the values of a Kubernetes Secret as kubectl prints it, in
// YAML or JSON: base64 says nothing by itself, so it is the object's kind that
// tells. It is called where an object says its kind or version. An object that
// the text's end cuts off before its kind is known is one if its values look
// like it.
func kubeSecret(t *page, at, after int, spans []span) ([]span, int) {
	if t.looked > maxLooked {
		return spans, after
	}
	m := kubeKey().FindStringSubmatchIndex(t.s[after:min(len(t.s), after+128)])
	if m == nil {
		return spans, after
	}
	value := t.s[after+m[4] : after+m[5]]
	isKind := t.s[at:after] == "kind"
	if isKind && value != "Secret" || !isKind && (value != "v1" || t.s[at:after] != "apiVersion") {
		return spans, after
	}
	var o object
	if m[2] < 0 {
		o = yamlObject(t, at, breakAfter(t.s[after+m[5]:min(len(t.s), after+m[5]+16)]))
	} else {
		o = jsonObject(t, at, t.s[after+m[2]] == '\\')
	}
	t.looked += o.end - o.start
	if o.end < after {
		return spans, after
	}
	if len(o.values) > 0 {
		t.whole = append(t.whole, [2]int{o.start, o.end + 2}) // with what shows that it has ended
	}
	if !isKind && (o.kind || !o.open) {
		return spans, after
	}
	if o.open && o.end == len(t.s) {
		t.hold = min(t.hold, o.start)
	}
	for _, v := range o.values {
		s := t.s[v[0]:v[1]]
		if strings.HasPrefix(s, "[redacted:") || !isKind && !base64Word().MatchString(s) {
			continue
		}
		spans = append(spans, span{from: v[0], to: v[1], start: v[0], end: v[1], rule: "kube-secret", value: s})
	}
	if isKind {
		return spans, max(after, o.end)
	}
	return spans, after
}

// object is a Kubernetes object in a text.
type object struct {
	start, end int
	open       bool // the text ends in it
	kind       bool // it says of which kind it is
	values     [][2]int
}

var (
	kubeKey    = lazy(`\A(\\*")?[ \t]*:[ \t]*\\*["']?(\w+)`)
	base64Word = lazy(`\A\\*["']?[A-Za-z0-9+/]{8,}={0,2}\\*["']?\z`)
	yamlKey    = lazy(`\A["']?[A-Za-z0-9_./-]+["']?:(?:[ \t]+|$)`)
	jsonData   = lazy(`"(?:data|stringData)\\*"[ \t\r\n]*:[ \t\r\n]*\{([^{}]*)`)
	jsonKind   = lazy(`"kind\\*"[ \t\r\n]*:`)
	jsonValue  = lazy(`"[ \t\r\n]*:[ \t\r\n]*"((?:[^"\\]|\\.)+)`)
	jsonInner  = lazy(`"[ \t\r\n]*:[ \t\r\n]*\\+"([^"\\]+)`) // within a string of JSON
)

func lazy(s string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(s) })
}

// yamlObject looks at the object of which a key stands at a place. What a program
// printed mostly comes in a string of JSON, or in one within another, where line
// breaks and quotes are escaped; then brk is how a break is written there.
func yamlObject(t *page, at int, brk string) object {
	from, to := max(0, at-maxObject), min(len(t.s), at+maxObject)
	if brk != "\n" {
		from, to = from+stringStart(t.s[from:at], len(brk)-2), at+stringEnd(t.s[at:to], len(brk)-2)
	}
	start, end := from, to
	if i := strings.LastIndex(t.s[from:at], brk); i >= 0 {
		start = from + i + len(brk)
	}
	if i := strings.Index(t.s[at:to], brk); i >= 0 {
		end = at + i
	}
	column := at - start
	if lead := t.s[start:at]; strings.Trim(lead, " ") != "" && strings.TrimLeft(lead, " ") != "- " {
		return object{}
	}
	o := object{start: start, end: end}
	// Back to its first key.
	for o.start > from && !strings.Contains(t.s[o.start:min(len(t.s), o.start+column)], "-") {
		line := from
		if i := strings.LastIndex(t.s[from:o.start-len(brk)], brk); i >= 0 {
			line = from + i + len(brk)
		}
		s := t.s[line : o.start-len(brk)]
		body := strings.TrimLeft(s, " ")
		indent := len(s) - len(body)
		first := strings.HasPrefix(body, "- ") && indent+2 == column
		if body != "" && indent < column && !first || !inObject(s, indent, column) {
			break
		}
		o.start = line
	}
	// And on to its last.
	o.open = true
	for o.end < to {
		line := min(o.end+len(brk), to)
		next, whole := to, false
		if i := strings.Index(t.s[line:to], brk); i >= 0 {
			next, whole = line+i, true
		}
		s := t.s[line:next]
		body := strings.TrimLeft(s, " ")
		indent := len(s) - len(body)
		if whole && (body != "" && indent < column || !inObject(s, indent, column)) {
			o.open = false
			break
		}
		o.end = next
	}
	// At the end of a string nothing more comes, but what it is of may have been cut.
	o.open = o.open && (to == len(t.s) || brk != "\n")
	o.readYAML(t.s, column, brk)
	return o
}

// stringStart returns where the string of JSON begins that a text ends in, and
// stringEnd where the one ends that it begins in. depth is how many backslashes
// stand before a quote within it.
func stringStart(s string, depth int) int {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] == '"' && slashes(s, i) <= depth {
			return i + 1
		}
	}
	return 0
}

func stringEnd(s string, depth int) int {
	for i := range len(s) {
		if s[i] == '"' && slashes(s, i) <= depth {
			return i - slashes(s, i)
		}
	}
	return len(s)
}

// slashes counts the backslashes before a place.
func slashes(s string, at int) int {
	n := 0
	for at > n && s[at-n-1] == '\\' {
		n++
	}
	return n
}

// breakAfter returns how a line break is written behind a value: as one, or
// escaped.
func breakAfter(s string) string {
	i := 0
	for i < len(s) && (s[i] == '"' || s[i] == '\'' || s[i] == ' ') {
		i++
	}
	n := 0
	for i+n < len(s) && s[i+n] == '\\' {
		n++
	}
	if n > 0 && i+n < len(s) && s[i+n] == 'r' { // \r\n
		return s[i:i+n] + "n"
	}
	if n > 0 && i+n < len(s) && s[i+n] == 'n' {
		return s[i : i+n+1]
	}
	return "\n"
}

// inObject reports whether a line can belong to an object that begins at a
// column: a key there, or anything further in.
func inObject(line string, indent, column int) bool {
	body := line[indent:]
	return body == "" || indent > column || indent+2 == column || yamlKey().MatchString(trimLine(body)) || column == 0 && body[0] == '#'
}

// trimLine takes off what ends a line beside its break: blanks, and a carriage
// return, escaped or not.
func trimLine(line string) string {
	line = strings.TrimRight(line, " \t\r")
	if rest, ok := strings.CutSuffix(line, `\r`); ok {
		line = strings.TrimRight(rest, "\\ ")
	}
	return line
}

// readYAML finds its kind and its values.
func (o *object) readYAML(s string, column int, brk string) {
	inData := false
	deep := -1 // the column of a key whose value is in the lines below
	for at := o.start; at < o.end; {
		end := o.end
		if i := strings.Index(s[at:o.end], brk); i >= 0 {
			end = at + i
		}
		line := trimLine(s[at:end])
		body := strings.TrimLeft(line, " ")
		indent := len(line) - len(body)
		if rest, ok := strings.CutPrefix(body, "- "); ok && indent+2 == column {
			body, indent = rest, column
		}
		switch {
		case body == "":
		case indent == column:
			o.kind = o.kind || strings.HasPrefix(body, "kind:")
			key, value, _ := strings.Cut(body, ":")
			inData, deep = key == "data" || key == "stringData", -1
			if v := strings.TrimSpace(value); inData && len(v) > 2 && v[0] == '{' {
				o.values = append(o.values, [2]int{at + len(line) - len(v) + 1, at + len(line) - 1})
			}
		case inData && deep >= 0 && indent > deep:
			o.values = append(o.values, [2]int{at + len(line) - len(body), at + len(line)})
		case inData:
			deep = -1
			m := yamlKey().FindStringIndex(body)
			if m == nil {
				o.values = append(o.values, [2]int{at + len(line) - len(body), at + len(line)})
				break
			}
			switch v := body[m[1]:]; {
			case v == "" || v[0] == '|' || v[0] == '>':
				deep = indent
			case strings.Trim(v, `\"'`) != "":
				o.values = append(o.values, [2]int{at + len(line) - len(v), at + len(line)})
			}
		}
		at = end + len(brk)
	}
}

// jsonObject looks at the object of which a key stands at a place. Braces in
// strings are not told from others: base64 has none. inner: the object itself
// stands in a string, so that its quotes are escaped.
func jsonObject(t *page, at int, inner bool) object {
	o := object{start: max(0, at-maxObject), end: min(len(t.s), at+maxObject), open: true}
	depth := 0
	for i := at - 1; i >= o.start; i-- {
		if c := t.s[i]; c == '}' {
			depth++
		} else if c == '{' {
			if depth == 0 {
				o.start = i
				break
			}
			depth--
		}
	}
	depth = 0
	for i := at; i < o.end; i++ {
		if c := t.s[i]; c == '{' {
			depth++
		} else if c == '}' {
			if depth == 0 {
				o.end, o.open = i, false
				break
			}
			depth--
		}
	}
	o.open = o.open && o.end == len(t.s)
	body := t.s[o.start:o.end]
	o.kind = jsonKind().MatchString(body)
	re := jsonValue()
	if inner {
		re = jsonInner()
	}
	for _, d := range jsonData().FindAllStringSubmatchIndex(body, -1) {
		for _, m := range re.FindAllStringSubmatchIndex(body[d[2]:d[3]], -1) {
			o.values = append(o.values, [2]int{o.start + d[2] + m[2], o.start + d[2] + m[3]})
		}
	}
	return o
}
