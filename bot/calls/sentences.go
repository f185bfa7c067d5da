package calls

// What programs and people read.
const (
	sayNoCall    = "There is no such call of yours. Calls are known for 30 days."
	sayWay       = "The way %q is none that a program can ask by. Use api, mcp or hook."
	sayKey       = "A call needs a key of your own of at most %d bytes, and a task may have as many."
	sayOneOf     = "A call needs a command or a tool, and not both."
	sayArgs      = "The arguments of a tool are JSON, of at most %d KiB."
	sayCommand   = "The command is empty, or has a NUL byte, which no shell accepts."
	sayLong      = "The command is longer than %d KiB. Put it into a script, and run that."
	sayTarget    = "The call doesn't say on which target. countersign exec lists them when it completes."
	sayForgotten = "it had not begun within a day, and nobody knows why; look before you ask again with another key"
	sayOtherKey  = "This key belongs to a call of yours that asks for something else. Use a new one."
	sayBeside    = "%d calls of this task are open already. Wait until some are decided, or withdraw them."
	sayNoChannel = "The channel %q, where programs ask, can't be reached. Correct programs.channel in the bot's configuration."
	sayAsks      = "%s asks here on behalf of %s."
	sayAsksOn    = "%s asks here on behalf of %s, from %s."
)
