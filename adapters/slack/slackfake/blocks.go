package slackfake

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

type surface int

const (
	surfaceMessage surface = iota
	surfacePlans           // a message in a workspace that knows plans
	surfaceStream          // a blocks chunk of a streamed message
	surfaceView
)

// Counts and lengths of Block Kit, in characters where it is text (docs: "Blocks", "Block elements" and "Composition objects", and
// the comments of the Node package @slack/types 3.2).
const (
	maxMessageBlocks = 50
	maxViewBlocks    = 100
	maxID            = 255
	maxSectionText   = 3000
	maxFieldText     = 2000
	maxHeader        = 150
	maxContext       = 10
	maxActions       = 25
	maxButtonText    = 75
	maxValue         = 2000
	maxURL           = 3000
	maxTableRows     = 100
	maxTableCells    = 20
	maxLabel         = 2000
	maxInputValue    = 3000
	maxOptions       = 100
	maxTitle         = 24
	maxPrivate       = 3000
)

// decode reads JSON without losing the digits of numbers. It refuses anything after the value.
func decode(v string) (any, error) {
	d := json.NewDecoder(strings.NewReader(v))
	d.UseNumber()
	var out any
	if err := d.Decode(&out); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is something after the JSON value")
	}
	return out, nil
}

// checkBlocks checks the blocks of a message and returns them with the error code and the explanations that Slack would answer.
func checkBlocks(v string, where surface) (blocks []any, code string, messages []string) {
	got, err := decode(v)
	if err != nil {
		return nil, "invalid_blocks_format", nil
	}
	list, isList := got.([]any)
	if !isList {
		return nil, "invalid_blocks_format", nil
	}
	k := &checker{where: where, blockIDs: map[string]bool{}}
	if len(list) > maxMessageBlocks {
		k.fail("/blocks", "no more than %d items allowed", maxMessageBlocks)
	}
	for i, b := range list {
		k.block(fmt.Sprintf("/blocks/%d", i), b)
	}
	switch {
	case len(k.messages) > 0:
		return nil, "invalid_blocks", k.messages
	case k.tables > 1: // docs: "Table block": a message has one table; the error is of attachments, because tables are shown as one.
		return nil, "invalid_attachments", []string{"only_one_table_allowed"}
	case k.markdown > maxMarkdown:
		return nil, "msg_too_long", nil
	case len(list) > 0 && textSize(list) > maxBlockText-blockCost*(len(list)-1):
		return nil, "msg_blocks_too_long", nil
	}
	return list, "", nil
}

// textSize counts the characters of all "text" strings.
func textSize(v any) (n int) {
	switch x := v.(type) {
	case []any:
		for _, e := range x {
			n += textSize(e)
		}
	case map[string]any:
		for key, e := range x {
			if str, isString := e.(string); isString && key == "text" {
				n += utf8.RuneCountInString(str)
			} else {
				n += textSize(e)
			}
		}
	}
	return n
}

// checkView checks a modal or home view.
func checkView(v, kind string) (fields map[string]any, blocks []any, messages []string) {
	got, err := decode(v)
	if err != nil {
		return nil, nil, []string{"missing required field: view"}
	}
	k := &checker{where: surfaceView, blockIDs: map[string]bool{}}
	sh := shape{
		required: []string{"type", "blocks"},
		fields: map[string]rule{
			"type": enum(kind), "blocks": list(0, maxViewBlocks, (*checker).block), "private_metadata": str(0, maxPrivate),
			"callback_id": str(0, maxID), "external_id": str(0, maxID),
		},
	}
	if kind == "modal" {
		sh.required = append(sh.required, "title")
		for _, f := range []string{"title", "submit", "close"} {
			sh.fields[f] = text(1, maxTitle, "plain_text")
		}
		sh.fields["clear_on_close"], sh.fields["notify_on_close"], sh.fields["submit_disabled"] = boolean, boolean, boolean
	}
	k.object("/view", got, sh)
	fields, _ = got.(map[string]any)
	blocks, _ = fields["blocks"].([]any)
	if kind == "modal" && k.inputs > 0 && fields["submit"] == nil {
		k.fail("/view", "missing required field: submit")
	}
	return fields, blocks, k.messages
}

