package tmux

import "time"

// job is one command that was typed.
type job struct {
	split    bool
	done     chan struct{}
	seq      int // of the prompt before it
	echo     []byte
	out      *collector
	err      *collector
	emit     func(Stream, []byte)
	code     int
	ended    bool
	begin    time.Time
	dur      time.Duration
	notice   string
	died     bool          // its shell has ended, with the code
	errEnds  int           // how many shells had ended on the companion before it
	deaf     bool          // its companion was given up
	away     bool          // the connection was lost while it ran
	refused  error         // it was not typed
	answered chan struct{} // closed when tmux has answered to the typing
	taken    bool          // tmux has typed it; before, what starts or ends is somebody else's
	where    Where
	note     func(string)
}

func newJob(c Command, split bool) *job {
	emit := c.Output
	if emit == nil {
		emit = func(Stream, []byte) {}
	}
	return &job{
		split: split, done: make(chan struct{}),
		out: newCollector(c.Keep), err: newCollector(c.Keep), emit: emit, begin: time.Now(), note: c.Note,
		answered: make(chan struct{}),
	}
}

// deafen records that nothing more of a job's standard error is received.
func (j *job) deafen() {
	if !j.deaf {
		j.deaf = true
		j.notice = join(j.notice, "The end of standard error could not be seen; some of it may be missing.")
	}
}
