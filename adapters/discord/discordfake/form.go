package discordfake

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Types of components (docs: "Component Reference").
const (
	compRow         = 1
	compButton      = 2
	compStringMenu  = 3
	compTextInput   = 4
	compUserMenu    = 5
	compChannelMenu = 8
	compSection     = 9
	compText        = 10
	compSeparator   = 14
	compContainer   = 17
	compLabel       = 18
)

// Limits of messages and modals (docs: "Message", "Component Reference", "Receiving and Responding"; lengths also spec).
const (
	maxContent       = 2000
	maxEmbeds        = 10
	maxEmbedText     = 6000
	maxRows          = 5
	maxInRow         = 5
	maxComponents    = 40
	maxDisplayText   = 4000
	maxCustomID      = 100
	maxLabel         = 80
	maxNonce         = 25
	maxModalTitle    = 45
	maxModalParts    = 5
	maxInputLabel    = 45
	maxInputText     = 4000
	maxFiles         = 10
	maxOptions       = 25
	maxPlaceholder   = 150
	maxOptionText    = 100
	maxSectionTexts  = 3
	maxMentionedList = 100
)

// problems are the errors of a form: a tree of names with lists of _errors (docs: "Reference", error messages). Discord's inner
// codes are words, although the spec calls them numbers.
type problems struct{ tree object }

func (p *problems) any() bool { return p.tree != nil }

// add says what is wrong at a path like "embeds.0.title".
func (p *problems) add(path, code, format string, args ...any) {
	if p.tree == nil {
		p.tree = object{}
	}
	at := p.tree
	for part := range strings.SplitSeq(path, ".") {
		if part == "" {
			continue
		}
		next, _ := at[part].(object)
		if next == nil {
			next = object{}
			at[part] = next
		}
		at = next
	}
	list, _ := at["_errors"].([]any)
	at["_errors"] = append(list, object{"code": code, "message": fmt.Sprintf(format, args...)})
}

func (p *problems) reply() reply {
	return reply{status: 400, body: object{"message": "Invalid Form Body", "code": 50035, "errors": p.tree}}
}

// unplayed is a part of Discord that this server does not have.
type unplayed struct{ what string }

// form reads a JSON object strictly: it knows the type of each field and collects what is wrong.
type form struct {
	*problems
	path string
	o    object
	odd  *unplayed
}

func newForm(o object) *form { return &form{problems: &problems{}, o: o, odd: &unplayed{}} }

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func (f *form) sub(name string, o object) *form {
	return &form{problems: f.problems, path: join(f.path, name), o: o, odd: f.odd}
}

func (f *form) bad(name, code, format string, args ...any) {
	f.add(join(f.path, name), code, format, args...)
}

func (f *form) has(name string) bool { v, ok := f.o[name]; return ok && v != nil }

// text reads a string of a length between low and high; low > 0 makes it required.
func (f *form) text(name string, low, high int) string {
	v, ok := f.o[name]
	if !ok || v == nil {
		if low > 0 {
			f.bad(name, "BASE_TYPE_REQUIRED", "This field is required")
		}
		return ""
	}
	str, ok := v.(string)
	if !ok {
		// Numbers are taken as text by Discord; here only text is, because the spec says so.
		f.bad(name, "STRING_TYPE_CONVERT", "Could not interpret \"%v\" as string.", v)
		return ""
	}
	switch n := units(str); {
	case n < low && str == "":
		f.bad(name, "BASE_TYPE_REQUIRED", "This field is required")
	case low > 0 && (n < low || n > high):
		f.bad(name, "BASE_TYPE_BAD_LENGTH", "Must be between %d and %d in length.", low, high)
	case n > high:
		f.bad(name, "BASE_TYPE_MAX_LENGTH", "Must be %d or fewer in length.", high)
	}
	return str
}

func (f *form) int(name string, low, high int) int {
	v, ok := f.o[name]
	if !ok || v == nil {
		return 0
	}
	n, ok := v.(json.Number)
	i, err := strconv.Atoi(string(n))
	if !ok || err != nil {
		f.bad(name, "NUMBER_TYPE_COERCE", "Value \"%v\" is not int.", v)
		return 0
	}
	switch {
	case i < low:
		f.bad(name, "NUMBER_TYPE_MIN", "int value should be greater than or equal to %d.", low)
	case i > high:
		f.bad(name, "NUMBER_TYPE_MAX", "int value should be less than or equal to %d.", high)
	}
	return i
}

