//go:build !linux

package cagetest

import "errors"

var errLinux = errors.New("a cage needs Linux")

func enter() error           { return errLinux }
func probe(string) error     { return errLinux }
func witness([]string) error { return errLinux }
