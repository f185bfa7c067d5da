#!/usr/bin/env python3
"""A plugin in Python: counts the words of a text."""
import json
import sys

TOOLS = [
    {
        "name": "count_words",
        "description": "Counts the words of a text, and those of them that are different.",
        "parameters": {
            "type": "object",
            "properties": {"text": {"type": "string", "description": "The text."}},
            "required": ["text"],
            "additionalProperties": False,
        },
    }
]


def count_words(params):
    words = params["text"].split()
    if not words:
        raise ValueError("the text has no words")
    return f"{len(words)} words, {len(set(words))} different"


def say(message):
    print(json.dumps(message), flush=True)


for line in sys.stdin:
    message = json.loads(line)
    if message["type"] == "init":
        say({"type": "init", "tools": TOOLS})
    elif message["type"] == "call":
        try:
            text, failed = count_words(message["params"]), False
        except Exception as error:  # the bot shows it to the model
            text, failed = str(error), True
        content = [{"type": "text", "text": text}]
        say({"type": "result", "call_id": message["call_id"], "content": content, "is_error": failed})
