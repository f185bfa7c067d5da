package console

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"countersign/store"
)

// A thread's text is the distinct words of all that was said and shown in it, in lower case and
// between spaces: one row a thread, which a search reads instead of the messages. No character of it is written in
// another way in JSON, so the row is searched without being decoded.
const (
	maxText   = 32 << 10 // bytes of a thread's text; later words are not found
	maxScan   = 8 << 10  // bytes of one message that go into it
	leastWord = 2        // bytes; in many scripts that is one character
	mostWord  = 120      // bytes; the rest of a longer word is left out

	maxTerms   = 8     // of a search
	findSize   = 30    // threads that one search returns
	maxMatches = 3000  // matching threads that are sorted by age; more are taken from the newest on
	maxLooked  = 10000 // messages in which one search looks for those that match
)

func textKey(id string) []byte { return store.Key(scheme, "text", id) }

// wordsOf returns what of a message can be found: the words, who wrote it (from:alice), and what its
// card is about (on:web-1).
func wordsOf(m messageRow) string {
	var b strings.Builder
	add := func(texts ...string) {
		for _, t := range texts {
			if room := maxScan - b.Len(); room > 0 {
				b.WriteString(t[:min(len(t), room)])
				b.WriteByte('\n')
			}
		}
	}
	if !m.From.Bot {
		add("from:" + m.From.Name)
	}
	add(m.Text)
	if c := m.Card; c != nil {
		add(c.Title, c.Code, c.Context, c.Why)
		add(c.Preview...)
		for _, f := range slices.Concat(c.Fields, c.Details) {
			if f.Name == targetField {
				add("on:" + targetName(f.Value))
			}
		}
	}
	for _, f := range m.Files {
		add(f.Name)
	}
	return b.String()
}

// targetField is the card's field that names the machine, as "user@ssh:name#key".
const targetField = "Target"

func targetName(value string) string {
	value = value[strings.LastIndexByte(value, '@')+1:]
	value, _, _ = strings.Cut(value, "#")
	return value[strings.IndexByte(value, ':')+1:]
}

// addWords adds the words of a message to the text of its thread.
func addWords(text, said string) string {
	var b strings.Builder
	b.WriteString(text)
	known := map[string]bool{}
	for word := range strings.FieldsSeq(text) {
		known[word] = true
	}
	for _, word := range words(said) {
		if len(word) > mostWord {
			word = strings.ToValidUTF8(word[:mostWord], "")
		}
		if len(word) < leastWord || known[word] || b.Len()+len(word)+2 > maxText {
			continue
		}
		known[word] = true
		if b.Len() == 0 {
			b.WriteByte(' ')
		}
		b.WriteString(word)
		b.WriteByte(' ')
	}
	return b.String()
}

// words are the words of a text in lower case, without the punctuation around them.
func words(text string) []string {
	apart := func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || strings.ContainsRune(`"\<>&`, r)
	}
	all := strings.FieldsFunc(strings.ToLower(strings.ToValidUTF8(text, " ")), apart)
	for i, w := range all {
		all[i] = strings.TrimFunc(w, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '/' })
	}
	return slices.DeleteFunc(all, func(w string) bool { return w == "" })
}

// noteWords makes a message findable.
func noteWords(tx store.Tx, id string, m messageRow) {
	text, has := store.Load[string](tx, textKey(id))
	now := text
	if !has { // the thread is new, or of an earlier version
		now = textOf(tx, id)
	}
	if now = addWords(now, wordsOf(m)); len(now) > len(text) {
		store.Save(tx, textKey(id), now)
	}
}

// terms are the words of a search, all of which must be in a thread's text; a part of a word does.
func terms(query string) []string {
	var all []string
	for _, t := range words(query) {
		if !slices.Contains(all, t) && len(all) < maxTerms {
			all = append(all, t)
		}
	}
	return all
}

func hasAll(text []byte, terms []string) bool {
	for _, t := range terms {
		if !bytes.Contains(text, []byte(t)) {
			return false
		}
	}
	return true
}

// findThreads returns the ids of the threads that have all terms and are wanted, the newest first,
// from the one behind the cursor on.
func findThreads(tx store.Tx, terms []string, after cursor, wanted func(string, threadRow) bool) (ids []string, more bool) {
	type match struct {
		id string
		threadRow
	}
	var all []match
	from, to := store.Prefix(scheme, "text")
	for k, text := range tx.Scan(from, to) {
		if !hasAll(text, terms) {
			continue
		}
		id := lastText(k)
		if t, ok := listed(tx, id); ok && after.before(t.At, id) && wanted(id, t) {
			all = append(all, match{id, t})
		}
		if len(all) > maxMatches {
			return findRecent(tx, terms, after, wanted)
		}
	}
	slices.SortFunc(all, func(a, b match) int {
		if c := b.At.Compare(a.At); c != 0 {
			return c
		}
		return strings.Compare(b.id, a.id)
	})
	for _, m := range all[:min(len(all), findSize)] {
		ids = append(ids, m.id)
	}
	return ids, len(all) > findSize
}

