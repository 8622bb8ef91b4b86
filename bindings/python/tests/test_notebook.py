"""What shows itself in a notebook, and the page of mha view."""

import base64
import re
import shutil
import struct
import subprocess
import sys
import zlib
from html.parser import HTMLParser

import numpy as np
import pytest

import mha
from mha import _command, _html

EVIL = "</script><img src=x onerror=alert(1)>\"'&"
VOID = {"img", "meta", "link", "br", "input"}


class Checker(HTMLParser):
    """Every tag is closed in order; which tags there are."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags = [], []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def names(self):
        return {tag for tag, _ in self.tags}


@pytest.fixture(scope="module")
def vit():
    return mha.train("synthetic:120", epochs=1, width=16, depth=2, heads=2, batch=20).model


def test_png():
    weights = np.array([[0, 0.25, 0.5], [1, 0, 0]])
    data = _html.png(weights)
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">II", data[16:24]) == (3, 2)
    at, chunks = 8, {}
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size : at + 12 + size])[0] == zlib.crc32(kind + body)
        chunks[kind], at = body, at + 12 + size
    assert zlib.decompress(chunks[b"IDAT"]) == bytes([0, 0, 63, 127, 0, 255, 0, 0]) and len(chunks[b"PLTE"]) == 768
    assert _html.png(np.zeros((1, 2)))[:4] == b"\x89PNG" and _html.png(np.full((1, 2), np.nan))[:4] == b"\x89PNG"
    peak = np.zeros((1000, 700))
    peak[999, 3] = 1
    assert _html.pooled(peak, 144).shape == (144, 144) and _html.pooled(peak, 144).max() == 1


def test_head_map():
    shown = Checker(mha.HeadMap(np.eye(3) * 0.5, ["a", EVIL, " c"], title=EVIL)._repr_html_())
    assert shown.names() == {"div", "style", "table", "thead", "tbody", "tr", "td", "th"}
    cells = [a["style"] for tag, a in shown.tags if tag == "td" and "style" in a]
    assert len(cells) == 9 and cells[0] == "background:rgb(8,48,107)" and cells[1] == "background:rgb(255,255,255)"
    assert [a["title"] for tag, a in shown.tags if "title" in a][4] == f"{EVIL} → {EVIL}: 0.500"
    large = Checker(mha.HeadMap(np.zeros((3, 200)), title=EVIL)._repr_html_())
    assert large.names() == {"div", "img"} and large.tags[1][1]["alt"] == EVIL
    for bad in ({"weights": np.zeros(3)}, {"weights": np.eye(2), "queries": ["a"]}, {"weights": np.eye(2), "keys": ["a"]}):
        with pytest.raises(ValueError, match="^" + list(bad)[-1]):
            mha.HeadMap(**bad)


def test_tables_show_themselves(vit):
    heads = vit.heads("synthetic:60", images=10)
    shown = Checker(heads._repr_html_())
    images = [a for tag, a in shown.tags if tag == "img"]
    assert len(images) == 4 and images[0]["width"] == "40" and images[3]["alt"] == "block 1, head 1"
    assert base64.b64decode(images[0]["src"].split(",")[1])[:4] == b"\x89PNG"
    found = vit.attention(mha.Data("synthetic:60").examples()[0][0])
    assert len([1 for tag, _ in Checker(found._repr_html_()).tags if tag == "img"]) == 4
    assert "50 x 50" in repr(found[1, 1]) and found[1, 1].title == "block 1, head 1" and "4 heads" in repr(found)


def test_page_of_a_model(vit, tmp_path):
    page = vit.view(tmp_path / "page.html", data="synthetic")
    assert (tmp_path / "page.html").read_text() == page.html and "MB" in repr(page)
    assert re.search(r'"kind": *"', page.html) and "model.safetensors" in page.html
    shown = Checker(page._repr_html_())
    (tag, frame), = shown.tags
    assert tag == "iframe" and frame["srcdoc"] == page.html and frame["sandbox"] == "allow-scripts allow-downloads" and "760px" in frame["style"]
    page.save(tmp_path / "copy.html")
    assert (tmp_path / "copy.html").read_bytes() == (tmp_path / "page.html").read_bytes()
    with pytest.raises(ValueError, match="nowhere"):
        vit.view("/nowhere/page.html", data="synthetic")
    with pytest.raises(ValueError, match="no-such.png"):
        vit.view(images=["no-such.png"])


def test_page_of_weights(tmp_path):
    rng = np.random.default_rng(0)
    weights = rng.random((2, 3, 4, 5)).astype(np.float32)
    weights /= weights.sum(-1, keepdims=True)
    page = mha.view(weights, tokens=["a", "b", EVIL, "d"], keys=list("vwxyz"))
    assert EVIL not in page.html and "onerror" in page.html and page.html.startswith("<!doctype html>")
    assert mha.view(weights, first="batch").html != mha.view(weights).html
    with pytest.raises(ValueError, match="^weights: "):
        mha.view(weights[0, 0])
    with pytest.raises(ValueError, match="^first: "):
        mha.view(weights, first="heads")
    with pytest.raises(ValueError, match="sums to"):
        mha.view(weights * 2)
    with pytest.raises(ValueError, match="tokens"):
        mha.view(weights, tokens=["a"])


def test_command(monkeypatch, vit):
    """The package's mha on the PATH is the command."""
    done = subprocess.run([sys.executable, "-c", "import mha._command as c; c.main()", "info"], capture_output=True, text=True)
    assert done.returncode == 0 and mha.__version__ in done.stdout
    monkeypatch.setattr(_command, "PATH", "/nowhere/mha")
    with pytest.raises(RuntimeError, match="^view: .*without the mha command"):
        vit.view(data="synthetic")


def test_browser(vit, tmp_path):
    """A notebook with all of them, in a browser: the page in its frame has drawn itself."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not browser:
        pytest.skip("no chromium")
    pillow = pytest.importorskip("PIL.Image")
    found = vit.attention(mha.Data("synthetic:60").examples()[0][0])
    shown = [vit.view(data="synthetic"), mha.HeadMap(np.eye(4), list("abcd")), found, vit.heads("synthetic:60", images=10)]
    parts = "<hr>".join(one._repr_html_() for one in shown)
    (tmp_path / "notebook.html").write_text(f"<!doctype html><meta charset=utf-8><body style='margin:8px'>{parts}")
    shot = tmp_path / "shot.png"
    for budget in (5000, 30000):
        subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=900,1600",
                        "--disable-features=IsolateSandboxedIframes",  # virtual time does not reach other processes
                        f"--virtual-time-budget={budget}", f"--user-data-dir={tmp_path}/profile", f"--screenshot={shot}",
                        (tmp_path / "notebook.html").as_uri()], capture_output=True, timeout=120, check=True)  # fmt: skip
        pixels = np.asarray(pillow.open(shot).convert("RGB"))
        colours = [len(np.unique(part.reshape(-1, 3), axis=0)) for part in (pixels[20:700, 20:800], pixels[800:])]
        if min(colours) > 30:
            break
    assert min(colours) > 30  # an empty frame has one