func (f *form) choice(name string, required bool, values ...int) int {
	if !f.has(name) {
		if required {
			f.bad(name, "BASE_TYPE_REQUIRED", "This field is required")
		}
		return 0
	}
	i := f.int(name, -1<<40, 1<<40)
	if !slices.Contains(values, i) {
		f.bad(name, "BASE_TYPE_CHOICES", "Value must be one of %v.", values)
	}
	return i
}

func (f *form) bool(name string) bool {
	v, ok := f.o[name]
	if !ok || v == nil {
		return false
	}
	b, ok := v.(bool)
	if !ok {
		f.bad(name, "BOOLEAN_TYPE_CONVERT", "Must be either true or false.")
	}
	return b
}

func (f *form) snowflake(name string) string {
	v, ok := f.o[name]
	if !ok || v == nil {
		return ""
	}
	id, isText := v.(string)
	if n, isNumber := v.(json.Number); isNumber {
		id, isText = string(n), true
	}
	if _, err := strconv.ParseUint(id, 10, 64); !isText || err != nil {
		f.bad(name, "NUMBER_TYPE_COERCE", "Value \"%v\" is not snowflake.", v)
		return ""
	}
	return id
}

// list reads an array of objects. The second value is false when the field is not there.
func (f *form) list(name string, low, high int) ([]*form, bool) {
	v, ok := f.o[name]
	if !ok || v == nil {
		if low > 0 {
			f.bad(name, "BASE_TYPE_REQUIRED", "This field is required")
		}
		return nil, false
	}
	raw, ok := v.([]any)
	if !ok {
		f.bad(name, "LIST_TYPE_CONVERT", "Only iterables may be used in a ListType")
		return nil, true
	}
	switch {
	case low > 0 && (len(raw) < low || len(raw) > high):
		f.bad(name, "BASE_TYPE_BAD_LENGTH", "Must be between %d and %d in length.", low, high)
		return nil, true
	case len(raw) > high:
		f.bad(name, "BASE_TYPE_MAX_LENGTH", "Must be %d or fewer in length.", high)
		return nil, true
	}
	out := make([]*form, 0, len(raw))
	for i, e := range raw {
		o, ok := e.(object)
		if !ok {
			f.bad(name+"."+strconv.Itoa(i), "MODEL_TYPE_CONVERT", "Only dictionaries may be used in a ModelType")
			continue
		}
		out = append(out, f.sub(name+"."+strconv.Itoa(i), o))
	}
	return out, true
}

func (f *form) object(name string) *form {
	v, ok := f.o[name]
	if !ok || v == nil {
		return nil
	}
	o, ok := v.(object)
	if !ok {
		f.bad(name, "MODEL_TYPE_CONVERT", "Only dictionaries may be used in a ModelType")
		return nil
	}
	return f.sub(name, o)
}

func (f *form) strings(name string, high int) []string {
	v, ok := f.o[name]
	if !ok || v == nil {
		return nil
	}
	raw, ok := v.([]any)
	if !ok {
		f.bad(name, "LIST_TYPE_CONVERT", "Only iterables may be used in a ListType")
		return nil
	}
	if len(raw) > high {
		f.bad(name, "BASE_TYPE_MAX_LENGTH", "Must be %d or fewer in length.", high)
	}
	var out []string
	for i, e := range raw {
		str, ok := e.(string)
		switch {
		case !ok:
			f.bad(name+"."+strconv.Itoa(i), "STRING_TYPE_CONVERT", "Could not interpret \"%v\" as string.", e)
		case slices.Contains(out, str):
			f.bad(name, "SET_TYPE_ALREADY_CONTAINS_VALUE", "The set already contains this value")
		default:
			out = append(out, str)
		}
	}
	return out
}

// number reads a JSON number of any of Go's kinds; -1 when it is none.
func number(v any) int {
	switch n := v.(type) {
	case json.Number:
		if i, err := strconv.Atoi(string(n)); err == nil {
			return i
		}
	case float64:
		return int(n)
	case int:
		return n
	}
	return -1
}

// draft is a message as a request describes it. A nil list was not in the request.
type draft struct {
	content            *string
	embeds, components []any
	hasEmbeds, hasComp bool
	flags              int
	hasFlags           bool
	allowed            *mentions
	nonce              string
	enforce, tts       bool
	reply              string
	failIfNotThere     bool
	keep               []string // attachments that an edit keeps; nil keeps all
	files              []*file
}