// findRecent is findThreads for terms that many threads have: it goes from the newest on, and ends soon.
func findRecent(tx store.Tx, terms []string, after cursor, wanted func(string, threadRow) bool) (ids []string, more bool) {
	for id, t := range recent(tx, after) {
		text, _ := tx.Get(textKey(id))
		if !hasAll(text, terms) || !wanted(id, t) {
			continue
		}
		if len(ids) == findSize {
			return ids, true
		}
		ids = append(ids, id)
	}
	return ids, false
}

// found is where a search leads in a thread.
type found struct {
	Seq  uint64 `json:"seq"`
	Text string `json:"text"` // around the first term
}

// place finds the newest message that has the most of the terms. It looks at left messages at most,
// and counts them.
func place(tx store.Tx, id string, terms []string, left *int) (f found) {
	best := 0
	for k, m := range decoded[messageRow](tx.ScanBack(store.Prefix(scheme, "message", id))) {
		if *left--; *left < 0 || best == len(terms) {
			break
		}
		if m.Pending {
			continue
		}
		words, has := strings.ToLower(wordsOf(m)), 0
		for _, t := range terms {
			if strings.Contains(words, t) {
				has++
			}
		}
		if has > best {
			best, f = has, found{lastNumber(k), excerpt(m, terms)}
		}
	}
	return f
}

// excerptSize is how many characters an excerpt has at most.
const excerptSize = 160

// excerpt is the line of a message around the first of the terms that is in it.
func excerpt(m messageRow, terms []string) string {
	texts := []string{m.Text}
	if m.Card != nil {
		texts = append(texts, m.Card.Title, m.Card.Code, m.Card.Context, m.Card.Why)
	}
	for _, t := range terms {
		for _, text := range texts {
			for line := range strings.Lines(text) {
				if at := strings.Index(strings.ToLower(line), t); at >= 0 {
					return clipAround(strings.Join(strings.Fields(line), " "), t)
				}
			}
		}
	}
	return title(m.Text)
}

func clipAround(line, term string) string {
	r := []rune(line)
	if len(r) <= excerptSize {
		return line
	}
	at := utf8.RuneCountInString(line[:min(len(line), max(0, strings.Index(strings.ToLower(line), term)))])
	from := max(0, min(at-excerptSize/3, len(r)-excerptSize))
	out := strings.TrimSpace(string(r[from:min(len(r), from+excerptSize)]))
	if from > 0 {
		out = "…" + out
	}
	if from+excerptSize < len(r) {
		out += "…"
	}
	return out
}

// fillTexts makes the threads of earlier versions findable, once. It ends with ctx.
func fillTexts(ctx context.Context, db store.DB) error {
	done := store.Key(scheme, "texts")
	var all bool
	if err := db.View(ctx, func(tx store.Tx) error { _, all = store.Load[bool](tx, done); return nil }); err != nil || all {
		return err
	}
	for _, list := range []string{"recent", "archived"} {
		var place cursor
		for more := true; more; {
			var ids []string
			err := db.View(ctx, func(tx store.Tx) error {
				ids, more = ids[:0], false
				looked := 0
				for id, t := range listFrom(tx, list, place) {
					if looked++; looked > fillLook || len(ids) == fillSize {
						more = true
						break
					}
					place = cursor{t.At, id}
					if _, has := tx.Get(textKey(id)); !has {
						ids = append(ids, id)
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			for _, id := range ids {
				if err := store.UpdateRelaxed(ctx, db, func(tx store.Tx) error { fillText(tx, id); return nil }); err != nil {
					return err
				}
			}
		}
	}
	return store.UpdateRelaxed(ctx, db, func(tx store.Tx) error { store.Save(tx, done, true); return nil })
}

const (
	fillLook = 1000 // threads that one transaction of fillTexts looks at
	fillSize = 100  // and those that it finds without a text
	fillPage = 2000 // messages of a thread that become its text
)

func fillText(tx store.Tx, id string) {
	if _, has := tx.Get(textKey(id)); !has {
		store.Save(tx, textKey(id), textOf(tx, id))
	}
}

// textOf makes a thread's text from its messages.
func textOf(tx store.Tx, id string) (text string) {
	page, _ := before(tx, id, 0, fillPage)
	for _, n := range page {
		text = addWords(text, wordsOf(n.messageRow))
	}
	return text
}
