package tmux

// origin is who started a command.
type origin int

const (
	originPerson  origin = iota
	originUnknown        // marks were missed, or another process drives
	originOwn            // this process
)

// origins are those of the command that runs, or ran last, and of the next one. The shell
// reports only that a command starts, so a process claims the next command before it types
// one.
type origins struct {
	current, next origin
}

// claimNext makes the next command one of this process.
func (o *origins) claimNext() { o.next = originOwn }

// dropClaim withdraws the claim: this process types no more.
func (o *origins) dropClaim() { o.next = originPerson }

// started records that a command has started; own means that it is known to be this
// process's. Only the driver can distinguish a person's command from another process's.
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

// contactRegained records that marks were missed, so that what runs may be anybody's.
func (o *origins) contactRegained() {
	if o.current == originPerson {
		o.current = originUnknown
	}
}

// reset forgets both with the shell.
func (o *origins) reset() { *o = origins{} }
