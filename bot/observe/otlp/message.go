package otlp

import (
	"encoding/hex"
	"encoding/json"
	"math"
	"mime"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/encoding/protowire"
)

// The messages of opentelemetry/proto/trace/v1, common/v1 and resource/v1, as far as the
// SDK fills them. Their JSON names are those of the protocol; the numbers of their fields
// are in the methods that write protobuf.

type request struct {
	ResourceSpans []resourceSpans `json:"resourceSpans"`
}

type resourceSpans struct {
	Resource   resourceMessage `json:"resource"`
	ScopeSpans []scopeSpans    `json:"scopeSpans"`
	SchemaURL  string          `json:"schemaUrl,omitempty"`
}

type resourceMessage struct {
	Attributes []keyValue `json:"attributes,omitempty"`
}

type scopeSpans struct {
	Scope     scope  `json:"scope"`
	Spans     []span `json:"spans"`
	SchemaURL string `json:"schemaUrl,omitempty"`
}

type scope struct {
	Name       string     `json:"name,omitempty"`
	Version    string     `json:"version,omitempty"`
	Attributes []keyValue `json:"attributes,omitempty"`
}

type span struct {
	TraceID           identifier     `json:"traceId"`
	SpanID            identifier     `json:"spanId"`
	TraceState        string         `json:"traceState,omitempty"`
	ParentSpanID      identifier     `json:"parentSpanId,omitempty"`
	Flags             uint32         `json:"flags,omitempty"`
	Name              string         `json:"name"`
	Kind              trace.SpanKind `json:"kind,omitempty"` // the numbers are the protocol's
	Start             uint64         `json:"startTimeUnixNano,string"`
	End               uint64         `json:"endTimeUnixNano,string"`
	Attributes        []keyValue     `json:"attributes,omitempty"`
	DroppedAttributes uint32         `json:"droppedAttributesCount,omitempty"`
	Events            []event        `json:"events,omitempty"`
	DroppedEvents     uint32         `json:"droppedEventsCount,omitempty"`
	Links             []link         `json:"links,omitempty"`
	DroppedLinks      uint32         `json:"droppedLinksCount,omitempty"`
	Status            status         `json:"status"`
}

type event struct {
	Time              uint64     `json:"timeUnixNano,string"`
	Name              string     `json:"name"`
	Attributes        []keyValue `json:"attributes,omitempty"`
	DroppedAttributes uint32     `json:"droppedAttributesCount,omitempty"`
}

type link struct {
	TraceID           identifier `json:"traceId"`
	SpanID            identifier `json:"spanId"`
	Attributes        []keyValue `json:"attributes,omitempty"`
	DroppedAttributes uint32     `json:"droppedAttributesCount,omitempty"`
	Flags             uint32     `json:"flags,omitempty"`
}

type status struct {
	Message string     `json:"message,omitempty"`
	Code    statusCode `json:"code,omitempty"`
}

// statusCode has the protocol's numbers, which are not those of the SDK.
type statusCode int

const (
	statusUnset statusCode = iota
	statusOK
	statusError
)

type keyValue struct {
	Key   string `json:"key"`
	Value any    `json:"value"` // one of the values below
}

type (
	stringValue struct {
		S string `json:"stringValue"`
	}
	boolValue struct {
		B bool `json:"boolValue"`
	}
	intValue struct {
		I int64 `json:"intValue,string"`
	}
	doubleValue struct {
		D double `json:"doubleValue"`
	}
	arrayValue struct {
		A struct {
			Values []any `json:"values"`
		} `json:"arrayValue"`
	}
)

// identifier is hexadecimal in JSON.
type identifier []byte

// MarshalText implements encoding.TextMarshaler.
func (i identifier) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(i)), nil }

// double is a text in JSON where it is no number there.
type double float64

// MarshalJSON implements json.Marshaler.
func (d double) MarshalJSON() ([]byte, error) {
	switch f := float64(d); {
	case math.IsNaN(f):
		return []byte(`"NaN"`), nil
	case math.IsInf(f, 1):
		return []byte(`"Infinity"`), nil
	case math.IsInf(f, -1):
		return []byte(`"-Infinity"`), nil
	default:
		return strconv.AppendFloat(nil, f, 'g', -1, 64), nil
	}
}

// newRequest sorts spans by what they are of.
func newRequest(spans []sdktrace.ReadOnlySpan) request {
	var r request
	resources := map[attribute.Distinct]int{}
	type key struct {
		resource attribute.Distinct
		scope    instrumentation.Scope
	}
	scopes := map[key]int{}
	for _, s := range spans {
		about, from := s.Resource(), s.InstrumentationScope()
		id := about.Equivalent()
		i, ok := resources[id]
		if !ok {
			i = len(r.ResourceSpans)
			resources[id] = i
			r.ResourceSpans = append(r.ResourceSpans, resourceSpans{Resource: resourceMessage{keyValues(about.Attributes())}, SchemaURL: about.SchemaURL()})
		}
		of := &r.ResourceSpans[i]
		k := key{id, from}
		j, ok := scopes[k]
		if !ok {
			j = len(of.ScopeSpans)
			scopes[k] = j
			of.ScopeSpans = append(of.ScopeSpans, scopeSpans{
				Scope: scope{from.Name, from.Version, keyValues(from.Attributes.ToSlice())}, SchemaURL: from.SchemaURL,
			})
		}
		of.ScopeSpans[j].Spans = append(of.ScopeSpans[j].Spans, newSpan(s))
	}
	return r
}

