package audit

import (
	"fmt"
	"testing"
	"time"

	"countersign/store"
	"countersign/store/mem"
)

func TestVerifyFindsEveryKindOfTampering(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	key := func(n uint64) []byte { return store.Key("audit", "web:1", n) }
	for _, tc := range []struct {
		rule   string
		tamper func(tx store.Tx)
		bad    bool
	}{
		{"an untouched chain is well", func(store.Tx) {}, false},
		{"a changed line", func(tx store.Tx) {
			l, _ := store.Load[Line](tx, key(2))
			l.Event.User = "web:mallory"
			store.Save(tx, key(2), l)
		}, true},
		{"a changed line with its hash made anew", func(tx store.Tx) {
			l, _ := store.Load[Line](tx, key(2))
			l.Event.User = "web:mallory"
			l.Hash = l.sum()
			store.Save(tx, key(2), l)
		}, true},
		{"a dropped line", func(tx store.Tx) { tx.Delete(key(2)) }, true},
		{"two lines swapped", func(tx store.Tx) {
			a, _ := store.Load[Line](tx, key(1))
			b, _ := store.Load[Line](tx, key(2))
			store.Save(tx, key(1), b)
			store.Save(tx, key(2), a)
		}, true},
		{"a cut tail", func(tx store.Tx) { tx.Delete(key(4)) }, true},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			db := mem.Open()
			var err error
			uerr := db.Update(t.Context(), func(tx store.Tx) error {
				for i := range 5 {
					Append(tx, "web:1", Event{What: "asked", Approval: fmt.Sprint(i)}, at)
				}
				tc.tamper(tx)
				err = Verify(tx, "web:1")
				return nil
			})
			if uerr != nil || (err != nil) != tc.bad {
				t.Fatal(err, uerr)
			}
		})
	}
}
