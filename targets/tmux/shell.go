package tmux

import (
	"fmt"
	"slices"
)

// shellPhase is what the shell of a pane is doing, as far as its marks tell. Only phaseIdle
// accepts a command.
type shellPhase int

const (
	phaseStart   shellPhase = iota // the shell has not ended its start yet
	phaseIdle                      // it is at its prompt
	phaseRunning                   // it runs a command line, or its state is unknown
	phasePrompt                    // a command line has ended, and the prompt is not complete
)

func (p shellPhase) String() string {
	return [...]string{"start", "idle", "running", "prompt"}[p]
}

// shellEvent is what is learned of a shell.
type shellEvent int

const (
	shellSpawned      shellEvent = iota // a shell is started in the pane
	shellExited                         // mark X; the supervisor starts the next one
	commandStarted                      // mark C
	commandEnded                        // mark D; also before the first prompt, and after an empty line
	promptPrinted                       // mark P; also when the line editor redraws the prompt
	statusReported                      // mark S: only the line editor reports it
	promptSeen                          // the terminal is in the modes of the line editor
	contactRegained                     // marks were missed
	promptHookResumed                   // the bot pressed Enter, so that the hook runs again
)

func (e shellEvent) String() string {
	return [...]string{
		"shell spawned", "shell exited", "command started", "command ended", "prompt printed",
		"status reported", "prompt seen", "contact regained", "prompt hook resumed",
	}[e]
}

// shellTransition is a move to one phase from some others.
type shellTransition struct {
	from []shellPhase
	to   shellPhase
}

var anyShellPhase = []shellPhase{phaseStart, phaseIdle, phaseRunning, phasePrompt}

// shellTransitions holds every transition that may happen. A mark is valid in every phase:
// the shell itself reports what it does, and ignoring a mark could hide that a command ran.
// What this process concludes is valid in some phases only.
var shellTransitions = map[shellEvent]shellTransition{
	shellSpawned:    {anyShellPhase, phaseStart},
	shellExited:     {anyShellPhase, phaseStart},
	commandStarted:  {anyShellPhase, phaseRunning},
	commandEnded:    {anyShellPhase, phasePrompt},
	promptPrinted:   {anyShellPhase, phaseIdle},
	statusReported:  {anyShellPhase, phaseIdle},
	contactRegained: {anyShellPhase, phaseRunning},
	// A shell that has just exited left its modes behind.
	promptSeen:        {[]shellPhase{phaseIdle, phaseRunning, phasePrompt}, phaseIdle},
	promptHookResumed: {[]shellPhase{phaseIdle}, phasePrompt},
}

// shellState is what is known of the shell in a pane.
type shellState struct {
	phase shellPhase
	seq   int    // of the last prompt
	pid   string // as reported at the last prompt
	// lastRun is the prompt at which a command of the bot was read last, as a shell without a line
	// editor reports it with pid, or unknownPrompt.
	lastRun int
	dir     string
	prompt  []byte // as it was printed last
	// restarted means that the shell exited, a new one was started, and that has not been
	// reported yet.
	restarted bool
}

// apply moves the shell to the phase that follows the event. An event that may not happen in
// the present phase changes nothing, and is an error.
func (s *shellState) apply(e shellEvent) error {
	t := shellTransitions[e]
	if !slices.Contains(t.from, s.phase) {
		return fmt.Errorf("tmux: %q is not possible in phase %q", e, s.phase)
	}
	s.phase = t.to
	switch e {
	case shellExited:
		s.seq, s.restarted = 0, true
		s.prompt = s.prompt[:0]
	case commandStarted, commandEnded:
		s.prompt = s.prompt[:0]
	case shellSpawned, promptPrinted, statusReported, promptSeen, contactRegained, promptHookResumed:
	}
	return nil
}

// firstPrompt is the number of a shell's first prompt.
const firstPrompt = 1

// promptMax bounds the prompt that is kept.
const promptMax = 4096

// addPrompt adds bytes that the shell wrote between the end of a command and the end of its
// prompt.
func (s *shellState) addPrompt(b []byte) {
	if len(s.prompt)+len(b) <= promptMax {
		s.prompt = append(s.prompt, b...)
	}
}
