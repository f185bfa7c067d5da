package plugin

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"mime"
	"strings"

	"countersign/tools/truncate"
)

const maxFiles = 10 // of one result

// file is what a result holds beside text.
type file struct {
	name, mime string
	data       []byte
}

// item is one part of a result. The base protocol knows text only; for anything
// else the fields are those that plugins commonly use.
type item struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Data     string `json:"data"` // base64
	MIME     string `json:"mimeType"`
	MIME2    string `json:"mime_type"`
	Name     string `json:"name"`
	Filename string `json:"filename"`
}

// content takes a result apart: the text for the model, the notes that stand for the
// files, and the files.
func content(tool string, raw json.RawMessage) (text string, notes []string, files []file, err error) {
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
		var it item
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
	return strings.ToValidUTF8(strings.Join(texts, "\n"), "\uFFFD"), notes, files, nil
}

// file makes a file of a part that is no text: its data if it has some, and
// otherwise the part itself as JSON.
func (it item) file(tool string, n int, raw json.RawMessage) file {
	f := file{mime: it.MIME, data: raw}
	if f.mime == "" {
		f.mime = it.MIME2
	}
	if b, err := base64.StdEncoding.DecodeString(it.Data); err == nil && it.Data != "" {
		f.data = b
	} else {
		f.mime = "application/json"
	}
	// What a plugin says of a type is a hint, and only its plain form is used.
	kind, _, err := mime.ParseMediaType(f.mime)
	if major, minor, ok := strings.Cut(kind, "/"); err != nil || !ok || !plain(major) || !plain(minor) {
		kind = "application/octet-stream"
	}
	f.mime = kind
	f.name = it.Name
	if f.name == "" {
		f.name = it.Filename
	}
	if f.name = fileName(f.name); f.name == "" {
		f.name = fmt.Sprintf("%s-%d%s", tool, n, extension(kind))
	}
	return f
}

// plain tells whether one half of a media type is of the usual characters.
func plain(s string) bool {
	return s != "" && len(s) <= 60 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789.+-") == ""
}

// extensions are those of the usual types; mime.ExtensionsByType answers
// differently on each machine.
var extensions = map[string]string{
	"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp", "image/svg+xml": ".svg",
	"application/pdf": ".pdf", "application/json": ".json", "application/zip": ".zip", "text/csv": ".csv",
	"text/plain": ".txt", "text/html": ".html", "audio/mpeg": ".mp3", "audio/wav": ".wav", "video/mp4": ".mp4",
}

func extension(kind string) string {
	if e, ok := extensions[kind]; ok {
		return e
	}
	return ".bin"
}

// fileName keeps the last part of a name, in plain characters, without a dot in
// front.
func fileName(s string) string {
	s = s[strings.LastIndexAny(s, `/\`)+1:]
	s = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-', r == '_':
			return r
		case r == ' ':
			return '_'
		}
		return -1
	}, s)
	s = strings.TrimLeft(s, ".-")
	if len(s) > 80 {
		s = s[len(s)-80:] // the end has the extension
	}
	return s
}
