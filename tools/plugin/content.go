package plugin

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"countersign/tools/foreign"
	"countersign/tools/truncate"
)

const maxFiles = 10 // of one result

// file is the non-text part of a result.
type file struct {
	name, mime string
	data       []byte
}

// contentItem is one part of a result. The base protocol defines only text; the other fields are
// those that plugins commonly use.
type contentItem struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Data     string `json:"data"` // base64
	MIME     string `json:"mimeType"`
	MIME2    string `json:"mime_type"`
	Name     string `json:"name"`
	Filename string `json:"filename"`
}

// parseContent splits a result into the text for the model, the notes that represent the files, and
// the files.
func parseContent(tool string, raw json.RawMessage) (text string, notes []string, files []file, err error) {
	if absent(raw) {
		return "", nil, nil, nil
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil {
		return "", nil, nil, fmt.Errorf(`its "content" is not a list`)
	}
	var texts []string
	dropped := 0
	for _, p := range parts {
		var it contentItem
		if err := json.Unmarshal(p, &it); err != nil {
			return "", nil, nil, fmt.Errorf(`a part of its "content" is not {type, text}`)
		}
		if it.Type == "text" {
			texts = append(texts, it.Text)
			continue
		}
		if len(files) == maxFiles {
			dropped++
			continue
		}
		f := it.file(tool, len(files)+1, p)
		files = append(files, f)
		notes = append(notes, fmt.Sprintf("[%s, %s, not shown]", f.mime, truncate.FormatSize(int64(len(f.data)))))
	}
	if dropped > 0 {
		notes = append(notes, fmt.Sprintf("[%d more parts were left out; a result may have %d files]", dropped, maxFiles))
	}
	return foreign.Clean(strings.Join(texts, "\n")), notes, files, nil
}

// file converts a part that is not text to a file: its data if it has any, otherwise the part as
// JSON.
func (it contentItem) file(tool string, n int, raw json.RawMessage) file {
	f := file{mime: cmp.Or(it.MIME, it.MIME2), data: raw}
	if b, err := base64.StdEncoding.DecodeString(it.Data); err == nil && it.Data != "" {
		f.data = b
	} else {
		f.mime = "application/json"
	}
	var ending string
	f.mime, ending = foreign.MediaType(f.mime)
	if f.name = foreign.FileName(cmp.Or(it.Name, it.Filename)); f.name == "" {
		f.name = fmt.Sprintf("%s-%d%s", tool, n, ending)
	}
	return f
}