// readDraft reads the fields that creating and editing messages share. v2 says that the message is made of components already.
func (s *Server) readDraft(f *form, uploads map[string]upload, v2 bool) *draft {
	d := &draft{}
	if v, ok := f.o["flags"]; ok && v != nil {
		d.flags, d.hasFlags = f.int("flags", 0, 1<<30), true
	}
	v2 = v2 || d.flags&FlagComponentsV2 != 0
	if _, ok := f.o["content"]; ok {
		text := f.text("content", 0, maxContent)
		d.content = &text
	}
	d.embeds, d.hasEmbeds = f.embeds()
	d.components, d.hasComp = f.components(v2)
	// docs ("Message", edit message): the fields can be null, which removes what was there.
	if v, there := f.o["embeds"]; there && v == nil {
		d.hasEmbeds = true
	}
	if v, there := f.o["components"]; there && v == nil {
		d.hasComp = true
	}
	if v2 {
		// docs ("Component Reference"): with this flag content and embeds cannot be used.
		if d.content != nil && *d.content != "" {
			f.bad("content", "MESSAGE_CANNOT_USE_LEGACY_FIELDS_WITH_COMPONENTS_V2", "The 'content' field cannot be used when using MessageFlags.IS_COMPONENTS_V2")
		}
		if len(d.embeds) > 0 {
			f.bad("embeds", "MESSAGE_CANNOT_USE_LEGACY_FIELDS_WITH_COMPONENTS_V2", "The 'embeds' field cannot be used when using MessageFlags.IS_COMPONENTS_V2")
		}
	}
	d.allowed = f.allowedMentions()
	d.tts = f.bool("tts")
	d.enforce = f.bool("enforce_nonce")
	switch n := f.o["nonce"].(type) {
	case nil:
	case json.Number:
		d.nonce = string(n)
	default:
		d.nonce = f.text("nonce", 0, maxNonce)
	}
	if r := f.object("message_reference"); r != nil {
		d.reply, d.failIfNotThere = r.snowflake("message_id"), true
		if v, ok := r.o["fail_if_not_exists"].(bool); ok {
			d.failIfNotThere = v
		}
		if r.has("type") && r.choice("type", false, 0, 1) == 1 {
			f.odd.what = "forwarded messages"
		}
	}
	for _, name := range []string{"poll", "sticker_ids", "shared_client_theme"} {
		if list, isList := f.o[name].([]any); f.has(name) && (!isList || len(list) > 0) {
			f.odd.what = name
		}
	}
	s.attachments(f, d, uploads)
	return d
}

// attachments joins the attachments of a form with the uploaded files (docs: "Uploading Files"): an id of an upload is n of
// files[n]; another one is an attachment that an edit keeps.
func (s *Server) attachments(f *form, d *draft, uploads map[string]upload) {
	described := map[string]*form{}
	if v, there := f.o["attachments"]; there && v == nil {
		d.keep = []string{}
	}
	if list, ok := f.list("attachments", 0, maxFiles); ok {
		d.keep = []string{}
		for _, a := range list {
			id := a.snowflake("id")
			a.text("filename", 0, 1024)
			a.text("description", 0, 1024)
			if _, up := uploads[id]; up {
				described[id] = a
			} else {
				d.keep = append(d.keep, id)
			}
		}
	}
	if len(uploads) > maxFiles {
		f.bad("attachments", "BASE_TYPE_MAX_LENGTH", "Must be %d or fewer in length.", maxFiles)
	}
	for n := range maxFiles {
		u, ok := uploads[strconv.Itoa(n)]
		if !ok {
			continue
		}
		name, description := u.name, ""
		if a := described[strconv.Itoa(n)]; a != nil {
			if given, _ := a.o["filename"].(string); given != "" {
				name = given
			}
			description, _ = a.o["description"].(string)
		}
		d.files = append(d.files, s.newFile(name, u.contentType, description, u.data))
	}
}

func (f *form) allowedMentions() *mentions {
	a := f.object("allowed_mentions")
	if a == nil {
		return nil
	}
	m := &mentions{
		parse: a.strings("parse", 3), users: a.strings("users", maxMentionedList), roles: a.strings("roles", maxMentionedList),
		replied: a.bool("replied_user"),
	}
	for i, p := range m.parse {
		if p != "users" && p != "roles" && p != "everyone" {
			a.bad("parse."+strconv.Itoa(i), "BASE_TYPE_CHOICES", "Value must be one of ('everyone', 'users', 'roles').")
		}
	}
	// docs ("Message", allowed mentions): a kind that is parsed cannot be listed too.
	if slices.Contains(m.parse, "users") && len(m.users) > 0 {
		a.bad("", "MESSAGE_ALLOWED_MENTIONS_PARSE_EXCLUSIVE", "parse:[\"users\"] and users: [ids...] are mutually exclusive.")
	}
	if slices.Contains(m.parse, "roles") && len(m.roles) > 0 {
		a.bad("", "MESSAGE_ALLOWED_MENTIONS_PARSE_EXCLUSIVE", "parse:[\"roles\"] and roles: [ids...] are mutually exclusive.")
	}
	return m
}