// nameBlocks gives each block without a block_id one, as Slack does, and returns the JSON; nil for no blocks. The caller holds mu.
func (s *Server) nameBlocks(blocks []any) json.RawMessage {
	if len(blocks) == 0 {
		return nil
	}
	s.nameBlockList(blocks)
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(blocks); err != nil {
		return nil
	}
	return bytes.TrimSpace(b.Bytes())
}

func (s *Server) nameBlockList(blocks []any) {
	for _, b := range blocks {
		if m, isMap := b.(map[string]any); isMap {
			if id, _ := m["block_id"].(string); id == "" {
				m["block_id"] = s.newID("b")
			}
		}
	}
}

// element is an interactive element that was found in blocks.
type element struct {
	blockID, kind, value, confirm string
	fields                        map[string]any
	option                        any // what is chosen, of a menu
}

// findAction looks for what can be pressed with this action id.
func findAction(raw json.RawMessage, actionID string) *element {
	if actionID == "" {
		return nil
	}
	got, err := decode(string(raw))
	if err != nil {
		return nil
	}
	blocks, _ := got.([]any)
	for _, b := range blocks {
		blk, _ := b.(map[string]any)
		els, _ := blk["elements"].([]any)
		els = append(slices.Clone(els), blk["accessory"])
		acts, _ := blk["actions"].([]any)
		for _, e := range append(els, acts...) {
			f, _ := e.(map[string]any)
			out := &element{fields: f}
			if f["action_id"] != actionID {
				options, _ := f["options"].([]any)
				i := slices.IndexFunc(options, func(o any) bool {
					m, _ := o.(map[string]any)
					return f["type"] == "overflow" && m["value"] == actionID
				})
				if i < 0 {
					continue
				}
				out.option = options[i]
			}
			out.blockID, _ = blk["block_id"].(string)
			out.kind, _ = f["type"].(string)
			out.value, _ = f["value"].(string)
			if c, isMap := f["confirm"].(map[string]any); isMap {
				if t, isMap := c["text"].(map[string]any); isMap {
					out.confirm, _ = t["text"].(string)
				}
			}
			return out
		}
	}
	return nil
}

// checker collects what is wrong with blocks.
type checker struct {
	where            surface
	messages         []string
	blockIDs         map[string]bool
	actionIDs        map[string]bool // of the block that is looked at
	tables, markdown int
	inputs           int
}

func (k *checker) fail(ptr, format string, args ...any) {
	k.messages = append(k.messages, fmt.Sprintf(format, args...)+" [json-pointer:"+ptr+"]")
}

// rule checks one value.
type rule func(k *checker, ptr string, v any)

// shape is an object: the fields it may have and those it must have.
type shape struct {
	required []string
	fields   map[string]rule
}

func (k *checker) object(ptr string, v any, sh shape) {
	m, isMap := v.(map[string]any)
	if !isMap {
		k.fail(ptr, "must provide an object")
		return
	}
	for _, f := range sh.required {
		if _, found := m[f]; !found {
			k.fail(ptr, "missing required field: %s", f)
		}
	}
	for _, f := range slices.Sorted(maps.Keys(m)) {
		r, known := sh.fields[f]
		switch {
		case !known:
			k.fail(ptr, "invalid additional property: %s", f)
		case r != nil:
			r(k, ptr+"/"+f, m[f])
		}
	}
}

func of(sh shape) rule { return func(k *checker, ptr string, v any) { k.object(ptr, v, sh) } }

