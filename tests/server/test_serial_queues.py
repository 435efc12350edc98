"""Every serial queue there is, shared between keys: a 503 always concerns the key's own requests."""

from __future__ import annotations

import ast
import base64
import contextlib
import gc
import io
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_backend import FakeBackend
from flask.testing import FlaskClient
from model_app import close_model_app, make_model_app
from odd_pictures import drawn, saved
from pdf_files import pdf_file
from PIL import Image
from running_server import wait_until
from vision_model import write_vision_model

import oxibonsai
import tiny_model
from oxibonsai.errors import CapacityError
from oxibonsai.sampling import SamplingParams
from oxibonsai.serial_queue import SerialQueue, Shares, exceeds_share
from oxibonsai.server.access import acting_for, current_owner, owner_of
from oxibonsai.server.errors import ApiError
from oxibonsai.server.http.client import ClientGoneError
from oxibonsai.server.lifecycle import Lifecycle
from oxibonsai.server.openai.background_tasks import BackgroundTasks
from oxibonsai.server.registry.registry import ModelRegistry
from oxibonsai.server.server import Server
from oxibonsai.server.setting_sources import load_settings

PACKAGE = Path(oxibonsai.__file__).parent
KEYS = ("a", "b")
THREADS = 8  # of HTTP; a quarter of them may wait in a queue

_count = itertools.count()


