package tmux

import "testing"

func TestInputLineTransitions(t *testing.T) {
	contents := []lineContent{lineEmpty, lineText, lineDraft, lineDraftUnconfirmed}
	for _, tt := range []struct {
		rule string
		e    lineEvent
		want [4]lineContent // from the contents in their order
	}{
		{"an echo is text, and keeps a draft", lineEchoed, [4]lineContent{lineText, lineText, lineDraft, lineDraft}},
		{"keys that were sent are a draft", lineKeysSent, [4]lineContent{lineDraft, lineDraft, lineDraft, lineDraft}},
		{"a draft outlives a command", lineUnsettled, [4]lineContent{lineEmpty, lineEmpty, lineDraftUnconfirmed, lineDraftUnconfirmed}},
		{"a new prompt is empty", linePrompted, [4]lineContent{}},
		{"the shell says that the line is empty", lineFoundEmpty, [4]lineContent{}},
		{"the shell says that there is text, and a draft stays one", lineFoundText, [4]lineContent{lineText, lineText, lineDraft, lineDraft}},
		{"a line that nobody may read has text", lineUnread, [4]lineContent{lineText, lineText, lineDraft, lineDraft}},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			for i, from := range contents {
				l := inputLine{content: from}
				if l.apply(tt.e); l.content != tt.want[i] {
					t.Errorf("from %v to %v, not %v", from, l.content, tt.want[i])
				}
			}
		})
	}
	if len(lineTransitions) != int(lineUnread)+1 {
		t.Errorf("%d transitions", len(lineTransitions))
	}
}

func TestOnlyACommandOrAPromptEndsAContinuation(t *testing.T) {
	for e := lineEchoed; e <= lineUnread; e++ {
		l := inputLine{continued: true}
		l.apply(e)
		if want := e != lineUnsettled && e != linePrompted; l.continued != want {
			t.Errorf("%v: continued %v", e, l.continued)
		}
	}
}

func TestWhatStandsOnTheInputLine(t *testing.T) {
	for _, tt := range []struct {
		l                      inputLine
		text, draft, untouched bool
	}{
		{inputLine{content: lineEmpty}, false, false, true},
		{inputLine{content: lineText}, true, false, false},
		{inputLine{content: lineDraft}, true, true, false},
		{inputLine{content: lineDraftUnconfirmed}, false, true, true},
		{inputLine{continued: true}, false, false, false},
	} {
		if tt.l.hasText() != tt.text || tt.l.hasDraft() != tt.draft || tt.l.untouched() != tt.untouched {
			t.Errorf("%v, continued %v", tt.l.content, tt.l.continued)
		}
	}
}

func TestOrigins(t *testing.T) {
	for _, tt := range []struct {
		rule         string
		next         origin
		own, driving bool
		want         origin
	}{
		{"a command that nobody claimed is a person's", originPerson, false, true, originPerson},
		{"a job is this process's", originPerson, true, true, originOwn},
		{"a claimed command is this process's", originOwn, false, true, originOwn},
		{"who does not drive cannot tell", originPerson, false, false, originUnknown},
		{"a claim holds after the lease is lost", originOwn, false, false, originOwn},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			o := origins{next: tt.next}
			o.started(tt.own, tt.driving)
			if o != (origins{current: tt.want}) {
				t.Errorf("%+v", o)
			}
		})
	}
}

func TestAClaimCountsOnceAndCanBeTakenBack(t *testing.T) {
	var o origins
	o.claimNext()
	o.dropClaim()
	o.started(false, true)
	if o.current != originPerson {
		t.Errorf("a claim that was taken back counts: %+v", o)
	}
	o.claimNext()
	o.started(false, true)
	o.started(false, true)
	if o.current != originPerson {
		t.Errorf("a claim counts twice: %+v", o)
	}
	o.claimNext()
	o.reset()
	if o != (origins{}) {
		t.Errorf("a claim outlives its shell: %+v", o)
	}
}

func TestAfterMissedMarksAPersonsCommandIsUnknown(t *testing.T) {
	for from, want := range map[origin]origin{originPerson: originUnknown, originUnknown: originUnknown, originOwn: originOwn} {
		o := origins{current: from}
		if o.contactRegained(); o.current != want {
			t.Errorf("%v became %v", from, o.current)
		}
	}
}