func str(least, most int) rule {
	return func(k *checker, ptr string, v any) {
		x, isString := v.(string)
		n := utf8.RuneCountInString(x)
		switch {
		case !isString:
			k.fail(ptr, "must provide a string")
		case n < least:
			k.fail(ptr, "must be more than %d characters", least-1)
		case most > 0 && n > most:
			k.fail(ptr, "must be less than %d characters", most+1)
		}
	}
}

func enum(values ...string) rule {
	return func(k *checker, ptr string, v any) {
		if x, isString := v.(string); !isString || !slices.Contains(values, x) {
			k.fail(ptr, "must be a valid enum value")
		}
	}
}

func boolean(k *checker, ptr string, v any) {
	if _, isBool := v.(bool); !isBool {
		k.fail(ptr, "must provide a boolean")
	}
}

func integer(least, most int) rule {
	return func(k *checker, ptr string, v any) {
		n, isNumber := v.(json.Number)
		i, err := n.Int64()
		if !isNumber || err != nil || i < int64(least) || i > int64(most) {
			k.fail(ptr, "must be a number from %d to %d", least, most)
		}
	}
}

func list(least, most int, each rule) rule {
	return func(k *checker, ptr string, v any) {
		x, isList := v.([]any)
		switch {
		case !isList:
			k.fail(ptr, "must provide an array")
			return
		case len(x) < least:
			k.fail(ptr, "no fewer than %d items allowed", least)
		case most > 0 && len(x) > most:
			k.fail(ptr, "no more than %d items allowed", most)
		}
		for i, e := range x {
			each(k, fmt.Sprintf("%s/%d", ptr, i), e)
		}
	}
}

// text is a text object of one of the kinds. emoji goes with plain_text only, and verbatim with mrkdwn only.
func text(least, most int, kinds ...string) rule {
	return func(k *checker, ptr string, v any) {
		m, _ := v.(map[string]any)
		typ, _ := m["type"].(string)
		if !slices.Contains(kinds, typ) {
			k.fail(ptr, "failed to match all allowed schemas")
			k.fail(ptr+"/type", "must be one of: %s", strings.Join(kinds, ", "))
			return
		}
		sh := shape{required: []string{"type", "text"}, fields: map[string]rule{"type": nil, "text": str(least, most)}}
		if typ == "plain_text" {
			sh.fields["emoji"] = boolean
		} else {
			sh.fields["verbatim"] = boolean
		}
		k.object(ptr, v, sh)
	}
}

func anyText(least, most int) rule { return text(least, most, "plain_text", "mrkdwn") }

func plain(most int) rule { return text(1, most, "plain_text") }

// typed checks an object by its type, which must be one of the shapes. The field type is added to each.
func typed(shapes map[string]shape) rule {
	return func(k *checker, ptr string, v any) {
		m, _ := v.(map[string]any)
		typ, _ := m["type"].(string)
		sh, known := shapes[typ]
		if !known {
			k.fail(ptr+"/type", "unsupported type: %s", typ)
			return
		}
		fields := maps.Clone(sh.fields)
		if fields == nil {
			fields = map[string]rule{}
		}
		fields["type"] = nil
		k.object(ptr, v, shape{append([]string{"type"}, sh.required...), fields})
	}
}

// actionID checks the identifier of an element, which is unique in its block.
func actionID(k *checker, ptr string, v any) {
	str(1, maxID)(k, ptr, v)
	if id, _ := v.(string); id != "" {
		if k.actionIDs[id] {
			k.fail(ptr, "`action_id` %q already exists in this block", id)
		}
		k.actionIDs[id] = true
	}
}

func blockID(k *checker, ptr string, v any) {
	str(0, maxID)(k, ptr, v)
	if id, _ := v.(string); id != "" {
		if k.blockIDs[id] {
			k.fail(ptr, "`block_id` %q already exists", id)
		}
		k.blockIDs[id] = true
	}
}

