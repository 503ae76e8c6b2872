"""`push` against a stand-in of the hub: the client is the real one, the server is ours."""

import base64
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


class Hub(BaseHTTPRequestHandler):
    """Makes a repository, accepts all files, and records the requests."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        received, url = self.server.received, f"http://127.0.0.1:{self.server.server_port}/org/name"
        if self.headers.get("Authorization") != "Bearer hf_good":
            return self.answer({"error": "Invalid credentials"}, 401)
        if self.path == "/api/repos/create":
            received["repo"] = json.loads(body)
            self.answer({"url": url})
        elif self.path == "/api/validate-yaml":  # of the card
            self.answer({"errors": [], "warnings": []})
        elif "/preupload/" in self.path:
            files = [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False}
                     for f in json.loads(body)["files"]]  # fmt: skip
            self.answer({"files": files})
        elif "/commit/" in self.path:
            received["commit"] = [json.loads(line) for line in body.splitlines()]
            self.answer({"commitOid": "c0ffee", "commitUrl": f"{url}/commit/c0ffee"})
        else:
            self.answer({"error": self.path}, 404)

    def do_GET(self):
        self.answer({"id": "org/name", "sha": "a" * 40, "siblings": []})

    def answer(self, what: dict, status: int = 200) -> None:
        text = json.dumps(what).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args) -> None:
        pass


@pytest.fixture
def hub():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.received = {}
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def push(hub, tmp_path, token: str, *words: str) -> subprocess.CompletedProcess:
    """A process of its own: the client reads its settings when it is imported."""
    env = os.environ | {"HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}", "HF_TOKEN": token}
    env |= {"HF_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "0"}
    command = [sys.executable, "-m", "reports.push", *words]
    return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)


@pytest.fixture
def run(tmp_path) -> Path:
    files = {"config.json": "{}", "README.md": "# card", "update.txt": "3\n", "model.bin": "\1\2"}
    (tmp_path / "run" / "model").mkdir(parents=True)
    (tmp_path / "run" / "metrics.jsonl").write_text("private")
    for name, text in files.items():
        (tmp_path / "run" / "model" / name).write_text(text)
    return tmp_path / "run"


def test_a_model_arrives_with_its_card_and_nothing_else(hub, run, tmp_path):
    done = push(hub, tmp_path, "hf_good", "run", "org/name", "--private")
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert done.stdout.startswith("run/model was pushed to http://") and "c0ffee" in done.stdout
    repo, (head, *files) = hub.received["repo"], hub.received["commit"]
    assert (repo["organization"], repo["name"]) == ("org", "name")
    assert repo.get("private") or repo.get("visibility") == "private"
    assert head["value"]["summary"] == "The model after 3 updates"
    got = {f["value"]["path"]: base64.b64decode(f["value"]["content"]) for f in files}
    assert got == {p.name: p.read_bytes() for p in (run / "model").iterdir()}


def test_a_failed_push_prints_one_line(hub, run, tmp_path):
    for token, words, message in (
        ("hf_bad", ("run", "org/name"), "log in with `hf auth login`, or set HF_TOKEN"),
        ("hf_good", ("home", "org/name"), "home is not the directory of a run with a saved"),
        ("hf_good", ("run", "no name"), "cannot push to no name: "),
    ):
        done = push(hub, tmp_path, token, *words)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
        assert done.stderr.startswith("reports.push: error: ") and message in done.stderr
    assert "commit" not in hub.received