def calls_in_code(name: str) -> Iterator[tuple[str, ast.Call]]:
    """Every call of a function or class in the package, and the file that it stands in."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == name:
                yield path.relative_to(PACKAGE).as_posix(), node


def queues_in_code() -> list[str]:
    """The names of all serial queues, as their constructors are given them."""
    return sorted({ast.literal_eval(call.args[0]) for _, call in calls_in_code("SerialQueue")})


def files_with_shares() -> list[str]:
    """The files that share something out between owners by the common rule."""
    return sorted({path for path, _ in calls_in_code("exceeds_share")})


# One key, several keys: the queue itself


def queue_of(most_waiting: int) -> SerialQueue:
    return SerialQueue("things", most_waiting, current_owner)


@contextlib.contextmanager
def filled(queue: SerialQueue, owners: str, order: list[str]) -> Iterator[None]:
    """Holds the turn for the first of some owners; the others wait, and note when they have theirs."""

    def wait(owner: str) -> None:
        with acting_for(owner), queue.turn():
            order.append(owner)

    threads = []
    with acting_for(owners[0]), queue.turn():
        for i, owner in enumerate(owners[1:], 1):
            threads.append(threading.Thread(target=wait, args=[owner]))
            threads[-1].start()
            wait_until(lambda i=i: queue.waiting == i)  # type: ignore[misc]
        yield
    for thread in threads:
        thread.join(60)


def test_owners_take_turns_each_in_the_order_of_arrival() -> None:
    order: list[str] = []
    with filled(queue_of(8), "aaaabbc", order):
        pass
    assert order == ["b", "c", "a", "b", "a", "a"]


def test_an_owner_has_its_share_of_a_queue_that_others_have_filled() -> None:
    queue = queue_of(2)
    for waiting, refused in (("aaa", "a"), ("aaab", "b")):
        with (
            filled(queue, waiting, []),
            acting_for(refused),
            pytest.raises(CapacityError, match=r"^[23] things wait: try again later"),
        ):
            queue.enter()


def test_who_waited_in_vain_leaves_nothing_behind() -> None:
    queue, order = queue_of(2), list[str]()

    def give_up() -> None:
        raise KeyboardInterrupt

    with filled(queue, "aa", order), acting_for("b"):
        with pytest.raises(KeyboardInterrupt):
            queue.enter(give_up)
        assert queue.waiting == 1
    assert order == ["a"]
    with queue.turn():
        assert queue.waiting == 0


def test_long_work_gives_way_to_others_and_goes_on_before_its_owners_next() -> None:
    queue, order = queue_of(8), list[str]()
    with filled(queue, "aab", order):
        queue.give_way()
        assert order == ["b"]
        order.append("a, on")
        queue.give_way()  # to nobody
    assert order == ["b", "a, on", "a"]


def test_work_that_is_given_up_while_others_go_first_leaves_the_queue() -> None:
    queue, order = queue_of(8), list[str]()

    def give_up() -> None:
        raise KeyboardInterrupt

    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with acting_for("b"), queue.turn():
            entered.set()
            assert leave.wait(60)

    of_b = threading.Thread(target=hold)
    with filled(queue, "aa", order):
        of_b.start()
        wait_until(lambda: queue.waiting == 2)
        with pytest.raises(KeyboardInterrupt):
            queue.give_way(lambda: entered.wait(60) and give_up())
        assert queue.waiting == 1
        leave.set()
    of_b.join(60)
    assert order == ["a"]


@pytest.mark.parametrize(
    ("held", "most", "exceeds"),
    [
        ({"a": 4}, 4, False),
        ({"a": 5}, 4, True),
        ({"a": 4, "b": 1}, 4, False),
        ({"a": 4, "b": 2}, 4, False),
        ({"a": 4, "b": 3}, 4, True),
        ({"a": 1, "b": 1, "c": 1}, 1, False),
        ({"b": 1}, 0, True),
    ],
)
def test_a_share_is_an_equal_part_and_at_least_one(
    held: dict[str, int], most: int, exceeds: bool
) -> None:
    assert exceeds_share(held, max(held), most) is exceeds


# The server's queues, by the requests that go through them

PICTURE = saved(Image.fromarray(drawn(64, 80)))
DRAWING = {"prompt": "a tree", "size": "64x64", "steps": 1}


def chat(*content: Any, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": [*content]}]
    return {"json": {"messages": messages, "max_tokens": 1, **fields}}


def read_image() -> dict[str, Any]:
    url = f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}"
    return chat({"type": "image_url", "image_url": {"url": url}})


def edit() -> dict[str, Any]:
    form = {"prompt": "a tree", "steps": "1", "image": (io.BytesIO(PICTURE), "a.png")}
    return {"data": form, "content_type": "multipart/form-data"}


def new_schema() -> dict[str, Any]:
    schema = {"name": "x", "schema": {"const": f"text {next(_count)}"}}
    return chat(
        {"type": "text", "text": "?"},
        response_format={"type": "json_schema", "json_schema": schema},
    )


def read_document() -> dict[str, Any]:
    data = base64.b64encode(pdf_file([f"page {next(_count)}"])).decode()
    return chat({"type": "file", "file": {"file_data": data}})


# For each queue, requests that go through it, as the test client's arguments. A new queue needs one here.
REQUESTS: dict[str, list[tuple[str, Callable[[], dict[str, Any]]]]] = {
    "documents to read": [("/v1/chat/completions", read_document)],
    "long texts": [("/detokenize", lambda: {"json": {"tokens": [1] * 10_000}})],
    "large requests": [("/tokenize", lambda: {"json": {"content": "hello, world " * 100_000}})],
    "new structures": [("/v1/chat/completions", new_schema)],
    "pictures to draw": [
        ("/v1/images/generations", lambda: {"json": DRAWING}),
        ("/v1/images/generations", lambda: {"json": {**DRAWING, "stream": True}}),
    ],
    "pictures to edit": [("/v1/images/edits", edit)],
    "pictures to read": [("/v1/chat/completions", read_image)],
}


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Server, dict[str, SerialQueue]]]:
    """A server with all that has serial queues, and these by their names."""
    folder = tmp_path_factory.mktemp("queues")
    made: weakref.WeakSet[SerialQueue] = weakref.WeakSet()
    initialize = SerialQueue.__init__

    def remembered(self: SerialQueue, *arguments: Any) -> None:
        initialize(self, *arguments)
        made.add(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SerialQueue, "__init__", remembered)
        app = make_model_app(
            write_vision_model(folder), folder / "state", api_key=KEYS, http_threads=THREADS,
            parallel=1, queue_size=2, image_model="seedling-picture", image_queue=2,
        )  # fmt: skip
    gc.collect()  # those of the library, which the server has replaced
    queues = {queue.name: queue for queue in made}
    assert len(queues) == len(made)
    yield app, queues
    close_model_app(app)


def client_of(app: Server, key: str) -> FlaskClient:
    client = app.test_client()
    client.environ_base["HTTP_X_API_KEY"] = key
    return client


def test_every_queue_of_the_code_is_one_of_the_server(
    served: tuple[Server, dict[str, SerialQueue]],
) -> None:
    assert sorted(served[1]) == queues_in_code()
    assert sorted(REQUESTS) == queues_in_code(), "a new queue needs a request that goes through it"


@pytest.mark.parametrize(
    ("name", "number"),
    [(name, i) for name in queues_in_code() for i in range(len(REQUESTS.get(name, [()])))],
)
def test_a_503_concerns_the_keys_own_requests_and_keys_take_turns(
    served: tuple[Server, dict[str, SerialQueue]],
    name: str,
    number: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app, queues = served
    queue = queues[name]
    path, body = REQUESTS[name][number]
    a, b = map(owner_of, KEYS)
    order: list[str | None] = []
    enter = SerialQueue.enter

    def observed(self: SerialQueue, look: Callable[[], None] | None = None) -> Callable[[], None]:
        leave = enter(self, look)
        if self is queue:
            order.append(current_owner())
        return leave

    monkeypatch.setattr(SerialQueue, "enter", observed)
    answers: list[tuple[int, bytes]] = []

    def ask() -> None:
        answer = client_of(app, "b").post(path, **body())
        answers.append((answer.status_code, answer.data))

    of_b = threading.Thread(target=ask)

    def wait() -> None:
        with acting_for(a), queue.turn():
            pass

    waiting = [threading.Thread(target=wait) for _ in range(queue.most_waiting)]
    with acting_for(a), queue.turn():
        for thread in waiting:
            thread.start()
        wait_until(lambda: queue.waiting == len(waiting))
        refused = client_of(app, "a").post(path, **body())
        assert b"wait: try again later" in refused.data, refused.data
        assert refused.status_code == (200 if refused.mimetype == "text/event-stream" else 503)
        of_b.start()
        wait_until(lambda: queue.waiting == len(waiting) + 1, lambda: answers)
    for thread in [*waiting, of_b]:
        thread.join(60)
    assert answers[0][0] == 200, answers
    assert b"error" not in answers[0][1][:100]
    assert order == [a, b, *[a] * len(waiting)]


# What is no queue but shared out all the same: places, watchers, threads

Take = Callable[[str], Callable[[], None]]  # as an owner; returns what gives it back
Shared = Callable[[Server, Path], contextlib.AbstractContextManager[Take]]


@contextlib.contextmanager
def places_in_the_queue(app: Server, folder: Path) -> Iterator[Take]:
    endless = SamplingParams(max_tokens=None, ignore_eos=True)

    def take(owner: str) -> Callable[[], None]:
        with acting_for(owner):
            return app.submitter.text([1, 2, 3], endless).close

    yield take


@contextlib.contextmanager
def background_tasks(app: Server, folder: Path) -> Iterator[Take]:
    tasks = BackgroundTasks(Lifecycle(), running=1, waiting=2)

    def take(owner: str) -> Callable[[], None]:
        key = (owner, str(next(_count)))
        task = tasks.reserve(key)
        return lambda: tasks.drop(key, task)

    yield take


@contextlib.contextmanager
def watchers(app: Server, folder: Path) -> Iterator[Take]:
    keys = {owner_of(key): key for key in KEYS}

    def take(owner: str) -> Callable[[], None]:
        stream = client_of(app, keys[owner]).get("/models/sse")
        if stream.status_code == 503:
            raise CapacityError(stream.text)
        assert stream.status_code == 200
        return stream.close

    yield take


@contextlib.contextmanager
def places_before_a_model(app: Server, folder: Path) -> Iterator[Take]:
    """Waits for a model that is loaded when everybody has left."""
    tiny_model.write(folder / "one.gguf", seed=1)
    go = threading.Event()

    class Late(FakeBackend):
        def load(self) -> None:
            assert go.wait(60)

    values = {"models_dir": folder, "state_dir": folder / "state", "http_threads": THREADS}
    models = ModelRegistry(load_settings(values), Lifecycle(), lambda *_: Late())

    def take(owner: str) -> Callable[[], None]:
        gone, refused = threading.Event(), list[ApiError]()
        entry = models.find("one")
        before = entry.waiting[owner]

        def look() -> None:
            if gone.is_set():
                raise ClientGoneError

        def wait() -> None:
            try:
                models.lease("one", owner=owner, watch=look)
            except ClientGoneError:
                pass
            except ApiError as e:
                refused.append(e)

        thread = threading.Thread(target=wait)
        thread.start()
        wait_until(lambda: refused or entry.waiting[owner] > before)
        if refused:
            thread.join()
            raise refused[0]

        def give_back() -> None:
            gone.set()
            thread.join()

        return give_back

    yield take
    go.set()
    models.close()


@contextlib.contextmanager
def counted_shares(app: Server, folder: Path) -> Iterator[Take]:
    """As the worker counts the threads that read large bodies; test_raw_http.py has the bodies."""
    shares = Shares(THREADS // 2)

    def take(owner: str) -> Callable[[], None]:
        if not shares.take(owner):
            raise CapacityError
        return lambda: shares.give_back(owner)

    yield take
    assert shares.take("anybody")


# For each file that shares something out, what is shared. A new one needs an entry here.
SHARES: dict[str, Shared] = {
    "engine/pool.py": places_in_the_queue,
    "serial_queue.py": counted_shares,
    "server/openai/background_tasks.py": background_tasks,
    "server/registry/entry.py": watchers,
    "server/registry/registry.py": places_before_a_model,
}


def test_everything_that_is_shared_out_is_tested() -> None:
    assert sorted(SHARES) == files_with_shares()


@pytest.mark.parametrize("file", files_with_shares())
def test_what_one_key_has_taken_keeps_no_other_out(
    served: tuple[Server, dict[str, SerialQueue]], file: str, tmp_path: Path
) -> None:
    a, b = map(owner_of, KEYS)
    with SHARES[file](served[0], tmp_path) as take, contextlib.ExitStack() as taken:

        def take_all(owner: str) -> int:
            for count in range(THREADS + 1):
                try:
                    taken.callback(take(owner))
                except (CapacityError, ApiError):
                    return count
            raise AssertionError("there is no limit")

        of_a = take_all(a)
        assert of_a > 1
        assert 0 < take_all(b) < of_a
        with pytest.raises((CapacityError, ApiError)):
            take(a)
