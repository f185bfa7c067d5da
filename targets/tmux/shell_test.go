package tmux

import (
	"slices"
	"testing"
)

func shellEvents() []shellEvent {
	var all []shellEvent
	for e := shellSpawned; e <= promptHookResumed; e++ {
		all = append(all, e)
	}
	return all
}

func TestShellTransitions(t *testing.T) {
	for _, tt := range []struct {
		rule string
		e    shellEvent
		from []shellPhase
		to   shellPhase
	}{
		{"a spawned shell starts", shellSpawned, anyShellPhase, phaseStart},
		{"after an exit the next shell starts", shellExited, anyShellPhase, phaseStart},
		{"a started command runs in whatever phase", commandStarted, anyShellPhase, phaseRunning},
		{"after a command its prompt comes", commandEnded, anyShellPhase, phasePrompt},
		{"a printed prompt is idle", promptPrinted, anyShellPhase, phaseIdle},
		{"a shell that answers is idle", statusReported, anyShellPhase, phaseIdle},
		{"a shell that nobody listened to is not idle", contactRegained, anyShellPhase, phaseRunning},
		{"modes of the line editor are a prompt unless the shell starts", promptSeen, []shellPhase{phaseIdle, phaseRunning, phasePrompt}, phaseIdle},
		{"Enter resumes the hook at the prompt only", promptHookResumed, []shellPhase{phaseIdle}, phasePrompt},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			for _, from := range anyShellPhase {
				s := shellState{phase: from}
				err := s.apply(tt.e)
				if legal := slices.Contains(tt.from, from); legal != (err == nil) {
					t.Errorf("from %v: %v", from, err)
				} else if legal && s.phase != tt.to || !legal && s.phase != from {
					t.Errorf("from %v to %v", from, s.phase)
				}
			}
		})
	}
}

func TestEveryShellEventHasATransition(t *testing.T) {
	for _, e := range shellEvents() {
		if _, ok := shellTransitions[e]; !ok {
			t.Errorf("%v has none", e)
		}
	}
	if n := len(shellTransitions); n != len(shellEvents()) {
		t.Errorf("%d transitions", n)
	}
}

func TestOnlyAPromptMakesAShellIdle(t *testing.T) {
	for _, e := range shellEvents() {
		idle := shellTransitions[e].to == phaseIdle
		if prompt := e == promptPrinted || e == statusReported || e == promptSeen; idle != prompt {
			t.Errorf("%v leads to %v", e, shellTransitions[e].to)
		}
	}
}

func TestAShellThatExitsLosesItsCount(t *testing.T) {
	s := shellState{phase: phaseIdle, seq: 7, prompt: []byte("$ ")}
	if err := s.apply(shellExited); err != nil || s.seq != 0 || len(s.prompt) != 0 || !s.restarted {
		t.Errorf("%v %+v", err, s)
	}
}

func TestAPromptIsKeptUpToItsLimit(t *testing.T) {
	var s shellState
	s.addPrompt([]byte("a"))
	s.addPrompt(make([]byte, promptMax))
	s.addPrompt([]byte("b"))
	if string(s.prompt) != "ab" {
		t.Errorf("%d bytes", len(s.prompt))
	}
}
