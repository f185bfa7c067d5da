// Package docs holds the documents, for the program that serves them.
package docs

import "embed"

// Files are the pages and the example of a configuration. Pictures are not in it.
//
//go:embed *.md example.yaml
var Files embed.FS
