package console

import (
	"net/http"
	"strings"
	"time"

	"countersign/store"
)

// operatorMark is in place of a person in a code of the operator's. No name has it.
const (
	operatorMark = "\x00operator"
	byOperator   = "operator"
	operatorAuth = "Operator "
)

// OperatorCode makes a code with which who runs the bot can look at everybody's tokens or end one, once,
// within ten minutes of now. It signs nobody in.
func OperatorCode(key []byte, now time.Time) string { return LoginCode(key, operatorMark, now) }

// operate lists the tokens of a person, or ends one of anybody's.
func (ts *tokens) operate(w http.ResponseWriter, r *http.Request) error {
	v, now := ts.visitors.visitor(r), ts.now()
	if ts.guard.foreign(r) {
		return ts.guard.refuseForeign(r)
	}
	code, _ := strings.CutPrefix(r.Header.Get("Authorization"), operatorAuth)
	user, nonce, expires, err := readCode(ts.key, code, now)
	if err != nil || user != operatorMark {
		if !ts.visitors.mayTry(v) {
			return refusePace(time.Minute, sayTooManyTries)
		}
		ts.visitors.recordRefusal(r.Context(), v, "", byOperator, "no valid code")
		return refuse(http.StatusForbidden, sayBadCode)
	}
	var body struct {
		Of  string `json:"of"`
		End string `json:"end"`
	}
	if err := read(w, r, &body); err != nil {
		return err
	}
	out, used := []shownToken{}, false
	var ended []string
	err = ts.db.Update(r.Context(), func(tx store.Tx) error {
		out, ended = out[:0], nil
		key := codeKey(nonce)
		if _, used = tx.Get(key); used {
			return nil
		}
		store.Save(tx, key, codeRow{Expires: expires.UTC()})
		if body.End != "" {
			ended = ts.end(tx, v, "", byOperator, func(_ []byte, row tokenRow) bool { return row.ID == body.End })
			return nil
		}
		for _, t := range tokensOf(tx, strings.TrimPrefix(body.Of, scheme+":")) {
			if t.works(tx, now) {
				shown := shownTokenOf(t.tokenRow)
				shown.User = t.User
				out = append(out, shown)
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case used:
		return refuse(http.StatusForbidden, sayCodeUsed)
	case body.End != "" && len(ended) == 0:
		return refuse(http.StatusNotFound, sayUnknownID)
	default:
		ts.streams.end(ended...)
		return answer(w, http.StatusOK, map[string]any{"tokens": out})
	}
}
