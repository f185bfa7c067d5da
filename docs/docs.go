// Package docs holds the documents, for the program that serves them.
package docs

import "embed"

// Files are the pages, the example of a configuration and the description of the API. Pictures
// are not in it.
//
//go:embed *.md example.yaml openapi.yaml
var Files embed.FS
