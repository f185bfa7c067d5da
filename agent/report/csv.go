package report

import (
	"bytes"
	"encoding/csv"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"countersign/adapters/chat/visible"
	"countersign/approvals"
)

// columns of commands.csv.
var columns = []string{
	"time", "call id", "tool", "target", "command", "requested by", "approved by", "decision", "digest", "exit code", "duration", "outcome",
}

// timeOf is the form of a time in a cell: RFC 3339 in UTC, with milliseconds.
const timeOf = "2006-01-02T15:04:05.000Z"

// maxCell is how many characters a cell has: a spreadsheet takes 32,767 (the limit of
// Excel), and the sign that something is missing needs some.
const maxCell = 32_000

// commands writes commands.csv: a line for each call, in order. It returns how many calls
// found no room.
func (w writer) commands(out *file, f *incidentState) (left int, err error) {
	line := func(cells []string) (bool, error) {
		var b bytes.Buffer
		c := csv.NewWriter(&b)
		if err := c.Write(cells); err != nil {
			return false, err
		}
		c.Flush()
		return out.whole(b.Bytes())
	}
	if ok, err := line(columns); !ok {
		return len(f.calls), err
	}
	for i, k := range f.calls {
		if ok, err := line(w.command(k, f)); !ok {
			return len(f.calls) - i, err
		}
	}
	return 0, nil
}

// command is the line of one call.
func (w writer) command(k *call, f *incidentState) []string {
	code, took := "", ""
	if n, ok := k.exitCode(); ok {
		code = strconv.Itoa(n)
	}
	if d, ok := k.took(f.chain); ok {
		took = strconv.FormatFloat(d.Seconds(), 'f', 3, 64)
	}
	by := k.by
	if k.rec != nil && k.rec.Requester.ID != "" {
		by = k.rec.Requester
	}
	row := []string{
		k.start().UTC().Format(timeOf), k.ID, k.tool(), k.target(), k.command(), who(by.Name, string(by.ID)), k.approvers(f), k.decided(), k.digest(), code, took,
		string(k.end(f.chain)),
	}
	for i := range row {
		row[i] = w.cell(row[i])
	}
	return row
}

// who is a person with the id by which the network knows them.
func who(name, id string) string {
	switch {
	case name == "":
		return id
	case id == "":
		return name
	}
	return name + " (" + id + ")"
}

// approvers are the people whose votes approved the call.
func (k *call) approvers(f *incidentState) string {
	if k.isRead(f.chain) {
		return ""
	}
	var out []string
	if k.rec != nil {
		for _, v := range k.rec.Votes {
			if v.Approve {
				out = append(out, who(v.User.Name, string(v.User.ID)))
			}
		}
	} else if d := k.decision(); d != nil && d.State == approvals.Approved {
		u := f.personNamed(d.By, d.ByName)
		out = append(out, who(u.Name, string(u.ID)))
	}
	return strings.Join(out, "; ")
}

// decided says what was decided about the call, and by what right if nobody voted.
func (k *call) decided() string {
	switch a := k.lastAsk(); {
	case k.isRead(true):
		return "proven read-only"
	case k.forbidden != nil:
		return "refused by the policy"
	case a == nil:
		return "nobody was asked"
	case k.rec != nil && k.rec.Basis.Kind != approvals.ByVotes:
		return "approved by " + string(k.rec.Basis.Kind) + ": " + k.rec.Basis.Why
	case k.rec != nil && slices.ContainsFunc(k.rec.Votes, func(v approvals.Vote) bool { return v.Glass && v.Approve }):
		return "approved by breaking the glass: " + k.rec.Reason
	case k.rec != nil && k.rec.Approvals() > 0 && !k.rec.RunBy.IsZero():
		return "approved" // whatever became of it
	case k.decision() != nil && k.decision().State == approvals.Approved:
		return "approved"
	}
	return string(k.state())
}

// cell is a text that a spreadsheet shows and does not calculate.
func (w writer) cell(s string) string {
	s, short := cut(visible.Code(w.cleanCommand(s)), maxCell)
	if short {
		s += " [cut]"
	}
	// What a formula begins with, also in the wide forms that some programs take for
	// the plain ones; and blanks that a program may drop before it looks.
	first := strings.TrimLeft(s, " \u00A0\u3000")
	if r, _ := utf8.DecodeRuneInString(first); first != "" && strings.ContainsRune("=+-@\t\r\n＝＋－＠", r) {
		return "'" + s
	}
	return s
}
