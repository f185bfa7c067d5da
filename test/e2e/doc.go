// Package e2e tests the built binary from outside: a scripted model on
// loopback, people who use the web console's API, and the bot as a process
// that can be killed at any named step (internal/failpoint).
package e2e
