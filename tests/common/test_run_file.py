"""Files of a run directory: no link is followed, no pipe blocks, and pages are never half."""

import os
from pathlib import Path

import pytest

from common.run_file import links_in, open_file, read_text, rewritten


@pytest.fixture
def secret(tmp_path):
    (tmp_path / "secret").write_text("mine")
    (tmp_path / "link").symlink_to("secret")
    return tmp_path / "secret"


@pytest.mark.parametrize("mode", ["r", "a", "w"])
def test_links_are_not_followed(mode, secret, tmp_path):
    with pytest.raises(OSError, match="it is a link, which is not followed"):
        open_file(tmp_path / "link", mode)
    assert secret.read_text() == "mine"
    assert read_text(secret) == "mine"


def test_a_pipe_does_not_block(tmp_path):
    os.mkfifo(tmp_path / "log")
    assert read_text(tmp_path / "log") == ""


def test_a_link_is_replaced_and_not_written_to(secret, tmp_path):
    (tmp_path / "link.tmp").symlink_to("secret")  # where the page is written aside
    with rewritten(tmp_path / "link") as file:
        file.write("page")
    assert secret.read_text() == "mine" and (tmp_path / "link").read_text() == "page"
    assert sorted(os.listdir(tmp_path)) == ["link", "secret"]


def test_an_interrupted_write_leaves_the_page_before_it(tmp_path):
    page = tmp_path / "page"
    page.write_text("before")
    with pytest.raises(KeyboardInterrupt), rewritten(page) as file:
        file.write("half a pa")
        file.flush()
        raise KeyboardInterrupt
    assert page.read_text() == "before" and os.listdir(tmp_path) == ["page"]


def test_a_device_is_written_to():
    with rewritten(Path("/dev/null")) as file:
        file.write("x")
    assert not os.path.isfile("/dev/null")


def test_all_links_of_a_folder_are_found(tmp_path):
    (tmp_path / "model" / "adapter").mkdir(parents=True)
    (tmp_path / "model" / "adapter" / "deep").symlink_to("/etc/passwd")
    (tmp_path / "model" / "top").symlink_to("/")
    found = [tmp_path / "model" / "adapter" / "deep", tmp_path / "model" / "top"]
    assert links_in(tmp_path / "model") == found
    (tmp_path / "other").symlink_to("model")
    assert tmp_path / "other" in links_in(tmp_path / "other")
