// Package edits counts how far a word is from another one, for sentences that say what was
// probably meant.
package edits

// Distance is how many bytes have to be put in, left out or replaced to make b of a: their
// Levenshtein distance. A word of more than 100 bytes is far from everything.
func Distance(a, b string) int {
	if n := max(len(a), len(b)); n > 100 {
		return n
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			same := before
			if a[i] != b[j] {
				same++
			}
			before = row[j+1]
			row[j+1] = min(same, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
