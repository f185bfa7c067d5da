// Package tokens estimates how much of a model's context window a text takes: [Count]
// judges a text by its words, numbers, marks and blanks, and a [Calibration] learns how far
// each model's own count is from that.
//
// It does not decide what a model is shown (agent/history does), does no I/O and
// keeps nothing beyond the life of its values.
package tokens

// kind is what a byte is to [Count].
type kind uint8

const (
	control kind = iota // characters that are not written, and the rest of a longer one
	blank
	digit
	letter
	mark   // punctuation of ASCII
	two    // the first byte of a character of two bytes: Cyrillic, Greek, accents
	symbol // of one of three that is hardly ever in a word: arrows, frames, quotes
	three  // of another one of three: Chinese, Japanese, Korean
	four   // of one of four: mostly emoji
)

// kinds has the kind of each byte.
var kinds = func() (k [256]kind) {
	for b := range k {
		switch {
		case b == ' ' || b == '\t' || b == '\n' || b == '\r':
			k[b] = blank
		case b|0x20 >= 'a' && b|0x20 <= 'z':
			k[b] = letter
		case b >= '0' && b <= '9':
			k[b] = digit
		case b > ' ' && b < 0x7f:
			k[b] = mark
		case b >= 0xf0:
			k[b] = four
		case b == 0xe2:
			k[b] = symbol
		case b >= 0xe0:
			k[b] = three
		case b >= 0xc0:
			k[b] = two
		}
	}
	return k
}()

// Count returns about how many tokens a text has in o200k_base, the vocabulary of OpenAI's
// models since GPT-4o: within a quarter for what logs, code, commands and people's
// languages are made of, and never more than the text's bytes. It needs no vocabulary, which would be megabytes of
// the program and a thousand times slower; other models count differently anyway, and
// a [Calibration] knows by how much. It takes about 4 ms a megabyte.
//
// The vocabulary cuts a text into words, numbers, marks and blanks before it looks at
// their letters. So does this, and then takes a piece's length and kind. The figures were
// fitted to the texts of TestCountIsCloseToO200k.
func Count(text string) int {
	var n float64
	for i := 0; i < len(text); {
		k, end := kinds[text[i]], i+1
		for end < len(text) && joins(k, text[end-1], text[end]) {
			end++
		}
		n += weight(text, i, end)
		i = end
	}
	return min(int(n+0.5), len(text))
}

// joins reports whether a byte of the text belongs to the piece of a kind before it.
func joins(k kind, last, next byte) bool {
	switch {
	case next >= 0x80 && next < 0xc0: // within a character
		return true
	case k == letter && kinds[next] == two: // as in a German word
		return true
	case kinds[next] != k:
		return false
	}
	return k != letter || last >= 'a' || next < 'a' // a capital letter begins a word
}

// weight is about how many tokens the piece text[i:end] has.
func weight(text string, i, end int) float64 {
	size := float64(end - i)
	var before, after kind
	if i > 0 {
		before = kinds[text[i-1]]
	}
	if end < len(text) {
		after = kinds[text[end]]
	}
	switch kinds[text[i]] {
	case blank:
		return blanks(text[i:end], before, after)
	case digit: // three of them are one token
		return float64((end - i + 2) / 3)
	case letter:
		return word(text[end-1], size, before, after)
	case mark:
		if size == 1 && after == letter { // often one token together with its word
			return 0.75
		}
		return max(1, size/2.5)
	case two:
		return max(1, size/7.5)
	case symbol:
		return max(1, size/2)
	case three:
		return max(1, size/5)
	case four:
		return max(1, size/1.6)
	case control:
	}
	return size
}

// word is the weight of letters: longer words of people are one or two tokens, capital
// letters are more, and what is written together with numbers (identifiers, hashes, base64)
// is hardly in a vocabulary at all.
func word(last byte, size float64, before, after kind) float64 {
	least, letters := 1.0, 9.0
	switch {
	case before == digit || after == digit:
		letters = 2.2
	case last <= 'Z':
		letters = 3.2
	}
	if before == letter && size > 3 { // the rest of a name such as ReadFile
		least = 0.7
	}
	return max(least, least-0.45+size/letters)
}

// blanks is the weight of a run of blanks. The last one belongs to the word after it, though
// not to a number; a line's end belongs to a mark before it.
func blanks(run string, before, after kind) float64 {
	switch {
	case after == control: // the text's end, too
		return 1
	case run == "\n" && before == mark:
		return 0
	case run[len(run)-1] == '\n':
		return 1
	}
	n := 0.0
	if len(run) > 1 {
		n++
	}
	if after == digit {
		n++
	}
	return n
}
