"""Pictures of the gallery: `python -m tools.gallery docs/gallery.md docs/gallery` plays each society as its section
says, and photographs its page in the viewer. Needs Chromium.

Does not know: what a society does.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

import agentcho

SECTION = re.compile(
    r"^## (?P<title>.+)\n(?:(?!^## ).*\n)*?```sh\n(?P<command>agentcho run examples/(?P<name>\w+)\.py.*)\n```", re.M
)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTH, HEIGHT, COLOURS = 1280, 800, 64
SEED, WAIT = ("--seed", "1"), ("--virtual-time-budget=4000",)


def societies(page: str) -> dict[str, tuple[str, list[str]]]:
    """The title of each example's section and the arguments of its command after `agentcho`, by the name of the
    example."""
    return {each["name"]: (each["title"], shlex.split(each["command"])[1:]) for each in SECTION.finditer(page)}


def picture(words: list[str], browser: str, file: Path) -> None:
    """Play, make the page, and take a screenshot at a message in the middle that all could read. `CalledProcessError`:
    a program failed."""
    with tempfile.TemporaryDirectory() as folder:
        runs, page = Path(folder, "runs"), Path(folder, "view.html")
        for each in (
            [*words, *SEED, "--runs-dir", str(runs)],
            ["view", "last", "--runs-dir", str(runs), "--html", str(page)],
        ):
            subprocess.run([sys.executable, "-m", "agentcho", *each], check=True, stdout=subprocess.DEVNULL)
        said = [each for each in agentcho.load(out=runs).messages() if each.kind == "decode"]
        heard = [each.id for each in said if each.audience.members is None] or [each.id for each in said]
        look = ("--headless=new", "--no-sandbox", "--hide-scrollbars", f"--window-size={WIDTH},{HEIGHT}", *WAIT)
        shot = [browser, *look, f"--screenshot={file.resolve()}", f"{page.as_uri()}#message={heard[len(heard) // 2]}"]
        subprocess.run(shot, check=True, capture_output=True)
    Image.open(file).convert("RGB").quantize(COLOURS).save(file, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        sys.exit(f"there is no browser to photograph with: install one of {', '.join(BROWSERS)}")
    given.folder.mkdir(parents=True, exist_ok=True)
    for name, (title, words) in societies(given.page.read_text()).items():
        print(f"{title}: agentcho {shlex.join(words)}", flush=True)
        picture(words, browser, given.folder / f"{name}.png")


if __name__ == "__main__":
    main()