var webURL = regexp.MustCompile(`^(https?|attachment|discord)://\S+$`)

func (f *form) url(name string) string {
	u := f.text(name, 0, 2048)
	if u != "" && !webURL.MatchString(u) {
		f.bad(name, "URL_TYPE_INVALID_URL", "Not a well formed URL.")
	}
	return u
}

// embeds reads rich embeds and gives them back as Discord does, without what is empty.
func (f *form) embeds() ([]any, bool) {
	list, ok := f.list("embeds", 0, maxEmbeds)
	total := 0
	out := []any{}
	for _, e := range list {
		o := object{"type": "rich"}
		set := func(to object, from *form, name string, high int) {
			if v := from.text(name, 0, high); v != "" {
				to[name] = v
				total += units(v)
			}
		}
		link := func(to object, from *form, name string) {
			if v := from.url(name); v != "" {
				to[name] = v
			}
		}
		set(o, e, "title", 256)
		set(o, e, "description", 4096)
		link(o, e, "url")
		if e.has("color") {
			o["color"] = e.int("color", 0, 0xffffff)
		}
		if at := e.text("timestamp", 0, 64); at != "" {
			if t, err := time.Parse(time.RFC3339Nano, at); err != nil {
				e.bad("timestamp", "DATE_TIME_TYPE_PARSE", "Could not parse %s. Should be ISO8601.", at)
			} else {
				o["timestamp"] = t.Format("2006-01-02T15:04:05.000000-07:00")
			}
		}
		if x := e.object("footer"); x != nil {
			in := object{"text": ""}
			set(in, x, "text", 2048)
			link(in, x, "icon_url")
			o["footer"] = in
		}
		if x := e.object("author"); x != nil {
			in := object{"name": ""}
			set(in, x, "name", 256)
			link(in, x, "url")
			link(in, x, "icon_url")
			o["author"] = in
		}
		for _, name := range []string{"image", "thumbnail"} {
			if x := e.object(name); x != nil {
				in := object{}
				link(in, x, "url")
				o[name] = in
			}
		}
		fields, has := e.list("fields", 0, 25)
		all := []any{}
		for _, x := range fields {
			in := object{"inline": x.bool("inline"), "name": x.text("name", 1, 256), "value": x.text("value", 1, 1024)}
			total += units(in["name"].(string)) + units(in["value"].(string))
			all = append(all, in)
		}
		if has && len(all) > 0 {
			o["fields"] = all
		}
		if raw, _ := e.o["fields"].([]any); len(o) == 1 && len(raw) == 0 {
			// An embed without anything: Discord refuses it as an empty one. The words are a choice.
			e.bad("", "BASE_TYPE_REQUIRED", "An embed needs something in it")
		}
		out = append(out, o)
	}
	if total > maxEmbedText {
		f.bad("embeds", "MAX_EMBED_SIZE_EXCEEDED", "Embed size exceeds maximum size of %d", maxEmbedText)
	}
	return out, ok
}

// layout is what reading components counts over the whole message.
type layout struct {
	ids    map[string]bool
	nextID int
	count  int
	text   int
	v2     bool
}

func (f *form) components(v2 bool) ([]any, bool) {
	high := maxRows
	if v2 {
		high = maxComponents
	}
	list, ok := f.list("components", 0, high)
	l := &layout{ids: map[string]bool{}, v2: v2}
	out := []any{}
	for _, c := range list {
		if o := c.component(l, 0); o != nil {
			out = append(out, o)
		}
	}
	if l.count > maxComponents {
		f.bad("components", "COMPONENT_MAX_TOTAL_COMPONENTS_EXCEEDED", "The total number of components cannot exceed %d", maxComponents)
	}
	if l.text > maxDisplayText {
		f.bad("components", "COMPONENT_DISPLAYABLE_TEXT_SIZE_EXCEEDED", "Displayable text size exceeds maximum size of %d", maxDisplayText)
	}
	return out, ok
}

