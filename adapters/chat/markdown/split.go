package markdown

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Split cuts blocks into parts: the sizes of a part's blocks add up to budget
// at most, in whatever unit size counts; size must not shrink when text is
// added. It cuts between blocks first, then between list items, table rows (the
// header comes again) and lines of code, then between sentences, words and
// characters. A heading goes with what follows it. A link is not cut; one that
// alone exceeds a part becomes plain text, and so does a table row.
//
// Nothing is lost: the texts of the parts in order are the text of blocks, but
// for repeated headers. A part exceeds the budget only where one character does.
func Split(blocks []Block, budget int, size func(Block) int) [][]Block {
	var parts [][]Block
	var cur []Block
	used := 0
	todo := slices.Clone(blocks)
	slices.Reverse(todo) // a stack, the next on top
	push := func(bs ...Block) {
		for _, b := range slices.Backward(bs) {
			todo = append(todo, b)
		}
	}
	flush := func() {
		if len(cur) > 0 {
			parts = append(parts, cur)
		}
		cur, used = nil, 0
	}
	put := func(b Block, n int) { cur, used = append(cur, b), used+n }
	for len(todo) > 0 {
		b := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		n := size(b)
		if used+n <= budget {
			put(b, n)
			continue
		}
		fresh := len(cur) == 0
		if n > budget {
			room := budget - used
			head, tail, ok := cut(b, func(x Block) bool { return size(x) <= room }, fresh)
			switch {
			case ok && head == nil: // written in another way: look at it again
				push(tail...)
				continue
			case ok:
				put(*head, size(*head))
				flush()
				push(tail...)
				continue
			case fresh: // can't be cut
				put(b, n)
				flush()
				continue
			}
		}
		push(b)
		if k := len(cur) - 1; k > 0 && cur[k].Kind == Heading {
			push(cur[k])
			cur = cur[:k]
		}
		flush()
	}
	flush()
	return parts
}

// cut takes as much from the front of b as fits, or nothing (false). A nil head
// means that b is now written as tail. fresh means that the part is empty, so
// that cutting in a bad place is better than another empty part.
func cut(b Block, fits func(Block) bool, fresh bool) (head *Block, tail []Block, ok bool) {
	with := func(change func(*Block)) Block {
		x := b
		change(&x)
		return x
	}
	rest := func(change func(*Block)) []Block {
		x := with(change)
		x.More = true
		return []Block{x}
	}
	switch b.Kind {
	case Paragraph, Heading:
		h, t, ok := cutSpans(b.Spans, func(s []Span) bool { return fits(with(func(x *Block) { x.Spans = s })) }, fresh)
		if !ok {
			return nil, nil, false
		}
		first := with(func(x *Block) { x.Spans = h })
		return &first, rest(func(x *Block) { x.Spans = t }), true
	case Code:
		n := cutCode(b.Text, func(s string) bool { return fits(with(func(x *Block) { x.Text = s })) }, fresh)
		if n == 0 {
			return nil, nil, false
		}
		first := with(func(x *Block) { x.Text = b.Text[:n] })
		return &first, rest(func(x *Block) { x.Text = b.Text[n:] }), true
	case List:
		h, t, ok := cutItems(b.Items, func(it []Item) bool { return fits(with(func(x *Block) { x.Items = it })) }, fresh)
		switch {
		case !ok:
			return nil, nil, false
		case h == nil:
			return nil, []Block{with(func(x *Block) { x.Items = t })}, true
		}
		first := with(func(x *Block) { x.Items = h })
		return &first, rest(func(x *Block) { x.Items = t }), true
	case Quote:
		h, t, ok := cutBlocks(b.Blocks, func(in []Block) bool { return fits(with(func(x *Block) { x.Blocks = in })) }, fresh)
		if !ok {
			return nil, nil, false
		}
		first := with(func(x *Block) { x.Blocks = h })
		return &first, rest(func(x *Block) { x.Blocks = t }), true
	case Table:
		return cutTable(b, fits, fresh)
	case Rule:
	}
	return nil, nil, false
}

