"""The table of a topic's rubric in its handout."""

from __future__ import annotations

import re

from softmark.builders.stub import BuildError
from softmark.course import Topic

_TABLE = re.compile(r"(<!-- rubric -->\n).*?(<!-- /rubric -->)", re.DOTALL)


def with_rubric(handout: str, topic: Topic) -> str:
    """The handout with the table of ``topic``'s rubric between its two rubric markers."""
    if len(_TABLE.findall(handout)) != 1:
        raise BuildError(
            f"assignments/{topic.id}/handout.md: needs the line '<!-- rubric -->' and, after it, "
            "the line '<!-- /rubric -->', once; the rubric table goes between them"
        )
    return _TABLE.sub(lambda match: match[1] + rubric_table(topic) + match[2], handout)


def rubric_table(topic: Topic) -> str:
    """The table of ``topic``'s rubric in Markdown."""
    rows = ["| item | what it asks for | tier | points |", "| --- | --- | --- | ---: |"]
    headings = {part.items[0]: f"part {n}: {part.title}" for n, part in enumerate(topic.parts, 1)}
    for item in topic.rubric.values():
        if item.id in headings:
            rows.append(f"| | **{headings[item.id]}** | | |")
        title = item.title.replace("|", "\\|")
        if item.follow_through:
            title += " ↪"
        tier = item.tier if item.device == "cpu" else f"{item.tier}, on a GPU"
        tier += f", where {item.package} is installed" if item.package else ""
        rows.append(f"| `{item.id}` | {title} | {tier} | {item.points:g} |")
    rows.append(f"| | **core, all together** | | **{topic.max_score:g}** |")
    shares = sorted({item.follow_through for item in topic.rubric.values() if item.follow_through})
    if shares:
        earned = " or ".join(f"{share:.0%}" for share in shares)
        rows += ["", f"↪ right given your own earlier mistake: {earned} of the points."]
    return "".join(f"{row}\n" for row in rows)