// block checks one block of the surface.
func (k *checker) block(ptr string, v any) {
	m, _ := v.(map[string]any)
	typ, _ := m["type"].(string)
	k.actionIDs = map[string]bool{}
	if k.where == surfaceStream && slices.Contains([]string{"alert", "card", "carousel", "plan", "task_card"}, typ) {
		return // The newer blocks go through a stream only, and their insides are not checked here.
	}
	shapes := blockShapes()
	if k.where != surfacePlans {
		delete(shapes, "plan")
		delete(shapes, "task_card")
	}
	if k.where == surfaceView {
		delete(shapes, "markdown")
		delete(shapes, "table")
		delete(shapes, "context_actions")
	}
	typed(shapes)(k, ptr, v)
	switch typ {
	case "section":
		if m["text"] == nil && m["fields"] == nil {
			k.fail(ptr, "missing required field: text")
		}
	case "image":
		k.image(ptr, m)
	case "table":
		k.tables++
	case "markdown":
		t, _ := m["text"].(string)
		k.markdown += utf8.RuneCountInString(t)
	case "input":
		k.inputs++
	}
}

// image checks that an image block or element has exactly one source.
func (k *checker) image(ptr string, m map[string]any) {
	if (m["image_url"] == nil) == (m["slack_file"] == nil) {
		k.fail(ptr, "missing required field: image_url or slack_file, and not both")
	}
}

// surface is where messages of this workspace stand.
func (s *Server) surface() surface {
	if s.cfg.Plans {
		return surfacePlans
	}
	return surfaceMessage
}

func blockShapes() map[string]shape {
	rich := of(shape{[]string{"type", "elements"}, map[string]rule{"type": enum("rich_text"), "block_id": nil, "elements": list(1, 1, richElement)}})
	taskCard := shape{[]string{"task_id", "title"}, map[string]rule{
		"type": enum("task_card"), "block_id": nil, "task_id": str(1, 0), "title": str(1, 0), "status": enum("pending", "in_progress", "complete", "error"),
		"details": rich, "output": rich, "sources": nil, "hide_title": boolean,
	}}
	out := map[string]shape{
		"actions": {[]string{"elements"}, map[string]rule{"elements": list(1, maxActions, elements(actionElements...))}},
		"context": {[]string{"elements"}, map[string]rule{"elements": list(1, maxContext, contextElement)}},
		"context_actions": {[]string{"elements"}, map[string]rule{
			"elements": list(1, 5, elements("feedback_buttons", "icon_button")),
		}},
		"divider": {},
		"header":  {[]string{"text"}, map[string]rule{"text": plain(maxHeader)}},
		"image": {[]string{"alt_text"}, map[string]rule{
			"image_url": str(1, maxURL), "slack_file": nil, "alt_text": str(0, 2000), "title": plain(2000),
		}},
		"input": {[]string{"label", "element"}, map[string]rule{
			"label": plain(maxLabel), "hint": plain(maxLabel), "optional": boolean, "dispatch_action": boolean,
			"element": elements(inputElements...),
		}},
		"markdown":  {[]string{"text"}, map[string]rule{"text": str(1, 0)}}, // Its limit is for all of a message together.
		"rich_text": {[]string{"elements"}, map[string]rule{"elements": list(0, 0, richElement)}},
		"section": {nil, map[string]rule{
			"text": anyText(1, maxSectionText), "fields": list(1, 10, anyText(1, maxFieldText)),
			"accessory": elements(sectionElements...), "expand": boolean,
		}},
		"plan":      {[]string{"title"}, map[string]rule{"title": str(1, 0), "tasks": list(0, 0, of(taskCard))}},
		"task_card": taskCard,
		"table": {[]string{"rows"}, map[string]rule{
			"rows": list(1, maxTableRows, list(1, maxTableCells, cell)),
			"column_settings": list(0, maxTableCells, of(shape{nil, map[string]rule{
				"align": enum("left", "center", "right"), "is_wrapped": boolean,
			}})),
		}},
		"video": {[]string{"alt_text", "title", "thumbnail_url", "video_url"}, map[string]rule{
			"alt_text": str(1, 2000), "title": plain(199), "thumbnail_url": str(1, maxURL), "video_url": str(1, maxURL),
			"author_name": str(0, 49), "description": plain(200), "provider_icon_url": str(0, maxURL), "provider_name": str(0, 0),
			"title_url": str(0, maxURL),
		}},
	}
	for name, sh := range out {
		if sh.fields == nil {
			sh.fields = map[string]rule{}
		}
		sh.fields["block_id"] = blockID
		out[name] = sh
	}
	return out
}