// cutBlocks cuts a sequence; on true the head has something.
func cutBlocks(in []Block, fits func([]Block) bool, fresh bool) (head, tail []Block, ok bool) {
	for {
		j := most(len(in), func(n int) bool { return fits(in[:n]) })
		if j == len(in) { // a size that shrinks: give up on cutting
			return nil, nil, false
		}
		before := in[:j:j]
		h, t, ok := cut(in[j], func(x Block) bool { return fits(append(before, x)) }, fresh && j == 0)
		switch {
		case ok && h == nil:
			in = slices.Concat(before, t, in[j+1:])
			continue
		case ok:
			return append(before, *h), slices.Concat(t, in[j+1:]), true
		case j > 0:
			return before, in[j:], true
		}
		return nil, nil, false
	}
}

// cutItems cuts a list between items, or inside the first when not even that
// fits a fresh part.
func cutItems(items []Item, fits func([]Item) bool, fresh bool) (head, tail []Item, ok bool) {
	j := most(len(items), func(n int) bool { return fits(items[:n]) })
	if j == len(items) {
		return nil, nil, false
	}
	if j > 0 {
		return items[:j:j], items[j:], true
	}
	if !fresh {
		return nil, nil, false
	}
	it := items[0]
	one := func(spans []Span, blocks []Block) []Item {
		x := it
		x.Spans, x.Blocks = spans, blocks
		return []Item{x}
	}
	rest := func(spans []Span, blocks []Block) []Item {
		x := it
		x.Spans, x.Blocks, x.More, x.Task = spans, blocks, true, nil
		return append([]Item{x}, items[1:]...)
	}
	if len(it.Spans) > 0 && (len(it.Blocks) == 0 || !fits(one(it.Spans, nil))) {
		h, t, ok := cutSpans(it.Spans, func(s []Span) bool { return fits(one(s, nil)) }, true)
		if ok {
			return one(h, nil), rest(t, it.Blocks), true
		}
		if len(it.Blocks) == 0 {
			return nil, nil, false
		}
		return one(it.Spans, nil), rest(nil, it.Blocks), true // one character, too large for a part
	}
	h, t, ok := cutBlocks(it.Blocks, func(in []Block) bool { return fits(one(it.Spans, in)) }, len(it.Spans) == 0)
	switch {
	case ok:
		return one(it.Spans, h), rest(nil, t), true
	case len(it.Spans) > 0:
		return one(it.Spans, nil), rest(nil, it.Blocks), true
	case len(it.Blocks) > 1:
		return one(nil, it.Blocks[:1]), rest(nil, it.Blocks[1:]), true
	case len(items) > 1:
		return items[:1:1], items[1:], true
	}
	return nil, nil, false
}

// cutTable cuts between rows; a row that has no room beside the header is
// written as a paragraph.
func cutTable(b Block, fits func(Block) bool, fresh bool) (head *Block, tail []Block, ok bool) {
	rows := func(from, to int) Block {
		x := b
		x.Rows = append([][]Cell{b.Rows[0]}, b.Rows[from:to]...)
		x.More = b.More || from > 1
		return x
	}
	if len(b.Rows) == 0 {
		return nil, nil, false
	}
	n := most(len(b.Rows)-1, func(n int) bool { return fits(rows(1, 1+n)) })
	if n > 0 && n < len(b.Rows)-1 {
		first := rows(1, 1+n)
		return &first, []Block{rows(1+n, len(b.Rows))}, true
	}
	if !fresh {
		return nil, nil, false
	}
	if !b.More {
		tail = append(tail, rowParagraph(b.Rows[0])...)
	}
	if len(b.Rows) > 1 {
		tail = append(tail, rowParagraph(b.Rows[1])...)
	}
	if len(b.Rows) > 2 {
		tail = append(tail, rows(2, len(b.Rows)))
	}
	return nil, tail, true
}

func rowParagraph(row []Cell) []Block {
	var out []Span
	for i, c := range row {
		if i > 0 {
			out = add(out, Span{}, "  ")
		}
		for _, s := range c {
			if s.Link != "" {
				out = append(out, s)
			} else {
				out = add(out, s, s.Text)
			}
		}
	}
	return paragraph(out)
}

// cutCode returns how many bytes to take, 0 for none.
func cutCode(s string, fits func(string) bool, fresh bool) int {
	if s == "" {
		return 0
	}
	n := most(len(s), func(n int) bool { return fits(s[:runeStart(s, n)]) })
	n = runeStart(s, min(n, len(s)-1))
	if nl := strings.LastIndexByte(s[:n], '\n'); nl >= 0 {
		return nl + 1
	}
	switch {
	case !fresh:
		return 0
	case n == 0:
		_, first := utf8.DecodeRuneInString(s)
		if first >= len(s) {
			return 0
		}
		return first
	}
	return n
}