// Bits of the flags beside those of W3C.
const (
	parentKnown  = 0x100
	parentRemote = 0x200
)

func newSpan(s sdktrace.ReadOnlySpan) span {
	c, parent := s.SpanContext(), s.Parent()
	out := span{
		TraceID: traceID(c), SpanID: spanID(c), TraceState: c.TraceState().String(), Name: s.Name(), Kind: s.SpanKind(),
		Flags: flags(c, parent), Start: nanos(s.StartTime()), End: nanos(s.EndTime()),
		Attributes: keyValues(s.Attributes()), DroppedAttributes: count(s.DroppedAttributes()),
		DroppedEvents: count(s.DroppedEvents()), DroppedLinks: count(s.DroppedLinks()),
	}
	if parent.SpanID().IsValid() {
		out.ParentSpanID = spanID(parent)
	}
	switch st := s.Status(); st.Code {
	case codes.Ok:
		out.Status.Code = statusOK
	case codes.Error:
		out.Status = status{st.Description, statusError}
	case codes.Unset:
	}
	for _, e := range s.Events() {
		out.Events = append(out.Events, event{nanos(e.Time), e.Name, keyValues(e.Attributes), count(e.DroppedAttributeCount)})
	}
	for _, l := range s.Links() {
		out.Links = append(out.Links, link{
			traceID(l.SpanContext), spanID(l.SpanContext),
			keyValues(l.Attributes), count(l.DroppedAttributeCount), flags(l.SpanContext, l.SpanContext),
		})
	}
	return out
}

func traceID(c trace.SpanContext) identifier { id := c.TraceID(); return id[:] }
func spanID(c trace.SpanContext) identifier  { id := c.SpanID(); return id[:] }

func flags(c, parent trace.SpanContext) uint32 {
	f := uint32(c.TraceFlags()) | parentKnown
	if parent.IsRemote() {
		f |= parentRemote
	}
	return f
}

func nanos(t time.Time) uint64 { return uint64(max(t.UnixNano(), 0)) }

func count(n int) uint32 { return uint32(min(max(n, 0), math.MaxUint32)) }

func keyValues(list []attribute.KeyValue) []keyValue {
	out := make([]keyValue, len(list))
	for i, a := range list {
		out[i] = keyValue{string(a.Key), value(a.Value)}
	}
	return out
}

func value(v attribute.Value) any {
	switch v.Type() { //nolint:exhaustive // the rest is text
	case attribute.BOOL:
		return boolValue{v.AsBool()}
	case attribute.INT64:
		return intValue{v.AsInt64()}
	case attribute.FLOAT64:
		return doubleValue{double(v.AsFloat64())}
	case attribute.BOOLSLICE:
		return array(v.AsBoolSlice(), func(b bool) any { return boolValue{b} })
	case attribute.INT64SLICE:
		return array(v.AsInt64Slice(), func(n int64) any { return intValue{n} })
	case attribute.FLOAT64SLICE:
		return array(v.AsFloat64Slice(), func(f float64) any { return doubleValue{double(f)} })
	case attribute.STRINGSLICE:
		return array(v.AsStringSlice(), func(s string) any { return stringValue{s} })
	}
	return stringValue{v.String()}
}

func array[T any](list []T, one func(T) any) any {
	var a arrayValue
	a.A.Values = make([]any, len(list))
	for i, x := range list {
		a.A.Values[i] = one(x)
	}
	return a
}

func (r request) json() ([]byte, error) { return json.Marshal(r) }

func (r request) protobuf() []byte {
	return repeated(nil, 1, r.ResourceSpans)
}

// message is something that can be written as protobuf.
type message interface{ append(b []byte) []byte }

func (r resourceSpans) append(b []byte) []byte {
	b = nested(b, 1, r.Resource)
	b = repeated(b, 2, r.ScopeSpans)
	return text(b, 3, r.SchemaURL)
}

func (r resourceMessage) append(b []byte) []byte { return repeated(b, 1, r.Attributes) }

func (s scopeSpans) append(b []byte) []byte {
	b = nested(b, 1, s.Scope)
	b = repeated(b, 2, s.Spans)
	return text(b, 3, s.SchemaURL)
}

func (s scope) append(b []byte) []byte {
	b = text(b, 1, s.Name)
	b = text(b, 2, s.Version)
	return repeated(b, 3, s.Attributes)
}

