"""An engine may answer what it likes: it is asked again, and the gateway stays what it is."""

from systems.gateway import polls
from tests.unit.systems.gateway.engines import Engine, on_loop, until, world


@on_loop
async def test_what_nobody_foresaw_is_said_once_and_the_engine_asked_again(monkeypatch, caplog):
    async with world(Engine()) as w:
        (worker,) = w.gateway.workers
        await until(lambda: worker.load_at >= 0.0)
        asked = []

        def broken(page):
            asked.append(page)
            raise OverflowError("cannot convert float infinity to integer")

        monkeypatch.setattr(polls, "load_of", broken)
        await until(lambda: len(asked) >= 3)
        assert [record.message for record in caplog.records] == [f"asking engine 0 ({worker.url})"]
        monkeypatch.undo()
        before = worker.load_at
        await until(lambda: worker.load_at > before)
        assert worker.alive


@on_loop
async def test_a_page_that_does_not_end_is_none(monkeypatch):
    monkeypatch.setattr(polls, "MOST_PAGE", 100)
    engine = Engine()
    engine.metrics = "vllm:num_requests_running 1\n" + "#" * 100
    async with world(engine) as w:
        (worker,) = w.gateway.workers
        await until(lambda: w.gateway.now() > 0.3)
        assert (worker.alive, worker.load_at) == (True, -1.0)
