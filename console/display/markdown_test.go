package display

import (
	"strings"
	"testing"

	"golang.org/x/net/html"
)

func TestMarkdown(t *testing.T) {
	const attrs = ` target="_blank" rel="noopener noreferrer nofollow">`
	for _, c := range []struct{ rule, in, want string }{
		{"nothing gives nothing", " \n", ""},
		{"emphasis", "**a** _b_ ~~c~~", "<p><strong>a</strong> <em>b</em> <del>c</del></p>"},
		{"a line break is kept", "a\nb", "<p>a<br>\nb</p>"},
		{"code is literal", "```sh\nrm <x> & y\n```", "<pre><code class=\"language-sh\">rm &lt;x&gt; &amp; y\n</code></pre>"},
		{"a table", "|a|b|\n|-|-:|\n|1|2|", "<table>\n<thead>\n<tr>\n<th>a</th>\n<th align=\"right\">b</th>\n</tr>\n</thead>\n<tbody>\n<tr>\n<td>1</td>\n<td align=\"right\">2</td>\n</tr>\n</tbody>\n</table>"},
		{"raw HTML is text", "a <b onclick=x>b</b>", "<p>a &lt;b onclick=x&gt;b&lt;/b&gt;</p>"},
		{"a block of HTML is text", "<div>\n<script>x</script>\n</div>", "<pre>&lt;div&gt;\n&lt;script&gt;x&lt;/script&gt;\n&lt;/div&gt;</pre>"},
		{"a comment is text", "<!-- x -->", "<pre>&lt;!-- x --&gt;</pre>"},
		{"a link opens elsewhere", "[x](https://a.example/?a=1&b=2)", `<p><a href="https://a.example/?a=1&amp;b=2" title="https://a.example/?a=1&amp;b=2"` + attrs + `x</a></p>`},
		{"a bare address", "https://a.example/x", `<p><a href="https://a.example/x" title="https://a.example/x"` + attrs + `https://a.example/x</a></p>`},
		{"a link that is none shows its target", "[x](javascript:alert(1))", "<p>x (javascript:alert(1))</p>"},
		{"a relative link is none", "[x](/api/logout)", "<p>x (/api/logout)</p>"},
		{"a link without a scheme is none", "[x](//a.example)", "<p>x (//a.example)</p>"},
		{"a link with a password is none", "[x](https://bank.example@a.example)", "<p>x (https://bank.example@a.example)</p>"},
		{"a mail address is text", "<a@b.example>", "<p>a@b.example</p>"},
		{"an image is a link", "![cat *x*](https://a.example/c.png)", `<p><a href="https://a.example/c.png" title="https://a.example/c.png"` + attrs + `[image: cat x]</a></p>`},
		{"an image of no address is text", "![cat](data:image/png;base64,xx)", "<p>[image: cat]</p>"},
		{"an image in a link is text", "[![c](https://a.example/c)](https://b.example)", `<p><a href="https://b.example" title="https://b.example"` + attrs + `[image: c] (https://a.example/c)</a></p>`},
		{"text that runs backwards is shown", "a\u202eb", "<p>a\\u{202E}b</p>"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			if got := strings.TrimSuffix(HTML(c.in), "\n"); got != strings.TrimSuffix(c.want, "\n") {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			inert(t, HTML(c.in))
		})
	}
}

func TestMarkdownThatIsTooLongIsShownAsItIs(t *testing.T) {
	if got := HTML(strings.Repeat("+ ", maxMarkdown/2)); !strings.HasPrefix(got, "<pre>") {
		t.Errorf("a text that takes too long to read is %.40q", got)
	}
	got := HTML("<b>" + strings.Repeat("*a* ", maxMarkdown))
	if !strings.HasPrefix(got, "<pre>&lt;b&gt;*a*") {
		t.Errorf("got %.60s", got)
	}
}

// allowed lists every element and attribute that may come out.
var allowed = map[string]string{
	"p": "", "br": "", "hr": "", "strong": "", "em": "", "del": "", "blockquote": "", "ul": "", "ol": "start", "li": "",
	"h1": "", "h2": "", "h3": "", "h4": "", "h5": "", "h6": "", "pre": "", "code": "class",
	"table": "", "thead": "", "tbody": "", "tr": "", "th": "align", "td": "align", "a": "href title target rel",
	"html": "", "head": "", "body": "", // the parser's own
}

// inert fails when a browser could load or run something from page.
func inert(t *testing.T, page string) {
	t.Helper()
	doc, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatalf("%v in %q", err, page)
	}
	var walk func(*html.Node)
	walk = func(n *html.Node) {
		switch n.Type {
		case html.ElementNode:
			attrs, ok := allowed[n.Data]
			if !ok {
				t.Fatalf("the element %s in %q", n.Data, page)
			}
			for _, a := range n.Attr {
				if !strings.Contains(" "+attrs+" ", " "+a.Key+" ") || a.Namespace != "" {
					t.Fatalf("the attribute %s of %s in %q", a.Key, n.Data, page)
				}
				if a.Key == "href" && !strings.HasPrefix(a.Val, "http://") && !strings.HasPrefix(a.Val, "https://") {
					t.Fatalf("a link to %q in %q", a.Val, page)
				}
			}
		case html.CommentNode, html.DoctypeNode, html.RawNode:
			t.Fatalf("a node of type %d in %q", n.Type, page)
		case html.TextNode, html.DocumentNode, html.ErrorNode:
		}
		for c := range n.ChildNodes() {
			walk(c)
		}
	}
	walk(doc)
}

func FuzzMarkdownIsInert(f *testing.F) {
	for _, s := range []string{
		"# h\n* a\n  1. b\n> q\n\n---\n|a|b|\n|:-|:-:|\n|`x`|<i>|", "<script>alert(1)</script>", "<a href=javascript:x>", "[a](javascript:x)",
		"[a](  JaVaScRiPt:x)", "[a](&#106;avascript:x)", "[a](java\nscript:x)", "[a](<javascript:x>)", "[a]: data:text/html,x\n\n[a]",
		"![a](https://x.example/\"onerror=x)", "[a](https://x.example/\"onmouseover=x 'title')", "<https://x.example/\"onclick=x>",
		"www.x.example", "http://x.example\"><img src=x>", "<!--><img src=x onerror=x>-->", "<![CDATA[<img>]]>", "<?php x ?>", "<!DOCTYPE x>",
		"```\"onclick=x\n```", "~~~ </code><script>\n~~~", "[![x](https://a.example)](https://b.example)", "\x00<\x00script>", "[a](https://[::1]/%zz)",
		"# h {#id onclick=x}", "<svg/onload=x>", "a\\\n<style>@import'x'</style>", "[x](http://a.example \"t\\\"onclick=x\")", "2147483648. x",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) { inert(t, HTML(s)) })
}
