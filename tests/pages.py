"""What a page of HTML holds, for the tests of reports."""

import re
from html.parser import HTMLParser

VOID = {"meta", "img", "input", "br", "link", "hr", "source"}


class Page(HTMLParser):
    """What the page holds; an element left open or closed out of turn is an error."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.text = [], [], ""
        self.feed(text)
        self.close()
        assert self.open == []
        self.text = re.sub(r"\s+", " ", self.text)

    def handle_starttag(self, tag, attrs):
        assert len(attrs) == len(dict(attrs))
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data

    def values(self, name):
        return [attrs[name] for _, attrs in self.elements if name in attrs]
