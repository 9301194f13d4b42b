"""The page as a PDF, printed by a browser that is installed."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from forecast.errors import InputError
from forecast.files import replacing

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
_SECONDS = 120


def find_browser() -> str:
    """Return the path of a browser that prints without a screen.

    Raises
    ------
    InputError
        If none is installed.
    """
    for name in BROWSERS:
        if (found := shutil.which(name)) is not None:
            return found
    raise InputError(
        "a PDF needs Chromium or Chrome, which is not installed",
        expected="one of " + ", ".join(BROWSERS),
        fix="install it (apt-get install chromium), or print the page from any browser",
    )


def print_pdf(page: Path, pdf: Path) -> None:
    """Print an HTML page.

    Parameters
    ----------
    page, pdf : path
        The paper's size is the one the page declares.

    Raises
    ------
    InputError
        If no browser is installed, or it fails.
    """
    browser = find_browser()
    with replacing(pdf) as temporary, tempfile.TemporaryDirectory() as profile:
        target = Path(profile) / "page.pdf"
        command = [
            browser,
            *("--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer"),
            f"--user-data-dir={profile}",
            f"--print-to-pdf={target}",
            page.resolve().as_uri(),
        ]
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        except subprocess.TimeoutExpired as error:
            raise InputError(
                "the browser did not finish printing", where=browser, found=f"{_SECONDS} s"
            ) from error
        if not target.is_file():
            last = (result.stderr.strip().splitlines() or ["no message"])[-1]
            raise InputError("the browser did not print the page", where=browser, found=last)
        shutil.copyfile(target, temporary)
