package networks

// What people read of the way to their networks, side by side.

const sayDropped = "This channel took no messages for a week, so I dropped some. Say `status` to see what I'm doing."

// sayFile stands above a file that a tool made.
func sayFile(mime string) string { return "A file of type `" + mime + "`:" }
