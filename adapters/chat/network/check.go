package network

import (
	"context"
	"fmt"
)

// Result is how a check ended.
type Result int

// The results.
const (
	Passed  Result = iota
	Noted          // works, and somebody should know something
	Failed         // a precondition does not hold
	Skipped        // cannot be looked at; the text says why, and how to look
)

// Outcome is what a check found: one sentence without secrets.
type Outcome struct {
	Result Result
	Text   string
}

// Outcome makes an outcome of the result.
func (r Result) Outcome(format string, a ...any) Outcome {
	return Outcome{r, fmt.Sprintf(format, a...)}
}

// Check is one named thing to look at. Run does it; it ends with its context.
type Check struct {
	Name string
	Run  func(context.Context) Outcome
}
