package tmux

// origin says who started a command.
type origin int

const (
	originPerson  origin = iota
	originUnknown        // this process could not tell: it did not listen, or another one drives
	originOwn            // this process
)

// origins are those of the command that runs, or ran last, and of the next one. The shell
// tells only that a command starts, so whoever types one claims it before.
type origins struct {
	current, next origin
}

// claimNext makes the next command one of this process.
func (o *origins) claimNext() { o.next = originOwn }

// unclaimNext takes a claim back: this process types no more.
func (o *origins) unclaimNext() { o.next = originPerson }

// started records that a command has started: with own it is known to be that of this
// process. Only the driver can tell a person's from another process's.
func (o *origins) started(own, driving bool) {
	switch {
	case own || o.next == originOwn:
		o.current = originOwn
	case !driving:
		o.current = originUnknown
	default:
		o.current = originPerson
	}
	o.next = originPerson
}

// contactRegained records that marks were missed: what runs may be somebody else's.
func (o *origins) contactRegained() {
	if o.current == originPerson {
		o.current = originUnknown
	}
}

// reset forgets both with the shell.
func (o *origins) reset() { *o = origins{} }