func contextElement(k *checker, ptr string, v any) {
	if m, _ := v.(map[string]any); m["type"] == "image" {
		elements("image")(k, ptr, v)
		return
	}
	anyText(1, maxSectionText)(k, ptr, v)
}

var (
	selectElements = []string{
		"static_select", "external_select", "users_select", "conversations_select", "channels_select", "multi_static_select",
		"multi_external_select", "multi_users_select", "multi_conversations_select", "multi_channels_select",
	}
	actionElements = append([]string{
		"button", "checkboxes", "datepicker", "datetimepicker", "overflow", "radio_buttons", "timepicker", "workflow_button",
	}, selectElements...)
	sectionElements = append([]string{
		"button", "checkboxes", "datepicker", "image", "overflow", "radio_buttons", "timepicker", "workflow_button",
	}, selectElements...)
	inputElements = append([]string{
		"checkboxes", "datepicker", "datetimepicker", "email_text_input", "file_input", "number_input", "plain_text_input",
		"radio_buttons", "rich_text_input", "timepicker", "url_text_input",
	}, selectElements...)
)

// elements checks a block element of one of the kinds.
func elements(kinds ...string) rule {
	return func(k *checker, ptr string, v any) {
		all := elementShapes()
		allowed := make(map[string]shape, len(kinds))
		for _, name := range kinds {
			allowed[name] = all[name]
		}
		typed(allowed)(k, ptr, v)
		if m, _ := v.(map[string]any); m["type"] == "image" {
			k.image(ptr, m)
		}
	}
}

