"""A run's model behind the endpoint: a separate process, batches, user errors."""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from conftest import make_lm, make_tokenizer

from arguments import get_args
from envs.agents.requests import request_of
from envs.agents.session import Call, Session
from memory.render import Renderer
from ppo.engines.lockstep import TransformersEngine
from ppo.model.make import build
from reports import serve

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "envs"))  # agents.py
from agent_programs import post  # noqa: E402

HELLO = {"model": "policy", "messages": [{"role": "user", "content": "hello"}]}


@pytest.fixture
def run(model_dir, tmp_path):
    """The files of a run that serve reads."""
    flags = "--env-name toy --engine transformers --prompt-limit 200 --response-limit 6"
    args = vars(get_args([*flags.split(), "--model", model_dir]))
    args = {name: value for name, value in args.items() if not isinstance(value, Path)}
    (tmp_path / "args.json").write_text(json.dumps({"args": args}))
    shutil.copytree(model_dir, tmp_path / "model")
    return tmp_path


def change(run: Path, **settings) -> None:
    """Change settings in a run's args.json."""
    about = json.loads((run / "args.json").read_text())
    about["args"] |= settings
    (run / "args.json").write_text(json.dumps(about))


def test_a_process_serves_requests(run):
    process = subprocess.Popen(
        [sys.executable, "-m", "reports.serve", str(run), "--port", "0"],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    try:
        key = process.stdout.readline().removeprefix("API key: ").strip()
        line = process.stdout.readline()
        assert line.startswith(f"{run / 'model'} is served at http://127.0.0.1:")
        url = line.split()[-1]
        assert post(url, "any key", HELLO)[0] == 401
        status, text = post(url, key, HELLO | {"max_tokens": 3}, timeout=60)
        answer = json.loads(text)
        # the template of the tests: "user: hello", a line break, and "assistant: "
        assert status == 200 and answer["usage"]["prompt_tokens"] == 12 + 11
        assert answer["usage"]["completion_tokens"] <= 3
        status, text = post(url, key, HELLO | {"stream": True}, timeout=60)
        assert status == 200 and text.endswith("data: [DONE]\n\n")
        status, text = post(url, key, HELLO | {"top_p": 0.5})
        assert status == 400 and "top_p" in text
        long = {"model": "policy", "messages": [{"role": "user", "content": "x" * 300}]}
        status, text = post(url, key, long)
        assert status == 400 and "context_length_exceeded" in text
    finally:
        process.terminate()
        process.communicate()


def test_the_initial_model_is_found_from_any_directory(run, tmp_path, monkeypatch):
    about = json.loads((run / "args.json").read_text())
    model = Path(about["args"]["model"])
    about["args"]["model"], about["cwd"] = model.name, str(model.parent)
    (run / "args.json").write_text(json.dumps(about))
    (tmp_path / "elsewhere" / model.name).mkdir(parents=True)  # another one of this name
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert serve.args_of(run, True, None, False).model == str(model)
    assert serve.args_of(run, False, None, False).model == str(run / "model")


@pytest.mark.parametrize("about", [[], {"args": []}, {"args": {"model": 3}}, {"cwd": 3}])
def test_damaged_arguments_are_reported(about, run):
    args = json.loads((run / "args.json").read_text())
    (run / "args.json").write_text(json.dumps(args | about if "cwd" in about else about))
    with pytest.raises(ValueError, match="its args.json cannot be read"):
        serve.args_of(run, True, None, False)


def test_waiting_requests_are_answered_as_a_batch():
    tokenizer, sizes = make_tokenizer(), []

    class Engine(TransformersEngine):
        def step(self):
            sizes.append(len(self.queue))
            done = super().step()
            if sum(sizes) == 6:
                raise KeyboardInterrupt
            return done

    engine = Engine(tokenizer, {0}, 5, 1.0, max_num_seqs=4)
    engine.push_weights(build(make_lm(), 0))
    session = Session()
    calls = [session.call(json.dumps(HELLO | {"user": str(k)}).encode(), 0) for k in range(6)]
    with pytest.raises(KeyboardInterrupt):
        serve.answer_all(engine, Renderer(tokenizer, 100), session, seed=0)
    assert sizes == [4, 2]  # four slots
    texts = [call.answer["choices"][0]["message"]["content"] for call in calls[:4]]
    assert len(set(texts)) > 1  # each call has its own noise


def test_a_call_that_cannot_be_rendered_does_not_stop_others():
    tokenizer, session = make_tokenizer(), Session()
    engine = TransformersEngine(tokenizer, {0}, 5, 1.0, max_num_seqs=4)
    engine.push_weights(build(make_lm(), 0))
    odd = Call("", request_of(HELLO | {"chat_template_kwargs": {"tokenize": True}}))
    session.events.put(odd)
    job = (engine, Renderer(tokenizer, 100), session, 0)
    threading.Thread(target=serve.answer_all, args=job, daemon=True).start()
    good = session.call(json.dumps(HELLO).encode(), 0)
    assert good.done.wait(20) and odd.done.is_set()
    assert "choices" in good.answer and odd.answer.status == 400


def refused(capsys, *words: str) -> str:
    assert serve.main(list(map(str, words))) == 2
    out, err = capsys.readouterr()
    assert err.startswith("reports.serve: error: ") and err.count("\n") == 1 and not out
    return err


def test_a_mistake_prints_one_line(run, tmp_path, capsys, monkeypatch):
    missing = tmp_path / "nothing"
    assert f"{missing} is not a run directory" in refused(capsys, missing)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = refused(capsys, run, "--port", port)
        assert f"--port {port} cannot be opened: " in message and "in use" in message
    shutil.rmtree(run / "model")
    assert "has not saved a model yet; --initial" in refused(capsys, run)


def test_any_key_is_taken_only_if_the_user_says_so(capsys):
    session = Session()
    for any_key, status in ((False, 401), (True, 400)):  # 400: there are no messages
        endpoint = serve.open_endpoint(0, session, any_key)
        assert post(endpoint.base_url, "mine", {"model": "policy"})[0] == status
        assert post(endpoint.base_url, session.secret, {"model": "policy"})[0] == 400
        endpoint.server.shutdown()
        endpoint.server.server_close()


def test_the_upstream_of_a_run_is_never_used(run, capsys, monkeypatch):
    """It would get the key in UPSTREAM_API_KEY, whoever wrote args.json."""
    change(run, upstream="http://me:s3cret@evil.example/v1")
    monkeypatch.setattr(serve, "make_policy", lambda args: (None, None))
    sessions = []
    monkeypatch.setattr(serve, "answer_all", lambda _, __, session, ___: sessions.append(session))
    assert serve.main([str(run), "--port", "0"]) == 0
    line = "the run's upstream http://***@evil.example/v1 is not used; --upstream names one\n"
    assert line in capsys.readouterr().out
    assert serve.main([str(run), "--port", "0", "--upstream", "http://mine.example/v1"]) == 0
    assert "evil" not in capsys.readouterr().out
    assert [session.upstream for session in sessions] == ["", "http://mine.example/v1"]
    line = "would let every user of this machine spend --upstream's key"
    assert line in refused(capsys, run, "--any-key", "--upstream", "http://mine.example/v1")
    assert "begins with http:// or https://" in refused(capsys, run, "--upstream", "mine.example")


def test_code_and_links_of_a_run_need_trust(run, tmp_path, capsys, monkeypatch):
    change(run, engine="evil_engine:Engine")
    line = f"{run / 'args.json'} names what this would import: --engine evil_engine:Engine; --trust"
    assert line in refused(capsys, run)
    assert serve.args_of(run, False, None, True).engine == "evil_engine:Engine"
    assert serve.args_of(run, False, "transformers", False).engine == "transformers"  # typed
    change(run, engine="transformers")
    shutil.move(run / "model" / "config.json", tmp_path / "elsewhere.json")
    (run / "model" / "config.json").symlink_to(tmp_path / "elsewhere.json")
    line = f"{run / 'model' / 'config.json'} is a link to {tmp_path / 'elsewhere.json'}; --trust"
    assert line in refused(capsys, run)
    assert serve.args_of(run, False, None, True).model == str(run / "model")
