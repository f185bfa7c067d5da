// Package countersign holds the documents, for the program that serves them. Some stand beside what they
// are about.
package countersign

import "embed"

// Documents are the pages, the example of a configuration and the description of the API. Pictures are not in it.
//
//go:embed README.md docs/*.md docs/example.yaml docs/openapi.yaml deploy/README.md deploy/image/README.md charts/countersign/README.md
var Documents embed.FS