func elementShapes() map[string]shape {
	style := enum("primary", "danger")
	confirm := of(shape{[]string{"text"}, map[string]rule{
		"title": plain(100), "text": anyText(1, 300), "confirm": plain(30), "deny": plain(30), "style": style,
	}})
	option := of(shape{[]string{"text"}, map[string]rule{
		"text": anyText(1, 75), "value": str(0, 75), "description": anyText(1, 75), "url": str(0, maxURL),
	}})
	options := func(most int) rule { return list(1, most, option) }
	groups := list(1, maxOptions, of(shape{[]string{"label", "options"}, map[string]rule{"label": plain(75), "options": options(maxOptions)}}))
	with := func(required []string, fields map[string]rule) shape {
		fields["action_id"], fields["confirm"], fields["focus_on_load"], fields["placeholder"] = actionID, confirm, boolean, plain(150)
		return shape{required, fields}
	}
	button := map[string]rule{
		"text": plain(maxButtonText), "value": str(0, maxValue), "url": str(0, maxURL), "style": style,
		"accessibility_label": str(0, maxButtonText), "action_id": actionID, "confirm": confirm,
	}
	out := map[string]shape{
		"button":          {[]string{"text"}, button},
		"workflow_button": {[]string{"text", "workflow"}, map[string]rule{"text": plain(maxButtonText), "workflow": nil, "style": style, "accessibility_label": str(0, maxButtonText), "action_id": actionID}},
		"icon_button": {[]string{"icon", "text"}, map[string]rule{
			"icon": str(1, 0), "text": plain(maxButtonText), "value": str(0, maxValue), "accessibility_label": str(0, maxButtonText),
			"action_id": actionID, "confirm": confirm, "visible_to_user_ids": list(0, 0, str(1, 0)),
		}},
		"feedback_buttons": {[]string{"positive_button", "negative_button"}, map[string]rule{
			"positive_button": feedback(), "negative_button": feedback(), "action_id": actionID,
		}},
		"image":      {[]string{"alt_text"}, map[string]rule{"image_url": str(1, maxURL), "slack_file": nil, "alt_text": str(0, 2000)}},
		"overflow":   {[]string{"options"}, map[string]rule{"options": options(5), "action_id": actionID, "confirm": confirm}},
		"checkboxes": with([]string{"options"}, map[string]rule{"options": options(10), "initial_options": options(10)}),
		"radio_buttons": with([]string{"options"}, map[string]rule{
			"options": options(10), "initial_option": option,
		}),
		"datepicker":     with(nil, map[string]rule{"initial_date": str(10, 10)}),
		"timepicker":     with(nil, map[string]rule{"initial_time": str(5, 5), "timezone": str(0, 0)}),
		"datetimepicker": with(nil, map[string]rule{"initial_date_time": integer(0, 9999999999)}),
		"plain_text_input": with(nil, map[string]rule{
			"initial_value": str(0, maxInputValue), "multiline": boolean, "min_length": integer(0, maxInputValue),
			"max_length": integer(1, maxInputValue), "dispatch_action_config": nil,
		}),
		"email_text_input": with(nil, map[string]rule{"initial_value": str(0, 0), "dispatch_action_config": nil}),
		"url_text_input":   with(nil, map[string]rule{"initial_value": str(0, 0), "dispatch_action_config": nil}),
		"number_input": with([]string{"is_decimal_allowed"}, map[string]rule{
			"is_decimal_allowed": boolean, "initial_value": str(0, 0), "min_value": str(0, 0), "max_value": str(0, 0),
			"dispatch_action_config": nil,
		}),
		"rich_text_input": with(nil, map[string]rule{"initial_value": nil, "dispatch_action_config": nil, "min_length": nil, "max_length": nil}),
		"file_input":      with(nil, map[string]rule{"filetypes": list(0, 0, str(1, 0)), "max_files": integer(1, 10)}),
	}
	for _, name := range selectElements {
		f := map[string]rule{"response_url_enabled": boolean, "filter": nil, "min_query_length": integer(0, 1000)}
		for _, i := range []string{"option", "options", "user", "users", "conversation", "conversations", "channel", "channels"} {
			f["initial_"+i] = nil
		}
		f["default_to_current_conversation"] = boolean
		if strings.HasPrefix(name, "multi_") {
			f["max_selected_items"] = integer(1, maxOptions)
		}
		if strings.Contains(name, "static") {
			f["options"], f["option_groups"] = options(maxOptions), groups
		}
		out[name] = with(nil, f)
	}
	return out
}

func feedback() rule {
	return of(shape{[]string{"text", "value"}, map[string]rule{
		"text": plain(maxButtonText), "value": str(1, maxValue), "accessibility_label": str(0, maxButtonText),
	}})
}

// cell is a cell of a table.
func cell(k *checker, ptr string, v any) {
	typed(map[string]shape{
		"raw_text":   {[]string{"text"}, map[string]rule{"text": str(1, 0)}},
		"raw_number": {[]string{"value", "text"}, map[string]rule{"value": nil, "text": str(1, 0)}},
		"rich_text":  {[]string{"elements"}, map[string]rule{"elements": list(1, 0, richElement), "block_id": nil}},
	})(k, ptr, v)
}