func (f *form) customID(l *layout, required bool) string {
	if !f.has("custom_id") && !required {
		return ""
	}
	id := f.text("custom_id", 1, maxCustomID)
	if id != "" && l.ids[id] {
		// Also of disabled ones (discord/discord-api-docs issue 3673).
		f.bad("custom_id", "COMPONENT_CUSTOM_ID_DUPLICATED", "Component custom id cannot be duplicated")
	}
	l.ids[id] = true
	return id
}

// component reads one component of a message and gives it back with an id, as Discord does. parent is the type around it, 0 at
// the top.
func (f *form) component(l *layout, parent int) object {
	kind := f.choice("type", true, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 17)
	l.count++
	l.nextID++
	o := object{"type": kind, "id": l.nextID}
	if f.has("id") {
		if id := f.int("id", 0, 1<<31-1); id > 0 {
			o["id"] = id
		}
	}
	v2Only := kind >= compSection
	top := kind == compRow || v2Only
	fits := parent == 0 && top || parent == compRow && !top || parent == compContainer && top && kind != compContainer ||
		parent == compSection && kind == compText
	if !fits || v2Only && !l.v2 {
		f.bad("type", "UNION_TYPE_CHOICES", "Value of field \"type\" must be one of what may stand here.")
		return nil
	}
	kids := func(low, high int) {
		list, _ := f.list("components", low, high)
		all := []any{}
		for _, c := range list {
			if k := c.component(l, kind); k != nil {
				all = append(all, k)
			}
		}
		o["components"] = all
	}
	switch kind {
	case compRow:
		kids(1, maxInRow)
		f.row(o)
	case compButton:
		f.button(l, o)
	case compStringMenu, compUserMenu, compUserMenu + 1, compUserMenu + 2, compChannelMenu:
		f.menu(l, o, kind)
	case compText:
		text := f.text("content", 1, maxDisplayText)
		l.text += units(text)
		o["content"] = text
	case compSeparator:
		o["divider"], o["spacing"] = true, 1
		if v, ok := f.o["divider"].(bool); ok {
			o["divider"] = v
		}
		if f.has("spacing") {
			o["spacing"] = f.choice("spacing", false, 1, 2)
		}
	case compContainer:
		o["accent_color"], o["spoiler"] = nil, f.bool("spoiler")
		if f.has("accent_color") {
			o["accent_color"] = f.int("accent_color", 0, 0xffffff)
		}
		kids(1, maxComponents)
	case compSection:
		kids(1, maxSectionTexts)
		a := f.object("accessory")
		switch {
		case a == nil:
			f.bad("accessory", "BASE_TYPE_REQUIRED", "This field is required")
		case number(a.o["type"]) == compButton:
			l.count++
			l.nextID++
			b := object{"type": compButton, "id": l.nextID}
			a.button(l, b)
			o["accessory"] = b
		default:
			f.odd.what = "an accessory that is no button"
		}
	default:
		f.odd.what = fmt.Sprintf("components of type %d", kind)
	}
	return o
}

// row checks that a row has buttons, or exactly one menu (docs: "Component Reference", action row).
func (f *form) row(o object) {
	menus, kids := 0, o["components"].([]any)
	for _, k := range kids {
		if number(k.(object)["type"]) != compButton {
			menus++
		}
	}
	if menus > 0 && len(kids) > 1 {
		f.bad("components", "COMPONENT_LAYOUT_WIDTH_EXCEEDED", "The specified component exceeds the maximum width")
	}
}

func (f *form) button(l *layout, o object) {
	o["style"] = f.choice("style", true, 1, 2, 3, 4, 5, 6)
	if label := f.text("label", 0, maxLabel); label != "" {
		o["label"] = label
	}
	if e := f.object("emoji"); e != nil {
		emoji := object{"name": e.text("name", 0, 32)}
		if id := e.snowflake("id"); id != "" {
			emoji["id"] = id
		}
		o["emoji"] = emoji
	}
	if f.bool("disabled") {
		o["disabled"] = true
	}
	switch o["style"] {
	case 5: // docs: a link has a url and no custom_id
		if o["url"] = f.url("url"); o["url"] == "" {
			f.bad("url", "BASE_TYPE_REQUIRED", "A url is required")
		}
		if f.has("custom_id") {
			f.bad("custom_id", "BUTTON_COMPONENT_CUSTOM_ID_URL_MUTUALLY_EXCLUSIVE", "A custom id and url cannot both be specified")
		}
	case 6:
		f.odd.what = "premium buttons"
	default:
		if f.has("url") && f.o["url"] != "" {
			f.bad("custom_id", "BUTTON_COMPONENT_CUSTOM_ID_URL_MUTUALLY_EXCLUSIVE", "A custom id and url cannot both be specified")
		}
		o["custom_id"] = f.customID(l, true)
	}
	if o["label"] == nil && o["emoji"] == nil {
		f.bad("label", "BUTTON_COMPONENT_INVALID_EMOJI_OR_LABEL", "A button needs a label or an emoji")
	}
}

