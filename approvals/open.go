package approvals

import "countersign/store"

// AllOpen lists the records of every thread that are not final.
func (l Ledger) AllOpen(tx store.Tx) []Record {
	var out []Record
	start, end := store.Prefix("approval-open")
	for k := range tx.Scan(start, end) {
		parts, err := store.Parts(k)
		if err != nil || len(parts) != 3 {
			continue
		}
		id, _ := parts[2].(string)
		if r, ok := l.Get(tx, ID(id)); ok {
			out = append(out, r)
		}
	}
	return out
}
