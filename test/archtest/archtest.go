// Package archtest holds the house rules as a test: which package may import
// which, who may start processes, that every package says what it is for, and
// that nothing happens at import.
package archtest
