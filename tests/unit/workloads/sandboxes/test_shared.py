import asyncio

import pytest

from workloads.sandboxes.contract import Executed, SandboxError
from workloads.sandboxes.shared import SharedSandboxes


class Fake:
    """Counts what is done to it; fails to be made, or torn down, as often as it is told."""

    made = 0

    def __init__(self, name="fake", unmade=0, stuck=0):
        Fake.made += 1
        self.name, self.ports = f"{name}{Fake.made}", (7,)
        self.unmade, self.stuck, self.alive, self.torn = unmade, stuck, False, 0
        self.ran, self.written, self.full = [], {}, False

    async def init(self):
        await asyncio.sleep(0)
        if self.unmade:
            raise SandboxError("cannot be made")
        self.alive = True

    async def exec(self, command, *, timeout_s=60.0, stdin="", cwd=""):
        assert self.alive
        self.ran.append(command)
        return Executed(0, f"{command} {stdin} {cwd}", timeout_s)

    async def write(self, path, text):
        if self.full:
            raise SandboxError("No space left")
        self.written[path] = text

    async def read(self, path):
        return path

    async def disk(self):
        return 5

    async def teardown(self):
        await asyncio.sleep(0)
        self.torn += 1
        if self.stuck >= self.torn:
            raise SandboxError("something stays")
        self.alive = False


@pytest.fixture(autouse=True)
def _none_made():
    Fake.made = 0


class Pool(SharedSandboxes):
    def share(self, key, user, make, files=None):
        return super().share(key, user, make, files or {}, self.events.append)


def run(work):
    pool = Pool()
    events = pool.events = []
    asyncio.run(work(pool))
    return [(event.what, event.sandbox, event.detail) for event in events]


def test_made_for_the_first_and_torn_down_with_the_last():
    async def work(pool):
        box = Fake()
        shares = [pool.share("k", f"p{i}", lambda: box) for i in range(3)]
        await asyncio.gather(*(share.init() for share in shares))
        assert (await shares[2].exec("a", stdin="b", cwd="c", timeout_s=2)).output == "a b p2/c"
        assert (await shares[2].exec("a")).output == "a  p2"
        await shares[0].write("d/../f", "t")
        assert (await shares[1].read("f"), await shares[1].disk()) == ("p1/f", 5)
        assert (box.written, box.ran[:3]) == ({"p0/f": "t"}, ["mkdir p0", "mkdir p1", "mkdir p2"])
        assert [share.ports for share in shares] == [(7,)] * 3
        for share in shares[:2]:
            await share.teardown()
            await share.teardown()
            with pytest.raises(SandboxError, match="has no share"):
                await share.exec("a")
        assert (box.alive, box.torn) == (True, 0)
        await shares[2].teardown()
        assert (box.alive, box.torn, shares[2].ports) == (False, 1, ())

    said = run(work)
    assert said == [
        *(("share", "fake1", str(n)) for n in (1, 2, 3)), *(("unshare", "fake1", str(n)) for n in (2, 1, 0))
    ]  # fmt: skip


def test_each_key_has_its_own_and_after_the_last_a_new_one_is_made():
    async def work(pool):
        a, b = pool.share("a", "p", Fake), pool.share("b", "p", Fake)
        await a.init()
        await b.init()
        assert a.name != b.name
        leaving = asyncio.create_task(a.teardown())
        await asyncio.sleep(0)
        late = pool.share("a", "q", Fake)
        await late.init()
        await leaving
        assert late.name == "fake3"
        assert (await late.exec("a")).code == 0
        await late.teardown()
        await b.teardown()

    run(work)


def test_one_that_cannot_be_made_is_everybodys_error_and_tried_again():
    async def work(pool):
        bad = [pool.share("k", f"p{i}", lambda: Fake(unmade=1)) for i in range(2)]
        found = await asyncio.gather(*(share.init() for share in bad), return_exceptions=True)
        assert [str(error) for error in found] == ["cannot be made"] * 2
        await bad[0].teardown()
        good = pool.share("k", "p0", Fake)
        await good.init()
        with pytest.raises(SandboxError, match="has its share already"):
            await good.init()
        await good.teardown()

    assert [what for what, _, _ in run(work)] == ["share", "unshare"]


def test_a_teardown_that_failed_can_be_called_again():
    async def work(pool):
        box = Fake(stuck=1)
        share = pool.share("k", "p", lambda: box)
        await share.init()
        with pytest.raises(SandboxError, match="something stays"):
            await share.teardown()
        await share.teardown()
        assert (box.torn, box.alive) == (2, False)

    assert [what for what, _, _ in run(work)] == ["share", "unshare"]


def test_each_has_its_own_workspace_with_its_own_files():
    async def work(pool):
        box = Fake()
        a, b = (pool.share("k", name, lambda: box, {"x/f": name}) for name in ("a", "b"))
        await asyncio.gather(a.init(), b.init())
        assert box.written == {"a/x/f": "a", "b/x/f": "b"}
        for path in ("../b/x/f", "/etc/passwd", "x/../../b", ".."):
            for doing in (a.read(path), a.write(path, ""), a.exec("true", cwd=path)):
                with pytest.raises(SandboxError, match="is outside the workspace"):
                    await doing
        box.full = True
        with pytest.raises(SandboxError, match="No space left"):
            await pool.share("k", "c", Fake, {"f": ""}).init()
        await asyncio.gather(a.teardown(), b.teardown())
        assert (box.torn, Fake.made) == (1, 1)

    assert [what for what, _, _ in run(work)] == ["share"] * 3 + ["unshare"] * 3