// richElement is an element of a rich_text block.
func richElement(k *checker, ptr string, v any) {
	border := integer(0, 1)
	section := shape{[]string{"elements"}, map[string]rule{"elements": list(0, 0, richLeaf(false))}}
	typed(map[string]shape{
		"rich_text_section": section,
		"rich_text_quote":   {[]string{"elements"}, map[string]rule{"elements": list(0, 0, richLeaf(false)), "border": border}},
		"rich_text_preformatted": {[]string{"elements"}, map[string]rule{
			"elements": list(0, 0, richLeaf(true)), "border": border, "language": str(0, 0),
		}},
		"rich_text_list": {[]string{"elements", "style"}, map[string]rule{
			"elements": list(0, 0, typed(map[string]shape{"rich_text_section": section})), "style": enum("bullet", "ordered"),
			"indent": integer(0, 8), "offset": integer(0, 1<<30), "border": border,
		}},
	})(k, ptr, v)
}

// richLeaf is an element in a section, quote or list item; a preformatted block holds text and links only.
func richLeaf(preformatted bool) rule {
	flags := map[string]rule{}
	for _, f := range []string{"bold", "italic", "strike", "code", "underline", "highlight", "client_highlight", "unlink"} {
		flags[f] = boolean
	}
	style := of(shape{nil, flags})
	all := map[string]shape{
		"text": {[]string{"text"}, map[string]rule{"text": str(1, 0)}},
		"link": {[]string{"url"}, map[string]rule{"url": str(1, maxURL), "text": str(0, 0), "unsafe": boolean}},
	}
	if !preformatted {
		all["user"] = shape{[]string{"user_id"}, map[string]rule{"user_id": str(1, 0)}}
		all["channel"] = shape{[]string{"channel_id"}, map[string]rule{"channel_id": str(1, 0)}}
		all["usergroup"] = shape{[]string{"usergroup_id"}, map[string]rule{"usergroup_id": str(1, 0)}}
		all["team"] = shape{[]string{"team_id"}, map[string]rule{"team_id": str(1, 0)}}
		all["broadcast"] = shape{[]string{"range"}, map[string]rule{"range": enum("here", "channel", "everyone")}}
		all["emoji"] = shape{[]string{"name"}, map[string]rule{"name": str(1, 0), "unicode": str(0, 0), "skin_tone": nil, "url": str(0, 0)}}
		all["color"] = shape{[]string{"value"}, map[string]rule{"value": str(1, 0)}}
		all["date"] = shape{[]string{"timestamp", "format"}, map[string]rule{
			"timestamp": integer(0, 1<<40), "format": str(1, 0), "url": str(0, 0), "fallback": str(0, 0),
		}}
	}
	for name, sh := range all {
		sh.fields["style"] = style
		all[name] = sh
	}
	return typed(all)
}

// validateBlocks checks blocks, a message or a view, exactly one of them, without posting it (docs: blocks.validate).
func (s *Server) validateBlocks(r *request) reply {
	given := slices.DeleteFunc([]string{"blocks", "message", "view"}, func(name string) bool { return r.str(name) == "" })
	if len(given) != 1 {
		return fail("invalid_arguments", "provide exactly one of blocks, view, or message")
	}
	var wrong []string
	switch value := r.str(given[0]); given[0] {
	case "blocks":
		_, code, messages := checkBlocks(value, s.surface())
		if wrong = messages; code != "" && len(wrong) == 0 {
			wrong = []string{code}
		}
	case "message":
		var m struct {
			Blocks json.RawMessage `json:"blocks"`
		}
		if err := json.Unmarshal([]byte(value), &m); err != nil {
			return fail("invalid_message")
		}
		_, _, wrong = checkBlocks(string(m.Blocks), s.surface())
	case "view":
		var v struct {
			Type string `json:"type"`
		}
		_ = json.Unmarshal([]byte(value), &v) // checkView says what is wrong
		_, _, wrong = checkView(value, v.Type)
	}
	if len(wrong) == 0 {
		return ok(nil)
	}
	errs := []map[string]any{}
	for _, m := range wrong {
		errs = append(errs, map[string]any{"pointer": "/", "code": "failed_constraint", "message": m})
	}
	rep := fail("invalid_" + given[0])
	rep.body["errors"] = errs
	return rep
}
