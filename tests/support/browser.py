"""A real browser that draws a page at a width, light or dark: a picture of it, and the places of all its texts."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

_FRAME = """<!DOCTYPE html><meta charset="utf-8">
<style>* {{ margin: 0 }} iframe {{ border: 0; color-scheme: {scheme} }}</style>
<iframe id="page" width="{width}" height="{height}" srcdoc="{page}"></iframe><pre id="found" hidden></pre>
<script>
document.getElementById("page").addEventListener("load", () => {{
  const page = document.getElementById("page").contentDocument;
  const found = {{texts: [], scrolled: page.documentElement.scrollWidth}};
  found.height = page.documentElement.scrollHeight;
  const walker = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {{
    const node = walker.currentNode, parent = node.parentElement;
    if (!node.textContent.trim() || parent.closest("details:not([open]) > :not(summary), title, style")) continue;
    const svg = parent.closest("svg"), range = page.createRange();
    range.selectNodeContents(node);
    const rects = svg ? [parent.getBoundingClientRect()] : [...range.getClientRects()];
    let inside = (svg || parent.closest(".wide, pre") || page.body).getBoundingClientRect();
    const scrolls = !svg && parent.closest(".wide, pre");
    for (const r of rects) if (r.width > 0 && r.height > 0) found.texts.push({{
      text: node.textContent.trim().slice(0, 80), drawing: svg ? svg.getAttribute("aria-label") : null,
      box: [r.left, r.top, r.right, r.bottom], room: [inside.left, inside.top, inside.right, inside.bottom],
      scrolls: !!scrolls,
      size: parseFloat(page.defaultView.getComputedStyle(parent).fontSize) * (svg ? svg.getScreenCTM().a : 1),
    }});
  }}
  document.getElementById("found").textContent = JSON.stringify(found);
}});
</script>
"""


def chromium() -> str:
    """The browser; the test that asks is skipped where there is none."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip("no Chromium is installed: pages are not looked at in a browser")
    return found


def looked_at(page: str, folder: Path, width: int, dark: bool, height: int = 3000) -> dict:
    """What the browser shows of `page`: its `texts` with their boxes in pixels, how wide it is, and a `picture`."""
    browser = chromium()
    scheme = "dark" if dark else "light"
    frame = folder / f"frame-{width}-{scheme}.html"
    frame.write_text(_FRAME.format(width=width, height=height, scheme=scheme, page=html.escape(page)), encoding="utf-8")
    flags = [
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"),
        *("--disable-component-update", "--hide-scrollbars", f"--user-data-dir={folder / 'profile'}"),
        *(f"--window-size={max(width, 600)},{height}", "--virtual-time-budget=10000"),
    ]
    shown = subprocess.run(
        [browser, *flags, "--dump-dom", frame.as_uri()], check=True, capture_output=True, timeout=120, text=True
    )
    found = json.loads(html.unescape(re.search(r'<pre id="found" hidden="">(.*?)</pre>', shown.stdout, re.DOTALL)[1]))
    found["picture"] = folder / f"{width}-{scheme}.png"
    subprocess.run(
        [browser, *flags, f"--screenshot={found['picture']}", frame.as_uri()],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    return found


def cut_texts(found: dict, width: int) -> list[str]:
    """The texts that are not wholly in the drawing, or on the page, that they belong to."""
    wrong = []
    for each in found["texts"]:
        (left, top, right, bottom), room = each["box"], each["room"]
        if each["scrolls"]:
            continue
        beyond = left < room[0] - 1 or right > room[2] + 1 or right > width + 1
        if beyond or (each["drawing"] and (top < room[1] - 1 or bottom > room[3] + 1)):
            wrong.append(f"{each['drawing'] or 'page'}: {each['text']}")
    return wrong


def overlapping_texts(found: dict) -> list[str]:
    """Pairs of texts, of one drawing or of the page around them, whose boxes share more than a pixel."""
    wrong = []
    texts = sorted(found["texts"], key=lambda each: each["box"][1])
    for place, one in enumerate(texts):
        for other in texts[place + 1 :]:
            a, b = one["box"], other["box"]
            if b[1] >= a[3] - 2:
                break
            across, down = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
            if across > 1 and down > 2 and not (one["scrolls"] or other["scrolls"]):
                wrong.append(f"{one['drawing'] or 'page'}: {one['text']} / {other['text']}")
    return wrong
