#!/usr/bin/env python3
"""Renders every template of this folder for every conversation by transformers and jinja2: make.py >golden.json

Needs `pip install transformers jinja2` (no torch). The clock stands at 26 July 2024.
"""
import datetime
import json
import pathlib
import sys

from transformers.utils import chat_template_utils


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26, 12, 0, 0)


chat_template_utils.datetime = Clock
folder = pathlib.Path(__file__).parent
specials = {"bos_token": "<s>", "eos_token": "</s>"}
conversations = json.loads((folder / "conversations.json").read_text())
golden = {}
for template in sorted(folder.glob("*.jinja")):
    source = template.read_text()
    texts = {}
    for each in conversations:
        try:
            rendered, spans = chat_template_utils.render_jinja_template(
                [each["messages"]], chat_template=source, tools=each.get("variables", {}).get("tools"),
                documents=each.get("variables", {}).get("documents"), add_generation_prompt=each.get("asks", False),
                return_assistant_tokens_mask="generation %}" in source,
                **{k: v for k, v in each.get("variables", {}).items() if k not in ("tools", "documents")}, **specials)
            texts[each["name"]] = {"text": rendered[0]}
            if spans:
                texts[each["name"]]["targets"] = [list(span) for span in spans[0]]  # in characters
        except Exception as error:
            print(f"{template.stem} {each['name']}: {type(error).__name__}: {error}", file=sys.stderr)
            texts[each["name"]] = None
    golden[template.stem] = texts
print(json.dumps(golden, indent=1, ensure_ascii=False))