func (f *form) menu(l *layout, o object, kind int) {
	o["custom_id"], o["min_values"], o["max_values"] = f.customID(l, true), 1, 1
	if f.has("min_values") {
		o["min_values"] = f.int("min_values", 0, maxOptions)
	}
	if f.has("max_values") {
		o["max_values"] = f.int("max_values", 1, maxOptions)
	}
	if v := f.text("placeholder", 0, maxPlaceholder); v != "" {
		o["placeholder"] = v
	}
	if f.bool("disabled") {
		o["disabled"] = true
	}
	if kind != compStringMenu {
		return
	}
	list, _ := f.list("options", 1, maxOptions)
	seen, all := map[string]bool{}, []any{}
	for _, x := range list {
		in := object{"label": x.text("label", 1, maxOptionText), "value": x.text("value", 1, maxOptionText)}
		if seen[in["value"].(string)] {
			x.bad("value", "SELECT_COMPONENT_OPTION_VALUE_DUPLICATED", "The specified option value is already used")
		}
		seen[in["value"].(string)] = true
		if v := x.text("description", 0, maxOptionText); v != "" {
			in["description"] = v
		}
		if x.bool("default") {
			in["default"] = true
		}
		all = append(all, in)
	}
	o["options"] = all
}

// Modal is a form that a person sees. Inputs are its text inputs, in order.
type Modal struct {
	CustomID, Title string
	Texts           []string // above the inputs
	Inputs          []Input
	inter           *interaction
}

// Input is a text input of a modal. Lengths are in characters; Max 0 means 4000.
type Input struct {
	CustomID, Label, Value, Placeholder string
	Paragraph, Required                 bool
	Min, Max                            int
	label                               bool // stands in a label and not in an action row
}

// modal reads a modal (docs: "Receiving and Responding", modal; "Component Reference", text input and label).
func (f *form) modal() *Modal {
	m := &Modal{CustomID: f.text("custom_id", 1, maxCustomID), Title: f.text("title", 1, maxModalTitle)}
	list, _ := f.list("components", 1, maxModalParts)
	l := &layout{ids: map[string]bool{}}
	for _, c := range list {
		switch kind := c.choice("type", true, compRow, compText, compLabel); kind {
		case compRow:
			// One text input in a row (docs). The spec would take five.
			in, _ := c.list("components", 1, 1)
			for _, x := range in {
				m.Inputs = append(m.Inputs, x.input(l, x.text("label", 1, maxInputLabel), false))
			}
		case compLabel:
			label := c.text("label", 1, maxInputLabel)
			c.text("description", 0, 100)
			if x := c.object("component"); x != nil {
				m.Inputs = append(m.Inputs, x.input(l, label, true))
			} else {
				c.bad("component", "BASE_TYPE_REQUIRED", "This field is required")
			}
		case compText:
			m.Texts = append(m.Texts, c.text("content", 1, maxDisplayText))
		}
	}
	return m
}

func (f *form) input(l *layout, label string, inLabel bool) Input {
	if number(f.o["type"]) != compTextInput {
		if inLabel {
			f.odd.what = "modal components other than text inputs"
		}
		f.bad("type", "UNION_TYPE_CHOICES", "Value of field \"type\" must be one of (4,).")
	}
	in := Input{
		CustomID: f.customID(l, true), Label: label, Value: f.text("value", 0, maxInputText),
		Placeholder: f.text("placeholder", 0, 100), Paragraph: f.choice("style", true, 1, 2) == 2, Required: true,
		Min: f.int("min_length", 0, maxInputText), Max: maxInputText, label: inLabel,
	}
	if f.has("max_length") {
		in.Max = f.int("max_length", 1, maxInputText)
	}
	if v, ok := f.o["required"].(bool); ok {
		in.Required = v
	}
	if units(in.Value) > in.Max {
		f.bad("value", "BASE_TYPE_MAX_LENGTH", "Must be %d or fewer in length.", in.Max)
	}
	return in
}