func (s span) append(b []byte) []byte {
	b = text(b, 1, s.TraceID)
	b = text(b, 2, s.SpanID)
	b = text(b, 3, s.TraceState)
	b = text(b, 4, s.ParentSpanID)
	b = text(b, 5, s.Name)
	b = number(b, 6, uint64(s.Kind)) //nolint:gosec // not negative
	b = fixed64(b, 7, s.Start)
	b = fixed64(b, 8, s.End)
	b = repeated(b, 9, s.Attributes)
	b = number(b, 10, uint64(s.DroppedAttributes))
	b = repeated(b, 11, s.Events)
	b = number(b, 12, uint64(s.DroppedEvents))
	b = repeated(b, 13, s.Links)
	b = number(b, 14, uint64(s.DroppedLinks))
	b = nested(b, 15, s.Status)
	return fixed32(b, 16, s.Flags)
}

func (e event) append(b []byte) []byte {
	b = fixed64(b, 1, e.Time)
	b = text(b, 2, e.Name)
	b = repeated(b, 3, e.Attributes)
	return number(b, 4, uint64(e.DroppedAttributes))
}

func (l link) append(b []byte) []byte {
	b = text(b, 1, l.TraceID)
	b = text(b, 2, l.SpanID)
	b = repeated(b, 4, l.Attributes)
	b = number(b, 5, uint64(l.DroppedAttributes))
	return fixed32(b, 6, l.Flags)
}

func (s status) append(b []byte) []byte {
	b = text(b, 2, s.Message)
	return number(b, 3, uint64(s.Code)) //nolint:gosec // not negative
}

func (k keyValue) append(b []byte) []byte {
	b = text(b, 1, k.Key)
	return nested(b, 2, anyValue{k.Value})
}

// anyValue writes its one field also where it is the zero value: it is a oneof.
type anyValue struct{ v any }

func (a anyValue) append(b []byte) []byte {
	switch v := a.v.(type) {
	case stringValue:
		return protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), v.S)
	case boolValue:
		return protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), protowire.EncodeBool(v.B))
	case intValue:
		return protowire.AppendVarint(protowire.AppendTag(b, 3, protowire.VarintType), uint64(v.I)) //nolint:gosec // as the protocol has negative numbers
	case doubleValue:
		return protowire.AppendFixed64(protowire.AppendTag(b, 4, protowire.Fixed64Type), math.Float64bits(float64(v.D)))
	case arrayValue:
		return nested(b, 5, v)
	}
	return b
}

func (a arrayValue) append(b []byte) []byte {
	for _, v := range a.A.Values {
		b = nested(b, 1, anyValue{v})
	}
	return b
}

func nested(b []byte, n protowire.Number, m message) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), m.append(nil))
}

func repeated[M message](b []byte, n protowire.Number, list []M) []byte {
	for _, m := range list {
		b = nested(b, n, m)
	}
	return b
}

func text[T ~string | ~[]byte](b []byte, n protowire.Number, s T) []byte {
	if len(s) == 0 {
		return b
	}
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), []byte(s))
}

func number(b []byte, n protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), v)
}

func fixed64(b []byte, n protowire.Number, v uint64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, n, protowire.Fixed64Type), v)
}

func fixed32(b []byte, n protowire.Number, v uint32) []byte {
	return protowire.AppendFixed32(protowire.AppendTag(b, n, protowire.Fixed32Type), v)
}

// rejected reads the partial_success of an answer: how many spans were refused, and why.
// What cannot be read says nothing: the collector has answered that it took the request.
func rejected(contentType string, answer []byte) (n int64, why string) {
	kind, _, _ := mime.ParseMediaType(contentType)
	switch kind {
	case "application/json":
		var v struct {
			PartialSuccess struct {
				RejectedSpans json.Number `json:"rejectedSpans"`
				ErrorMessage  string      `json:"errorMessage"`
			} `json:"partialSuccess"`
		}
		if json.Unmarshal(answer, &v) != nil {
			return 0, ""
		}
		n, _ = v.PartialSuccess.RejectedSpans.Int64()
		return n, v.PartialSuccess.ErrorMessage
	case "application/x-protobuf":
		fields(answer, func(num protowire.Number, _ uint64, partial []byte) {
			if num != 1 {
				return
			}
			fields(partial, func(num protowire.Number, v uint64, b []byte) {
				switch num { //nolint:exhaustive // its constants are no fields
				case 1:
					n = int64(v) //nolint:gosec // as the protocol has it
				case 2:
					why = string(b)
				}
			})
		})
	}
	return n, why
}

// fields yields the fields of a message: the number of a varint, the bytes of the rest.
func fields(b []byte, yield func(num protowire.Number, v uint64, bytes []byte)) {
	for len(b) > 0 {
		num, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return
		}
		b = b[n:]
		var v uint64
		var raw []byte
		switch kind {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			raw, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(num, kind, b)
		}
		if n < 0 {
			return
		}
		yield(num, v, raw)
		b = b[n:]
	}
}