// cutSpans cuts text. A cut is never inside a link.
func cutSpans(spans []Span, fits func([]Span) bool, fresh bool) (head, tail []Span, ok bool) {
	total := 0
	for _, s := range spans {
		total += len(s.Text)
	}
	n := most(total, func(n int) bool { h, _ := spansAt(spans, n); return len(h) == 0 || fits(h) })
	head, tail = spansAt(spans, min(n, total-1))
	if len(head) == 0 {
		if !fresh || total == 0 {
			return nil, nil, false
		}
		if spans[0].Link != "" { // alone too long for a part
			s := spans[0]
			s.Text, s.Link = s.Plain(), ""
			return cutSpans(append([]Span{s}, spans[1:]...), fits, true)
		}
		_, first := utf8.DecodeRuneInString(spans[0].Text)
		head, tail = spansAt(spans, first)
		return head, tail, len(tail) > 0
	}
	var b strings.Builder
	for _, s := range head {
		b.WriteString(s.Text)
	}
	next, _ := utf8.DecodeRuneInString(tail[0].Text)
	at, good := boundary(b.String(), next)
	if !good && !fresh {
		return nil, nil, false
	}
	if h, t := spansAt(spans, at); len(h) > 0 {
		return h, t, true
	}
	return head, tail, true
}

// spansAt cuts at a byte offset of the joined text, moved down to the start of
// the character or link that it falls into.
func spansAt(spans []Span, n int) (head, tail []Span) {
	for i, s := range spans {
		if n >= len(s.Text) {
			n -= len(s.Text)
			continue
		}
		head = slices.Clone(spans[:i])
		tail = slices.Clone(spans[i:])
		if n = runeStart(s.Text, n); n > 0 && s.Link == "" {
			tail[0].Text = s.Text[n:]
			s.Text = s.Text[:n]
			head = append(head, s)
		}
		return head, tail
	}
	return spans, nil
}

// boundary returns the best place to cut in s, which next follows: after the
// last newline, sentence or word, the first two only in the second half. good
// is false for a place inside a word.
func boundary(s string, next rune) (at int, good bool) {
	for _, kind := range []struct {
		ends func(s string, next rune) bool
		from int
	}{{endsLine, len(s) / 2}, {endsSentence, len(s) / 2}, {endsWord, 0}} {
		after := next
		for i := len(s); i > kind.from; {
			if kind.ends(s[:i], after) {
				return i, true
			}
			r, n := utf8.DecodeLastRuneInString(s[:i])
			after = r
			i -= n
		}
	}
	// Inside a word: not between a letter and its accent, or parts of an emoji.
	after := next
	for i, steps := len(s), 0; i > 0 && steps < 16; steps++ {
		r, n := utf8.DecodeLastRuneInString(s[:i])
		if !unicode.In(after, unicode.Mn, unicode.Me, unicode.Mc, unicode.Cf, unicode.Sk, unicode.Variation_Selector) && r != 0x200D {
			return i, false
		}
		after = r
		i -= n
	}
	return len(s), false
}

func endsLine(s string, _ rune) bool { return strings.HasSuffix(s, "\n") }

func endsSentence(s string, next rune) bool {
	r, _ := utf8.DecodeLastRuneInString(s)
	if strings.ContainsRune("。！？", r) {
		return true
	}
	if !endsWord(s, next) {
		return false
	}
	r, _ = utf8.DecodeLastRuneInString(strings.TrimRight(s, " "))
	return strings.ContainsRune(".!?", r)
}

func endsWord(s string, next rune) bool {
	r, _ := utf8.DecodeLastRuneInString(s)
	return unicode.IsSpace(r) && !unicode.IsSpace(next)
}

// runeStart moves n down to the start of a character.
func runeStart(s string, n int) int {
	if n >= len(s) {
		return len(s)
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return n
}

// most returns the largest n up to limit with ok(n), where ok holds up to some
// n and not above; 0 when there is none. It asks first about small ones, so
// that its cost follows the answer and not the limit.
func most(limit int, ok func(int) bool) int {
	lo, hi := 0, 1
	for hi <= limit && ok(hi) {
		lo, hi = hi, hi*2
	}
	hi = min(hi, limit+1)
	for hi-lo > 1 {
		if mid := lo + (hi-lo)/2; ok(mid) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}
